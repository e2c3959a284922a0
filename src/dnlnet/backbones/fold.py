"""Folding of batch norms into the preceding convolutions: the same function with fewer passes over memory."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

_CONVOLUTIONS, _NORMS = (nn.Conv2d, nn.Conv3d), (nn.BatchNorm2d, nn.BatchNorm3d)


@torch.no_grad()
def fold_batch_norms(network: nn.Module, example: Tensor) -> nn.Module:
    """Return a copy of the network for inference, with batch norms folded into the convolutions they directly follow.

    Runs the example through the network to find the pairs, and through the copy to check it: two passes. Raises
    ValueError if folding changes the result.

    Args:
        network: Network in evaluation mode.
        example: Example input, (1, 3, H, W) or (1, 3, T, H, W). A small one suffices.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    >>> [type(module).__name__ for module in fold_batch_norms(net, torch.rand(1, 3, 8, 8))]
    ['Conv2d', 'Identity', 'ReLU']
    """
    if network.training:
        raise ValueError("batch norms can be folded in evaluation mode only; call network.eval() first")
    folded = deepcopy(network)
    pairs, expected = _find_pairs(network, example)
    for convolution, norm in pairs:
        before, after = folded.get_submodule(convolution), folded.get_submodule(norm)
        assert isinstance(before, _CONVOLUTIONS)
        assert isinstance(after, _NORMS)
        folded.set_submodule(convolution, fuse_conv_bn_eval(before, after))
        # timm's batch norms contain their activation.
        inside = [module for name, module in after.named_children() if name in ("drop", "act")]
        folded.set_submodule(norm, nn.Sequential(*inside) if inside else nn.Identity())
    difference = float((expected - first_tensor(folded(example))).abs().max())
    if difference > 1e-3 * float(expected.abs().max()):
        raise ValueError(f"folding changes the result by {difference:.2g}; use the network as it is")
    return folded


def _find_pairs(network: nn.Module, example: Tensor) -> tuple[list[tuple[str, str]], Tensor]:
    """Return the names of each convolution and the single batch norm that takes its output, and the result."""
    made_by: dict[int, str] = {}
    kept: list[Tensor] = []  # keeps the outputs alive, so that their ids stay unique
    pairs: list[tuple[str, str]] = []

    def record_output(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Tensor) -> None:
            made_by[id(output)] = name
            kept.append(output)

        return hook

    def check_input(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if id(inputs[0]) in made_by:
                pairs.append((made_by[id(inputs[0])], name))

        return hook

    hooks = []
    for name, module in network.named_modules():
        if isinstance(module, _CONVOLUTIONS):
            hooks.append(module.register_forward_hook(record_output(name)))
        elif isinstance(module, _NORMS):
            hooks.append(module.register_forward_pre_hook(check_input(name)))
    try:
        output = first_tensor(network(example))
    finally:
        for hook in hooks:
            hook.remove()
    convolutions = [convolution for convolution, _ in pairs]
    norms = [norm for _, norm in pairs]
    single = [
        (convolution, norm)
        for convolution, norm in pairs
        if convolutions.count(convolution) == 1 and norms.count(norm) == 1
    ]
    return single, output


def first_tensor(output: Any) -> Tensor:
    """Return a network's output, or its first tensor if it is a mapping or sequence.

    >>> first_tensor((torch.tensor(1.0), None)), first_tensor({"0": torch.tensor(2.0)})
    (tensor(1.), tensor(2.))
    """
    if isinstance(output, Mapping):
        output = tuple(output.values())
    tensor: Tensor = output if isinstance(output, Tensor) else output[0]
    return tensor
