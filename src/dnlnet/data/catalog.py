"""The data sets by name, and how to open one with an error that helps when its folder is not as expected."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from dnlnet.data.classes import Classes
from dnlnet.data.labelled import LabelledImages, Labels
from dnlnet.detection.data import coco
from dnlnet.detection.data.objects import InstanceImages
from dnlnet.errors import unknown
from dnlnet.segmentation.data import ade20k, camvid, cityscapes, folder, pascal_context
from dnlnet.video.data import kinetics, ucf101, video_folder
from dnlnet.video.data.videos import LabelledVideos

Images = TypeVar("Images", LabelledImages, InstanceImages, LabelledVideos)


@dataclass(frozen=True)
class DataSet(Generic[Images]):
    """A row of the catalogue.

    Args:
        name: as users write it.
        splits: the names of its splits; empty if the folder itself decides.
        function: from the root folder and a split to the images or videos.
        layout: the folders it expects, in one line.
        classes: what they are, if that is fixed.
        joined: those of the splits that consist of others.
        find_splits: lists them where the folder itself decides.
        holds: what its files are called in messages.
    """

    name: str
    splits: tuple[str, ...]
    function: Callable[[Path, str], Images]
    layout: str
    classes: Classes | None
    joined: tuple[str, ...] = ()
    find_splits: Callable[[Path], Sequence[str]] = lambda _: ()
    holds: str = "pictures"


def _folder_splits(root: Path) -> list[str]:
    return _found_or_train(folder.own_splits, root)


def _video_folder_splits(root: Path) -> list[str]:
    return _found_or_train(video_folder.own_splits, root)


def _found_or_train(find: Callable[[Path], list[str]], root: Path) -> list[str]:
    try:
        return find(root)
    except FileNotFoundError:
        return ["train"]  # opening it says what is missing


def _coco_splits(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "annotations").glob("*.json")) or ["train"]


def _ucf101_splits(root: Path) -> list[str]:
    return ucf101.own_splits(root) or ["train01"]


_ROWS = (
    DataSet(
        "cityscapes",
        tuple(cityscapes.SPLITS),
        cityscapes.cityscapes,
        "leftImg8bit/{train,val,train_extra}/<city>/*_leftImg8bit.png with gtFine/{train,val}/<city>/"
        "*_gtFine_labelIds.png, and gtCoarse/train_extra/<city>/*_gtCoarse_labelIds.png for the split coarse",
        cityscapes.CLASSES,
        joined=("trainval",),
    ),
    DataSet(
        "ade20k",
        tuple(ade20k.SPLITS),
        ade20k.ade20k,
        "ADEChallengeData2016/images/{training,validation}/*.jpg with annotations/{training,validation}/*.png",
        ade20k.CLASSES,
    ),
    *(
        DataSet(
            name,
            pascal_context.SPLITS,
            function,
            "VOC2010/JPEGImages/*.jpg with SegmentationClassContext/*.png and "
            "ImageSets/SegmentationContext/{train,val}.txt",
            classes,
        )
        for name, function, classes in (
            ("pascal_context", pascal_context.pascal_context, pascal_context.CLASSES),
            ("pascal_context_60", pascal_context.pascal_context_60, pascal_context.CLASSES_60),
        )
    ),
    DataSet(
        "camvid",
        camvid.SPLITS,
        camvid.camvid,
        "{train,val,test}/* with {train,val,test}annot/*.png, and perhaps {train,val,test}.txt to choose from them",
        camvid.CLASSES,
    ),
    DataSet(
        "folder",
        (),
        folder.folder,
        "images/<split>/** with masks/<split>/** of the same names, and classes.yaml",
        None,
        find_splits=_folder_splits,
    ),
)
_INSTANCE_ROWS = (
    DataSet(
        "coco",
        coco.SPLITS,
        coco.open_coco,
        "annotations/instances_{train2017,val2017}.json with {train2017,val2017}/*.jpg; or a JSON file of the same "
        "format, with --images for the folder of its pictures",
        None,
    ),
    DataSet(
        "coco_folder",
        (),
        coco.open_coco_folder,
        "annotations/<split>.json in COCO's format, with the pictures in <split>/ or images/",
        None,
        find_splits=_coco_splits,
    ),
)
_VIDEO_ROWS = (
    DataSet(
        "kinetics",
        kinetics.SPLITS,
        kinetics.kinetics,
        "{train,val,test}.csv with a path and a label on each line, and perhaps classes.txt with the classes' names",
        None,
        holds="videos",
    ),
    DataSet(
        "ucf101",
        (),
        ucf101.ucf101,
        "classInd.txt, trainlist0N.txt and testlist0N.txt for the splits train0N and test0N, with "
        "videos/<class>/*.avi or UCF-101/<class>/*.avi",
        None,
        find_splits=_ucf101_splits,
        holds="videos",
    ),
    DataSet(
        "video_folder",
        (),
        video_folder.video_folder,
        "<split>/<class>/* of videos, or of folders of frames",
        None,
        find_splits=_video_folder_splits,
        holds="videos",
    ),
)
# By what they have labels of: every pixel, single objects, or whole videos.
DATA_SETS: dict[str, DataSet[LabelledImages]] = {row.name: row for row in _ROWS}
INSTANCE_DATA_SETS: dict[str, DataSet[InstanceImages]] = {row.name: row for row in _INSTANCE_ROWS}
VIDEO_DATA_SETS: dict[str, DataSet[LabelledVideos]] = {row.name: row for row in _VIDEO_ROWS}


def open_data_set(name: str, root: Path, split: str) -> LabelledImages:
    """The images of a split of a data set.

    Args:
        name: a name of `DATA_SETS`.
        root: the folder of the data set.
        split: one of its splits.

    >>> open_data_set("camvidd", Path("camvid"), "train")
    Traceback (most recent call last):
    ValueError: unknown data set 'camvidd'; did you mean 'camvid'? known: cityscapes, ade20k, pascal_context, \
pascal_context_60, camvid, folder
    """
    return _open(_row(DATA_SETS, name, root), root, split)


def open_instance_set(name: str, root: Path, split: str) -> InstanceImages:
    """The images of a split of a data set of objects; as `open_data_set`.

    >>> open_instance_set("coco", Path("/nowhere"), "train2017")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: /nowhere: no such folder; coco expects annotations/instances_{train2017,val2017}.json ...
    """
    return _open(_row(INSTANCE_DATA_SETS, name, root), root, split)


def open_video_set(name: str, root: Path, split: str) -> LabelledVideos:
    """The videos of a split of a data set of videos; as `open_data_set`.

    >>> open_video_set("kinetics", Path("/nowhere"), "val")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: /nowhere: no such folder; kinetics expects {train,val,test}.csv with a path and a label ...
    """
    return _open(_row(VIDEO_DATA_SETS, name, root), root, split)


def open_all_splits(name: str, root: Path) -> tuple[dict[str, LabelledImages], dict[str, str]]:
    """Every split that is there, without those joined from others; and for each one that is not, why.

    >>> open_all_splits("camvid", Path("/nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: /nowhere: no such folder; camvid expects {train,val,test}/* with ...
    """
    return _open_all(_row(DATA_SETS, name, root), root)


def open_all_instance_splits(name: str, root: Path) -> tuple[dict[str, InstanceImages], dict[str, str]]:
    """Every split of a data set of objects that is there, and why others are not; as `open_all_splits`."""
    return _open_all(_row(INSTANCE_DATA_SETS, name, root), root)


def open_all_video_splits(name: str, root: Path) -> tuple[dict[str, LabelledVideos], dict[str, str]]:
    """Every split of a data set of videos that is there, and why others are not; as `open_all_splits`."""
    return _open_all(_row(VIDEO_DATA_SETS, name, root), root)


def _row(rows: Mapping[str, DataSet[Images]], name: str, root: Path) -> DataSet[Images]:
    if name not in rows:
        raise unknown("data set", name, rows)
    row = rows[name]
    if not root.is_dir():
        kind = "is not a folder" if root.exists() else "no such folder"
        raise FileNotFoundError(f"{root}: {kind}; {name} expects {row.layout}")
    return row


def _open(row: DataSet[Images], root: Path, split: str) -> Images:
    try:
        return _opened(row, root, split)
    except FileNotFoundError as error:
        near = next((place for place in _nearby(root) if _looks_right(row, place, split)), None)
        hint = f"; {near} looks right: give that folder" if near else ""
        raise FileNotFoundError(
            f"{error}{_others(row, root, split)}; {row.name} expects {row.layout}{hint}"
        ) from None


def _others(row: DataSet[Images], root: Path, split: str) -> str:
    """The splits that are there, in words, if any is; files of objects take long to open, and say so themselves."""
    if row.name in INSTANCE_DATA_SETS:
        return ""
    there = [one for one in row.splits or row.find_splits(root) if one != split and _looks_right(row, root, one)]
    return f" (splits that are there: {', '.join(there)})" if there else ""


def _open_all(row: DataSet[Images], root: Path) -> tuple[dict[str, Images], dict[str, str]]:
    opened: dict[str, Images] = {}
    missing: dict[str, str] = {}
    for split in row.splits or row.find_splits(root):
        if split not in row.joined:
            try:
                opened[split] = _opened(row, root, split)
            except FileNotFoundError as error:
                missing[split] = str(error)
    if not opened:
        _open(row, root, next(iter(missing)))  # raises, with its advice
    return opened, missing


def find_labels(splits: Iterable[LabelledImages], picture: Path) -> Labels | None:
    """The labels of a picture that is a file of one of these splits; None if it is not.

    >>> find_labels([], Path("a.png")) is None
    True
    """
    wanted = picture.resolve()
    for images in splits:
        for index, pair in enumerate(images.pairs):
            if pair.image.name == wanted.name and pair.image.resolve() == wanted:
                return images.decoded(index, images.open(index)[1])
    return None


def _opened(row: DataSet[Images], root: Path, split: str) -> Images:
    images = row.function(root, split)
    if not len(images) and not images.problems:
        raise FileNotFoundError(f"{root}: has no {row.holds} of the split {split}")
    return images


def _nearby(root: Path) -> Iterator[Path]:
    yield from (path for path in sorted(root.iterdir()) if path.is_dir())
    yield root.resolve().parent


def _looks_right(row: DataSet[Images], root: Path, split: str) -> bool:
    try:
        return len(_opened(row, root, split)) > 0
    except (OSError, ValueError):
        return False
