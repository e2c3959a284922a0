"""Draw classes over an image: outlines around regions, and a legend below."""

# H, W size of the image

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dnlnet.data.classes import Classes

_MIN_SHARE = 0.005  # smallest share of the image for a class to appear in the legend
_TEXT, _PAPER = (30, 30, 30), (255, 255, 255)


def draw_outlines(overlay: NDArray[np.uint8], labels: NDArray[np.uint8], classes: Classes) -> NDArray[np.uint8]:
    """Draw the borders of regions on an overlay (H, W, 3) in the full colours of their classes.

    >>> flat = np.zeros((4, 6, 3), np.uint8)
    >>> halves = np.array([[0, 0, 0, 1, 1, 1]] * 4, np.uint8)
    >>> draw_outlines(flat, halves, Classes(["a", "b"], [(9, 9, 9), (7, 7, 7)]))[0, :, 0].tolist()
    [0, 0, 9, 7, 0, 0]
    """
    border = np.zeros(labels.shape, dtype=bool)
    for _ in range(max(1, min(labels.shape) // 400)):
        border = _widened(border, labels)
    drawn = overlay.copy()
    drawn[border] = classes.paint(labels[border][None])[0]
    return drawn


def _widened(border: NDArray[np.bool_], labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Widen a border by one pixel, and add pixels with a neighbour of another class."""
    wide = border.copy()
    for axis in (0, 1):
        front, back = [slice(None)] * 2, [slice(None)] * 2
        front[axis], back[axis] = slice(1, None), slice(None, -1)
        one, other = tuple(front), tuple(back)
        differs = labels[one] != labels[other]
        wide[one] |= differs | border[other]
        wide[other] |= differs | border[one]
    return wide


def add_legend(
    image: NDArray[np.uint8], classes: Classes, shares: Mapping[str, float], least: float = _MIN_SHARE
) -> NDArray[np.uint8]:
    """Add a strip below an image (H, W, 3) with the colour, name and share of each class.

    >>> add_legend(np.zeros((90, 120, 3), np.uint8), Classes(["sky"], [(0, 0, 255)]), {"sky": 1.0}).shape[1:]
    (120, 3)
    """
    width = image.shape[1]
    size = max(11, round(width / 50))
    font = ImageFont.load_default(size)
    colours = dict(zip(classes.names, classes.palette, strict=True))
    entries = [(f"{name} {share_text(share)}", colours[name]) for name, share in shares.items() if share >= least]
    places, x, y = [], size // 2, size // 2
    for text, colour in entries:
        length = round(font.getlength(text)) + 2 * size + size // 2
        if x > size // 2 and x + length > width:
            x, y = size // 2, y + round(1.6 * size)
        places.append((x, y, text, colour))
        x += length
    strip = Image.new("RGB", (width, y + round(1.8 * size)), _PAPER)
    draw = ImageDraw.Draw(strip)
    for x, y, text, colour in places:
        draw.rectangle((x, y, x + size, y + size), fill=tuple(colour), outline=_TEXT)
        draw.text((x + round(1.4 * size), y + size / 2), text, fill=_TEXT, font=font, anchor="lm")
    return np.concatenate([image, np.asarray(strip)])


def share_text(share: float) -> str:
    """Format a share of an image in per cent.

    >>> share_text(0.123), share_text(0.004)
    ('12 %', 'under 1 %')
    """
    return f"{share:.0%}".replace("%", " %") if share >= 0.01 else "under 1 %"
