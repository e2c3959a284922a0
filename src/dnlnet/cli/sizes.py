"""Sizes as they are written on the command line."""

from collections.abc import Sequence


def parse_size(text: str, example: Sequence[int]) -> tuple[int, ...]:
    """The lengths of ``--size``, as many as the example has: height and width, of a clip its frames before them.

    >>> parse_size("8x112x112", (8, 256, 256))
    (8, 112, 112)
    """
    lengths = text.lower().split("x")
    if len(lengths) != len(example) or not all(length.isdecimal() and int(length) for length in lengths):
        names = " x ".join(("frames", "height", "width")[-len(example) :])
        raise ValueError(f"--size {text}: expected {names} in pixels, such as {'x'.join(map(str, example))}")
    return tuple(map(int, lengths))
