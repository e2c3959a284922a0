"""The systems: what the package asks of one, those it has, and the only place where a task's name is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dnlnet.backbones import BACKBONES, BackboneRow
from dnlnet.data.catalog import DataSet, Samples
from dnlnet.data.classes import Classes
from dnlnet.data.parsing import parse_json
from dnlnet.data.validated import validated
from dnlnet.detection.recipe import SYSTEM as DETECTION
from dnlnet.errors import shown, unknown
from dnlnet.recipes.schema import Recipe
from dnlnet.segmentation.recipe import SYSTEM as SEGMENTATION
from dnlnet.video.recipe import SYSTEM as VIDEO

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from dnlnet.data.check import Report
    from dnlnet.data.outputs import Outputs
    from dnlnet.engine.scores import Scores
    from dnlnet.engine.task import Task
    from dnlnet.export import Deployed, Query
    from dnlnet.lens.show.attend_request import AttendRequest, AttendResult

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


class System(Protocol[AnyRecipe]):
    """Everything that the package asks of a task: what it trains on, trains, scores, predicts, shows and exports.

    A system is an object with these members, most of which say where in its folder the work is done. Another one
    joins with `register_system`; recipes, model files, runs and every command then know it.
    """

    @property
    def name(self) -> str:
        """Of the task, as recipes say it."""
        ...

    @property
    def recipe_type(self) -> type[AnyRecipe]:
        """What its recipes say; the field `task` has the name."""
        ...

    @property
    def data_sets(self) -> dict[str, DataSet[Any]]:
        """The data sets that it reads, by name."""
        ...

    @property
    def starter(self) -> str:
        """The name of the small recipe to begin with on one's own data."""
        ...

    @property
    def unit(self) -> str:
        """What a batch holds: images, clips."""
        ...

    @property
    def class_score(self) -> str:
        """What the log of a run has of each class."""
        ...

    @property
    def evaluation_options(self) -> Sequence[str]:
        """Names of what `test_task` takes."""
        ...

    @property
    def score_files(self) -> Sequence[str]:
        """Names of the files that its scores can be written to."""
        ...

    @property
    def output_options(self) -> Sequence[str]:
        """Names of what `outputs` takes."""
        ...

    @property
    def pipeline(self) -> str:
        """What the Hugging Face hub calls the task."""
        ...

    @property
    def example(self) -> str:
        """The name of a file to predict, for a card."""
        ...

    @property
    def use(self) -> str:
        """One line of Python that uses a model, for a card."""
        ...

    def recipes(self) -> Iterable[AnyRecipe]:
        """Every recipe."""
        ...

    def build_model(
        self, model: Any, classes: int, *, weights: bool = True, report: Callable[[str], None] = ...
    ) -> nn.Module:
        """The network that a recipe's model describes."""
        ...

    def describe_layers(self, model: Any) -> str:
        """What the network is built on, in words."""
        ...

    def training_size(self, recipe: AnyRecipe) -> tuple[int, ...]:
        """Lengths, behind batch and colours, of what is trained on."""
        ...

    def training_part(self, network: nn.Module) -> nn.Module:
        """The part of a network that a batch of that size can be run through."""
        ...

    def cost_size(self, recipe: AnyRecipe) -> tuple[int, ...] | None:
        """Lengths of what the network's cost is counted for; None if it cannot be."""
        ...

    def image_text(self, recipe: AnyRecipe) -> str:
        """The size of what is trained on, in words."""
        ...

    def class_count(self, recipe: AnyRecipe) -> int | None:
        """How many classes the recipe's data have, if that is known without the data."""
        ...

    def training_data(
        self,
        recipe: AnyRecipe,
        root: Path | None,
        *,
        split: str | None = None,
        phase: int = 0,
        seed: int = 0,
        unpacked: Path | None = None,
        cache: Path | None = None,
        report: Callable[[str], None] = ...,
        progress: Callable[[int, int], None] = ...,
    ) -> Samples:
        """The samples that a recipe is trained on."""
        ...

    def validation_data(
        self,
        recipe: AnyRecipe,
        root: Path | None,
        split: str,
        *,
        cache: Path | None = None,
        report: Callable[[str], None] = ...,
        progress: Callable[[int, int], None] = ...,
    ) -> Samples:
        """The samples that a recipe is scored on while it trains."""
        ...

    def test_data(self, recipe: AnyRecipe, root: Path | None, split: str) -> Samples:
        """The samples of a split that a recipe is scored on."""
        ...

    def training_task(
        self,
        recipe: AnyRecipe,
        classes: Classes,
        validation: Samples | None = None,
        *,
        average: Callable[[Tensor], Tensor] = ...,
        device: torch.device | str = "cpu",
        report: Callable[[str], None] = ...,
    ) -> Task:
        """What the engine learns and scores."""
        ...

    def test_task(self, recipe: AnyRecipe, classes: Classes, data: Samples, options: Mapping[str, Any]) -> Task:
        """What the engine scores a trained model with."""
        ...

    def scores(self, metric: Any, classes: Classes, title: str) -> Scores:
        """What an evaluation found, ready to be printed."""
        ...

    def fold(self, network: Any) -> nn.Module:
        """The same function with batch norms folded into convolutions."""
        ...

    def predictor(self, recipe: AnyRecipe, network: Any, classes: Classes, device: torch.device | str) -> Any:
        """What predicts a file: has `predict`, `network` and `classes`.

        Of what the network puts out it uses the first tensor alone, if `deployed` is not `traced`: in another runtime
        the network puts out no more.
        """
        ...

    def outputs(self, predictor: Any, **options: Any) -> Outputs:
        """The files that predictions become."""
        ...

    def attend(self, models: Mapping[str, Any], request: AttendRequest, data: Path | None, name: str) -> AttendResult:
        """Show what predictors attend to; `data` is the folder of the data set `name`, for labels."""
        ...

    def single_pass(self, predictor: Any) -> Callable[[Tensor], Tensor]:
        """A function to the logits of each pixel of an image; an error if there are none."""
        ...

    def check(self, opened: Any, progress: Callable[[], None] | None = None) -> Report:
        """Read every file of a split."""
        ...

    def deployed(self, recipe: AnyRecipe, network: Any, queries: Sequence[Query], part: str) -> Deployed:
        """The network as other programs get it."""
        ...

    def deployed_size(self, recipe: AnyRecipe) -> tuple[int, int]:
        """Height and width that it is made for."""
        ...


SYSTEMS: dict[str, System[Any]] = {}
RECIPES: dict[str, Recipe] = {}
_FIRST = SEGMENTATION.name  # files from before there were others do not name their task


def register_system(system: System[Any]) -> None:
    """Make a system known, with its recipes and data sets."""
    for kind, known, names in (
        ("system", SYSTEMS, [system.name]),
        ("recipe", RECIPES, [recipe.name for recipe in system.recipes()]),
        ("data set", data_sets(), list(system.data_sets)),
    ):
        for name in names:
            if name in known:
                raise ValueError(f"there is a {kind} {name!r} already; choose another name")
    SYSTEMS[system.name] = system
    RECIPES.update({recipe.name: recipe for recipe in system.recipes()})


def register_data_set(system: str, row: DataSet[Any]) -> None:
    """Make a data set known to the system of this name."""
    if row.name in data_sets():
        raise ValueError(f"there is a data set {row.name!r} already; choose another name")
    find_system(system).data_sets[row.name] = row


def register_backbone(name: str, row: BackboneRow) -> None:
    """Make a network of timm known as a backbone, for `model.backbone` of recipes."""
    if name in BACKBONES:
        raise ValueError(f"there is a backbone {name!r} already; choose another name")
    BACKBONES[name] = row


def find_system(task: str) -> System[Any]:
    """The system of this name.

    >>> find_system("segmentations")
    Traceback (most recent call last):
    ValueError: unknown task 'segmentations'; did you mean 'segmentation'? known: segmentation, detection, video
    """
    if task not in SYSTEMS:
        raise unknown("task", task, SYSTEMS)
    return SYSTEMS[task]


def system_of(recipe: Recipe) -> System[Any]:
    """The system that a recipe is for."""
    return SYSTEMS[recipe.task]


def data_sets() -> dict[str, tuple[System[Any], DataSet[Any]]]:
    """Every data set by name, with the system that reads it."""
    return {name: (system, row) for system in SYSTEMS.values() for name, row in system.data_sets.items()}


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    >>> find_recipe("cityscapes-r101-dnl").schedule.iterations
    60000
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def match_recipes(pattern: str) -> list[Recipe]:
    """The recipes whose names match a pattern with ``*``, or the one of this name.

    >>> [recipe.name for recipe in match_recipes("ade20k-r101-*")]
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    matching = [recipe for name, recipe in RECIPES.items() if fnmatch(name, pattern)]
    return matching or [find_recipe(pattern)]


def list_recipes(pattern: str = "*") -> list[str]:
    """The names of the recipes that match a pattern with ``*``.

    >>> list_recipes("ade20k-r101-*")
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    return [name for name in RECIPES if fnmatch(name, pattern)]


def parse_recipe(text: str) -> Recipe:
    """A recipe from its JSON, as model files hold it.

    >>> recipe = find_recipe("camvid-mbv2-dnl")
    >>> parse_recipe(recipe.model_dump_json()) == recipe
    True
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a mapping, got {shown(content)}")
    task = content.get("task", _FIRST)
    if not isinstance(task, str) or task not in SYSTEMS:
        raise ValueError(f"task: expected one of {', '.join(SYSTEMS)}, got {shown(task)}")
    kind: type[Recipe] = SYSTEMS[task].recipe_type
    return validated(kind, content, stored=True)


def stored_system(recipe: Mapping[str, Any]) -> System[Any]:
    """The system of a recipe in a file, as plain data."""
    return find_system(recipe.get("task", _FIRST))


def create_model(recipe: str | Recipe, classes: int | None = None, *, pretrained: bool = False) -> nn.Module:
    """The network of a recipe, to train or use in one's own code.

    Args:
        recipe: its name, or itself.
        classes: how many; default: those of the recipe's data set, if that has a fixed number.
        pretrained: load the weights that the recipe's backbone begins with.

    >>> import torch
    >>> create_model("scenes-tiny-dnl")(torch.rand(1, 3, 32, 32)).logits.shape
    torch.Size([1, 6, 32, 32])
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    system = system_of(chosen)
    count = system.class_count(chosen) if classes is None else classes
    if count is None:
        raise ValueError(f"{chosen.name}: its data say how many classes there are; give classes=")
    return system.build_model(chosen.model, count, weights=pretrained)


def network_of(recipe: Recipe) -> tuple[Callable[[], nn.Module], tuple[int, ...]]:
    """What makes a recipe's network without trained weights, and the lengths of an input to measure it with.

    >>> network_of(find_recipe("kinetics-r50-dnl"))[1]
    (8, 256, 256)
    """
    size = system_of(recipe).cost_size(recipe)
    if size is None:
        raise ValueError(f"{recipe.name}: what a {recipe.task} network costs depends on what is in the image")
    return partial(create_model, recipe), size


def require_options(task: str, known: Sequence[str], options: Mapping[str, Any]) -> None:
    """An error if an option is not one that the system of this task has."""
    others = [_flag(name) for name in options if name not in known]
    if others:
        own = f"it takes {', '.join(map(_flag, known))}" if known else "it takes no such option"
        raise ValueError(f"{', '.join(others)}: not for a {task} model; {own}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_BUILT_IN: tuple[System[Any], ...] = (SEGMENTATION, DETECTION, VIDEO)
for _system in _BUILT_IN:
    register_system(_system)
