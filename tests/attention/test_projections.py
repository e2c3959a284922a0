"""Projections of one input together, against PyTorch's own linear layers one after the other."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dnlnet.attention import NonLocalBlock
from dnlnet.attention.projections import project_together

LAYERS = {"query": (3, True), "saliency": (1, True), "value": (5, False)}  # width, and whether there is a bias


def make_layers() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({name: nn.Linear(4, width, bias) for name, (width, bias) in LAYERS.items()}).double()


def make_tokens(batch: int, *, columns: bool) -> Tensor:
    """(B, 6, 4), in the memory order of a map with channels first if `columns`."""
    torch.manual_seed(1)
    tokens = torch.randn(batch, 4, 6).mT if columns else torch.randn(batch, 6, 4)
    return tokens.double().requires_grad_()


def one_by_one(layers: nn.ModuleDict, tokens: Tensor) -> dict[str, Tensor]:
    return {name: layer(tokens) for name, layer in layers.items()}


def weighted_sum(outputs: dict[str, Tensor]) -> Tensor:
    torch.manual_seed(2)
    return sum((output.sin() * torch.randn_like(output)).sum() for output in outputs.values())


@pytest.mark.parametrize(("batch", "columns"), [(1, True), (3, False), (3, True)])
@pytest.mark.parametrize("frozen", [(), ("query",), ("query", "saliency", "value")])
def test_outputs_and_gradients_are_those_of_the_layers(batch: int, columns: bool, frozen: tuple[str, ...]) -> None:
    layers, tokens = make_layers(), make_tokens(batch, columns=columns)
    for name in frozen:
        layers[name].requires_grad_(False)
    wanted = [tokens, *(parameter for parameter in layers.parameters() if parameter.requires_grad)]
    found, expected = project_together(layers, tokens), one_by_one(layers, tokens)
    assert list(found) == list(LAYERS)
    for name in LAYERS:
        assert torch.equal(found[name], expected[name])
    grads, references = (torch.autograd.grad(weighted_sum(outputs), wanted) for outputs in (found, expected))
    for grad, reference in zip(grads, references, strict=True):
        torch.testing.assert_close(grad, reference, rtol=1e-12, atol=1e-14)


def test_there_are_second_derivatives() -> None:
    layers, tokens = make_layers(), make_tokens(2, columns=False)
    parameters = list(layers.parameters())

    def total(tokens: Tensor, *_: Tensor) -> Tensor:
        return weighted_sum(project_together(layers, tokens))

    assert torch.autograd.gradgradcheck(total, (tokens, *parameters))


def test_an_output_that_is_not_used_has_no_gradient() -> None:
    layers, tokens = make_layers(), make_tokens(2, columns=False)
    (found,) = torch.autograd.grad(project_together(layers, tokens)["value"].sum(), tokens)
    (expected,) = torch.autograd.grad(layers["value"](tokens).sum(), tokens)
    torch.testing.assert_close(found, expected)


class Additions(TorchDispatchMode):
    """Counts tensors of a shape that are added to others."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.shapes, self.counted = shapes, Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.add, torch.ops.aten.add_) and tuple(out.shape) in self.shapes:
            self.counted[str(func.overloadpacket)] += 1
        return out


@pytest.mark.parametrize("batch", [1, 2])
def test_the_gradients_of_a_block_are_added_up_inside_of_the_products(batch: int) -> None:
    """What is left is the input itself beside all projections: one sum, where autograd makes three."""
    block = NonLocalBlock(16, "nl", dims=2)
    x = torch.randn(batch, 16, 5, 6, requires_grad=True)
    counts = {}
    for name, forward in (("fused", block), ("explicit", block.forward_explicit)):
        loss = forward(x).sum()
        with Additions((batch, 30, 16), (batch, 16, 30), (batch, 16, 5, 6)) as additions:
            torch.autograd.grad(loss, [x, *block.parameters()])
        counts[name] = additions.counted.total()
    assert counts == {"fused": 1, "explicit": 3}


def test_a_hook_on_a_projection_is_called() -> None:
    block, seen = NonLocalBlock(8, "dnl", dims=2), []
    block.key.register_forward_hook(lambda *_: seen.append("key"))
    block(torch.randn(1, 8, 4, 5, requires_grad=True)).sum().backward()
    assert seen == ["key"]


def gradient_of(block: NonLocalBlock) -> Tensor:
    torch.manual_seed(4)
    x = torch.randn(2, 8, 4, 4, requires_grad=True)
    block(x).square().sum().backward()
    return x.grad


def test_hooks_of_all_modules_see_every_projection() -> None:
    seen: list[nn.Module] = []
    block = NonLocalBlock(8)
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        gradient_of(block)
    finally:
        hook.remove()
    assert {block.query, block.key, block.value, block.saliency} <= set(seen)


def test_a_forward_method_replaced_on_a_projection_is_called() -> None:
    """As LoRA adapters and accelerate replace it."""
    block = NonLocalBlock(8)
    original = block.value.forward
    block.value.forward = lambda x: original(x) + 3 * x
    changed = gradient_of(block)
    del block.value.forward
    with torch.no_grad():
        block.value.weight += 3 * torch.eye(8)
    torch.testing.assert_close(changed, gradient_of(block))


def test_a_class_whose_calls_are_replaced_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[nn.Module] = []
    original = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: calls.append(self) or original(self, x))
    gradient_of(NonLocalBlock(8))
    assert len(calls) == 4


def test_tied_projections_are_one_layer_of_two_names() -> None:
    """Attention with q = k, from the equation softmax((q_i - mu).q_j) in float64."""
    torch.manual_seed(0)
    block = NonLocalBlock(8, "nl_pairwise").double()
    block.key = block.query
    nn.init.normal_(block.query.weight)
    x = torch.randn(2, 8, 3, 4, dtype=torch.float64, requires_grad=True)
    tokens = x.flatten(2).mT
    q, v = tokens @ block.query.weight.mT + block.query.bias, tokens @ block.value.weight.mT
    expected = tokens + ((q - q.mean(1, keepdim=True)) @ q.mT).softmax(dim=-1) @ v
    torch.testing.assert_close(block(x).flatten(2).mT, expected)
    state = {name: value[..., None, None] for name, value in block.state_dict().items() if name.endswith("weight")}
    block.load_state_dict(state, strict=False)


def test_a_layer_of_another_kind_is_used() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    block = NonLocalBlock(8, "dnl", dims=2).double()
    block.key = Doubled(8, 4).double()
    x = torch.randn(1, 8, 4, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(block(x), block.forward_explicit(x))


def test_half_precision_of_autocast_is_kept() -> None:
    layers, tokens = make_layers().float(), make_tokens(2, columns=False).detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = project_together(layers, tokens)
    assert {output.dtype for output in outputs.values()} == {torch.bfloat16}
    weighted_sum(outputs).backward()
    assert tokens.grad.dtype == torch.float32
