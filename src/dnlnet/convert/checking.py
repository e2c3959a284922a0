"""Whether tensors are exactly those of the network they are said to be of."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dnlnet.recipes.build import builder_of
from dnlnet.recipes.schema import Recipe

# A count that only cumulative averages use, and that older checkpoints do not have.
_COUNTERS = "num_batches_tracked"


def fitted(state: Mapping[str, Tensor], recipe: Recipe, classes: int) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors that the recipe's network takes, in its order and precision, and the names of the others.

    A tensor that is missing or of another shape is an error, which names all of them.
    """
    with torch.device("meta"):
        network = builder_of(recipe).build_model(recipe.model, classes, weights=False)
    own: dict[str, Tensor] = network.state_dict()
    missing = [name for name in own if name not in state and not name.endswith(_COUNTERS)]
    misshapen = [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if missing or misshapen:
        raise ValueError(
            f"these are not all the tensors of {describe(recipe)}"
            + listed("missing, by the names they have here", missing)
            + listed("of another shape", misshapen)
        )
    whole = {
        name: state[name].to(tensor.dtype).contiguous() if name in state else torch.zeros_like(tensor, device="cpu")
        for name, tensor in own.items()
    }
    return whole, [name for name in state if name not in own and not name.endswith(_COUNTERS)]


def describe(recipe: Recipe) -> str:
    """The network of a recipe in a few words.

    >>> from dnlnet.recipes import find_recipe
    >>> describe(find_recipe("cityscapes-r101-dnl"))
    'a network for segmentation: resnet101s with dnl (preset paper)'
    """
    model = recipe.model
    block = "no block" if model.variant is None else f"{model.variant} (preset {model.preset})"
    return f"a network for {recipe.task}: {model.backbone} with {block}"


def listed(what: str, names: list[str]) -> str:
    """A headline and all names below each other; nothing if there are none.

    >>> print(listed("missing", ["a", "b"]))
    <BLANKLINE>
    2 missing:
      a
      b
    """
    return "".join([f"\n{len(names)} {what}:", *(f"\n  {name}" for name in names)]) if names else ""
