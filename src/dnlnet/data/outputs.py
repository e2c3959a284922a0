"""The files that predictions of each task become."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dnlnet.data.inputs import Inputs, find_inputs, find_pictures
from dnlnet.data.pictures import read_picture
from dnlnet.detection.predictor import DetectionModel, Detections
from dnlnet.errors import unknown
from dnlnet.files import atomic_write, json_text
from dnlnet.segmentation.data.submission import SUBMISSIONS, Submission
from dnlnet.segmentation.predictor import Prediction, Progress, SegmentationModel
from dnlnet.video.data.video import VIDEO_SUFFIXES, is_video
from dnlnet.video.predictor import Action, VideoModel

Targets = dict[str, Path]


class Outputs(ABC):
    """How a model's predictions become files."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the files depend on, beside the model."""

    @abstractmethod
    def targets(self, out: Path, name: Path) -> Targets:
        """The files of a picture, by what they are; the last one is written last."""

    def find(self, inputs: Sequence[Path], out: Path) -> Inputs:
        """What is to be predicted."""
        return find_pictures(inputs, out)

    def read(self, path: Path) -> Any:
        """What the model looks at, from a file."""
        return read_picture(path)

    @abstractmethod
    def predict(self, pixels: Any, progress: Progress) -> Any:
        """What the model finds."""

    def say(self, prediction: Any) -> str:
        """What to tell the user about a prediction; mostly nothing."""
        return ""

    def notes(self, prediction: Any) -> Sequence[str]:
        """What is wrong with a picture or video although it could be used."""
        return ()

    @abstractmethod
    def write(self, prediction: Any, targets: Targets) -> None:
        """Write the files, each whole or not at all."""


def outputs_of(
    model: SegmentationModel | DetectionModel | VideoModel,
    submission: str | None,
    max_pixels: int,
    threshold: float,
) -> Outputs:
    """The outputs of a model's task."""
    if isinstance(model, SegmentationModel):
        return SegmentationOutputs(model, submission, max_pixels)
    if submission is not None:
        raise ValueError("--submission is for segmentation; a detector's results.json is what COCO's server takes")
    if isinstance(model, VideoModel):
        return VideoOutputs(model)
    return DetectionOutputs(model, threshold)


@dataclass(frozen=True)
class SegmentationOutputs(Outputs):
    """Folders `labels`, `colours` and `overlay` with a PNG for each picture; or what a benchmark's server takes."""

    model: SegmentationModel
    submission: str | None
    max_pixels: int

    def __post_init__(self) -> None:
        if self.submission is not None and self.submission not in SUBMISSIONS:
            raise unknown("submission format", self.submission, SUBMISSIONS)

    @property
    def _format(self) -> Submission | None:
        return None if self.submission is None else SUBMISSIONS[self.submission]

    def settings(self) -> dict[str, Any]:
        """What the files depend on, beside the model."""
        return {"submission": self.submission, "max_pixels": self.max_pixels}

    def targets(self, out: Path, name: Path) -> Targets:
        """The files of a picture."""
        if self._format is not None:
            return {"submission": out / "submission" / f"{self._format.name(name.name)}.png"}
        return {kind: out / kind / name.parent / f"{name.name}.png" for kind in ("labels", "colours", "overlay")}

    def predict(self, pixels: NDArray[np.uint8], progress: Progress) -> Prediction:
        """The class of each pixel."""
        return self.model.predict(pixels, max_pixels=self.max_pixels, progress=progress)

    def write(self, prediction: Prediction, targets: Targets) -> None:
        """Write the files."""
        for kind, target in targets.items():
            with atomic_write(target) as temporary:
                Image.fromarray(self._pixels(prediction, kind)).save(temporary)

    def _pixels(self, prediction: Prediction, kind: str) -> NDArray[np.uint8]:
        if self._format is not None:
            return self._format.encode(prediction.labels)
        if kind == "colours":
            return prediction.colours()
        return prediction.labels if kind == "labels" else prediction.overlay()


@dataclass(frozen=True)
class DetectionOutputs(Outputs):
    """Folders `overlay`, `masks` (for each picture a folder with a PNG for each object) and `detections` (JSON)."""

    model: DetectionModel
    threshold: float

    def settings(self) -> dict[str, Any]:
        """What the files depend on, beside the model."""
        return {"threshold": self.threshold}

    def targets(self, out: Path, name: Path) -> Targets:
        """The files of a picture."""
        return {
            "overlay": out / "overlay" / name.parent / f"{name.name}.png",
            "masks": out / "masks" / name,
            "detections": out / "detections" / name.parent / f"{name.name}.json",
        }

    def predict(self, pixels: NDArray[np.uint8], progress: Progress) -> Detections:
        """The objects."""
        return self.model.predict(pixels, threshold=self.threshold)

    def write(self, prediction: Detections, targets: Targets) -> None:
        """Write the files."""
        with atomic_write(targets["overlay"]) as temporary:
            Image.fromarray(prediction.overlay()).save(temporary)
        folder = targets["masks"]
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.png"):
            stale.unlink()
        for number, (name, mask) in enumerate(zip(prediction.names(), prediction.masks, strict=True), start=1):
            with atomic_write(folder / f"{number:03}_{_in_file_name(name)}.png") as temporary:
                Image.fromarray(255 * mask.astype(np.uint8)).save(temporary)
        with atomic_write(targets["detections"]) as temporary:
            results = prediction.results(_image_id(targets["detections"].stem))
            temporary.write_text(json_text(results, indent=1))


def _image_id(stem: str) -> int | str:
    """What COCO's format calls a picture: the number that its name is, if it is one of 64 bits, else the name.

    >>> _image_id("000000000139"), _image_id("²³"), _image_id("9" * 30)[:3]
    (139, '²³', '999')
    """
    return int(stem) if stem.isascii() and stem.isdigit() and len(stem) <= 18 else stem


def _in_file_name(name: str) -> str:
    """The name of a class as a part of a file's name.

    >>> _in_file_name("traffic light"), _in_file_name("../a\\n")
    ('traffic_light', '.._a_')
    """
    return "".join(letter if letter.isalnum() or letter in "-.&+" else "_" for letter in name)[:40]


@dataclass(frozen=True)
class VideoOutputs(Outputs):
    """A JSON file for each video, with the probability of every class."""

    model: VideoModel

    def settings(self) -> dict[str, Any]:
        """What the files depend on, beside the model."""
        return {}

    def targets(self, out: Path, name: Path) -> Targets:
        """The file of a video."""
        return {"classes": out / name.parent / f"{name.name}.json"}

    def find(self, inputs: Sequence[Path], out: Path) -> Inputs:
        """Video files and folders of frames."""
        kind = f"videos in it ({', '.join(VIDEO_SUFFIXES)}, or folders of pictures)"
        return find_inputs(inputs, is_video, kind, out)

    def read(self, path: Path) -> tuple[Tensor, list[str]]:
        """All views of a video, and what is wrong with it."""
        return self.model.views(path)

    def predict(self, pixels: tuple[Tensor, list[str]], progress: Progress) -> Action:
        """The classes."""
        return self.model.predict_views(*pixels)

    def notes(self, prediction: Action) -> Sequence[str]:
        """How much of the video could be used, if not all of it."""
        return prediction.notes

    def say(self, prediction: Action) -> str:
        """The most confident classes with bars."""
        rows = prediction.top(5).items()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {score:6.1%}  {'█' * round(24 * score)}" for name, score in rows)

    def write(self, prediction: Action, targets: Targets) -> None:
        """Write the file."""
        with atomic_write(targets["classes"]) as temporary:
            content: dict[str, Any] = {"classes": prediction.top(len(prediction.classes))}
            if prediction.notes:
                content["notes"] = list(prediction.notes)
            temporary.write_text(json_text(content, indent=1))


def join_results(out: Path) -> Path | None:
    """All of a detector's results in one file, as COCO's tools take them; None where there are none."""
    parts = sorted((out / "detections").rglob("*.json")) if (out / "detections").is_dir() else []
    if not parts:
        return None
    path = out / "results.json"
    with atomic_write(path) as temporary:
        temporary.write_text(json_text([result for part in parts for result in json.loads(part.read_text())]))
    return path
