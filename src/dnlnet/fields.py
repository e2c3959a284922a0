"""Frozen settings that are checked when created: their base class, and the types of their fields."""

import re
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Ends = TypeVar("Ends", tuple[int, int], tuple[float, float])


class Part(BaseModel):
    """Frozen group of settings that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Flag = Annotated[bool, Field(strict=True)]
PositiveInt = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
SmallInt = Annotated[int, Field(strict=True, ge=1, le=65_536)]  # pixels of a side, channels, batch size
HeightWidth = tuple[SmallInt, SmallInt]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
FractionBelowOne = Annotated[float, Field(strict=True, ge=0, lt=1)]
OpenFraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
ImageScale = Annotated[float, Field(strict=True, ge=0.05, le=20)]
LearningRate = Annotated[float, Field(strict=True, gt=0, le=100)]
LossWeight = Annotated[float, Field(strict=True, ge=0, le=1_000_000)]
PositiveFloat = Annotated[float, Field(strict=True, gt=0, le=1_000_000)]
Percentage = Annotated[float, Field(strict=True, ge=0, le=100)]
ColourMean = Annotated[float, Field(strict=True, ge=-1_000_000, le=1_000_000)]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Index = Annotated[int, Field(strict=True, ge=0, le=1000)]
FrameRate = Annotated[float, Field(strict=True, ge=0.1, le=1000)]
PixelStd = Annotated[float, Field(strict=True, ge=0.001, le=10)]
Dilation = Annotated[int, Field(strict=True, ge=1, le=64)]


def _file_name(text: str) -> str:
    if not re.fullmatch(r"\w[\w.+-]{0,99}", text):
        raise ValueError("expected up to 100 letters, digits and . + - _, because files are named after it")
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


def _rising(ends: Ends) -> Ends:
    if ends[0] > ends[1]:
        raise ValueError("expected a range from low to high")
    return ends


Rising = AfterValidator(_rising)  # of both ends of a range
FileName = Annotated[str, AfterValidator(_file_name)]
OutputStride = Annotated[int, Field(strict=True), AfterValidator(_output_stride)]
Pattern = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_pattern)]
ScaleRange = Annotated[tuple[ImageScale, ImageScale], Rising]
