"""Recipes: a row of the paper's tables each, or a small one for a CPU."""

from collections.abc import Mapping
from fnmatch import fnmatch

from dnlnet.errors import unknown
from dnlnet.recipes.detection import detection_recipes
from dnlnet.recipes.override import override
from dnlnet.recipes.schema import Recipe, SegmentationRecipe
from dnlnet.recipes.segmentation import segmentation_recipes
from dnlnet.recipes.video import video_recipes

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe for recipe in (*segmentation_recipes(), *detection_recipes(), *video_recipes())
}

__all__ = ["RECIPES", "Recipe", "find_recipe", "find_segmentation_recipe", "match_recipes", "override"]


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    >>> find_recipe("cityscapes-r101-dnl").schedule.iterations
    60000
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def find_segmentation_recipe(name: str) -> SegmentationRecipe:
    """The segmentation recipe of this name."""
    recipe = find_recipe(name)
    if not isinstance(recipe, SegmentationRecipe):
        raise ValueError(f"{name} is a recipe for {recipe.task}; this is for segmentation")
    return recipe


def match_recipes(pattern: str) -> list[Recipe]:
    """The recipes whose names match a pattern with ``*``, or the one of this name.

    >>> [recipe.name for recipe in match_recipes("ade20k-r101-*")]
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    matching = [recipe for name, recipe in RECIPES.items() if fnmatch(name, pattern)]
    return matching or [find_recipe(pattern)]
