"""Inputs found by a command, and its messages about skipped files."""

import errno
import os
from pathlib import Path

import pytest

from dnlnet.data.inputs import find_images, find_inputs
from dnlnet.video.data.opening import is_video
from trees import write_image


def test_folders_are_searched_and_names_kept(tmp_path: Path) -> None:
    for name in ("one/b.png", "one/deep/a.jpg", "one/.hidden.png", "one/.hidden/d.png", "c.png"):
        write_image(tmp_path / name)
    (tmp_path / "one" / "notes.txt").write_text("")
    found = find_images([tmp_path / "one", tmp_path / "c.png"])
    assert list(found.paths) == [Path("b"), Path("deep/a"), Path("c")]
    assert not found.problems
    assert not found.left_out


def test_two_images_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg"):
        write_image(tmp_path / name)
    with pytest.raises(ValueError, match="would be written to the same name"):
        find_images([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no images in it"):
        find_images([tmp_path / "empty"])


def test_an_image_given_twice_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    assert list(find_images([Path("a.png"), tmp_path, Path()]).paths) == [Path("a")]


def test_results_of_this_and_earlier_jobs_are_skipped(tmp_path: Path) -> None:
    for name in ("a.png", "before/labels/a.png", "before/overlay/a.png", "before/b.png", "labels/c.png", "now/d.png"):
        write_image(tmp_path / name)
    (tmp_path / "before" / "predict.json").write_text("{}")
    found = find_images([tmp_path], out=tmp_path / "now")
    assert list(found.paths) == [Path("a"), Path("before/b"), Path("labels/c")]
    assert found.left_out == [
        f"{tmp_path}/before: the predictions in it (labels, overlay)",
        f"{tmp_path}/now: the folder for the results",
    ]


@pytest.mark.parametrize(("wanted", "expected"), [(None, ["a"]), (is_video, ["frames"])])
def test_attention_figures_are_skipped(tmp_path: Path, wanted: object, expected: list[str]) -> None:
    write_image(tmp_path / "figures" / "a.png")
    for ending in ("pdf", "npz", "json"):
        (tmp_path / "figures" / f"a.{ending}").write_text("")
    write_image(tmp_path / "photos" / ("a.png" if wanted is None else "frames/1.png"))
    found = find_images([tmp_path]) if wanted is None else find_inputs([tmp_path], is_video, "videos")
    assert [path.name for path in found.paths] == expected
    assert found.left_out == [f"{tmp_path}/figures: 1 figures of attention in it"]


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "a.png")
    write_image(tmp_path / "secret" / "b.png")
    scandir = os.scandir

    def refuse(folder: Path) -> object:  # permissions do not stop the superuser, who may run these tests
        if Path(folder).name == "secret":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find_images([tmp_path])
    assert list(found.paths) == [Path("a")]
    assert list(map(str, found.problems)) == [f"{tmp_path}/secret: cannot be searched: Permission denied"]
    with pytest.raises(FileNotFoundError, match=r"no images in it .*; .*secret: cannot be searched"):
        find_images([tmp_path / "secret"])


@pytest.mark.parametrize("wanted", ["pictures", "videos"])
def test_pipes_and_dead_links_are_named_and_never_opened(tmp_path: Path, wanted: str) -> None:
    suffix = ".png" if wanted == "pictures" else ".mp4"
    (tmp_path / f"good{suffix}").write_bytes(b"1")
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"link{suffix}").symlink_to("nowhere")
    (tmp_path / f"round{suffix}").symlink_to(f"round{suffix}")
    found = find_images([tmp_path]) if wanted == "pictures" else find_inputs([tmp_path], is_video, "videos")
    assert list(found.paths) == [Path("good")]
    reasons = [problem.text for problem in found.problems]
    assert reasons[0::2] == [
        "is a link to nowhere, which does not exist",
        "cannot be read: Too many levels of symbolic links",
    ]
    assert reasons[1] == "is a pipe; expected a file"


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = find_images([tmp_path])
    assert list(found.paths) == [Path("a")]
    assert found.left_out == [f"{tmp_path}/loop: a link to a folder; name it to have it searched"]
    assert list(find_images([tmp_path / "loop"]).paths) == [Path("a")]
