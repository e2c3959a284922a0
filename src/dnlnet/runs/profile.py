"""Profiles of the attention of trained models: what every head does, over pictures and their labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dnlnet.artifacts.load import TrainedModel
from dnlnet.attention import Terms
from dnlnet.data.inputs import find_pictures
from dnlnet.data.labelled import BadFileError, LabelledImages, Labels, Problem
from dnlnet.data.pictures import read_picture
from dnlnet.lens.measure.consistency import Truth
from dnlnet.lens.measure.profile import Profile, profile
from dnlnet.lens.show.attend_images import limit_pixels
from dnlnet.lens.show.attend_request import MAX_PIXELS
from dnlnet.lens.show.attended_image import ImageModel
from dnlnet.lens.show.layers import Choice
from dnlnet.lens.trace.recorded import Recorded
from dnlnet.libraries.transformer import ForeignModel
from dnlnet.runs.labelled import labelled_data_set, open_split
from dnlnet.runs.look import load_to_look
from dnlnet.segmentation.data.sets import DATA_SETS, find_labels

BOUNDARY_WIDTH = 2  # pixels: the patches of transformers are coarse, and wide boundaries would fill many of them

Pixels = NDArray[np.uint8]
Loaded = tuple[Pixels, Labels | None]


@dataclass(frozen=True)
class Profiled:
    """What was found.

    Args:
        title: of the model.
        profile: over all pictures that could be read; without heads if none could.
        data: name of the data set and the split that labels are of, if there are any.
        images: names of the pictures, in order.
        problems: what could not be used, with its path.
    """

    title: str
    profile: Profile
    data: str | None = None
    images: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Pictures that were found."""
        return len(self.images) + len(self.problems)


@dataclass(frozen=True)
class _Source:
    """Pictures to be read, with labels of so many classes if there are any."""

    items: Sequence[tuple[str, Callable[[], Loaded]]]
    classes: int | None = None
    data: str | None = None
    problems: Sequence[str] = ()


def profile_model(
    model: str | Path,
    pictures: Sequence[Path | str] = (),
    *,
    data: Path | str | None = None,
    data_set: str | None = None,
    split: str | None = None,
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    head: int | None = None,
    images: int | None = None,
    width: int = BOUNDARY_WIDTH,
    void_edges: bool = False,
    report: Callable[[str], None] = print,
    start: Callable[[int], None] = lambda _: None,
    advance: Callable[[], None] = lambda: None,
) -> Profiled:
    """The profile of a model's attention over pictures, or over the labelled pictures of a data set.

    Args:
        model: a model file, run folder or name; or `timm:NAME`, `torchvision:NAME`, `transformers:NAME_OR_FOLDER`.
        pictures: and folders of them; with `data`, pictures of the data set. None: all of a split of it.
        data: folder of a data set with a class for each pixel.
        data_set: which one it is; default: that of the model's recipe, or the only one with such folders.
        split: default: the one that the model's recipe is tested on, or else val or test.
        weights, size, layers: of a transformer of another library; see `dnlnet.attend`.
        head: of every layer; default: all heads.
        images: only the first so many.
        width: pixels nearer than this to a contour are boundary.
        void_edges: contours between a class and unlabelled pixels count as well.
        report: called with what a user should know.
        start, advance: called with the number of pictures, and after each of them.
    """
    if not pictures and data is None:
        raise ValueError("nothing to look at: give pictures, or the folder of a labelled data set with --data DIR")
    for option, value in (("--data-set", data_set), ("--split", split)):
        if data is None and value is not None:
            raise ValueError(f"{option} {value}: is of a data set; give its folder with --data DIR")
    if pictures and split is not None:
        raise ValueError(f"--split {split}: pictures were given, so that none are taken from a split; leave one out")
    ((title, loaded),) = load_to_look([model], weights=weights, size=size, layers=layers).items()
    source = _open(loaded, [Path(given) for given in pictures], data, data_set, split, report)
    items = list(islice(source.items, images))
    look = _looker(title, loaded, layers, labelled=source.classes is not None)
    names, found, problems = list[str](), list[Profile](), list(source.problems)
    start(len(items))
    for name, load in items:
        try:
            pixels, labels = load()
        except BadFileError as error:
            problems.append(str(error))
        else:
            pixels, labels = limit_pixels(name, pixels, labels, MAX_PIXELS, report)
            truths = None
            if labels is not None and source.classes is not None:
                truths = [Truth.of(torch.from_numpy(labels.astype(np.int64)), source.classes, width, void_edges)]
            measured = profile(look(pixels), truths)
            found.append(measured if head is None else measured.of_head(head))
            names.append(name)
        advance()
    for note in loaded.notes if isinstance(loaded, ForeignModel) else ():
        report(note)
    return Profiled(title, Profile.joined(found) if found else Profile(()), source.data, names, problems)


def _looker(
    title: str, loaded: TrainedModel | ForeignModel, layers: Sequence[int | str] | None, *, labelled: bool
) -> Callable[[Pixels], Mapping[str, Terms | Recorded]]:
    """A function from a picture to what the model attends to in it, by the names of its layers."""
    if isinstance(loaded, ForeignModel):
        if layers is None:
            return loaded.look
        choice = Choice(layers)
        return lambda pixels: {layer.seen.name: layer for layer in choice.of(loaded.look(pixels)).values()}
    predictor = loaded.predictor
    if not isinstance(predictor, ImageModel):
        raise ValueError(f"{title} looks at videos, and profiles are of pictures; choose another model")

    def look(pixels: Pixels) -> dict[str, Terms | Recorded]:
        views = predictor.attention_views(title, pixels)
        if labelled and any(view.covered != (1, 1) for view in views):
            raise ValueError(f"{title}: pads pictures of this size, so that labels do not lie on its maps")
        return {view.title: view.terms for view in views}

    return look


def _open(
    loaded: TrainedModel | ForeignModel,
    pictures: Sequence[Path],
    data: Path | str | None,
    data_set: str | None,
    split: str | None,
    report: Callable[[str], None],
) -> _Source:
    """The pictures to look at, with their labels if there is a data set."""
    recipe = loaded.file.recipe if isinstance(loaded, TrainedModel) else None
    row, opened = None, dict[str, LabelledImages]()
    if data is not None:
        own = None if recipe is None or recipe.data.name not in DATA_SETS else recipe.data.name
        row = labelled_data_set(Path(data), data_set or own)
        if pictures:
            opened = row.open_all(Path(data))[0]
    if not pictures:
        assert row is not None
        assert data is not None
        tested = recipe.data.test if recipe is not None and recipe.data.name == row.name else None
        images = open_split(row, Path(data), split or tested)
        items = [(str(pair.image), partial(_labelled, images, index)) for index, pair in enumerate(images.pairs)]
        return _Source(items, len(images.classes), images.name)
    found = find_pictures(pictures)
    for text in found.left_out:
        report(f"left out: {text}")
    problems = [str(problem) for problem in found.problems]
    paths = found.paths.values()
    if row is None:
        return _Source([(str(path), partial(_unlabelled, path)) for path in paths], problems=problems)
    splits = list(opened.values())
    items = [(str(path), partial(_looked_up, splits, row.name, path)) for path in paths]
    return _Source(items, len(splits[0].classes), row.name, problems)


def _unlabelled(path: Path) -> Loaded:
    return read_picture(path), None


def _labelled(images: LabelledImages, index: int) -> Loaded:
    picture, raw = images.open(index)
    return np.asarray(picture), images.decoded(index, raw)


def _looked_up(splits: Sequence[LabelledImages], name: str, path: Path) -> Loaded:
    labels = find_labels(splits, path)
    if labels is None:
        raise BadFileError(Problem(path, f"is not a picture of {name}; leave out --data, or the picture"))
    return read_picture(path), labels
