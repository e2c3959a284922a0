"""Check that converted tensors are exactly those of the recipe's network."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dnlnet.convert.names import their_name
from dnlnet.recipes.schema import Recipe

# Counters that only cumulative averages use, and that older checkpoints lack.
_COUNTERS = "num_batches_tracked"


def match_network(
    state: Mapping[str, Tensor], recipe: Recipe, classes: int, names: Mapping[str, str] = {}
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of the recipe's network, in its order and precision, and the original names of the others.

    Raises ValueError, naming all tensors that are missing or have another shape.

    Args:
        state: tensors by our names.
        recipe: describes the network.
        classes: number of classes.
        names: prefixes of the original names, and ours.
    """
    with torch.device("meta"):
        network = recipe.build(classes, pretrained=False)
    own: dict[str, Tensor] = network.state_dict()
    missing = [_both_names(name, names) for name in own if name not in state and not name.endswith(_COUNTERS)]
    misshapen = [
        f"{_both_names(name, names)} is {tuple(state[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    strange = [
        f"{_both_names(name, names)} ({tensor.dtype}, {tensor.layout})"
        for name, tensor in state.items()
        if name in own and (tensor.is_complex() or tensor.is_quantized or tensor.layout != torch.strided)
    ]
    if missing or misshapen or strange:
        raise ValueError(
            f"these are not all the tensors of {describe(recipe)}"
            + list_names("missing", missing)
            + list_names("of another shape", misshapen)
            + list_names("of an unsupported type", strange)
        )
    # Copies: tensors of a checkpoint may share memory, which model files do not allow.
    whole = {
        name: state[name].to(tensor.dtype, copy=True).contiguous()
        if name in state
        else torch.zeros_like(tensor, device="cpu")
        for name, tensor in own.items()
    }
    return whole, [their_name(name, names) for name in state if name not in own and not name.endswith(_COUNTERS)]


def describe(recipe: Recipe) -> str:
    """The network of a recipe in a few words.

    >>> from dnlnet.registry import find_recipe
    >>> describe(find_recipe("cityscapes-r101-dnl"))
    'a network for segmentation: resnet101s with dnl (preset paper)'
    """
    model = recipe.model
    block = "no block" if model.variant is None else f"{model.variant} (preset {model.preset})"
    return f"a network for {recipe.task}: {model.layers} with {block}"


def list_names(what: str, names: list[str]) -> str:
    """A headline with one name per line below it; empty if there are none.

    >>> print(list_names("missing", ["a", "b"]))
    <BLANKLINE>
    2 missing:
      a
      b
    """
    return "".join([f"\n{len(names)} {what}:", *(f"\n  {name}" for name in names)]) if names else ""


def _both_names(ours: str, names: Mapping[str, str]) -> str:
    theirs = their_name(ours, names)
    return ours if theirs == ours else f"{theirs} (here {ours})"
