"""Which of our ResNets one of another code base is: its stem, its depth, its strides and dilations."""

import re
from collections.abc import Mapping, Sequence

from dnlnet.convert.names import State
from dnlnet.errors import shown

# What the stem of a ResNet is.
DEEP_STEM, PLAIN_STEM = "a stem of three 3 x 3 convolutions", "a 7 x 7 convolution"

Dilations = tuple[tuple[int, ...], ...]  # of the stages, by residual block; the last number holds for the others
# Those of our backbones, by output stride.
_USUAL: Mapping[int, Dilations] = {
    8: ((1,), (1,), (1, 2), (2, 4)),
    16: ((1,), (1,), (1,), (1, 2)),
    32: ((1,), (1,), (1,), (1,)),
}


def find_resnet(state: State, prefix: str, stem: str, rows: Mapping[tuple[str, tuple[int, ...]], str]) -> str:
    """Which of our backbones a ResNet is, told by its stem and by the number of bottlenecks in its four stages.

    Args:
        state: tensors under their names.
        prefix: of the names of its stages, before `layer1`.
        stem: what its stem is, in the words of the table.
        rows: our names.
    """
    found: dict[str, set[int]] = {}
    for name in state:
        parts = re.fullmatch(rf"{re.escape(prefix)}layer(\d)\.(\d+)\.conv3\.weight", name)
        if parts is not None:
            found.setdefault(parts[1], set()).add(int(parts[2]))
    blocks = tuple(len(found[stage]) for stage in sorted(found))
    if (stem, blocks) not in rows:
        known = ", ".join(f"{name} ({kind}, {shown(counts)})" for (kind, counts), name in rows.items())
        raise ValueError(
            f"its backbone has {stem} and {shown(blocks)} bottlenecks in its stages, which is none of: {known}"
        )
    return rows[stem, blocks]


def unusual(output_stride: int, dilations: Sequence[Sequence[int]]) -> Dilations | None:
    """The dilations of the four stages, unless they are those that our backbones have anyway.

    >>> unusual(8, [(1, 1, 1), (1,), (1, 2, 2), (2, 4, 4)]) is None
    True
    >>> unusual(8, [(1,), (1,), (1, 2), (2, 8, 16)])
    ((1,), (1,), (1, 2), (2, 8, 16))
    """
    short = tuple(_shortened(stage) for stage in dilations)
    return None if short == _USUAL[output_stride] else short


def _shortened(numbers: Sequence[int]) -> tuple[int, ...]:
    while len(numbers) > 1 and numbers[-1] == numbers[-2]:
        numbers = numbers[:-1]
    return tuple(numbers)
