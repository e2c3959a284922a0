"""Recipes with single values replaced, as `--set` does."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from dnlnet.data.validated import shortened, validated
from dnlnet.errors import shown, unknown
from dnlnet.recipes.schema import Recipe

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


class _Loader(yaml.SafeLoader):
    """YAML of one value: 1e-4 is a number, as everywhere else, and nothing refers to other parts of it."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def override(recipe: AnyRecipe, settings: Sequence[str]) -> AnyRecipe:
    """The recipe with some values replaced, each given as ``key=value`` with dots in the key; types are checked.

    A changed recipe is no longer that of the paper's row, nor the one we measured: it has neither score.

    >>> from dnlnet.systems import find_recipe
    >>> changed = override(find_recipe("camvid-mbv2-dnl"), ["optim.lr=0.02", "data.crop=[65, 97]"])
    >>> changed.optim.lr, changed.data.crop
    (0.02, (65, 97))
    """
    if not settings:
        return recipe
    content = recipe.model_dump()
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise ValueError(f"--set {shortened(setting)}: expected key=value, for example optim.lr=0.02")
        _replace(content, type(recipe), key.strip(), _read(setting, text))
    return validated(type(recipe), content, "--set ").model_copy(update={"paper": None, "measured": None})


def _read(setting: str, text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    # What PyYAML raises for a text that is not of the type its tag says, and for brackets without end.
    except (yaml.YAMLError, ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError):
        raise ValueError(f"--set {shortened(setting)}: the value cannot be read; quote it as in YAML") from None


def _replace(content: dict[str, Any], kind: type[BaseModel], key: str, value: object) -> None:
    """Set the value under a dotted key, whose every part has to be a field, or a key of a free mapping."""
    *parents, last = key.split(".")
    known: list[str] | None = list(kind.model_fields)
    for depth, name in enumerate([*parents, last]):
        if known is not None and name not in known:
            where = shortened(".".join(key.split(".")[:depth]))
            raise unknown(f"key {'of ' + where if where else 'of a recipe'}", name, known)
        if depth == len(parents):
            content[name] = value
            return
        part = _part(kind.model_fields[name].annotation) if known is not None else None
        if content.get(name) is None and (part is not None or known is None):
            content[name] = {}
        if not isinstance(content.get(name), dict):
            raise ValueError(
                f"--set {shortened(key)}: {shortened(name)} is {shown(content.get(name))}, a value that has no parts"
            )
        content = content[name]
        known, kind = (list(part.model_fields), part) if part is not None else (None, kind)


def _part(annotation: Any) -> type[BaseModel] | None:
    """The part that a field holds, also where it may be None."""
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
