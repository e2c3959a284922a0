"""Choice of a recipe for a data folder, and early checks of a training command. Does not import torch."""

from pathlib import Path
from typing import Any

from dnlnet.bundled import find_bundled
from dnlnet.data.catalog import HOLDOUT, PARTS, DataSet
from dnlnet.data.check import count_of
from dnlnet.errors import require_package
from dnlnet.progress import SILENT, Progress
from dnlnet.recipes.model import IMAGENET
from dnlnet.recipes.override import AnyRecipe, override
from dnlnet.recipes.recipe import Recipe
from dnlnet.registry import RECIPES, data_sets, find_recipe
from dnlnet.runs.run_folder import RUN_FILE, require_run_folder

_FEW_ITERATIONS = 10_000
_OWN = (
    "images with masks and classes.yaml, annotations/*.json in COCO's format with images, or a folder of videos for "
    "each class"
)


def choose_recipe(root: Path) -> tuple[Recipe, str]:
    """Return a small recipe for a data folder, and a sentence with the reason.

    Args:
        root: Folder with your own data or a known data set (see `dnlnet data list`).
    """
    kind, row = recognise(root)
    recipe = _small_recipe(kind, row, root)
    scored = f"scored on {recipe.data.test}" if recipe.data.test else "with no split to be scored on"
    signs = row.flat.layout if row.flat is not None and row.is_flat(root) else ", ".join(row.signs)
    return recipe, (
        f"{root} has {signs}, the layout of {row.name}: training {recipe.name}, a small "
        f"{recipe.task} recipe, on {recipe.data.train}, {scored}"
    )


def recognise(root: Path) -> tuple[type[Recipe], DataSet[Any]]:
    """Return the data set with the layout of this folder. Raises an error that says what is missing."""
    if (found := _recognised(root)) is not None:
        return found
    for kind, row in data_sets().values():
        if row.has_most_signs(root):
            row.open_all(root)  # raises, and names the missing file
            return kind, row
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    near = next((folder for folder in folders if _recognised(folder) is not None), None)
    hint = f"{near} does: give that" if near else f"expected {_OWN}"
    raise ValueError(f"{root}: looks like no known data set; {hint}; dnlnet data list shows all, with their names")


def with_holdout(recipe: AnyRecipe, root: Path | None, progress: Progress = SILENT) -> AnyRecipe:
    """Return the recipe with `data.holdout` set if the folder has no splits."""
    row = recipe.data_sets.get(recipe.data.name)
    holdout = recipe.data.holdout
    if root is None or row is None or not row.is_flat(root):
        if holdout is not None:
            raise ValueError(f"{root or recipe.data.name} has splits of its own; leave out --holdout")
        return recipe
    holdout = HOLDOUT if holdout is None else holdout
    say_division(row, root, holdout, progress)
    return override(recipe, [f"data.holdout={holdout}"])


def say_division(row: DataSet[Any], root: Path, holdout: float, progress: Progress) -> None:
    """Say how a folder without splits is divided. Raises if a part would be empty."""
    train, val = (count_of(len(row.open(root, part, holdout)), row.holds.removesuffix("s")) for part in PARTS)
    progress.say(
        f"{root} has no splits: {train} for {PARTS[0]}, {val} for {PARTS[1]}, chosen by a hash of the names "
        f"(--holdout {holdout} of dnlnet train)"
    )


def require_suitable(recipe: Recipe, root: Path) -> None:
    """Raise if the folder looks like another data set than the recipe's. The message names a suitable recipe."""
    row = recipe.data_sets.get(recipe.data.name)
    if row is None or not row.signs or row.has_signs(root):
        return
    found = _recognised(root)
    if found is not None and found[1].name != row.name:
        better = _small_recipe(*found, root)
        raise ValueError(
            f"{recipe.name} is for {row.name}, but {root} looks like {found[1].name}; train {better.name} on it, or "
            "leave out the recipe and it is chosen"
        )


def require_ready(recipe: Recipe, root: Path | None, out: Path) -> None:
    """Raise early if folders, packages or the weights file are missing."""
    if root is not None:
        require_data_folder(root)
        require_suitable(recipe, root)
    require_run_folder(out)
    row = recipe.data_sets.get(recipe.data.name)
    if row is not None and row.package is not None:
        require_package(*row.package)
    weights = None if (out / RUN_FILE).exists() else recipe.model.weights  # a resumed run has its own weights
    if weights is None or weights == IMAGENET or Path(weights).is_file():
        return
    if find_bundled(weights) is None:
        raise FileNotFoundError(f"{weights}: no such file of weights; give another with --weights FILE, or none")


def require_data_folder(root: Path) -> None:
    """Raise unless the data folder exists."""
    if not root.is_dir():
        kind = "is not a folder" if root.exists() else "no such folder"
        raise FileNotFoundError(f"{root}: {kind}; give the folder of the data with --data DIR")


def _recognised(root: Path) -> tuple[type[Recipe], DataSet[Any]] | None:
    require_data_folder(root)
    return next(((kind, row) for kind, row in data_sets().values() if row.recognises(root)), None)


def _small_recipe(kind: type[Recipe], row: DataSet[Any], root: Path) -> Recipe:
    """Return the starter recipe's counterpart for this data set, or the starter with its data set replaced."""
    starter = find_recipe(kind.starter)
    twins = (one for one in RECIPES.values() if one.model == starter.model and one.data.name == row.name)
    small = (one for one in twins if one.schedule.iterations <= _FEW_ITERATIONS and not one.schedule.then)
    recipe = next(small, starter)
    splits = list(row.splits_of(root))
    train = _first(splits, recipe.data.train, "train") or splits[0]
    test = _first([split for split in splits if split != train], recipe.data.test, "val", "test")
    changes = {"name": row.name, "train": train, "test": test}
    settings = [
        f"data.{key}={value or 'null'}" for key, value in changes.items() if getattr(recipe.data, key) != value
    ]
    return override(recipe, settings)


def _first(splits: list[str], *wanted: str | None) -> str | None:
    """Return the split with one of these names, or else one whose name starts with one."""
    names = [name for name in wanted if name]
    same = (name for name in names if name in splits)
    return next(same, None) or next((split for name in names for split in splits if split.startswith(name)), None)
