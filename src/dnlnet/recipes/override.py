"""Recipes with single values replaced, as `--set` does."""

from collections.abc import Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from dnlnet.errors import unknown
from dnlnet.recipes.schema import Recipe

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def override(recipe: AnyRecipe, settings: Sequence[str]) -> AnyRecipe:
    """The recipe with some values replaced, each given as ``key=value`` with dots in the key; types are checked.

    >>> from dnlnet.recipes import find_recipe
    >>> changed = override(find_recipe("camvid-mbv2-dnl"), ["optim.lr=0.02", "data.crop=[65, 97]"])
    >>> changed.optim.lr, changed.data.crop
    (0.02, (65, 97))
    """
    content = recipe.model_dump()
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise ValueError(f"--set {setting}: expected key=value, for example optim.lr=0.02")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ValueError(f"--set {setting}: the value {text!r} cannot be read; quote it as in YAML") from None
        _replace(content, type(recipe), key.strip(), value)
    try:
        return type(recipe).model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"--set {where}={first['input']}: {first['msg'].removeprefix('Value error, ')}") from None


def _replace(content: dict[str, Any], kind: type[BaseModel], key: str, value: object) -> None:
    """Set the value under a dotted key, whose every part has to be a field, or a key of a free mapping."""
    *parents, last = key.split(".")
    known: list[str] | None = list(kind.model_fields)
    for depth, name in enumerate([*parents, last]):
        if known is not None and name not in known:
            where = ".".join(key.split(".")[:depth])
            raise unknown(f"key {'of ' + where if where else 'of a recipe'}", name, known)
        if depth == len(parents):
            content[name] = value
            return
        field = kind.model_fields[name].annotation if known is not None else None
        part = _part(field)
        if part is None and field is not None and not isinstance(content.get(name), dict):
            raise ValueError(f"--set {key}: {name} is one value and has no parts")
        if content.get(name) is None:
            content[name] = {}
        content = content[name]
        known, kind = (list(part.model_fields), part) if part is not None else (None, kind)


def _part(annotation: Any) -> type[BaseModel] | None:
    """The part that a field holds, also where it may be None."""
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
