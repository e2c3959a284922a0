"""Which builders a recipe's task has."""

from collections.abc import Mapping
from types import ModuleType

from dnlnet.recipes import build_detection, build_segmentation, build_video
from dnlnet.recipes.schema import Recipe

# Modules with the same functions: build_model, build_task, build_training_data, build_validation_data, find_classes.
BUILDERS: Mapping[str, ModuleType] = {
    "segmentation": build_segmentation,
    "detection": build_detection,
    "video": build_video,
}


def builder_of(recipe: Recipe) -> ModuleType:
    """The module whose functions build what this recipe describes.

    >>> from dnlnet.recipes import find_recipe
    >>> builder_of(find_recipe("scenes-tiny-dnl")).__name__
    'dnlnet.recipes.build_segmentation'
    """
    return BUILDERS[recipe.task]
