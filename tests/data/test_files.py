import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dnlnet.data.decoders import index_labels
from dnlnet.data.files import file_fault, text_lines
from dnlnet.data.images import read_image_file
from dnlnet.data.labelled import LabelledImages, Pair
from dnlnet.data.scenes import CLASSES
from dnlnet.detection.data.coco import open_coco_file
from dnlnet.segmentation.data.camvid import camvid
from dnlnet.segmentation.data.folder import read_classes
from dnlnet.video.data.kinetics import kinetics
from dnlnet.video.data.opening import open_video
from trees import camvid_tree


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


# Objects at the path of a file, and their errors.
PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, "no such file"),
    "folder": (lambda path: path.mkdir(), "is a folder; expected a file"),
    "pipe": (os.mkfifo, "is a pipe; expected a file"),
    "socket": (listen, "is a socket; expected a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device; expected a file"),
    "dangling": (lambda path: path.symlink_to("gone.png"), "is a link to gone.png, which does not exist"),
    "loop": (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels of symbolic links"),
}


def labels(path: Path) -> object:
    images = LabelledImages("mine", CLASSES, [Pair(path, path)], index_labels({0: 0}, "0"))
    return images.open_labels(0)


# Path of a file in a folder, and its reader.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "picture": ("a.png", read_image_file),
    "labels": ("a.png", labels),
    "coco": ("a.json", lambda path: open_coco_file(path, path.parent)),
    "classes": ("classes.yaml", read_classes),
    "csv": ("val.csv", lambda path: kinetics(path.parent, "val")),
    "video": ("a.mp4", open_video),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_opened(reader: str, place: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    make, said = PLACES[place]
    make(tmp_path / name)
    if (reader, place) == ("video", "folder"):
        said = "is a folder without images"  # a folder may be a video
    if (reader, place) == ("video", "nothing"):
        said = "no such file or folder"
    with pytest.raises((OSError, ValueError)) as raised:
        read(tmp_path / name)
    assert str(raised.value).startswith(f"{tmp_path / name}: {said}")
    assert "\n" not in str(raised.value)


def test_a_valid_file_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert file_fault(tmp_path / "a") is None
    assert file_fault(tmp_path / "a" / "b") == "no such file"
    assert file_fault(Path("a\0b")) == file_fault(Path("\ud800")) == "no such file: no file can have this name"
    assert file_fault(tmp_path / ("x" * 300)) == "cannot be read: File name too long"


def test_a_pipe_given_as_a_list_does_not_block(tmp_path: Path) -> None:
    root = camvid_tree(tmp_path)
    (root / "train.txt").unlink()
    os.mkfifo(root / "train.txt")
    with pytest.raises(FileNotFoundError, match=r"train\.txt: is a pipe; expected a file"):
        camvid(root, "train")


def test_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\r\n  two \n".encode())
    assert text_lines(path) == [(1, "one"), (3, "two")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a.mp4 1\n".encode("utf-16"), "is not text in UTF-8; save it in that encoding"),
        (b"a.mp4\0 1\n", "is not text in UTF-8; save it in that encoding"),
        (b"a.mp4 1\nb" + b" " * 60_000 + b"c", "line 2 has 60002 characters; expected a file on each line"),
    ],
)
def test_invalid_lists_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "val.csv").write_bytes(content)
    with pytest.raises(ValueError, match=rf"val\.csv: {said}"):
        kinetics(tmp_path, "val")
