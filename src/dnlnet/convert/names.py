"""Names of tensors, from theirs to ours by a table, and back."""

from collections.abc import Mapping

from torch import Tensor

State = Mapping[str, Tensor]


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
    ours = {name: _replaced(name, names) for name in state}
    return (
        {our: state[name] for name, our in ours.items() if our is not None},
        tuple(name for name, our in ours.items() if our is None),
    )


def their_name(ours: str, names: Mapping[str, str]) -> str:
    """What a tensor is called there; our name if the table has nothing for it.

    >>> their_name("reduce.0.weight", {"conv": "reduce.0"})
    'conv.weight'
    """
    return _replaced(ours, {our: their for their, our in names.items()}) or ours


def _replaced(name: str, names: Mapping[str, str]) -> str | None:
    """The name with its beginning replaced, the longest that the table has."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        beginning = ".".join(parts[:end])
        if beginning in names:
            return names[beginning] + name.removeprefix(beginning)
    return None


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


def size(state: State, name: str, axis: int = 0) -> int:
    """Length of an axis of a tensor that has to be there."""
    if name not in state:
        raise ValueError(f"the tensor {name} is missing; is this all of the network?")
    shape = tuple(state[name].shape)
    if axis >= len(shape) or shape[axis] == 0:
        raise ValueError(f"the tensor {name} is of the shape {shape}, which is none of a layer")
    return shape[axis]


def check_context(state: State) -> None:
    """Refuse a block whose context goes through a bottleneck, as GCNet has it: the block `gc` here has none."""
    for name in state:
        if ".channel_add_conv." in name or ".channel_mul_conv." in name:
            raise ValueError(
                f"its block has a bottleneck for the global context ({name}), as GCNet's; the block gc of this "
                "package has none, so it is not converted"
            )
