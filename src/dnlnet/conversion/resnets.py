"""Our ResNets with the depth and dilations of theirs."""

import re
from collections.abc import Mapping, Sequence

from dnlnet.conversion.names import State
from dnlnet.errors import shown

# Our ResNets by the number of bottlenecks in each stage.
DEPTHS = {(3, 4, 6, 3): "resnet50", (3, 4, 23, 3): "resnet101"}

Dilations = tuple[tuple[int, ...], ...]  # by stage and residual block; the last number repeats
# Defaults of our backbones, by output stride.
_USUAL: Mapping[int, Dilations] = {
    8: ((1,), (1,), (1, 2), (2, 4)),
    16: ((1,), (1,), (1,), (1, 2)),
    32: ((1,), (1,), (1,), (1,)),
}


def find_resnet(state: State, suffix: str = "") -> str:
    """Return the name of our backbone with as many bottlenecks in each stage.

    Args:
        state: Tensors by their names, which begin with `backbone.layer1` to `backbone.layer4`.
        suffix: Suffix of our name: the kind of stem.
    """
    found: dict[str, set[str]] = {}
    for name in state:
        if parts := re.fullmatch(r"backbone\.layer(\d)\.(\d+)\.conv3\.weight", name):
            found.setdefault(parts[1], set()).add(parts[2])
    blocks = tuple(len(found[stage]) for stage in sorted(found))
    if blocks in DEPTHS:
        return DEPTHS[blocks] + suffix
    known = ", ".join(f"{name} {shown(counts)}" for counts, name in DEPTHS.items())
    if len(blocks) == 4:
        raise ValueError(f"its backbone has {shown(blocks)} bottlenecks in its stages; supported: {known}")
    first = next((name for name in state if name.startswith("backbone.")), "no tensors")
    raise ValueError(
        f"its backbone is not a ResNet of four stages of bottlenecks (it has {shown(first)}); supported: {known}"
    )


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
