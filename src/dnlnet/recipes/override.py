"""Replacement of single values in recipes, for `--set`."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import BaseModel

from dnlnet.data.parsing import StrictLoader, parse_yaml, shortened, validated
from dnlnet.errors import shown, unknown
from dnlnet.recipes.recipe import Recipe

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


class _Loader(StrictLoader):
    """YAML loader for one value, which accepts numbers such as 1e-4 and refuses aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
)


def override(recipe: AnyRecipe, settings: Sequence[str]) -> AnyRecipe:
    """Return the recipe with some values replaced and validated, each given as ``key=value`` with a dotted key.

    The new recipe has no scores, because neither the paper nor we measured it.

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
        if key.strip() == "model.network":
            _keep_known(content["model"], type(recipe))
    return validated(type(recipe), content, "--set ").model_copy(update={"paper": None, "measured": None})


def shorthands(
    recipe: Recipe,
    *,
    weights: str | None = None,
    iterations: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    holdout: float | None = None,
    precision: str | None = None,
) -> list[str]:
    """Return settings for `override` that set these values; None keeps a value.

    Warm-up, milestones and later phases scale with the number of iterations.

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
    settings += [f"data.holdout={holdout}"] if holdout is not None else []
    settings += [f"training.precision={precision}"] if precision is not None else []
    return settings


def setting_keys(kind: type[BaseModel], beginning: str = "") -> list[str]:
    """Return the dotted keys of all settings of this kind of recipe.

    >>> from dnlnet.registry import find_recipe
    >>> [key for key in setting_keys(type(find_recipe("camvid-mbv2-dnl"))) if key.endswith("iterations")]
    ['schedule.iterations']
    """
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        parts = [] if get_origin(field.annotation) is tuple else _part_kinds(field.annotation)
        inner = [key for part in parts for key in setting_keys(part, f"{beginning}{name}.")]
        keys += dict.fromkeys(inner or [beginning + name])
    return keys


def _read(setting: str, text: str) -> Any:
    try:
        return parse_yaml(text, _Loader)
    except ValueError as error:
        raise ValueError(f"--set {shortened(setting)}: the value {error}; write it as in YAML, or quote it") from None


def _replace(content: dict[str, Any], recipe: type[BaseModel], key: str, value: object) -> None:
    """Set the value of a dotted key. Each part of the key is a field, or any key of a free mapping."""
    *parents, last = key.split(".")
    kinds = [recipe]  # possible kinds of the part reached so far; none in a free mapping
    for depth, name in enumerate([*parents, last]):
        fields = {field: info for kind in kinds for field, info in kind.model_fields.items()}
        if kinds and name not in fields:
            where = shortened(".".join(key.split(".")[:depth]))
            same = [one for one in setting_keys(recipe) if one.endswith(f".{name}")]
            if depth == 0 and same:
                raise ValueError(f"unknown key {shown(name)} of a recipe; did you mean {' or '.join(same)}?")
            raise unknown(f"key {'of ' + where if where else 'of a recipe'}", name, fields)
        if depth == len(parents):
            content[name] = value
            return
        free = not kinds
        kinds = _part_kinds(fields[name].annotation) if kinds else []
        if content.get(name) is None and (kinds or free):
            content[name] = {}
        if not isinstance(content.get(name), dict):
            raise ValueError(
                f"--set {shortened(key)}: {shortened(name)} is {shown(content.get(name))}, a value that has no parts"
            )
        content = content[name]


def _keep_known(model: dict[str, Any], recipe: type[BaseModel]) -> None:
    """Drop the settings of a model that its new kind of network does not have."""
    for kind in _part_kinds(recipe.model_fields["model"].annotation):
        if kind.model_fields["network"].default == model["network"]:
            for name in model.keys() - kind.model_fields.keys():
                del model[name]


def _part_kinds(annotation: Any) -> list[type[BaseModel]]:
    """Return the kinds of parts that a field may hold, found in unions and containers too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [part for inner in getattr(annotation, "__args__", ()) for part in _part_kinds(inner)]
