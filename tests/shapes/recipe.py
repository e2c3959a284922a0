"""The system: what dnlnet asks of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import fold_batch_norms
from dnlnet.data.catalog import required_folder
from dnlnet.data.classes import Classes
from dnlnet.engine.scores import Scores, Table, class_bars
from dnlnet.engine.settings import Optim, Schedule, Training
from dnlnet.export import Query
from dnlnet.lens.show.attend_images import attend_images
from dnlnet.lens.show.attend_request import AttendRequest, AttendResult
from dnlnet.recipes.schema import DataPart, Model, Recipe
from shapes import data
from shapes.network import Accuracy, DeployedShapeNet, ShapeModel, ShapeNet, ShapeOutputs, ShapeTask


class ShapeNetModel(Model):
    backbones: ClassVar[Mapping[str, object]] = {"two_convolutions": None}
    backbone: str = "two_convolutions"
    weights: None = None


class ShapesRecipe(Recipe):
    task: Literal["shapes"] = "shapes"
    model: ShapeNetModel
    data: DataPart = DataPart(name="shapes")


class Shapes:
    name = "shapes"
    recipe_type = ShapesRecipe
    starter = "shapes-dnl"
    data_sets = data.DATA_SETS
    unit = "pictures"
    class_score = "accuracy"
    evaluation_options = ()
    score_files = ()
    output_options = ()
    pipeline = "image-classification"
    example = "picture.png"
    use = 'model.predict("picture.png")  # the name of its shape'

    def recipes(self) -> Iterable[ShapesRecipe]:
        for variant in (None, "nl", "dnl"):
            yield ShapesRecipe(
                name=f"shapes-{variant or 'baseline'}",
                model=ShapeNetModel(variant=variant),
                optim=Optim(lr=0.1),
                schedule=Schedule(iterations=8, batch=4),
                training=Training(evaluate_every=8),
            )

    def build_model(
        self, model: ShapeNetModel, classes: int, *, weights: bool = True, report: Callable[[str], None] = print
    ) -> nn.Module:
        return ShapeNet(classes, model.variant)

    def describe_layers(self, model: ShapeNetModel) -> str:
        return "two convolutions"

    def training_size(self, recipe: ShapesRecipe) -> tuple[int, ...]:
        return 32, 32

    def training_part(self, network: nn.Module) -> nn.Module:
        return network

    def cost_size(self, recipe: ShapesRecipe) -> tuple[int, ...] | None:
        return 32, 32

    def image_text(self, recipe: ShapesRecipe) -> str:
        return "32 x 32"

    def class_count(self, recipe: ShapesRecipe) -> int | None:
        return 2

    def training_data(
        self,
        recipe: ShapesRecipe,
        root: Path | None,
        *,
        split: str | None = None,
        phase: int = 0,
        seed: int = 0,
        unpacked: Path | None = None,
        cache: Path | None = None,
        report: Callable[[str], None] = print,
        progress: Callable[[int, int], None] = print,
    ) -> data.Samples:
        return self.test_data(recipe, root, split or recipe.data.train)

    def test_data(self, recipe: ShapesRecipe, root: Path | None, split: str) -> data.Samples:
        name = recipe.data.name
        return data.Samples(self.data_sets[name].open(required_folder(recipe.name, name, root), split))

    def validation_data(
        self,
        recipe: ShapesRecipe,
        root: Path | None,
        split: str,
        *,
        cache: Path | None = None,
        report: Callable[[str], None] = print,
        progress: Callable[[int, int], None] = print,
    ) -> data.Samples:
        return self.test_data(recipe, root, split)

    def training_task(
        self,
        recipe: ShapesRecipe,
        classes: Classes,
        validation: Any = None,
        *,
        average: Callable[[Tensor], Tensor] = lambda number: number,
        device: torch.device | str = "cpu",
        report: Callable[[str], None] = print,
    ) -> ShapeTask:
        return ShapeTask(classes)

    def test_task(
        self, recipe: ShapesRecipe, classes: Classes, samples: Any, options: Mapping[str, Any]
    ) -> ShapeTask:
        return ShapeTask(classes)

    def scores(self, metric: Accuracy, classes: Classes, title: str) -> Scores:
        by_class, values = metric.by_class(classes.names), metric.scores()
        return Scores(values, [Table(title, class_bars("accuracy", by_class))], {**values, "by_class": by_class})

    def fold(self, network: nn.Module) -> nn.Module:
        return fold_batch_norms(network, torch.zeros(1, 3, 32, 32))

    def predictor(
        self, recipe: ShapesRecipe, network: nn.Module, classes: Classes, device: torch.device | str
    ) -> ShapeModel:
        return ShapeModel(network.to(device), classes)

    def outputs(self, predictor: ShapeModel, **options: Any) -> ShapeOutputs:
        return ShapeOutputs(predictor)

    def attend(
        self, models: Mapping[str, ShapeModel], request: AttendRequest, data: Path | None, name: str
    ) -> AttendResult:
        return attend_images(models, request)

    def single_pass(self, predictor: ShapeModel) -> Callable[[Tensor], Tensor]:
        raise ValueError("is a shapes model; this is for models with a class for each pixel")

    def check(self, opened: data.Pictures, progress: Callable[[], None] | None = None) -> data.Report:
        return data.check(opened, progress)

    def deployed(
        self, recipe: ShapesRecipe, network: nn.Module, queries: Sequence[Query], part: str
    ) -> DeployedShapeNet:
        return DeployedShapeNet(network, queries, dims=2)

    def deployed_size(self, recipe: ShapesRecipe) -> tuple[int, int]:
        return 32, 32


SYSTEM = Shapes()
