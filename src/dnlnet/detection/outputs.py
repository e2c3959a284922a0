"""Output files of a detector."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.outputs import Outputs, Targets
from dnlnet.detection.predictor import SCORE_THRESHOLD, DetectionModel, Detections
from dnlnet.files import atomic_write, json_text, make_folder
from dnlnet.progress import Progress

_MOST_PRINTED = 8  # objects in a line


@dataclass(frozen=True)
class DetectionOutputs(Outputs):
    """Writer of the folders `overlay`, `masks` (a folder per image, a PNG per object) and `detections` (JSON)."""

    model: DetectionModel
    threshold: float = SCORE_THRESHOLD

    def settings(self) -> dict[str, Any]:
        """Return the settings that the files depend on."""
        return {"threshold": self.threshold}

    def targets(self, out: Path, name: Path) -> Targets:
        """Return the files of an image."""
        return {
            "overlay": out / "overlay" / name.parent / f"{name.name}.png",
            "masks": out / "masks" / name,
            "detections": out / "detections" / name.parent / f"{name.name}.json",
        }

    def predict(self, pixels: NDArray[np.uint8], progress: Progress) -> Detections:
        """Detect the objects."""
        return self.model.predict(pixels, threshold=self.threshold)

    def say(self, prediction: Detections) -> str:
        """Return a line with the most confident objects and their scores."""
        parts = [f"{name} {score:.2f}" for name, score in zip(prediction.names(), prediction.scores, strict=True)]
        more = [f"and {len(parts) - _MOST_PRINTED} more"] if len(parts) > _MOST_PRINTED else []
        return ", ".join([*parts[:_MOST_PRINTED], *more]) or f"nothing above {self.threshold:g}"

    def write(self, prediction: Detections, targets: Targets) -> None:
        """Write the files."""
        with atomic_write(targets["overlay"]) as temporary:
            Image.fromarray(prediction.overlay()).save(temporary)
        folder = targets["masks"]
        make_folder(folder)
        for stale in folder.glob("*.png"):
            stale.unlink()
        for number, (name, mask) in enumerate(zip(prediction.names(), prediction.masks, strict=True), start=1):
            with atomic_write(folder / f"{number:03}_{_in_file_name(name)}.png") as temporary:
                Image.fromarray(255 * mask.astype(np.uint8)).save(temporary)
        with atomic_write(targets["detections"]) as temporary:
            results = prediction.results(_image_id(targets["detections"].stem))
            temporary.write_text(json_text(results, indent=1))

    def finish(self, out: Path) -> None:
        """Write all results into results.json, for COCO's tools."""
        parts = sorted((out / "detections").rglob("*.json")) if (out / "detections").is_dir() else []
        if parts:
            with atomic_write(out / "results.json") as temporary:
                results = [result for part in parts for result in json.loads(part.read_text())]
                temporary.write_text(json_text(results))


def _image_id(stem: str) -> int | str:
    """Return the image id in COCO's format: the file name as a number if it is one, else as text.

    >>> _image_id("000000000139"), _image_id("²³"), _image_id("9" * 30)[:3]
    (139, '²³', '999')
    """
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) <= 18 else stem


def _in_file_name(name: str) -> str:
    """Return a class name with only characters that are safe in a file name.

    >>> _in_file_name("traffic light"), _in_file_name("../a\\n")
    ('traffic_light', '.._a_')
    """
    return "".join(letter if letter.isalnum() or letter in "-.&+" else "_" for letter in name)[:40]
