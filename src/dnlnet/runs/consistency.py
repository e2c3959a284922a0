"""Overlaps of trained models' attention with the ground truth, as in Table 1 of the paper."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dnlnet.artifacts.load import TrainedModel, read_together
from dnlnet.artifacts.model_file import ModelFile
from dnlnet.lens.consistency import BOUNDARY_WIDTH, RANDOM, Average, Overlaps, average_overlaps, measure_overlaps
from dnlnet.runs.evaluate import open_test_data


@dataclass(frozen=True)
class Consistency:
    """What was measured.

    Args:
        models: paths of the files by what the models are called.
        images: names of the images, in order.
        rows: the overlaps on each image, by model and block; the last row is a uniform map.
    """

    models: dict[str, Path]
    images: list[str]
    rows: dict[str, list[Overlaps]]

    def table(self) -> dict[str, dict[str, Average | None]]:
        """The averages over images of each row."""
        return {name: average_overlaps(values) for name, values in self.rows.items()}


def measure_consistency(
    models: Sequence[str | Path],
    data: Path | str | None = None,
    *,
    split: str | None = None,
    width: int = BOUNDARY_WIDTH,
    void_edges: bool = False,
    images: int | None = None,
    start: Callable[[str, int], Callable[[], None]] = lambda name, count: lambda: None,
) -> Consistency:
    """Measure how much of the attention of models lies within the query's class, and on boundaries.

    Args:
        models: files, run folders or hub names, of segmentation models of one data set.
        data: folder of that data set.
        split: other than the one their recipes are tested on.
        width: pixels nearer than this to a contour are boundary.
        void_edges: contours between a class and unlabelled pixels count as well.
        images: only the first so many.
        start: called with a model's name and the number of its images; gives what is called after each of them.
    """
    found = read_together(models)
    rows: dict[str, list[Overlaps]] = {}
    names: list[str] = []
    for title, file in found.items():
        names, measured = _measure(file, data, split, images, start, width, void_edges, RANDOM not in rows)
        blocks = [name for name in measured if name != RANDOM]
        for name, values in measured.items():
            rows[name if name == RANDOM else title if len(blocks) == 1 else f"{title}: {name}"] = values
    rows[RANDOM] = rows.pop(RANDOM)  # last
    return Consistency({title: file.path for title, file in found.items()}, names, rows)


def _measure(
    file: ModelFile,
    data: Path | str | None,
    split: str | None,
    images: int | None,
    start: Callable[[str, int], Callable[[], None]],
    width: int,
    void_edges: bool,
    random: bool,
) -> tuple[list[str], dict[str, list[Overlaps]]]:
    """Names of the images, and the overlaps on each of every block of a model."""
    trained = TrainedModel(file)
    try:
        logits = trained.system.single_pass(trained.predictor)
    except ValueError as error:
        raise ValueError(f"{file.path}: {error}") from None
    samples = open_test_data(file, None if data is None else Path(data), split)
    count = len(samples) if images is None else min(images, len(samples))
    names: list[str] = []

    def first() -> Iterator[Any]:
        for index in range(count):
            sample = samples[index]
            names.append(sample.name)
            yield sample

    overlaps = measure_overlaps(
        trained.network,
        first(),
        len(file.classes),
        lambda _, image: logits(image),
        width=width,
        void_edges=void_edges,
        random=random,
        progress=start(file.recipe.name, count),
    )
    return names, overlaps
