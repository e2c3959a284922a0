"""Object outlines in COCO's two forms, polygons and run lengths, and the masks they describe."""

# H, W size of an image; n objects

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.data.images import HeightWidth, size_fault
from dnlnet.errors import load_extra

Bounds = tuple[float, float, float, float]  # left, top, right, bottom
Mask = NDArray[np.uint8]
Rle = dict[str, Any]  # pycocotools' run-length encoding: the size [H, W] and the compressed counts

_LEAST_COORDINATES = 6  # three points make an area
_SLACK = 1.0  # pixels that a point may lie outside the image, because annotators round
_REACH = 10  # points farther away than this many times the image's longer side are refused
_LONGEST_BORDER = 2**21  # pixels around a polygon; pycocotools keeps about 100 bytes for each


@dataclass(frozen=True, eq=False)
class Polygons:
    """Outline of an object: one or more polygons, each x, y, x, y, ... in pixels of the image.

    Polygons with fewer than three points, or an x without a y, are left out of the mask.

    >>> Polygons((np.array([0.0, 0, 4, 0, 4, 3, 0, 3]),)).area()
    12.0
    """

    parts: tuple[NDArray[np.float64], ...]

    def area(self) -> float:
        """Return the sum of the polygons' areas, as COCO's files state it; 0 only if they bound nothing.

        It differs from the number of pixels in the mask: see `count_pixels`.
        """
        return float(sum(_polygon_area(part) for part in self._usable()))

    def bounds(self) -> Bounds | None:
        """Return the smallest box around the usable polygons."""
        usable = self._usable()
        if not usable:
            return None
        x, y = (np.concatenate([part[axis::2] for part in usable]) for axis in (0, 1))
        return float(x.min()), float(y.min()), float(x.max()), float(y.max())

    def drawing_fault(self, size: HeightWidth) -> str | None:
        """Return why the polygons cannot be drawn in an image of this size, or None.

        Drawing them anyway would crash the process in pycocotools.
        """
        reach = _REACH * max(size)
        for part in self._usable():
            low, high = float(part.min()), float(part.max())
            if not (low >= -reach and high <= reach):  # also true of nan
                x, y = _farthest(part, size)
                return f"has a polygon with the point ({x:g}, {y:g}), far outside the {size[1]} x {size[0]} image"
            if len(part) * (high - low) > _LONGEST_BORDER and (border := _border(part)) > _LONGEST_BORDER:
                return f"has a polygon with a border of {border:.0f} pixels; expected at most {_LONGEST_BORDER}"
        return None

    def faults(self, size: HeightWidth) -> list[str]:
        """Return all faults of the polygons in an image of this size."""
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

    def rle(self, size: HeightWidth) -> Rle:
        """Return the mask in an image of this size as run lengths."""
        _require_drawable(self, size)
        coco, usable = _pycocotools(), self._usable()
        if not usable:
            return _with_text(coco.encode(np.zeros(size, dtype=np.uint8, order="F")))
        return _with_text(coco.merge(coco.frPyObjects([part.tolist() for part in usable], *size)))

    def mask(self, original: HeightWidth, size: HeightWidth) -> Mask:
        """Draw the mask (H, W) at `size`, for an image resized from `original`."""
        scale = np.array([size[1] / original[1], size[0] / original[0]])
        scaled = Polygons(tuple((part.reshape(-1, 2) * scale).ravel() for part in self._usable()))
        return _decoded(scaled.rle(size))

    def _usable(self) -> list[NDArray[np.float64]]:
        return [part for part in self.parts if len(part) % 2 == 0 and len(part) >= _LEAST_COORDINATES]


@dataclass(frozen=True, eq=False)
class RunLengths:
    """Outline of an object: run lengths of pixels, alternately outside and inside, down the columns of the image.

    Args:
        size: Size of the image.
        counts: Run lengths (see `decompressed` for COCO's text form).

    >>> RunLengths((2, 2), np.array([1, 3])).mask((2, 2), (2, 2)).tolist()
    [[0, 1], [1, 1]]
    """

    size: HeightWidth
    counts: NDArray[np.int64]

    def area(self) -> float:
        """Return the number of pixels inside."""
        return float(count_pixels(self, self.size))

    def bounds(self) -> Bounds | None:
        """Return the smallest box around the pixels inside."""
        # pycocotools' toBbox is wrong for runs without pixels.
        return Image.fromarray(_decoded(self.rle(self.size))).getbbox()

    def drawing_fault(self, size: HeightWidth) -> str | None:
        """Return why the run lengths are not a mask of an image of this size, or None.

        Drawing them anyway would crash the process in pycocotools.
        """
        if self.size != size:
            sizes = "{} x {} for an image of {} x {} (height x width)".format(*self.size, *size)
            return f"has run lengths of {sizes}; both must be the same"
        pixels = size[0] * size[1]
        if self.counts.min(initial=0) < 0:
            return f"has a run length of {self.counts.min()}; expected none below 0"
        total = sum(self.counts.tolist())  # Python's integers do not overflow
        return None if total == pixels else f"has run lengths of {total} pixels in all; expected {pixels}"

    def faults(self, size: HeightWidth) -> list[str]:
        """Return all faults of the run lengths in an image of this size."""
        fault = self.drawing_fault(size)
        return [] if fault is None else [fault]

    def rle(self, size: HeightWidth) -> Rle:
        """Return the mask in an image of this size as compressed run lengths."""
        _require_drawable(self, size)
        return _with_text(_pycocotools().frPyObjects({"size": size, "counts": self.counts.tolist()}, *size))

    def mask(self, original: HeightWidth, size: HeightWidth) -> Mask:
        """Return the mask (H, W) of an image of size `original`, resized to `size`."""
        mask = _decoded(self.rle(original))
        if size == original:
            return mask
        return np.asarray(Image.fromarray(mask).resize((size[1], size[0]), Image.Resampling.NEAREST))


Outline = Polygons | RunLengths


def decompressed(text: str) -> NDArray[np.int64]:
    """Decode COCO's text form of run lengths.

    pycocotools also reads it, but does not reveal the sum of the lengths; if that is less than the image, the rest of
    its mask is uninitialised memory.

    Each character holds five bits of a number, lowest first. From the fourth number on, each is stored as the
    difference from the second-last one.

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


def encoded(mask: NDArray[np.bool_]) -> RunLengths:
    """Encode a mask (H, W) as run lengths.

    >>> encoded(np.array([[False, True], [True, True]])).counts.tolist()
    [1, 3]
    """
    flat = mask.ravel(order="F")
    ends = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    starts = np.array([0, 0, *ends] if flat[0] else [0, *ends])  # the first run is outside
    return RunLengths((mask.shape[0], mask.shape[1]), np.diff(starts, append=mask.size))


def count_pixels(outline: Outline, size: HeightWidth) -> int:
    """Count the pixels inside an outline in an image of this size, without drawing the mask.

    >>> count_pixels(Polygons((np.array([1.0, 1, 3, 1, 3, 3, 1, 3]),)), (4, 4))
    4
    """
    return int(_pycocotools().area(outline.rle(size)))


def draw_masks(outlines: Sequence[Outline], original: HeightWidth, size: HeightWidth) -> Mask:
    """Draw masks (n, H, W) at `size`, 1 inside and 0 outside, for an image resized from `original`.

    >>> square = Polygons((np.array([1.0, 1, 3, 1, 3, 3, 1, 3]),))
    >>> draw_masks([square], original=(4, 4), size=(2, 2)).tolist()
    [[[0, 0], [0, 1]]]
    """
    masks = np.empty((len(outlines), *size), dtype=np.uint8)
    for mask, outline in zip(masks, outlines, strict=True):
        mask[...] = outline.mask(original, size)
    return masks


def _require_drawable(outline: Outline, size: HeightWidth) -> None:
    """Raise before pycocotools, which checks nothing, crashes on an impossible outline."""
    if fault := size_fault(size) or outline.drawing_fault(size):
        raise ValueError(f"an object {fault}")


def _pycocotools() -> Any:
    return load_extra("pycocotools.mask", "detection")


def _decoded(rle: Rle) -> Mask:
    mask: Mask = _pycocotools().decode(rle)
    return mask


def _with_text(rle: Rle) -> Rle:
    """Return the run lengths with their counts as text, for JSON."""
    return {"size": list(rle["size"]), "counts": rle["counts"].decode("ascii")}


def _polygon_area(part: NDArray[np.float64]) -> float:
    """|sum_i x_i y_(i+1) - x_(i+1) y_i| / 2, with the first point as the origin."""
    x, y = part[0::2] - part[0], part[1::2] - part[1]
    return float(abs(x[:-1] @ y[1:] - x[1:] @ y[:-1]) / 2)


def _border(part: NDArray[np.float64]) -> float:
    """Return the number of pixels that pycocotools visits around a polygon: the longer extent of each edge."""
    points = part.reshape(-1, 2)
    return float(np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1).sum())


def _outside(coordinates: NDArray[np.float64], length: int) -> bool:
    return bool(coordinates.min() < -_SLACK or coordinates.max() > length + _SLACK)


def _farthest(part: NDArray[np.float64], size: HeightWidth) -> tuple[float, float]:
    """Return the point farthest outside an image of this size."""
    points = part.reshape(-1, 2)
    outside = np.maximum(-points, points - np.array([size[1], size[0]])).max(axis=1)
    x, y = points[outside.argmax()]
    return float(x), float(y)
