"""Tensors and classes of other code bases under our names."""

from collections.abc import Mapping

from torch import Tensor

from dnlnet.data.classes import Classes, spread_colours

State = Mapping[str, Tensor]


def rename_tensors(state: State, names: Mapping[str, str]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors by our names, and the names that are not in the table.

    Args:
        state: Tensors by their names.
        names: Table from prefixes of their names, up to a dot, to ours.

    >>> import torch
    >>> theirs = {"conv.weight": torch.ones(1), "conv2.weight": torch.ones(1)}
    >>> ours, unknown = rename_tensors(theirs, {"conv": "reduce.0"})
    >>> list(ours), unknown
    (['reduce.0.weight'], ('conv2.weight',))
    """
    ours = {name: _replace_prefix(name, names) for name in state}
    return (
        {our: state[name] for name, our in ours.items() if our is not None},
        tuple(name for name, our in ours.items() if our is None),
    )


def their_name(ours: str, names: Mapping[str, str]) -> str:
    """Return a tensor's original name, or our name if it is not in the table.

    >>> their_name("reduce.0.weight", {"conv": "reduce.0"})
    'conv.weight'
    """
    return _replace_prefix(ours, {our: their for their, our in names.items()}) or ours


def _replace_prefix(name: str, names: Mapping[str, str]) -> str | None:
    """Replace the longest prefix that is in the table; None if there is none."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        beginning = ".".join(parts[:end])
        if beginning in names:
            return names[beginning] + name.removeprefix(beginning)
    return None


def flatten_convolutions(state: State, block: str) -> dict[str, Tensor]:
    """Return the tensors with a block's 1 x 1 convolutions as linear maps.

    >>> import torch
    >>> state = flatten_convolutions({"block.key.weight": torch.ones(2, 4, 1, 1)}, "block")
    >>> {name: tuple(tensor.shape) for name, tensor in state.items()}
    {'block.key.weight': (2, 4)}
    """
    return {
        name: tensor.flatten(1) if name.startswith(f"{block}.") and tensor.dim() > 2 else tensor
        for name, tensor in state.items()
    }


def size(state: State, name: str, axis: int = 0) -> int:
    """Return the size of a tensor along an axis. Raises ValueError if the tensor is missing."""
    if name not in state:
        raise ValueError(f"the tensor {name} is missing; is this the whole network?")
    shape = tuple(state[name].shape)
    if axis >= len(shape) or 0 in shape:
        raise ValueError(f"the tensor {name} has the shape {shape}, which no layer has")
    return shape[axis]


def check_context(state: State) -> None:
    """Raise for a block with a bottleneck for the context, as in GCNet: our block `gc` has none."""
    for name in state:
        if ".channel_add_conv." in name or ".channel_mul_conv." in name:
            raise ValueError(
                f"its block has a bottleneck for the global context ({name}), as in GCNet; it cannot be converted, "
                "because the block gc of this package has none"
            )


def number_classes(count: int, first: int = 0) -> tuple[Classes, str]:
    """Return numbered classes for a checkpoint that does not name its own, and a note for the user.

    >>> number_classes(2, first=1)[0].names
    ('class 1', 'class 2')
    """
    names = tuple(f"class {number}" for number in range(first, first + count))
    return Classes(names, spread_colours(count)), f"the file does not name its {count} classes; they are numbered"
