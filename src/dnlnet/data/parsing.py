"""Strict parsing of JSON and YAML, which refuses repeated keys and explains each error in one sentence."""

import json
from collections import Counter
from typing import Any

import yaml

from dnlnet.errors import shown

# Errors of PyYAML for values that do not fit their tags, such as 2020-13-01, !!bool x and !!int "".
_BAD_VALUES = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class RepeatedKeyError(ValueError):
    """Error for a key that occurs twice in a mapping."""


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text, or raise ValueError.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: is not JSON (the key 'a' is given twice)
    """
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict, or raise at the first repeated key. Serves as `object_pairs_hook` of `json.loads`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKeyError(f"the key {shown(name)} is given twice")
    return found


class StrictLoader(yaml.SafeLoader):
    """YAML loader that refuses repeated keys.

    It also refuses merge keys, because a few lines of them can cause unlimited work.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merge keys."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise _fault("a merge key", key)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping, or raise at the first repeated key."""
        found = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            seen: set[Any] = set()
            for key, _ in node.value:
                name = self.construct_object(key, deep=True)
                if name in seen:
                    raise _fault(f"the key {shown(name)} is given again", key)
                seen.add(name)
        return found


def parse_yaml(text: str, loader: type[yaml.SafeLoader] = StrictLoader) -> Any:
    """Parse a YAML text, or raise ValueError.

    >>> parse_yaml("a: 1\\nb: 2\\na: 3")
    Traceback (most recent call last):
    ValueError: is not YAML: the key 'a' is given again in line 3
    """
    try:
        return yaml.load(text, loader)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except (yaml.YAMLError, *_BAD_VALUES) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or (str(error).splitlines() or ["a value that is none"])[0]
        raise ValueError(f"is not YAML: {what}{where}") from None


def _fault(what: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)
