"""Two convolutions, a block and one score per class, with training, prediction, attention and export."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet import NonLocalBlock, capture
from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import Classes
from dnlnet.data.images import read_pixels
from dnlnet.data.outputs import Outputs, Targets
from dnlnet.deployment import Axes, WithMaps
from dnlnet.engine.scores import Scores, Table, class_bars
from dnlnet.files import atomic_write
from dnlnet.lens.show.attend import AttendRequest, AttendResult, attend_images
from dnlnet.lens.show.attended_image import AttentionView, block_views


class ShapeNet(nn.Module):
    def __init__(self, classes: int, variant: str | None) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
        )
        self.block = nn.Identity() if variant is None else NonLocalBlock(8, variant)
        self.classifier = nn.Linear(8, classes)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.block(self.body(images)).mean(dim=(2, 3)))
        return scores


class Accuracy:
    def __init__(self, classes: int) -> None:
        self.right, self.count = torch.zeros(classes), torch.zeros(classes)

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        self.right, self.count = sum(gather(self.right)), sum(gather(self.count))

    def scores(self) -> dict[str, float]:
        return {"accuracy": float(self.right.sum() / self.count.sum())}

    def by_class(self, names: Sequence[str]) -> dict[str, float | None]:
        return dict(zip(names, (self.right / self.count).tolist(), strict=True))


class ShapeTask:
    def __init__(self, classes: Classes) -> None:
        self.classes = classes

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        return {"loss": F.cross_entropy(model(normalised(batch[0])), batch[1])}

    def metric(self) -> Accuracy:
        return Accuracy(len(self.classes))

    def score(self, model: nn.Module, batch: Any, metric: Accuracy) -> None:
        found = model(normalised(batch[0])).argmax(dim=1)
        for label, one in zip(batch[1], found, strict=True):
            metric.count[label] += 1
            metric.right[label] += label == one

    def details(self, metric: Accuracy) -> Mapping[str, Any]:
        return {"by_class": metric.by_class(self.classes.names)}

    def summarize(self, metric: Accuracy, title: str) -> Scores:
        by_class, values = metric.by_class(self.classes.names), metric.scores()
        return Scores(values, [Table(title, class_bars("accuracy", by_class))], {**values, "by_class": by_class})

    def names(self, batch: Any) -> Sequence[str]:
        names: Sequence[str] = batch[2]
        return names


class ShapeModel:
    """Predict images, and show what the block attends to."""

    def __init__(self, network: nn.Module, classes: Classes) -> None:
        self.network, self.classes = network.eval(), classes

    @torch.inference_mode()
    def predict(self, image: Any) -> str:
        pixels = torch.from_numpy(read_pixels(image).copy()).permute(2, 0, 1)
        name: str = self.classes.names[int(self.network(normalised(pixels[None])).argmax())]
        return name

    def outputs(self) -> "ShapeOutputs":
        return ShapeOutputs(self)

    def attend(self, models: Mapping[str, Any], request: AttendRequest) -> AttendResult:
        return attend_images(models, request)

    def attention_views(self, title: str, pixels: np.ndarray) -> list[AttentionView]:
        with capture(self.network) as blocks:
            self.predict(pixels)
        return block_views(title, blocks, None)


@dataclass(frozen=True)
class ShapeOutputs(Outputs):
    model: ShapeModel

    def settings(self) -> dict[str, Any]:
        return {}

    def targets(self, out: Path, name: Path) -> Targets:
        return {"shape": out / name.parent / f"{name.name}.json"}

    def predict(self, pixels: Any, progress: Any) -> str:
        return self.model.predict(pixels)

    def write(self, prediction: str, targets: Targets) -> None:
        with atomic_write(targets["shape"]) as temporary:
            temporary.write_text(json.dumps({"shape": prediction}))


class ExportableShapeNet(WithMaps):
    takes = Axes("image", ("batch", 3, "height", "width"))

    def logits(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(normalised(x))
        return logits
