"""Output files of a video model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dnlnet.data.inputs import Inputs, find_inputs
from dnlnet.data.outputs import Outputs, Targets
from dnlnet.files import atomic_write, json_text
from dnlnet.progress import Progress
from dnlnet.video.data.opening import VIDEO_SUFFIXES, is_video, several_videos
from dnlnet.video.predictor import Action, VideoModel


@dataclass(frozen=True)
class VideoOutputs(Outputs):
    """Writer of a JSON file per video with the probability of every class."""

    model: VideoModel

    def settings(self) -> dict[str, Any]:
        """Return the settings that the files depend on."""
        return {}

    def targets(self, out: Path, name: Path) -> Targets:
        """Return the file of a video."""
        return {"classes": out / name.parent / f"{name.name}.json"}

    def find(self, inputs: Sequence[Path], out: Path | None = None) -> Inputs:
        """Find video files and folders of frames."""
        kind = f"videos in it ({', '.join(VIDEO_SUFFIXES)}, or folders of images)"
        return find_inputs(inputs, is_video, kind, out)

    def several(self, source: Any) -> list[Any] | None:
        """Return the videos of a list or a batch (N, T, H, W, 3), or None. A list of images is one video."""
        return several_videos(source)

    def read(self, path: Path) -> tuple[Tensor, list[str]]:
        """Return all views of a video, and its defects."""
        return self.model.views(path)

    def predict(self, pixels: tuple[Tensor, list[str]], progress: Progress) -> Action:
        """Classify the video."""
        return self.model.predict_views(*pixels)

    def notes(self, prediction: Action) -> Sequence[str]:
        """Return the defects of the video."""
        return prediction.notes

    def say(self, prediction: Action) -> str:
        """Return the most confident classes with bars."""
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
