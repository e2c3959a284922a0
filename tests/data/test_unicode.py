"""Names that differ only in their Unicode form: macOS writes é as two characters, other systems as one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from unicodedata import normalize

import pytest

from coco_trees import WIDE, annotation, edit, write_coco
from dnlnet.data.problems import Problem
from dnlnet.detection.data.coco import open_coco_file
from dnlnet.segmentation.data.camvid import camvid
from dnlnet.segmentation.data.folder import folder
from dnlnet.video.data.kinetics import kinetics
from dnlnet.video.data.ucf101 import ucf101
from dnlnet.video.data.video_folder import video_folder
from trees import write_image, write_labels

Found = tuple[int, Sequence[Problem]]  # number of samples, and problems


def own_folder(root: Path, one: str, other: str) -> Found:
    write_image(root / "images" / one / one / f"{one}.jpg")
    write_labels(root / "masks" / other / other / f"{other}.png", (0, 1))
    (root / "classes.yaml").write_text("names: [sky, road]")
    images = folder(root, one)
    return len(images), images.problems


def list_of_images(root: Path, one: str, other: str) -> Found:
    write_image(root / "train" / f"{one}.jpg")
    write_labels(root / "trainannot" / f"{one}.png", (0, 1))
    (root / "train.txt").write_text(f"/old/{other}.jpg", encoding="utf-8")
    images = camvid(root, "train")
    return len(images), images.problems


def coco(root: Path, one: str, other: str) -> Found:
    path = write_coco(root / "mine.json", root, {7: WIDE}, [annotation(1, 7, 3, (10, 5, 20, 15))])
    (root / one).mkdir()
    (root / "000000000007.png").rename(root / one / f"{one}.png")
    edit(path, "images", 0, file_name=f"{other}/{other}.png")
    images = open_coco_file(path, root)
    assert all(image.path.is_file() for image in images.images)
    return len(images), images.problems


def list_of_videos(root: Path, one: str, other: str) -> Found:
    (root / one).mkdir()
    (root / one / f"{one}.mp4").touch()
    (root / "train.csv").write_text(f"{other}/{other}.mp4 0", encoding="utf-8")
    videos = kinetics(root, "train")
    assert all(entry.path.is_file() for entry in videos.videos)
    return len(videos), videos.problems


def folders_of_classes(root: Path, one: str, other: str) -> Found:
    for split, name in (("train", one), ("val", one), ("val", other)):
        (root / split / name).mkdir(parents=True)
        (root / split / name / "a.mp4").touch()
    train, val = video_folder(root, "train"), video_folder(root, "val")
    assert train.classes.names == val.classes.names
    assert [entry.label for entry in val.videos] == [0, 0]
    return len(train), [*train.problems, *val.problems]


def classes_and_lists(root: Path, one: str, other: str) -> Found:
    (root / "videos" / one).mkdir(parents=True)
    (root / "videos" / one / "a.avi").touch()
    (root / "classInd.txt").write_text(f"1 {one}", encoding="utf-8")
    (root / "trainlist01.txt").write_text(f"{other}/a.avi 1", encoding="utf-8")
    videos = ucf101(root, "train01")
    return len(videos), videos.problems


READERS = [own_folder, list_of_images, coco, list_of_videos, folders_of_classes, classes_and_lists]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_names_that_look_alike_are_the_same(
    read: Callable[[Path, str, str], Found], forms: tuple[str, str], tmp_path: Path
) -> None:
    one, other = (normalize(form, "été-한글") for form in forms)  # type: ignore[arg-type]
    assert one != other
    count, problems = read(tmp_path, one, other)
    assert (count, list(problems)) == (1, [])


def test_two_files_with_equal_looking_names_are_reported(tmp_path: Path) -> None:
    for form in ("NFC", "NFD"):
        name = normalize(form, "é")  # type: ignore[arg-type]
        write_image(tmp_path / "images" / "train" / f"{name}.jpg")
    write_labels(tmp_path / "masks" / "train" / "é.png", (0, 1))
    (tmp_path / "classes.yaml").write_text("names: [sky, road]")
    images = folder(tmp_path, "train")
    assert len(images) == 1
    assert [problem.text for problem in images.problems] == [
        "has the same name as another file, apart from its Unicode form; keep one of them"
    ]
