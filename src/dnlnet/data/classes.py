"""Names and colours of classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeGuard
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from dnlnet.data.parsing import expecting, require_list

IGNORE = 255  # label of ignored pixels after decoding, in every data set

Byte = Annotated[int, Field(strict=True, ge=0, le=255)]
Colour = Annotated[
    tuple[Byte, Byte, Byte], BeforeValidator(require_list), expecting("[red, green, blue], each in 0..255")
]


@dataclass(frozen=True)
class Classes:
    """Names and colours (red, green, blue in 0..255) of the classes 0..K - 1.

    >>> Classes(["sky", "road"], [(0, 0, 255), (90, 90, 90)]).paint(np.array([[0, 255]], dtype=np.uint8)).tolist()
    [[[0, 0, 255], [255, 255, 255]]]
    """

    names: Annotated[Sequence[str], Field(min_length=1)]
    palette: Sequence[Colour]
    # The data set's own numbers, if they differ from 0..K - 1.
    numbers: Sequence[Annotated[int, Field(strict=True)]] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for kind, values in (("colours", self.palette), ("numbers", self.numbers or self.names)):
            if len(values) != len(self.names):
                raise ValueError(f"{len(self.names)} class names but {len(values)} {kind}; give each class one")
        for name in ("names", "palette", "numbers"):  # JSON gives lists
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.names)

    def paint(self, labels: NDArray[np.integer]) -> NDArray[np.uint8]:
        """Return the label map (H, W) in the classes' colours, (H, W, 3); other labels are white."""
        colours = np.array([*self.palette, (255, 255, 255)], dtype=np.uint8)
        return colours[np.where((labels >= 0) & (labels < len(self)), labels, len(self))]

    def shares(self, labels: NDArray[np.integer]) -> dict[str, float]:
        """Return the share of pixels of each class that occurs in a label map, the largest first."""
        counts = np.bincount(labels.ravel(), minlength=len(self))[: len(self)] / labels.size
        order = np.argsort(-counts, kind="stable")
        return {self.names[index]: float(counts[index]) for index in order if counts[index] > 0}


def is_name(value: Any) -> TypeGuard[str]:
    """Return whether a value is text that a terminal can show and a file can store.

    >>> is_name("traffic light"), is_name(" "), is_name("\x1b[31m"), is_name(7)
    (True, False, False, False)
    """
    # Cc: control characters, which a terminal would obey; Cs: surrogates, which cannot be encoded.
    return isinstance(value, str) and bool(value.strip()) and not any(category(c) in ("Cc", "Cs") for c in value)


# The first colours are from Okabe and Ito. Each later one is as far as possible from those before it, also with
# red-green colour blindness.
_DISTINCT: tuple[Colour, ...] = (
    *((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (0, 60, 180)),
    *((150, 255, 165), (150, 0, 0), (120, 30, 105), (255, 225, 240), (105, 135, 255), (180, 135, 60)),
    *((90, 60, 60), (90, 105, 180), (195, 225, 105), (150, 210, 165), (120, 90, 60), (240, 75, 105)),
    *((150, 75, 120), (210, 210, 255), (60, 60, 150), (210, 180, 120), (240, 165, 195), (180, 60, 0)),
)


def distinct_colours(count: int) -> tuple[Colour, ...]:
    """Return colours for `count` classes: 24 that are easy to tell apart, then those of PASCAL VOC.

    >>> distinct_colours(2), len(set(distinct_colours(254)))
    (((86, 180, 233), (230, 159, 0)), 254)
    """
    return _DISTINCT[:count] + spread_colours(max(count, len(_DISTINCT)))[len(_DISTINCT) : count]


def spread_colours(count: int) -> tuple[Colour, ...]:
    """Return PASCAL VOC's colour map from its second entry; neighbouring classes have clearly different colours.

    The bits of the class number, in groups of three, become the highest bits of red, green and blue.

    >>> spread_colours(3)
    ((128, 0, 0), (0, 128, 0), (128, 128, 0))
    """
    return tuple(_spread(number) for number in range(1, count + 1))


def _spread(number: int) -> Colour:
    red, green, blue = (
        sum(((number >> (3 * bit + channel)) & 1) << (7 - bit) for bit in range(8)) for channel in range(3)
    )
    return red, green, blue
