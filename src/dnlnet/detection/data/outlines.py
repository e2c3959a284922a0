"""The outlines of objects as COCO writes them, polygons or run lengths, and the masks they stand for."""

# H, W size of a picture; n objects

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.sizes import Size, size_fault
from dnlnet.errors import load_extra

Bounds = tuple[float, float, float, float]  # left, top, right, bottom
Mask = NDArray[np.uint8]
Rle = dict[str, Any]  # what pycocotools calls RLE: the size [H, W], and the compressed counts

_LEAST_COORDINATES = 6  # three points make an area
_SLACK = 1.0  # pixels beyond the edge of the picture that are not an error: annotators round
_REACH = 10  # times the longer side of the picture: a point farther away than that is refused
_LONGEST_WALK = 2**21  # pixels around a polygon; pycocotools keeps some 100 bytes for each


@dataclass(frozen=True, eq=False)
class Polygons:
    """An object as one polygon or several, each x, y, x, y, ... in pixels of the picture.

    Parts of fewer than three points, or with an x that has no y, bound nothing and are left out of the mask.

    >>> Polygons((np.array([0.0, 0, 4, 0, 4, 3, 0, 3]),)).area()
    12.0
    """

    parts: tuple[NDArray[np.float64], ...]

    def area(self) -> float:
        """What the polygons bound, each by itself, in square pixels; 0 exactly when they bound nothing.

        COCO's files state this area. pycocotools computes another one, the number of pixels: see `count_pixels`.
        """
        return float(sum(_polygon_area(part) for part in self._usable()))

    def bounds(self) -> Bounds | None:
        """The smallest box around the parts that bound something."""
        usable = self._usable()
        if not usable:
            return None
        across, down = (np.concatenate([part[axis::2] for part in usable]) for axis in (0, 1))
        return float(across.min()), float(down.min()), float(across.max()), float(down.max())

    def impossible(self, size: Size) -> str | None:
        """Why they cannot be drawn in a picture of this size, or None; pycocotools would crash the process."""
        reach = _REACH * max(size)
        for part in self._usable():
            low, high = float(part.min()), float(part.max())
            if not (low >= -reach and high <= reach):  # or a value is nan
                x, y = _farthest(part, size)
                return f"has a polygon with the point ({x:g}, {y:g}), far outside the {size[1]} x {size[0]} image"
            if len(part) * (high - low) > _LONGEST_WALK and (walk := _walk(part)) > _LONGEST_WALK:
                return f"has a polygon with a border of {walk:.0f} pixels; expected at most {_LONGEST_WALK}"
        return None

    def faults(self, size: Size) -> list[str]:
        """Everything that is wrong with them in a picture of this size."""
        height, width = size
        found = [] if self.parts else ["has no polygon"]
        for part in self.parts:
            if len(part) % 2:
                found.append(f"has a polygon of {len(part)} coordinates; expected an x and a y for each point")
            elif len(part) < _LEAST_COORDINATES:
                found.append(f"has a polygon of {len(part) // 2} points; expected at least 3")
            elif _outside(part[0::2], width) or _outside(part[1::2], height):
                x, y = _farthest(part, size)
                found.append(f"has a polygon with the point ({x:g}, {y:g}) outside the {width} x {height} image")
        return found

    def rle(self, size: Size) -> Rle:
        """The mask in a picture of this size, as run lengths."""
        _require_drawable(self, size)
        coco, usable = _pycocotools(), self._usable()
        if not usable:
            return _compressed(coco.encode(np.zeros(size, dtype=np.uint8, order="F")))
        return _compressed(coco.merge(coco.frPyObjects([part.tolist() for part in usable], *size)))

    def mask(self, original: Size, size: Size) -> Mask:
        """The mask (H, W) of `size`, drawn at that size, of a picture that was `original` before it was resized."""
        scale = np.array([size[1] / original[1], size[0] / original[0]])
        scaled = Polygons(tuple((part.reshape(-1, 2) * scale).ravel() for part in self._usable()))
        return _decoded(scaled.rle(size))

    def _usable(self) -> list[NDArray[np.float64]]:
        return [part for part in self.parts if len(part) % 2 == 0 and len(part) >= _LEAST_COORDINATES]


@dataclass(frozen=True, eq=False)
class RunLengths:
    """An object as lengths of runs of pixels, outside and inside in turn, down the columns of the picture.

    Args:
        size: of the picture.
        counts: the lengths; `decompressed` reads COCO's text of them.

    >>> RunLengths((2, 2), np.array([1, 3])).mask((2, 2), (2, 2)).tolist()
    [[0, 1], [1, 1]]
    """

    size: Size
    counts: NDArray[np.int64]

    def area(self) -> float:
        """How many pixels are inside."""
        return float(count_pixels(self, self.size))

    def bounds(self) -> Bounds | None:
        """The smallest box around the pixels inside, or None if there are none."""
        # pycocotools' toBbox is wrong where a run has no pixels.
        return Image.fromarray(_decoded(self.rle(self.size))).getbbox()

    def impossible(self, size: Size) -> str | None:
        """Why they are not a mask of a picture of this size, or None; pycocotools would crash the process."""
        if self.size != size:
            sizes = "{} x {} for an image of {} x {} (height x width)".format(*self.size, *size)
            return f"has run lengths of {sizes}; both must be the same"
        pixels = size[0] * size[1]
        if self.counts.min(initial=0) < 0:
            return f"has a run length of {self.counts.min()}; expected none below 0"
        total = sum(self.counts.tolist())  # of Python's numbers, which do not wrap
        return None if total == pixels else f"has run lengths of {total} pixels in all; expected {pixels}"

    def faults(self, size: Size) -> list[str]:
        """Everything that is wrong with them in a picture of this size."""
        fault = self.impossible(size)
        return [] if fault is None else [fault]

    def rle(self, size: Size) -> Rle:
        """The mask in a picture of this size, as run lengths that are compressed."""
        _require_drawable(self, size)
        return _compressed(_pycocotools().frPyObjects({"size": size, "counts": self.counts.tolist()}, *size))

    def mask(self, original: Size, size: Size) -> Mask:
        """The mask (H, W) of `size`, resized from that of the picture, which was `original` before."""
        mask = _decoded(self.rle(original))
        if size == original:
            return mask
        return np.asarray(Image.fromarray(mask).resize((size[1], size[0]), Image.Resampling.NEAREST))


def decompressed(text: str) -> NDArray[np.int64]:
    """The run lengths in COCO's text, to be checked: pycocotools reads it too, but does not tell their sum, and where
    that is less than the picture, its mask ends in whatever the memory held before.

    Each character has five bits of a number, the lowest first; from the fourth number on, each is what it is more
    than the last but one.

    >>> decompressed("13").tolist()
    [1, 3]
    """
    counts: list[int] = []
    number = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 30:
            raise ValueError(f"has the character {character!r} in its run lengths; expected those of pycocotools")
        number |= (bits & 31) << shift
        shift += 5
        if bits & 32:  # more follow
            continue
        if bits & 16:  # negative
            number -= 1 << shift
        counts.append(number + counts[-2] if len(counts) > 2 else number)
        number = shift = 0
    if shift:
        raise ValueError("has run lengths that are cut off; write them with pycocotools.mask")
    return np.array(counts, dtype=np.int64)


Outline = Polygons | RunLengths


def _require_drawable(outline: Outline, size: Size) -> None:
    """Fail before pycocotools sees what it cannot draw: it checks nothing."""
    if fault := size_fault(size) or outline.impossible(size):
        raise ValueError(f"an object {fault}")


def count_pixels(outline: Outline, size: Size) -> int:
    """How many pixels of a picture of this size are inside; the mask itself is not made.

    >>> count_pixels(Polygons((np.array([1.0, 1, 3, 1, 3, 3, 1, 3]),)), (4, 4))
    4
    """
    return int(_pycocotools().area(outline.rle(size)))


def draw_masks(outlines: Sequence[Outline], original: Size, size: Size) -> Mask:
    """The masks (n, H, W) of `size`, 1 inside and 0 outside, of objects in a picture that was `original` before.

    >>> square = Polygons((np.array([1.0, 1, 3, 1, 3, 3, 1, 3]),))
    >>> draw_masks([square], original=(4, 4), size=(2, 2)).tolist()
    [[[0, 0], [0, 1]]]
    """
    masks = np.empty((len(outlines), *size), dtype=np.uint8)
    for mask, outline in zip(masks, outlines, strict=True):
        mask[...] = outline.mask(original, size)
    return masks


def _pycocotools() -> Any:
    return load_extra("pycocotools.mask", "detection")


def _decoded(rle: Rle) -> Mask:
    mask: Mask = _pycocotools().decode(rle)
    return mask


def _compressed(rle: Rle) -> Rle:
    """Counts as text, which JSON can hold."""
    return {"size": list(rle["size"]), "counts": rle["counts"].decode("ascii")}


def _polygon_area(part: NDArray[np.float64]) -> float:
    """|sum_i x_i y_(i+1) - x_(i+1) y_i| / 2, with the first point as the origin."""
    across, down = part[0::2] - part[0], part[1::2] - part[1]
    return float(abs(across[:-1] @ down[1:] - across[1:] @ down[:-1]) / 2)


def _walk(part: NDArray[np.float64]) -> float:
    """Pixels that pycocotools visits around a polygon: of each edge its longer extent."""
    points = part.reshape(-1, 2)
    return float(np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1).sum())


def _outside(coordinates: NDArray[np.float64], length: int) -> bool:
    return bool(coordinates.min() < -_SLACK or coordinates.max() > length + _SLACK)


def _farthest(part: NDArray[np.float64], size: Size) -> tuple[float, float]:
    """The point that lies farthest over the edge."""
    points = part.reshape(-1, 2)
    over = np.maximum(-points, points - np.array([size[1], size[0]])).max(axis=1)
    x, y = points[over.argmax()]
    return float(x), float(y)
