"""Registry of tasks, recipes, data sets and backbones: the only place that names a task."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from dnlnet.backbones import BACKBONES, BackboneRow
from dnlnet.data.catalog import DataSet
from dnlnet.data.parsing import parse_json, validated
from dnlnet.detection.recipes import detection_recipes
from dnlnet.errors import shown, unknown
from dnlnet.recipes.recipe import Recipe
from dnlnet.segmentation.recipes import segmentation_recipes
from dnlnet.video.recipes import video_recipes

if TYPE_CHECKING:
    from torch import nn

TASKS: dict[str, type[Recipe]] = {}
RECIPES: dict[str, Recipe] = {}


def register_task(recipes: Iterable[Recipe]) -> None:
    """Register a task with its data sets and recipes. All recipes belong to one subclass of `Recipe`."""
    rows = list(recipes)
    kind = type(rows[0])
    task: str = kind.model_fields["task"].default
    for what, known, names in (
        ("task", TASKS, [task]),
        ("recipe", RECIPES, [recipe.name for recipe in rows]),
        ("data set", data_sets(), list(kind.data_sets)),
    ):
        for name in names:
            if name in known:
                raise ValueError(f"{what} {name!r} is registered already; choose another name")
    TASKS[task] = kind
    RECIPES.update({recipe.name: recipe for recipe in rows})


def register_data_set(task: str, row: DataSet[Any]) -> None:
    """Register a data set for the recipes of a task."""
    if row.name in data_sets():
        raise ValueError(f"data set {row.name!r} is registered already; choose another name")
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    TASKS[task].data_sets[row.name] = row


def register_backbone(name: str, row: BackboneRow) -> None:
    """Register a timm network as a backbone, for `model.backbone` of recipes."""
    if name in BACKBONES:
        raise ValueError(f"backbone {name!r} is registered already; choose another name")
    BACKBONES[name] = row


def data_sets() -> dict[str, tuple[type[Recipe], DataSet[Any]]]:
    """Return every data set by name, with the recipe class that reads it."""
    return {name: (kind, row) for kind in TASKS.values() for name, row in kind.data_sets.items()}


def pixel_data_sets() -> dict[str, DataSet[Any]]:
    """Return by name the data sets that label every pixel."""
    return {name: row for name, (kind, row) in data_sets().items() if hasattr(kind, "label_finder")}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name.

    >>> find_recipe("cityscapes-r101-dnl").schedule.iterations
    60000
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def match_recipes(pattern: str) -> list[Recipe]:
    """Return the recipes whose names match a pattern with ``*``. Raises if there are none.

    >>> [recipe.name for recipe in match_recipes("ade20k-r101-*")]
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    matching = [recipe for name, recipe in RECIPES.items() if fnmatch(name, pattern)]
    return matching or [find_recipe(pattern)]


def list_recipes(pattern: str = "*") -> list[str]:
    """Return the names of the recipes that match a pattern with ``*``.

    >>> list_recipes("ade20k-r101-*")
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    return [name for name in RECIPES if fnmatch(name, pattern)]


def parse_recipe(text: str) -> Recipe:
    """Parse a recipe that a model file stores as JSON.

    >>> recipe = find_recipe("camvid-mbv2-dnl")
    >>> parse_recipe(recipe.model_dump_json()) == recipe
    True
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"expected a mapping, got {shown(content)}")
    return validated(recipe_kind(content), content, stored=True)


def recipe_kind(stored: Mapping[str, Any]) -> type[Recipe]:
    """Return the class of a stored recipe. The first versions stored no task; their recipes are for segmentation."""
    task = stored.get("task", "segmentation")
    if not isinstance(task, str) or task not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {shown(task)}")
    return TASKS[task]


def create_model(recipe: str | Recipe, classes: int | None = None, *, pretrained: bool = False) -> "nn.Module":
    """Build the network of a recipe, to use or train it in your own code.

    Args:
        recipe: Recipe or its name.
        classes: Number of classes. Default: the number of the recipe's data set, if it is fixed.
        pretrained: Load the pretrained weights named by the recipe.

    >>> import torch
    >>> create_model("scenes-tiny-dnl")(torch.rand(1, 3, 32, 32)).logits.shape
    torch.Size([1, 6, 32, 32])
    """
    chosen = find_recipe(recipe) if isinstance(recipe, str) else recipe
    count = chosen.class_count if classes is None else classes
    if count is None:
        raise ValueError(f"{chosen.name}: the number of classes depends on the data; give classes=")
    return chosen.build(count, pretrained=pretrained)


def network_of(recipe: Recipe) -> tuple[Callable[[], "nn.Module"], tuple[int, ...]]:
    """Return a function that builds a recipe's network without pretrained weights, and the input lengths to measure.

    >>> network_of(find_recipe("kinetics-r50-dnl"))[1]
    (8, 256, 256)
    """
    if recipe.cost_size is None:
        raise ValueError(f"{recipe.name}: the cost of a {recipe.task} network depends on what is in the image")
    return partial(create_model, recipe), recipe.cost_size


def accepted_options(task: str, function: Callable[..., object] | None, **options: Any) -> dict[str, Any]:
    """Return the options that are not None. Raises unless the task's function takes them as keywords.

    >>> accepted_options("segmentation", find_recipe("scenes-tiny-dnl").tested, window=None, flip=True)
    {'flip': True}
    """
    parameters = {} if function is None else signature(function).parameters
    found = {name: value for name, value in options.items() if value is not None}
    _require_known(task, [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY], found)
    return found


def require_score_files(recipe: Recipe, kinds: Iterable[str]) -> None:
    """Raise unless the task of the recipe can write scores to all these kinds of files."""
    _require_known(recipe.task, recipe.score_files, kinds)


def _require_known(task: str, known: Sequence[str], options: Iterable[str]) -> None:
    others = [_flag(name) for name in options if name not in known]
    if others:
        own = f"it takes {', '.join(map(_flag, known))}" if known else "it takes no such option"
        raise ValueError(f"{', '.join(others)}: not for a {task} model; {own}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


for _recipes in (segmentation_recipes(), detection_recipes(), video_recipes()):
    register_task(_recipes)
