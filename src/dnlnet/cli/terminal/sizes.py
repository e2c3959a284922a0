"""Sizes as they are written on the command line."""

from collections.abc import Sequence

SMALLEST, LARGEST = 16, 65_536  # pixels of a side: smaller maps have nothing left at the end of a network
MOST_FRAMES = 65_536


def parse_size(text: str, example: Sequence[int]) -> tuple[int, ...]:
    """The lengths of ``--size``, as many as the example has: height and width, of a clip its frames before them.

    >>> parse_size("8x112x112", (8, 256, 256))
    (8, 112, 112)
    """
    lengths = text.lower().split("x")
    if len(lengths) != len(example) or not all(length.isdecimal() and len(length) < 10 for length in lengths):
        names = " x ".join(("frames", "height", "width")[-len(example) :])
        raise ValueError(f"--size {text[:60]}: expected {names} in pixels, such as {'x'.join(map(str, example))}")
    *frames, height, width = map(int, lengths)
    if not all(SMALLEST <= side <= LARGEST for side in (height, width)):
        raise ValueError(f"--size {text}: expected sides of {SMALLEST} to {LARGEST} pixels")
    if not all(1 <= count <= MOST_FRAMES for count in frames):
        raise ValueError(f"--size {text}: expected 1 to {MOST_FRAMES} frames")
    return *frames, height, width
