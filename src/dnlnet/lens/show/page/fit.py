"""Encode images and maps as text for a page, as coarse as its budget requires."""

# H, W size of the image

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from zlib import compress

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.attention import Terms
from dnlnet.lens.show.page.grid import CoarseMaps, Grid, coarse_maps

QUALITY = 88
_SAMPLED = 48  # maps compressed to estimate the size of all
# Sharp attention compresses so well that a small page could, once unpacked, exceed a phone's memory.
_MAX_CELLS = 12_000_000

Parts = dict[str, dict[str, str]]


def pack(array: NDArray[np.generic]) -> str:
    """Encode an array as text: row-major, little-endian, deflated, base64.

    >>> from base64 import b64decode
    >>> from zlib import decompress
    >>> decompress(b64decode(pack(np.array([1, 2, 3], dtype=np.uint8))))
    b'\\x01\\x02\\x03'
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return b64encode(compress(little.tobytes())).decode("ascii")  # level 9 takes 5 times as long for 1 % less


def pack_parts(maps: CoarseMaps) -> Parts:
    """Encode the arrays of each term.

    >>> import torch
    >>> from dnlnet.attention import NonLocalBlock
    >>> terms = NonLocalBlock(8, "gc").terms(torch.rand(1, 8, 6, 9))
    >>> {name: list(part) for name, part in pack_parts(coarse_maps(terms, Grid((6, 9)), Grid((6, 9)))).items()}
    {'unary': ['codes', 'low', 'high']}
    """
    return {
        name: {"codes": pack(codes.codes), "low": pack(codes.low), "high": pack(codes.high)}
        for name, codes in maps.parts.items()
    }


def fit_maps(terms: Terms, budget: int) -> tuple[CoarseMaps, Parts]:
    """Return the finest maps of a block that take at most `budget` bytes, and their encoded text.

    >>> import torch
    >>> from dnlnet.attention import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl").terms(torch.rand(1, 8, 24, 24))
    >>> maps, parts = fit_maps(terms, 100_000)
    >>> maps.keys.cells
    (12, 12)
    """
    for queries, keys in _coarsen(terms):
        if terms.pairwise is not None:
            step = max(1, queries.count // _SAMPLED)
            if queries.count * keys.count > _MAX_CELLS:
                continue
            # Skip a grid far over budget without computing all of its maps.
            if step * text_size(pack_parts(coarse_maps(terms, queries, keys, sample=step))) > 1.1 * budget:
                continue
        maps = coarse_maps(terms, queries, keys)
        parts = pack_parts(maps)
        if text_size(parts) <= budget:
            return maps, parts
    raise ValueError(
        f"even one cell per map takes more than the {budget} bytes left for it; allow a larger page, or choose "
        "fewer images"
    )


def text_size(parts: Parts) -> int:
    """Return the number of characters."""
    return sum(len(text) for part in parts.values() for text in part.values())


def _coarsen(terms: Terms) -> Iterator[tuple[Grid, Grid]]:
    """Yield grids of queries and keys, from one cell per position to one cell, coarsening the finer grid first."""
    (h, w), (m, n) = terms.size, terms.key_size
    queries, keys = Grid((h, w)), Grid((m, n))
    yield queries, keys
    while queries.count > 1 or keys.count > 1:
        if queries.count >= keys.count:
            queries = replace(queries, factor=queries.factor + 1)
        else:
            keys = replace(keys, factor=keys.factor + 1)
        yield queries, keys


def shrink(pixels: NDArray[np.uint8], side: int) -> Image.Image:
    """Shrink an image (H, W, 3) so that its longer side is at most `side`.

    >>> shrink(np.zeros((30, 40, 3), dtype=np.uint8), side=20).size
    (20, 15)
    """
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return image


def jpeg_data_url(image: Image.Image) -> str:
    """Encode an image as a JPEG data URL.

    >>> jpeg_data_url(Image.new("RGB", (4, 4)))[:27]
    'data:image/jpeg;base64,/9j/'
    """
    file = BytesIO()
    image.save(file, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + b64encode(file.getvalue()).decode("ascii")


def shrink_labels(labels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize labels (H, W) to `size`, height and width, by nearest neighbour.

    >>> shrink_labels(np.array([[0, 0, 1, 1]], dtype=np.uint8), (1, 2)).tolist()
    [[0, 1]]
    """
    rows, columns = (
        ((np.arange(count) + 0.5) * length / count).astype(np.intp)
        for length, count in zip(labels.shape, size, strict=True)
    )
    return labels[np.ix_(rows, columns)]
