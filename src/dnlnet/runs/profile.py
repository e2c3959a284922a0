"""Profile a model's attention over images or a labelled data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dnlnet.artifacts.load import TrainedModel
from dnlnet.data.decoders import Labels
from dnlnet.data.downloads import is_url
from dnlnet.data.images import ImageLike, read_image_file, read_pixels, several_images
from dnlnet.data.inputs import find_images
from dnlnet.data.labelled import LabelledImages, find_labels
from dnlnet.data.problems import BadFileError, Problem
from dnlnet.lens.measure import BOUNDARY_WIDTH
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.measure.profile import HeadProfile, Profile
from dnlnet.lens.measure.profile import profile as measure_profile
from dnlnet.lens.show.attend import MAX_PIXELS, limit_pixels
from dnlnet.lens.show.charts import profile_figure
from dnlnet.lens.show.drawable import Drawable
from dnlnet.libraries.transformer import Transformer
from dnlnet.progress import BARS, Progress
from dnlnet.registry import pixel_data_sets
from dnlnet.runs.labelled_folder import find_labelled, read_labelled
from dnlnet.runs.look import AnyModel, load_to_look, looker

Pixels = NDArray[np.uint8]
Reader = Callable[[], tuple[Pixels, Labels | None]]


@dataclass(frozen=True, repr=False)
class ModelProfile(Drawable):
    """Profile of a model's attention over images.

    ``table()`` returns averages over images; ``plot()``, ``show()`` and ``save("profile.png")`` draw heat maps of
    layers and heads.

    Args:
        title: Title of the model.
        profile: Profile over all readable images. Has no heads if there are none.
        data: Name of the data set and split of the labels, if any.
        images: Names of the images, in order.
        problems: Unusable images, with their paths.
    """

    title: str
    profile: Profile
    data: str | None = None
    images: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of images found."""
        return len(self.images) + len(self.problems)

    @property
    def over(self) -> str:
        """Number of images as text."""
        count = len(self.images)
        return f"{count} {'image' if count == 1 else 'images'}{f' of {self.data}' if self.data else ''}"

    def layers(self) -> list[HeadProfile]:
        """Return the mean over the heads of each layer, per image."""
        return self.profile.layers()

    def table(self, heads: Literal["mean", "all"] = "mean") -> list[dict[str, Any]]:
        """Return one row per layer or per head: layer, head, and each statistic averaged over images."""
        return self.profile.table(heads)

    def plot(self) -> Figure:
        """Draw each statistic as a heat map over layers and heads."""
        return profile_figure(self.profile, f"{self.title}, mean over {self.over}")

    def to_json(self) -> dict[str, Any]:
        """Return averages per layer and head, and the values of each image, as JSON types."""
        return {"model": self.title, "data": self.data, "images": self.images} | self.profile.to_json()

    def __repr__(self) -> str:
        return f"{self.title} over {self.over}\n{self.profile!r}"


@dataclass(frozen=True)
class _Images:
    """Images to read, with labels of `classes` classes if there are any."""

    items: Sequence[tuple[str, Reader]]
    classes: int | None = None
    data: str | None = None
    problems: Sequence[str] = ()


def profile(
    model: AnyModel,
    images: ImageLike | Sequence[ImageLike] = (),
    *,
    data: Path | str | None = None,
    data_set: str | None = None,
    split: str | None = None,
    weights: Path | str | None = None,
    size: int | None = None,
    layers: Sequence[int | str] | None = None,
    head: int | None = None,
    width: int = BOUNDARY_WIDTH,
    void_edges: bool = False,
    limit: int | None = None,
    progress: Progress = BARS,
) -> ModelProfile:
    """Profile a model's attention over images, or over the labelled images of a data set.

    Args:
        model: Loaded model, model file, run folder, or name, including `timm:NAME`, `torchvision:NAME` and
            `transformers:NAME_OR_FOLDER`.
        images: Image in any form that `TrainedModel.predict` accepts, folder, or a list of these. With `data`: files
            of the data set. Default: all images of the split.
        data: Folder of a data set with a class per pixel.
        data_set: Name of the data set. Default: that of the recipe, or recognised by its folders.
        split: Split of the data set. Default: the test split of the recipe; for transformers, val or test.
        weights, size, layers: Transformer options; see `dnlnet.load_transformer`.
        head: Profile only the head with this number in each layer. Default: all heads.
        width: Width of boundaries in pixels, on each side of a contour.
        void_edges: Count contours between a class and unlabelled pixels as boundaries.
        limit: Maximum number of images.
        progress: Progress observer; also receives notes about the images.
    """
    parts = several_images(images)
    given = [images] if parts is None else parts
    if not given and data is None:
        raise ValueError("there is nothing to profile: give images, or a labelled data set with --data DIR")
    for option, value in (("--data-set", data_set), ("--split", split)):
        if data is None and value is not None:
            raise ValueError(f"{option} {value}: needs the folder of the data set; give it with --data DIR")
    if given and split is not None:
        raise ValueError(f"--split {split}: chooses images, but images were given; leave out one of them")
    ((title, loaded),) = load_to_look([model], weights=weights, size=size, layers=layers).items()
    source = _open(loaded, given, None if data is None else Path(data), data_set, split, progress)
    items = list(islice(source.items, limit))
    look = looker(title, loaded, layers)
    names, found, problems = list[str](), list[Profile](), list(source.problems)
    with progress.track("images", len(items)) as looked:
        for name, read in items:
            try:
                pixels, labels = read()
            except BadFileError as error:
                problems.append(str(error))
            else:
                if labels is None:
                    pixels, _ = limit_pixels(name, pixels, None, MAX_PIXELS, progress.say)
                seen = look(pixels)
                truths = None
                if labels is not None and source.classes is not None:
                    truth = GroundTruth.of(
                        torch.from_numpy(labels.astype(np.int64)), source.classes, width, void_edges
                    )
                    truths = [truth.padded(seen.covered)]
                measured = measure_profile(seen.attention, truths)
                found.append(measured if head is None else measured.of_head(head))
                names.append(name)
            looked.advance()
    for note in loaded.notes if isinstance(loaded, Transformer) else ():
        progress.say(note)
    return ModelProfile(title, Profile.joined(found) if found else Profile(()), source.data, names, problems)


def _open(
    model: TrainedModel | Transformer,
    given: Sequence[Any],
    data: Path | None,
    data_set: str | None,
    split: str | None,
    progress: Progress,
) -> _Images:
    """Return the images to profile, with their labels if there is a data set."""
    folder, items = None, list[tuple[str, Reader]]()
    if data is not None:
        recipe = model.file.recipe if isinstance(model, TrainedModel) else None
        own = recipe.data.name if recipe is not None and recipe.data.name in pixel_data_sets() else None
        folder = find_labelled(data, data_set or own)
        if not given:
            tested = recipe.data.test if recipe is not None and recipe.data.name == folder.data_set.name else None
            images = folder.split(split or tested)
            items = [
                (str(pair.image), partial(read_labelled, images, index)) for index, pair in enumerate(images.pairs)
            ]
            return _Images(items, len(images.classes), images.name)
    is_path = [isinstance(one, Path) or (isinstance(one, str) and not is_url(one)) for one in given]
    found = find_images([Path(one) for one, path in zip(given, is_path, strict=True) if path])
    others = [one for one, path in zip(given, is_path, strict=True) if not path]
    for text in found.left_out:
        progress.say(f"left out: {text}")
    problems = [str(problem) for problem in found.problems]
    if folder is not None:
        if others:
            raise ValueError(f"with data, images must be files in {folder.root}; leave out data or the other images")
        splits, name = list(folder.splits.values()), folder.data_set.name
        items = [(str(path), partial(_looked_up, splits, name, path)) for path in found.paths.values()]
        return _Images(items, len(splits[0].classes), name, problems)
    items = [(str(path), partial(_unlabelled, path)) for path in found.paths.values()]
    items += [(f"image {number}", partial(_unlabelled, one)) for number, one in enumerate(others, 1)]
    return _Images(items, problems=problems)


def _unlabelled(image: ImageLike) -> tuple[Pixels, None]:
    return read_pixels(image), None


def _looked_up(splits: Sequence[LabelledImages], name: str, path: Path) -> tuple[Pixels, Labels]:
    labels = find_labels(splits, path)
    if labels is None:
        raise BadFileError(Problem(path, f"is not an image of {name}; leave out --data, or the image"))
    return read_image_file(path), labels
