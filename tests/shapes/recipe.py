"""Everything that dnlnet requires of a task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from dnlnet.data.classes import Classes
from dnlnet.deployment import Query
from dnlnet.engine.settings import Optim, Schedule, Training
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.context import RunContext
from dnlnet.recipes.model import Model
from dnlnet.recipes.recipe import DataPart, HubCard, Recipe
from shapes.data import DATA_SETS, Report, Samples, ShapeImages, check
from shapes.network import ExportableShapeNet, ShapeModel, ShapeNet, ShapeTask


class ShapesRecipe(Recipe):
    """Shapes of objects."""

    task: Literal["shapes"] = "shapes"
    model: Model
    data: DataPart = DataPart(name="shapes")

    data_sets = DATA_SETS
    starter = "shapes-dnl"
    class_score = "accuracy"
    card = HubCard("image-classification", "image.png", 'model.predict("image.png")  # the name of its shape')

    @property
    def training_size(self) -> tuple[int, int]:
        return 32, 32

    def build(self, classes: int, *, pretrained: bool = True, progress: Progress = SILENT) -> nn.Module:
        return ShapeNet(classes, self.model.variant)

    def training_samples(self, run: RunContext, split: str, phase: int = 0) -> Samples:
        return self.test_samples(run.data, split)

    def test_samples(self, root: Path | None, split: str) -> Samples:
        return Samples(self.open(root, split))

    def training_task(self, classes: Classes, run: RunContext, validation: Any = None) -> ShapeTask:
        return ShapeTask(classes)

    def predictor(self, network: nn.Module, classes: Classes, device: Any = "cpu") -> ShapeModel:
        return ShapeModel(network.to(device), classes)

    def exportable(self, network: nn.Module, *, with_maps: Sequence[Query] = ()) -> ExportableShapeNet:
        return ExportableShapeNet(network, self.training_size, with_maps)

    @classmethod
    def check_data(cls, opened: ShapeImages, progress: Progress = SILENT) -> Report:
        return check(opened, progress)


RECIPES = [
    ShapesRecipe(
        name=f"shapes-{variant or 'baseline'}",
        model=Model(variant=variant),
        optim=Optim(lr=0.1),
        schedule=Schedule(iterations=8, batch=4),
        training=Training(evaluate_every=8),
    )
    for variant in (None, "nl", "dnl")
]
