"""The data sets by name, and how to open one with an error that helps when its folder is not as expected."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dnlnet.data import ade20k, camvid, cityscapes, folder, pascal_context
from dnlnet.data.classes import Classes
from dnlnet.data.labelled import LabelledImages, Labels
from dnlnet.errors import unknown


@dataclass(frozen=True)
class DataSet:
    """A row of the catalogue.

    Args:
        name: as users write it.
        splits: the names of its splits; empty if the folder itself decides.
        function: from the root folder and a split to the images.
        layout: the folders it expects, in one line.
        classes: what they are, if that is fixed.
        joined: those of the splits that consist of others.
    """

    name: str
    splits: tuple[str, ...]
    function: Callable[[Path, str], LabelledImages]
    layout: str
    classes: Classes | None
    joined: tuple[str, ...] = ()


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
    ),
)
DATA_SETS: dict[str, DataSet] = {row.name: row for row in _ROWS}


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
    row = _row(name, root)
    try:
        return _opened(row, root, split)
    except FileNotFoundError as error:
        near = next((place for place in _nearby(root) if _looks_right(row, place, split)), None)
        hint = f"; {near} looks right: give that folder" if near else ""
        raise FileNotFoundError(f"{error}; {name} expects {row.layout}{hint}") from None


def open_all_splits(name: str, root: Path) -> tuple[dict[str, LabelledImages], dict[str, str]]:
    """Every split that is there, without those joined from others; and for each one that is not, why.

    >>> open_all_splits("camvid", Path("/nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: /nowhere: no such folder; camvid expects {train,val,test}/* with ...
    """
    row = _row(name, root)
    opened: dict[str, LabelledImages] = {}
    missing: dict[str, str] = {}
    for split in row.splits or _own_splits(root):
        if split not in row.joined:
            try:
                opened[split] = _opened(row, root, split)
            except FileNotFoundError as error:
                missing[split] = str(error)
    if not opened:
        open_data_set(name, root, next(iter(missing)))  # raises, with its advice
    return opened, missing


def find_labels(name: str, root: Path, picture: Path) -> Labels | None:
    """The labels of a picture that is one of a data set's files, of any split; None if it is not.

    >>> find_labels("camvidd", Path("camvid"), Path("a.png"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown data set 'camvidd'; did you mean 'camvid'? known: ...
    """
    wanted = picture.resolve()
    for images in open_all_splits(name, root)[0].values():
        for index, pair in enumerate(images.pairs):
            if pair.image.name == wanted.name and pair.image.resolve() == wanted:
                return images.decoded(index, images.open(index)[1])
    return None


def _row(name: str, root: Path) -> DataSet:
    if name not in DATA_SETS:
        raise unknown("data set", name, DATA_SETS)
    row = DATA_SETS[name]
    if not root.is_dir():
        kind = "is not a folder" if root.exists() else "no such folder"
        raise FileNotFoundError(f"{root}: {kind}; {name} expects {row.layout}")
    return row


def _own_splits(root: Path) -> list[str]:
    try:
        return folder.own_splits(root)
    except FileNotFoundError:
        return ["train"]  # opening it says what is missing


def _opened(row: DataSet, root: Path, split: str) -> LabelledImages:
    images = row.function(root, split)
    if not images.pairs and not images.problems:
        raise FileNotFoundError(f"{root}: has no pictures of the split {split}")
    return images


def _nearby(root: Path) -> Iterator[Path]:
    yield from (path for path in sorted(root.iterdir()) if path.is_dir())
    yield root.resolve().parent


def _looks_right(row: DataSet, root: Path, split: str) -> bool:
    try:
        return bool(_opened(row, root, split).pairs)
    except (OSError, ValueError):
        return False
