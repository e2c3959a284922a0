"""What the shell completes: recipes, data sets, variants, and the keys and values of --set. No torch is needed."""

from collections.abc import Iterable


def complete_recipe(incomplete: str) -> list[str]:
    """Names of recipes that begin so.

    >>> complete_recipe("ade20k-r101-")
    ['ade20k-r101-nl', 'ade20k-r101-dnl']
    """
    from dnlnet.systems import RECIPES

    return _beginning(incomplete, RECIPES)


def complete_data_set(incomplete: str) -> list[str]:
    """Names of data sets that begin so.

    >>> complete_data_set("coco")
    ['coco', 'coco_folder']
    """
    from dnlnet.systems import data_sets

    return _beginning(incomplete, data_sets())


def complete_variant(incomplete: str) -> list[str]:
    """Names of variants that begin so, also the last of several with commas between them.

    >>> complete_variant("dnl_d"), complete_variant("nl,g")
    (['dnl_dagger'], ['nl,gc'])
    """
    from dnlnet.attention.spec import VARIANTS

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _beginning(last, VARIANTS)]


def complete_setting(incomplete: str) -> list[str]:
    """Keys of recipes that begin so, and after the equals sign the values that have names.

    >>> complete_setting("model.back"), complete_setting("model.variant=dnl_s")
    (['model.backbone='], ['model.variant=dnl_star'])
    """
    from dnlnet.recipes.override import setting_keys
    from dnlnet.systems import SYSTEMS

    key, equals, value = incomplete.partition("=")
    if equals:
        return [f"{key}={name}" for name in _beginning(value, _values(key))]
    keys = dict.fromkeys(key for system in SYSTEMS.values() for key in setting_keys(system.recipe_type))
    return [f"{key}=" for key in _beginning(incomplete, keys)]


def _values(key: str) -> Iterable[str]:
    """The names that a setting can have as its value."""
    from dnlnet.attention.spec import PRESETS, VARIANTS
    from dnlnet.backbones.rows import BACKBONES, VIDEO_BACKBONES
    from dnlnet.systems import data_sets

    named: dict[str, Iterable[str]] = {
        "model.variant": VARIANTS,
        "model.preset": PRESETS,
        "model.backbone": [*BACKBONES, *VIDEO_BACKBONES],
        "data.name": data_sets(),
    }
    return named.get(key, ())


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
