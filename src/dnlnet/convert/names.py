"""Names of tensors, from theirs to ours by a table."""

import re
from collections.abc import Mapping

from torch import Tensor

from dnlnet.errors import shown

State = Mapping[str, Tensor]
# What the stem of a ResNet is.
DEEP_STEM, PLAIN_STEM = "a stem of three 3 x 3 convolutions", "a 7 x 7 convolution"


def renamed(state: State, names: Mapping[str, str]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The tensors under our names, and the names that the table has nothing for.

    Args:
        state: tensors under their names.
        names: beginnings of names there, whole up to a dot, and what they are here.

    >>> import torch
    >>> ours, unknown = renamed({"conv.weight": torch.ones(1), "conv2.weight": torch.ones(1)}, {"conv": "reduce.0"})
    >>> list(ours), unknown
    (['reduce.0.weight'], ('conv2.weight',))
    """
    ours: dict[str, Tensor] = {}
    unknown: list[str] = []
    for name, tensor in state.items():
        beginning = next((theirs for theirs in names if f"{name}.".startswith(f"{theirs}.")), None)
        if beginning is None:
            unknown.append(name)
        else:
            ours[names[beginning] + name.removeprefix(beginning)] = tensor
    return ours, tuple(unknown)


def as_linear(state: State, block: str) -> dict[str, Tensor]:
    """The tensors with the 1 x 1 convolutions of a block as the linear maps they are.

    >>> import torch
    >>> {name: tuple(x.shape) for name, x in as_linear({"block.key.weight": torch.ones(2, 4, 1, 1)}, "block").items()}
    {'block.key.weight': (2, 4)}
    """
    return {
        name: tensor.flatten(1) if name.startswith(f"{block}.") and tensor.dim() > 2 else tensor
        for name, tensor in state.items()
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


def size(state: State, name: str, axis: int = 0) -> int:
    """Length of an axis of a tensor that has to be there."""
    if name not in state:
        raise ValueError(f"the tensor {name} is missing; is this all of the network?")
    return state[name].shape[axis]
