"""Decoders of label files: from numbers or colours to classes."""

# H, W size of the image; K classes

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dnlnet.data.classes import Colour

Labels = NDArray[np.uint8]

_NO_CLASS = 254
_CHUNK = 2**22  # pixels whose colours are decoded together, at about 40 bytes each


class Decoder(Protocol):
    """Decoder of the values in a label file."""

    def __call__(self, raw: NDArray[np.uint8]) -> Labels:
        """Return the class or IGNORE of each pixel, for values (H, W) or (H, W, 3). Raises for an unknown value."""
        ...

    def meaning(self) -> list[list[int]]:
        """Return each value or colour that has a class, followed by the class."""
        ...


def index_labels(meaning: Mapping[int, int], expected: str) -> Decoder:
    """Return a decoder for label files with numbers.

    Args:
        meaning: Class or IGNORE by number in the file; other numbers are errors.
        expected: Description of the allowed numbers, for error messages.

    >>> decode = index_labels({0: 255, 1: 0, 2: 1}, expected="0 (void), 1..2")
    >>> decode(np.array([[0, 2]], dtype=np.uint8)).tolist()
    [[255, 1]]
    >>> decode(np.array([[7]], dtype=np.uint8))
    Traceback (most recent call last):
    ValueError: label 7 at row 0, column 0; expected 0 (void), 1..2
    """
    table = np.full(256, _NO_CLASS, dtype=np.uint8)
    for number, label in meaning.items():
        table[number] = label
    return _IndexDecoder(table, expected)


@dataclass(frozen=True, eq=False)
class _IndexDecoder:
    table: Labels  # class of each of 256 values
    expected: str

    def __call__(self, raw: NDArray[np.uint8]) -> Labels:
        labels = self.table[raw]
        wrong = labels == _NO_CLASS
        if wrong.any():
            row, column = divmod(int(wrong.argmax()), wrong.shape[1])
            raise ValueError(f"label {raw[row, column]} at row {row}, column {column}; expected {self.expected}")
        return labels

    def meaning(self) -> list[list[int]]:
        return [[value, label] for value, label in enumerate(self.table.tolist()) if label != _NO_CLASS]


def colour_labels(meaning: Mapping[Colour, int]) -> Decoder:
    """Return a decoder for label files with colours.

    >>> colour_labels({(255, 0, 0): 0, (0, 0, 0): 255})(np.zeros((1, 1, 3), dtype=np.uint8)).tolist()
    [[255]]
    """
    packed = np.array([_packed(np.array(colour)) for colour in meaning], dtype=np.int64)
    order = np.argsort(packed)
    classes = np.array(list(meaning.values()), dtype=np.uint8)
    return _ColourDecoder(packed[order], classes[order])


@dataclass(frozen=True, eq=False)
class _ColourDecoder:
    known: NDArray[np.int64]  # packed colours, sorted
    classes: Labels

    def __call__(self, raw: NDArray[np.uint8]) -> Labels:
        labels = np.empty(raw.shape[:2], dtype=np.uint8)
        rows = max(1, _CHUNK // max(1, raw.shape[1]))
        for top in range(0, len(raw), rows):
            colours = _packed(raw[top : top + rows])
            position = np.searchsorted(self.known, colours).clip(max=len(self.known) - 1)
            wrong = self.known[position] != colours
            if wrong.any():
                row, column = divmod(int(wrong.argmax()), wrong.shape[1])
                colour = tuple(int(value) for value in raw[top + row, column])
                raise ValueError(
                    f"colour {colour} at row {top + row}, column {column} is not a class of classes.yaml"
                )
            labels[top : top + rows] = self.classes[position]
        return labels

    def meaning(self) -> list[list[int]]:
        return [list(both) for both in zip(self.known.tolist(), self.classes.tolist(), strict=True)]


def _packed(colours: NDArray[np.integer]) -> NDArray[np.int64]:
    """Pack red, green and blue of the last axis into one number."""
    wide = colours.astype(np.int64)
    packed: NDArray[np.int64] = (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]
    return packed
