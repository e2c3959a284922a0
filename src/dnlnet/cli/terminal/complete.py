"""Shell completion of recipes, data sets, variants, and the keys and values of --set. Needs no torch."""

from collections.abc import Iterable, Sequence

import typer


def complete_recipe(incomplete: str) -> list[str]:
    """Complete a recipe name.

    >>> complete_recipe("ade20k-r101-")
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    from dnlnet.registry import RECIPES

    return _beginning(incomplete, RECIPES)


def complete_data_set(incomplete: str) -> list[str]:
    """Complete the name of a data set.

    >>> complete_data_set("coco")
    ['coco', 'coco_folder']
    """
    from dnlnet.registry import data_sets

    return _beginning(incomplete, data_sets())


def complete_variant(incomplete: str) -> list[str]:
    """Complete a variant, or the last in a comma-separated list.

    >>> complete_variant("dnl_d"), complete_variant("nl,g")
    (['dnl_dagger'], ['nl,gc'])
    """
    from dnlnet.attention.spec import VARIANTS

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _beginning(last, VARIANTS)]


def complete_setting(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a key of the recipe on the line (of any recipe if there is none), or a value after the equals sign."""
    # While the last option has no value, the arguments are in `args` and not in `params`.
    return settings_of(
        [*context.args, *(text for text in context.params.values() if isinstance(text, str))], incomplete
    )


def settings_of(words: Sequence[str], incomplete: str) -> list[str]:
    """Complete a setting of the recipes that any of the words names; of all recipes if none does.

    >>> settings_of(["coco-micro-dnl-c4"], "data.short"), settings_of([], "model.variant=dnl_s")
    (['data.short_side='], ['model.variant=dnl_star'])
    """
    from dnlnet.attention.spec import PRESETS, VARIANTS
    from dnlnet.recipes.override import setting_keys
    from dnlnet.registry import RECIPES, list_recipes

    names = [name for text in words for name in list_recipes(text)] or list(RECIPES)
    chosen = [RECIPES[name] for name in names]
    kinds = dict.fromkeys(type(recipe) for recipe in chosen)
    key, equals, value = incomplete.partition("=")
    if not equals:
        keys = dict.fromkeys(key for kind in kinds for key in setting_keys(kind))
        return [f"{key}=" for key in _beginning(incomplete, keys)]
    named: dict[str, Iterable[str]] = {
        "model.variant": VARIANTS,
        "model.preset": PRESETS,
        "model.backbone": dict.fromkeys(name for recipe in chosen for name in recipe.model.known.get("backbone", ())),
        "data.name": dict.fromkeys(name for kind in kinds for name in kind.data_sets),
    }
    return [f"{key}={name}" for name in _beginning(value, named.get(key, ()))]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
