"""Table 1 of the paper: overlap of attention with the ground truth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from dnlnet.artifacts.load import TrainedModel, default_device, read_together
from dnlnet.data.samples import WholeImages
from dnlnet.lens.measure import BOUNDARY_WIDTH
from dnlnet.lens.measure.consistency import (
    RANDOM,
    TABLE_1,
    Average,
    Overlaps,
    average_overlaps,
    measure_overlaps,
    overlaps_json,
)
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.show.charts import consistency_figure
from dnlnet.lens.show.drawable import Drawable
from dnlnet.libraries.transformer import Transformer, load_transformer
from dnlnet.progress import BARS, Progress
from dnlnet.runs.evaluate import open_test_data
from dnlnet.runs.labelled_folder import find_labelled
from dnlnet.runs.look import AnyModel, is_foreign, looker


@dataclass(frozen=True, repr=False)
class Consistency(Drawable):
    """Overlap of attention with the ground truth, per model.

    ``table()`` returns averages over images; ``plot()``, ``show()`` and ``save("overlaps.png")`` draw them as bars.

    Args:
        models: Path or name of each model, by title.
        images: Names of the images, in order.
        rows: Overlaps per image, by model and block. The last row belongs to a uniform map.
        width, void_edges: Definition of boundaries; see `dnlnet.lens.measure.ground_truth.boundary_map`.
    """

    models: dict[str, Path | str]
    images: list[str]
    rows: dict[str, list[Overlaps]]
    width: int = BOUNDARY_WIDTH
    void_edges: bool = False

    def table(self) -> dict[str, dict[str, Average | None]]:
        """Return the mean and standard error of each row over the images."""
        return {name: average_overlaps(values) for name, values in self.rows.items()}

    def plot(self) -> Figure:
        """Draw the table as bars."""
        return consistency_figure(self.table())

    def to_json(self) -> dict[str, Any]:
        """Return the table and the values of each image as JSON types."""
        return {
            "width": self.width,
            "void_edges": self.void_edges,
            "models": {title: str(path) for title, path in self.models.items()},
            "rows": overlaps_json(self.table()),
            "images": [
                {"image": image}
                | {row: {key: getattr(values[number], key) for key in TABLE_1} for row, values in self.rows.items()}
                for number, image in enumerate(self.images)
            ],
        }

    def __repr__(self) -> str:
        return f"Consistency({len(self.images)} images: {', '.join(self.rows)})"


def consistency(
    models: AnyModel | Sequence[AnyModel],
    data: Path | str | None = None,
    *,
    data_set: str | None = None,
    split: str | None = None,
    weights: Path | str | None = None,
    width: int = BOUNDARY_WIDTH,
    void_edges: bool = False,
    limit: int | None = None,
    progress: Progress = BARS,
) -> Consistency:
    """Measure the share of attention within the query's class, and on boundaries.

    Args:
        models: Segmentation models of one data set (files, run folders or names), or transformers of other
            libraries such as `timm:NAME`. A transformer gives one row per layer, averaged over heads.
        data: Folder of the data set.
        data_set: Name of the data set, for transformers. Default: recognised by its folders.
        split: Split of the data set. Default: the test split of the recipe; for transformers, val or test.
        weights: Weights of a single transformer: a local file, or "none" for random weights.
        width: Width of boundaries in pixels, on each side of a contour.
        void_edges: Count contours between a class and unlabelled pixels as boundaries.
        limit: Maximum number of images.
        progress: Progress observer.
    """
    given = [models] if isinstance(models, AnyModel) else list(models)
    root = None if data is None else Path(data)
    if len({is_foreign(model) for model in given}) > 1:
        raise ValueError("compare our models, or transformers of other libraries, not both at once")
    if is_foreign(given[0]):
        sources = _transformers(given, root, data_set, split, weights)
    elif data_set is not None or weights is not None:
        raise ValueError("--data-set and --weights: are for transformers of other libraries, not for our models")
    else:
        sources = _ours(given, root, split)
    rows: dict[str, list[Overlaps]] = {}
    random: list[Overlaps] = []
    images: list[str] = []
    paths: dict[str, Path | str] = {}
    for source in sources:
        measured, images = _measure(source, limit, width, void_edges, progress)
        paths[source.title] = source.path
        random = random or measured[RANDOM]
        rows |= {name: values for name, values in measured.items() if name != RANDOM}
    return Consistency(paths, images, {**rows, RANDOM: random}, width, void_edges)


@dataclass(frozen=True)
class _Source:
    """Model and the labelled samples to measure it on."""

    title: str
    path: Path | str
    model: TrainedModel | Transformer
    samples: Any


def _ours(models: Sequence[Any], data: Path | None, split: str | None) -> Iterator[_Source]:
    for model, (title, file) in zip(models, read_together(models).items(), strict=True):
        samples = open_test_data(file, data, split)
        loaded = model if isinstance(model, TrainedModel) else TrainedModel(file)
        yield _Source(title, file.path, loaded, samples)


def _transformers(
    models: Sequence[Any], data: Path | None, data_set: str | None, split: str | None, weights: Path | str | None
) -> Iterator[_Source]:
    if data is None:
        raise ValueError("a transformer has no data set of its own: give the folder of one with --data DIR")
    if weights is not None and len(models) > 1:
        raise ValueError("--weights: is for a single transformer; measure several one after the other")
    samples = WholeImages(find_labelled(data, data_set).split(split))
    for model in models:
        loaded = model if isinstance(model, Transformer) else None
        loaded = loaded or load_transformer(model, weights=weights, device=default_device())
        yield _Source(loaded.name, loaded.name if weights is None else str(weights), loaded, samples)


def _measure(
    source: _Source, limit: int | None, width: int, void_edges: bool, progress: Progress
) -> tuple[dict[str, list[Overlaps]], list[str]]:
    """Return the overlaps of each block or layer on each image, and the names of the images."""
    look = looker(source.title, source.model)
    samples, classes = source.samples, len(source.samples.classes)
    count = len(samples) if limit is None else min(limit, len(samples))
    found: dict[str, list[Overlaps]] = {}
    names = []
    with progress.track(source.title, count) as measured:
        for index in range(count):
            sample = samples[index]
            image, labels = getattr(sample, "image", None), getattr(sample, "labels", None)
            if not isinstance(image, Tensor) or not isinstance(labels, Tensor) or labels.shape != image.shape[1:]:
                raise ValueError(f"{source.path}: its data has no class for each pixel; choose a segmentation model")
            seen = look(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))
            truth = GroundTruth.of(labels.to(torch.int64), classes, width, void_edges).padded(seen.covered)
            overlaps = measure_overlaps(seen.attention, truth)
            if len(overlaps) < 2:
                raise ValueError(f"{source.title}: none of its layers has tokens on an image")
            for name, values in overlaps.items():
                found.setdefault(name, []).append(values)
            names.append(sample.name)
            measured.advance()
    if isinstance(source.model, Transformer):
        random = found.pop(RANDOM)
        found = {source.title if len(found) == 1 else f"{source.title}: {name}": row for name, row in found.items()}
        found[RANDOM] = random
    return found, names
