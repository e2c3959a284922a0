"""Matching of ResNets by stem, depth and dilations."""

import re
from collections.abc import Mapping, Sequence

from dnlnet.conversion.names import State
from dnlnet.errors import shown

# Kinds of stems.
DEEP_STEM, PLAIN_STEM = "a stem of three 3 x 3 convolutions", "a 7 x 7 convolution"

Dilations = tuple[tuple[int, ...], ...]  # by stage and residual block; the last number repeats
# Defaults of our backbones, by output stride.
_USUAL: Mapping[int, Dilations] = {
    8: ((1,), (1,), (1, 2), (2, 4)),
    16: ((1,), (1,), (1,), (1, 2)),
    32: ((1,), (1,), (1,), (1,)),
}


def find_resnet(state: State, prefix: str, stem: str, rows: Mapping[tuple[str, tuple[int, ...]], str]) -> str:
    """Return the name of our backbone with this stem and the same number of bottlenecks in each stage.

    Args:
        state: tensors by their names.
        prefix: prefix of `layer1` to `layer4` in the names.
        stem: kind of stem.
        rows: our names by kind of stem and number of bottlenecks.
    """
    found: dict[str, set[int]] = {}
    for name in state:
        parts = re.fullmatch(rf"{re.escape(prefix)}layer(\d)\.(\d+)\.conv3\.weight", name)
        if parts is not None:
            found.setdefault(parts[1], set()).add(int(parts[2]))
    blocks = tuple(len(found[stage]) for stage in sorted(found))
    if (stem, blocks) not in rows:
        known = ", ".join(f"{name} ({kind}, {shown(counts)})" for (kind, counts), name in rows.items())
        if len(blocks) != 4:
            first = next((name for name in state if name.startswith(prefix)), "no tensors")
            raise ValueError(
                f"its backbone is not a ResNet of four stages of bottlenecks (it has {shown(first)}); "
                f"supported: {known}"
            )
        raise ValueError(f"its backbone has {stem} and {shown(blocks)} bottlenecks in its stages; known: {known}")
    return rows[stem, blocks]


def nondefault_dilations(output_stride: int, dilations: Sequence[Sequence[int]]) -> Dilations | None:
    """Return the dilations of the four stages; None if they are the defaults of our backbones.

    >>> nondefault_dilations(8, [(1, 1, 1), (1,), (1, 2, 2), (2, 4, 4)]) is None
    True
    >>> nondefault_dilations(8, [(1,), (1,), (1, 2), (2, 8, 16)])
    ((1,), (1,), (1, 2), (2, 8, 16))
    """
    short = tuple(_drop_repeats(stage) for stage in dilations)
    return None if short == _USUAL[output_stride] else short


def _drop_repeats(numbers: Sequence[int]) -> tuple[int, ...]:
    while len(numbers) > 1 and numbers[-1] == numbers[-2]:
        numbers = numbers[:-1]
    return tuple(numbers)
