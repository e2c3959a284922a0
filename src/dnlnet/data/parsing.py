"""Strict parsing of JSON and YAML, and validation by pydantic, with one sentence per error."""

import json
from collections import Counter
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from dnlnet.errors import shown
from dnlnet.names import printable

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


# Messages by pydantic's error type, because its own messages name Python types.
_EXPECTED = {
    "bool_type": "expected true or false",
    "dataclass_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "extra_forbidden": "there is no such setting",
    "finite_number": "expected a finite number",
    "float_type": "expected a number",
    "greater_than": "expected more than {gt:g}",
    "greater_than_equal": "expected at least {ge:g}",
    "int_type": "expected a whole number",
    "invalid_key": "expected text",
    "is_instance_of": "expected a list",  # the only such class is Sequence
    "less_than": "expected less than {lt:g}",
    "less_than_equal": "expected at most {le:g}",
    "list_type": "expected a list",
    "literal_error": "expected {expected}",
    "mapping_type": "expected a mapping",
    "missing": "is missing",
    "none_required": "expected null",
    "model_type": "expected a mapping with its settings",
    "sequence_str": "expected a list",
    "string_too_long": "expected at most {max_length} characters",
    "string_too_short": "expected at least {min_length} character",
    "string_type": "expected text",
    "string_unicode": "expected text",
    "too_long": "expected at most {max_length} values, got {actual_length}",
    "too_short": "expected at least {min_length} values, got {actual_length}",
    "tuple_type": "expected a list",
}

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def validated(kind: type[AnyModel], content: object, prefix: str = "", *, stored: bool = False) -> AnyModel:
    """Validate plain data, or raise ValueError with one sentence.

    Args:
        kind: Model class to build.
        content: Mappings, lists, strings and numbers.
        prefix: Beginning of the error message.
        stored: True for content of a stored model, which may have outdated values. Validators find this flag in their
            context.

    >>> class Point(BaseModel):
    ...     x: int
    >>> validated(Point, {"x": []})
    Traceback (most recent call last):
    ValueError: x=[]: expected a whole number
    """
    try:
        return kind.model_validate(content, context={"stored": stored})
    except ValidationError as error:
        problems = error.errors(include_url=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise ValueError(f"{prefix}{_sentence(problems[0])}{more}")


def expecting(what: str) -> WrapValidator:
    """Replace the error message of a field. Must be the last part of an `Annotated`.

    >>> from typing import Annotated
    >>> class Circle(BaseModel):
    ...     colour: Annotated[tuple[int, int, int], expecting("[red, green, blue]")]
    >>> validated(Circle, {"colour": [1, 2]})
    Traceback (most recent call last):
    ValueError: colour=[1, 2]: expected [red, green, blue]
    """

    def check(value: object, validate: ValidatorFunctionWrapHandler) -> object:
        try:
            return validate(value)
        except ValidationError:
            raise ValueError(f"expected {what}") from None

    return WrapValidator(check)


def require_list(value: object) -> object:
    """Return a list unchanged and refuse other values. Pydantic would turn a set into a tuple, in any order."""
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


def _sentence(problem: Any) -> str:
    """Describe one problem, beginning with the name of the value."""
    where = ".".join(shortened(str(part)) for part in problem["loc"] if "=" not in str(part))  # not tags of unions
    if problem["type"] == "value_error":
        expected = problem["msg"].removeprefix("Value error, ")
    elif problem["type"] in _EXPECTED:
        expected = _EXPECTED[problem["type"]].format(**problem.get("ctx", {}))
    else:
        expected = problem["msg"]
    value = problem["input"]
    if problem["type"] in ("missing", "extra_forbidden") or isinstance(value, dict | BaseModel):
        return f"{where}: {expected}" if where else expected
    return f"{where}={_as_setting(value)}: {expected}" if where else f"{expected}, got {shown(value)}"


def _as_setting(value: object) -> str:
    """Format a value in the form that --set accepts, on one line, and cut it if it is long."""
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(str(value), str(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return (shortened(value) or repr(value)) if isinstance(value, str) else shown(value)


def shortened(text: str) -> str:
    """Format a text for a message: on one line, without control characters, and cut if it is long.

    >>> shortened("two\\nlines")
    'two lines'
    """
    line = printable(" ".join(text.split()))
    return line if len(line) <= 60 else f"{line[:57]}..."
