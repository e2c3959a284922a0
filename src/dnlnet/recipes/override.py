"""Recipes with single values replaced, as `--set` does."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import BaseModel

from dnlnet.data.parsing import StrictLoader, parse_yaml
from dnlnet.data.validated import shortened, validated
from dnlnet.errors import shown, unknown
from dnlnet.recipes.schema import Recipe

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


class _Loader(StrictLoader):
    """YAML of one value: 1e-4 is a number, as everywhere else, and nothing refers to other parts of it."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def override(recipe: AnyRecipe, settings: Sequence[str]) -> AnyRecipe:
    """The recipe with some values replaced, each given as ``key=value`` with dots in the key; types are checked.

    A changed recipe is no longer that of the paper's row, nor the one we measured: it has neither score.

    >>> from dnlnet.registry import find_recipe
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


def shorthands(
    recipe: Recipe,
    *,
    weights: str | None = None,
    iterations: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
) -> list[str]:
    """The settings for `override` that these values stand for; None leaves a value as it is.

    With the number of iterations, everything else that the schedule counts changes in proportion.

    >>> from dnlnet.registry import find_recipe
    >>> shorthands(find_recipe("camvid-mbv2_frozen-dnl"), iterations=184, weights="none")
    ['model.weights=null', 'schedule.iterations=184', 'schedule.warmup=5']
    """
    schedule, settings = recipe.schedule, []
    if weights is not None:
        settings.append(f"model.weights={'null' if weights == 'none' else json.dumps(weights)}")
    if iterations is not None:
        share = iterations / schedule.iterations
        settings.append(f"schedule.iterations={iterations}")
        if schedule.warmup:
            settings.append(f"schedule.warmup={round(schedule.warmup * share)}")
        if schedule.milestones:
            settings.append(
                f"schedule.milestones={sorted({max(1, round(at * share)) for at in schedule.milestones})}"
            )
        if schedule.then:
            shorter = [
                {**phase.model_dump(), "iterations": max(1, round(phase.iterations * share))}
                for phase in schedule.then
            ]
            settings.append(f"schedule.then={json.dumps(shorter)}")
    settings += [f"schedule.batch={batch}"] if batch is not None else []
    settings += [f"optim.lr={lr}"] if lr is not None else []
    return settings


def setting_keys(kind: type[BaseModel], beginning: str = "") -> list[str]:
    """All keys that a setting of this kind of recipe can have, with dots.

    >>> from dnlnet.registry import find_recipe
    >>> [key for key in setting_keys(type(find_recipe("camvid-mbv2-dnl"))) if key.endswith("iterations")]
    ['schedule.iterations']
    """
    keys = []
    for name, field in kind.model_fields.items():
        part = None if get_origin(field.annotation) is tuple else _part(field.annotation)
        inner = setting_keys(part, f"{beginning}{name}.") if part is not None else []
        keys += inner or [beginning + name]
    return keys


def _read(setting: str, text: str) -> Any:
    try:
        return parse_yaml(text, _Loader)
    except ValueError as error:
        raise ValueError(f"--set {shortened(setting)}: the value {error}; write it as in YAML, or quote it") from None


def _replace(content: dict[str, Any], kind: type[BaseModel], key: str, value: object) -> None:
    """Set the value under a dotted key, whose every part has to be a field, or a key of a free mapping."""
    recipe = kind
    *parents, last = key.split(".")
    known: list[str] | None = list(kind.model_fields)
    for depth, name in enumerate([*parents, last]):
        if known is not None and name not in known:
            where = shortened(".".join(key.split(".")[:depth]))
            same = [one for one in setting_keys(recipe) if one.endswith(f".{name}")]
            if depth == 0 and same:
                raise ValueError(f"unknown key {shown(name)} of a recipe; did you mean {' or '.join(same)}?")
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
