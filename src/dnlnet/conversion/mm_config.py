"""Configurations of mmcv and mmengine: Python source of nested `dict(...)`, parsed but never executed."""

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dnlnet.backbones.pixels import Pixels
from dnlnet.conversion.values import are_colours, nested, pixels_of
from dnlnet.errors import shown

_LARGEST = 2**53  # largest number in arithmetic
_LONGEST = 2_000_000  # characters


class NotPlain:
    """Placeholder for a value that is not a literal."""

    def __repr__(self) -> str:
        return "not a plain value"


class MMConfig:
    """Configuration in a checkpoint; empty if there is none.

    Lists become tuples, because configurations use both alike.

    >>> config = MMConfig.of({"config": "a = dict(ratio=1. / 4., x=[1, 2])\\nmodel = dict(type='A', b=a)"})
    >>> config.part("model", "b")
    {'ratio': 0.25, 'x': (1, 2)}
    >>> config.part("model", "c"), list(config.everywhere("type"))
    ({}, ['A'])
    """

    def __init__(self, names: Mapping[str, Any], notes: tuple[str, ...] = ()) -> None:
        self.names, self.notes = names, notes

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> "MMConfig":
        """Read the configuration in a checkpoint's metadata: `config` of mmcv, `cfg` of mmengine."""
        text = next((meta[key] for key in ("config", "cfg") if isinstance(meta.get(key), str)), None)
        if text is None:
            return cls({})
        names, rest = _read(text), text.partition("\n")[2]
        if names is None and rest:  # older versions put the file's name into the first line
            names = _read(rest)
        if names is None:
            return cls({}, ("its configuration is not valid Python, so it was ignored",))
        if base := next((key for key in ("_base_", "read_base") if key in names), None):
            raise ValueError(
                f"its configuration builds on other files ({base}); pass the complete one, which training writes to "
                "its folder, with --config"
            )
        return cls(names)

    def part(self, *path: str) -> Mapping[str, Any]:
        """Return the `dict(...)` under nested keys; empty if there is none."""
        return nested(self.names, *path)

    def dicts(self) -> Iterator[Mapping[str, Any]]:
        """Yield every `dict(...)` in the configuration once."""
        seen: set[int] = set()
        waiting: list[Any] = [self.names]
        while waiting:
            value = waiting.pop()
            if not isinstance(value, Mapping | tuple) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, Mapping):
                yield value
            waiting.extend(value.values() if isinstance(value, Mapping) else value)

    def everywhere(self, key: str) -> Iterator[Any]:
        """Yield all values of a key, wherever it occurs."""
        yield from (found[key] for found in self.dicts() if key in found)


def require_known(part: Mapping[str, Any], where: str, known: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise if a key in a part of a configuration has an unsupported value.

    >>> require_known({"act_cfg": {"type": "GELU"}}, "decode_head", {"act_cfg": ({"type": "ReLU"},)})
    Traceback (most recent call last):
    ValueError: its decode_head.act_cfg is {'type': 'GELU'}; supported: {'type': 'ReLU'}
    """
    for key, values in known.items():
        if key in part and part[key] not in values:
            listed = [shown(value) for value in values if value is not None]
            what = f"supported: {' or '.join(listed)}" if listed else "it is supported only if it is absent"
            raise ValueError(f"its {where}.{key} is {shown(part[key])}; {what}")


def read_pixels(part: Mapping[str, Any], where: str, *, red_first: bool) -> Pixels:
    """Return how a part with `mean` and `std`, in the network's order of colours, normalises pixels."""
    mean, std = part.get("mean"), part.get("std")
    if mean is None and std is None:
        return Pixels((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), blue_first=not red_first)
    if mean is None or std is None:
        there, absent = ("std", "mean") if mean is None else ("mean", "std")
        raise ValueError(f"its {where} has a {there} without a {absent}")
    for name, numbers in (("mean", mean), ("std", std)):
        if not are_colours(numbers, positive=name == "std"):
            raise ValueError(f"its {where}.{name} is {shown(numbers)}; expected three numbers")
    return pixels_of(mean, std, blue_first=not red_first)


def agreed_pixels(parts: Sequence[Mapping[str, Any]], where: str) -> Pixels | None:
    """Return how several `Normalize` normalise pixels, which must be the same for all; None if there are none."""
    found = {read_pixels(part, where, red_first=part.get("to_rgb", True) is True) for part in parts}
    if len(found) > 1:
        raise ValueError("its configuration normalises pixels in two ways, and does not say which one is used")
    return next(iter(found), None)


def _read(text: str) -> dict[str, Any] | None:
    """Return the values of all names assigned in the text; None if it is not Python."""
    if len(text) > _LONGEST:
        return None
    names: dict[str, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about some valid source
            tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):  # classes instead of their names
                names |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.Assign):
                value = _value(node.value, names)
                names |= {target.id: value for target in node.targets if isinstance(target, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return names


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(item, names) for item in items)
        case ast.Dict(keys=keys, values=values):
            return _short_type(
                {
                    key.value: _value(value, names)
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
            )
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words):
            return _keywords(words, names)
        case ast.Name(id=name):
            return names.get(name, NotPlain())
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _number(0, ast.Sub(), _value(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _number(_value(left, names), op, _value(right, names))
    return NotPlain()


def _keywords(words: list[ast.keyword], names: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        value = _value(word.value, names)
        if word.arg is not None:
            found[word.arg] = value
        elif isinstance(value, Mapping):  # dict(**others)
            found |= value
    return _short_type(found)


def _short_type(part: dict[str, Any]) -> dict[str, Any]:
    """Strip the module from the class name: mmengine also writes `mmseg.models.backbones.resnet.ResNetV1c`."""
    kind = part.get("type")
    return part | {"type": kind.rpartition(".")[2]} if isinstance(kind, str) else part


def _number(left: Any, op: ast.operator, right: Any) -> Any:
    """Compute an arithmetic operation on numbers of moderate size."""
    if not all(isinstance(x, int | float) and abs(x) <= _LARGEST for x in (left, right)):
        return NotPlain()
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if right:
            return left / right
        case ast.FloorDiv() if right:
            return left // right
    return NotPlain()
