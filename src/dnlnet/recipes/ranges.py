"""What a single value of a recipe may be, and what is wrong with one that may not, in a sentence."""

import re
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from dnlnet.errors import shown

Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
Few = Annotated[int, Field(strict=True, ge=1, le=65_536)]  # pixels of a side, channels, images of a batch
Size = tuple[Few, Few]  # height, width
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
PartShare = Annotated[float, Field(strict=True, ge=0, lt=1)]
InnerShare = Annotated[float, Field(strict=True, gt=0, lt=1)]
Scale = Annotated[float, Field(strict=True, ge=0.05, le=20)]
Rate = Annotated[float, Field(strict=True, gt=0, le=100)]  # of learning
Weight = Annotated[float, Field(strict=True, ge=0, le=1_000_000)]
Positive = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]
Score = Annotated[float, Field(strict=True, ge=0, le=100)]  # per cent
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Index = Annotated[int, Field(strict=True, ge=0, le=1000)]
FrameRate = Annotated[float, Field(strict=True, ge=0.1, le=1000)]
Deviation = Annotated[float, Field(strict=True, ge=0.001, le=10)]
Dilation = Annotated[int, Field(strict=True, ge=1, le=64)]


def _file_name(text: str) -> str:
    if not re.fullmatch(r"\w[\w.+-]{0,99}", text):
        raise ValueError("expected up to 100 letters, digits and . + - _, for files are named after it")
    return text


def _output_stride(stride: int) -> int:
    if stride not in (8, 16, 32):
        raise ValueError("expected 8, 16 or 32")
    return stride


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return text


FileName = Annotated[str, AfterValidator(_file_name)]
OutputStride = Annotated[int, Field(strict=True), AfterValidator(_output_stride)]
Pattern = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_pattern)]

# By pydantic's names of what may be wrong; its own texts are about types of Python.
_EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping",
    "extra_forbidden": "there is no such setting",
    "finite_number": "expected a finite number",
    "float_type": "expected a number",
    "greater_than": "expected more than {gt:g}",
    "greater_than_equal": "expected at least {ge:g}",
    "int_type": "expected a whole number",
    "less_than": "expected less than {lt:g}",
    "less_than_equal": "expected at most {le:g}",
    "literal_error": "expected {expected}",
    "mapping_type": "expected a mapping",
    "missing": "is missing",
    "model_type": "expected a mapping with its settings",
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
    """A checked value of this kind from plain data; what is wrong with it becomes one sentence.

    Args:
        kind: what to make.
        content: mappings, lists, texts and numbers.
        prefix: what the sentence begins with.
        stored: the content comes from a file of a model that has been trained; see `Schedule`.

    >>> from dnlnet.recipes.schema import Optim
    >>> validated(Optim, {"lr": float("inf")})
    Traceback (most recent call last):
    ValueError: lr=.inf: expected a finite number
    """
    try:
        return kind.model_validate(content, context={"stored": stored})
    except ValidationError as error:
        problems = error.errors(include_url=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise ValueError(f"{prefix}{_sentence(problems[0])}{more}")


def _sentence(problem: Any) -> str:
    """What is wrong with one value, by its name."""
    where = ".".join(shortened(str(part)) for part in problem["loc"])
    if problem["type"] == "value_error":
        expected = problem["msg"].removeprefix("Value error, ")
    elif problem["type"] in _EXPECTED:
        expected = _EXPECTED[problem["type"]].format(**problem.get("ctx", {}))
    else:
        expected = problem["msg"]
    value = problem["input"]
    if problem["type"] in ("missing", "extra_forbidden") or isinstance(value, dict | BaseModel):
        return f"{where}: {expected}" if where else expected
    return f"{where}={_written(value)}: {expected}"


def _written(value: object) -> str:
    """A value as --set takes it, on one line and cut off if it is long."""
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(str(value), str(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(value) if isinstance(value, str) else shown(value)


def shortened(text: str) -> str:
    """A text on one line, and cut off if it is long, as a message quotes it.

    >>> shortened("two\\nlines")
    'two lines'
    """
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
