"""Overlaps of models' attention with the ground truth, as in Table 1 of the paper."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dnlnet.artifacts.load import TrainedModel, read_together
from dnlnet.artifacts.model_file import ModelFile
from dnlnet.attention import Terms
from dnlnet.lens.measure.consistency import (
    BOUNDARY_WIDTH,
    RANDOM,
    Average,
    Overlaps,
    average_overlaps,
    block_looker,
    measure_overlaps,
)
from dnlnet.lens.show.layers import Choice
from dnlnet.libraries.transformer import ForeignModel, is_foreign, load_foreign
from dnlnet.runs.evaluate import open_test_data
from dnlnet.runs.labelled import labelled_data_set, open_split
from dnlnet.segmentation.data.samples import WholeImages


@dataclass(frozen=True)
class Consistency:
    """What was measured.

    Args:
        models: paths of the files, or names, by what the models are called.
        images: names of the images, in order.
        rows: the overlaps on each image, by model and block; the last row is a uniform map.
    """

    models: dict[str, Path | str]
    images: list[str]
    rows: dict[str, list[Overlaps]]

    def table(self) -> dict[str, dict[str, Average | None]]:
        """The averages over images of each row."""
        return {name: average_overlaps(values) for name, values in self.rows.items()}


def measure_consistency(
    models: Sequence[str | Path],
    data: Path | str | None = None,
    *,
    data_set: str | None = None,
    split: str | None = None,
    weights: Path | str | None = None,
    width: int = BOUNDARY_WIDTH,
    void_edges: bool = False,
    images: int | None = None,
    start: Callable[[str, int], Callable[[], None]] = lambda name, count: lambda: None,
) -> Consistency:
    """Measure how much of the attention of models lies within the query's class, and on boundaries.

    Args:
        models: files, run folders or hub names, of segmentation models of one data set; or transformers of other
            libraries, such as `timm:NAME`, whose layers are rows, with means over heads.
        data: folder of that data set.
        data_set: which one it is, for transformers; default: the only one with such folders.
        split: other than the one their recipes are tested on; for transformers, than val or test.
        weights: of a transformer, if it is the only one: a local file, or "none".
        width: pixels nearer than this to a contour are boundary.
        void_edges: contours between a class and unlabelled pixels count as well.
        images: only the first so many.
        start: called with a model's name and the number of its images; gives what is called after each of them.
    """
    if len({is_foreign(model) for model in models}) > 1:
        raise ValueError("compare our models, or transformers of other libraries, not both at once")
    measure = partial(_measure, images=images, start=start, width=width, void_edges=void_edges)
    rows: dict[str, list[Overlaps]] = {}
    names: list[str] = []
    paths: dict[str, Path | str] = {}
    sources: Iterator[_Source]
    if is_foreign(models[0]):
        sources = _transformers(list(map(str, models)), data, data_set, split, weights)
    elif data_set is not None or weights is not None:
        raise ValueError("--data-set and --weights: are for transformers of other libraries; our models know theirs")
    else:
        sources = _ours(models, data, split)
    for source in sources:
        names, measured = measure(source, random=RANDOM not in rows)
        paths[source.title] = source.path
        blocks = [name for name in measured if name != RANDOM]
        for name, values in measured.items():
            rows[name if name == RANDOM else source.title if len(blocks) == 1 else f"{source.title}: {name}"] = values
    rows[RANDOM] = rows.pop(RANDOM)  # last
    return Consistency(paths, names, rows)


@dataclass(frozen=True)
class _Source:
    """A model, how it looks at an image, and the samples that it is to see."""

    title: str
    path: Path | str
    look: Callable[[Tensor], Mapping[str, Terms]]
    samples: Any
    classes: int


def _ours(models: Sequence[str | Path], data: Path | str | None, split: str | None) -> Iterator[_Source]:
    for title, file in read_together(models).items():
        look = _block_look(file)
        samples = open_test_data(file, None if data is None else Path(data), split)
        yield _Source(title, file.path, look, samples, len(file.classes))


def _block_look(file: ModelFile) -> Callable[[Tensor], Mapping[str, Terms]]:
    trained = TrainedModel(file)
    single_pass = getattr(trained.predictor, "single_pass", None)
    if single_pass is None:
        raise ValueError(f"{file.path}: is a {file.recipe.task} model; overlaps need a segmentation model")
    return block_looker(trained.network, single_pass().logits)


def _transformers(
    models: Sequence[str],
    data: Path | str | None,
    data_set: str | None,
    split: str | None,
    weights: Path | str | None,
) -> Iterator[_Source]:
    if data is None:
        raise ValueError("a transformer has no data set of its own: give the folder of one with --data DIR")
    if weights is not None and len(models) > 1:
        raise ValueError("--weights: are of one transformer; measure them one after the other")
    images = open_split(labelled_data_set(Path(data), data_set), Path(data), split)
    for name in models:
        look = partial(_layer_terms, load_foreign(name, weights))
        yield _Source(name, name if weights is None else str(weights), look, WholeImages(images), len(images.classes))


def _layer_terms(model: ForeignModel, image: Tensor) -> dict[str, Terms]:
    """The terms of all heads of every layer whose tokens lie in the picture."""
    captured = model.look(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))
    found = {layer.seen.name: layer.terms("all") for layer in Choice().of(captured).values()}
    if not found:
        raise ValueError(f"{model.name}: the tokens of none of its layers lie in the picture")
    return found


def _measure(
    source: _Source,
    images: int | None,
    start: Callable[[str, int], Callable[[], None]],
    width: int,
    void_edges: bool,
    random: bool,
) -> tuple[list[str], dict[str, list[Overlaps]]]:
    """Names of the images, and the overlaps on each of every block of a model."""
    count = len(source.samples) if images is None else min(images, len(source.samples))
    names: list[str] = []

    def first() -> Iterator[Any]:
        for index in range(count):
            sample = source.samples[index]
            names.append(sample.name)
            yield sample

    overlaps = measure_overlaps(
        source.look,
        first(),
        source.classes,
        width=width,
        void_edges=void_edges,
        random=random,
        progress=start(source.title, count),
    )
    return names, overlaps
