"""Sizes that pictures can have."""

from dnlnet.errors import shown

Size = tuple[int, int]  # height, width
MOST_SIDE = 65_535  # pixels of a picture's height or width, as in JPEG
MOST_PIXELS = 178_956_970  # of a picture: beyond that Pillow takes it for an attack


def size_fault(size: Size) -> str | None:
    """Why a picture cannot have this height and width, if so.

    >>> size_fault((480, 640)), size_fault((0, 640))
    (None, 'is 0 x 640 (height x width); expected 1..65535 pixels each, and 178956970 in all at most')
    """
    height, width = size
    if 1 <= height <= MOST_SIDE and 1 <= width <= MOST_SIDE and height * width <= MOST_PIXELS:
        return None
    limits = f"1..{MOST_SIDE} pixels each, and {MOST_PIXELS} in all at most"
    return f"is {shown(height)} x {shown(width)} (height x width); expected {limits}"
