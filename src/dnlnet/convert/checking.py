"""Comparison of converted tensors with the recipe's network."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dnlnet.convert.names import their_name
from dnlnet.recipes.schema import Recipe

# Counters used only by cumulative averages and missing from older checkpoints.
_COUNTERS = "num_batches_tracked"


def match_network(
    state: Mapping[str, Tensor], recipe: Recipe, classes: int, names: Mapping[str, str] = {}
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of the recipe's network in its order and precision, and the original names of the others.

    Raises ValueError with the names of all tensors that are missing or have another shape.

    Args:
        state: tensors by our names.
        recipe: recipe of the network.
        classes: number of classes.
        names: table from prefixes of the original names to ours.
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
            f"these are not all the tensors of {describe_network(recipe)}"
            + list_names("missing", missing)
            + list_names("of another shape", misshapen)
            + list_names("of an unsupported type", strange)
        )
    # Copy, because tensors of a checkpoint may share memory and those of a model file must not.
    whole = {
        name: state[name].to(tensor.dtype, copy=True).contiguous()
        if name in state
        else torch.zeros_like(tensor, device="cpu")
        for name, tensor in own.items()
    }
    return whole, [their_name(name, names) for name in state if name not in own and not name.endswith(_COUNTERS)]


def describe_network(recipe: Recipe) -> str:
    """Describe the network of a recipe in a few words.

    >>> from dnlnet.registry import find_recipe
    >>> describe_network(find_recipe("cityscapes-r101-dnl"))
    'a network for segmentation: resnet101s with dnl (preset paper)'
    """
    model = recipe.model
    block = "no block" if model.variant is None else f"{model.variant} (preset {model.preset})"
    return f"a network for {recipe.task}: {model.layers} with {block}"


def list_names(what: str, names: list[str]) -> str:
    """Return a headline with one name per line below it; empty if there are none.

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
