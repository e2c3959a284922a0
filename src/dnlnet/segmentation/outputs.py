"""Output files of a segmentation model, also in the formats of benchmark servers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.outputs import Outputs, Targets
from dnlnet.errors import unknown
from dnlnet.files import atomic_write
from dnlnet.progress import Progress
from dnlnet.segmentation.data.cityscapes import LABEL_IDS
from dnlnet.segmentation.drawing import add_legend, draw_outlines, share_text
from dnlnet.segmentation.predictor import MAX_PIXELS, Prediction, SegmentationModel

_WORTH_SAYING, _MOST_SAID = 0.01, 5  # share of an image, and classes in a line


@dataclass(frozen=True)
class Submission:
    """File format of a benchmark.

    Args:
        numbers: Number to write for each class.
        name: Function from an image's name without suffix to the name of its output file.
    """

    numbers: tuple[int, ...]
    name: Callable[[str], str]

    def encode(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the benchmark's numbers (H, W) for classes (H, W).

        >>> SUBMISSIONS["cityscapes"].encode(np.array([[0, 13]], dtype=np.uint8)).tolist()
        [[7, 26]]
        """
        if labels.max(initial=0) >= len(self.numbers):
            raise ValueError(f"class {labels.max()}: expected 0..{len(self.numbers) - 1} for this benchmark")
        encoded: NDArray[np.uint8] = np.array(self.numbers, dtype=np.uint8)[labels]
        return encoded


def _cityscapes_name(stem: str) -> str:
    """Return `<city>_<sequence>_<frame>_pred_labelIds` for the name of a leftImg8bit image."""
    parts = re.fullmatch(r"([^_]+_\d{6}_\d{6})(_leftImg8bit)?", stem)
    if parts is None:
        raise ValueError(f"{stem}: expected a file name of Cityscapes, such as berlin_000000_000019_leftImg8bit")
    return f"{parts[1]}_pred_labelIds"


SUBMISSIONS: Mapping[str, Submission] = {
    "cityscapes": Submission(LABEL_IDS, _cityscapes_name),
    "ade20k": Submission(tuple(range(1, 151)), str),
    "pascal_context": Submission(tuple(range(1, 60)), str),
    "pascal_context_60": Submission(tuple(range(60)), str),
}


@dataclass(frozen=True)
class SegmentationOutputs(Outputs):
    """Writer of predictions: PNG files in `labels`, `colours` and `overlay`, or files for a benchmark server.

    Labels are class indices with the classes' colours as palette. An overlay has outlines, and a legend below the
    image.
    """

    model: SegmentationModel
    submission: str | None = None
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if self.submission is not None and self.submission not in SUBMISSIONS:
            raise unknown("submission format", self.submission, SUBMISSIONS)

    @property
    def _format(self) -> Submission | None:
        return None if self.submission is None else SUBMISSIONS[self.submission]

    def settings(self) -> dict[str, Any]:
        """Return the settings that the files depend on, besides the model."""
        return {"submission": self.submission, "max_pixels": self.max_pixels}

    def targets(self, out: Path, name: Path) -> Targets:
        """Return the output files of an image."""
        if self._format is not None:
            return {"submission": out / "submission" / f"{self._format.name(name.name)}.png"}
        return {kind: out / kind / name.parent / f"{name.name}.png" for kind in ("labels", "colours", "overlay")}

    def predict(self, pixels: NDArray[np.uint8], progress: Progress) -> Prediction:
        """Predict the class of each pixel."""
        return self.model.predict(pixels, max_pixels=self.max_pixels, progress=progress)

    def say(self, prediction: Prediction) -> str:
        """Return the classes that cover most of the image, with their shares."""
        main = [(name, share) for name, share in prediction.shares().items() if share >= _WORTH_SAYING]
        parts = [f"{name} {share_text(share)}" for name, share in main[:_MOST_SAID]]
        return ", ".join([*parts, *(["..."] if len(main) > _MOST_SAID else [])])

    def write(self, prediction: Prediction, targets: Targets) -> None:
        """Write the files."""
        for kind, target in targets.items():
            with atomic_write(target) as temporary:
                image = Image.fromarray(self._pixels(prediction, kind))
                if kind == "labels":  # as numbers that viewers show in the classes' colours
                    image.putpalette(prediction.classes.paint(np.arange(256)).ravel().tolist())
                image.save(temporary)

    def _pixels(self, prediction: Prediction, kind: str) -> NDArray[np.uint8]:
        if self._format is not None:
            return self._format.encode(prediction.labels)
        if kind == "colours":
            return prediction.colours()
        if kind == "labels":
            return prediction.labels
        drawn = draw_outlines(prediction.overlay(), prediction.labels, prediction.classes)
        return add_legend(drawn, prediction.classes, prediction.shares())
