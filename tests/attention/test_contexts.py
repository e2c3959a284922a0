"""The block under autocast, compile, export, checkpointing, DDP, and with extreme values."""

import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import equations
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import blocked, operator
from dnlnet.attention.operator import attend

each_variant = pytest.mark.parametrize("variant", VARIANTS)


def operands(batch: int = 2, n: int = 9, m: int = 11) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, n, 3), (batch, m, 3), (batch, m, 5)
    return tuple(torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_operator_passes_pytorchs_own_checks() -> None:
    torch.library.opcheck(torch.ops.dnlnet.attend.default, operands())
    torch.library.opcheck(torch.ops.dnlnet.attend.default, operands(), {"keep": True, "columns": True})
    grad = torch.randn(2, 9, 5, dtype=torch.float64)
    detached = tuple(t.detach() for t in operands())
    for softmax in (torch.zeros(0), torch.rand(2, 9, 11)):
        torch.library.opcheck(torch.ops.dnlnet.attend_backward.default, (grad, *detached, softmax.double()))


@pytest.mark.parametrize("least", [1, 2**20], ids=["operator", "definition"])
def test_second_derivative_of_a_small_map_is_correct(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "MIN_LOGITS", least)
    block = equations.randomise(NonLocalBlock(4))
    x = torch.randn(1, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(block, x)


@pytest.mark.parametrize(("least", "largest"), [(1, 0), (1, 2**24), (2**20, 2**24)], ids=["again", "kept", "small"])
def test_the_gradient_is_the_finite_difference(least: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "MIN_LOGITS", least)
    monkeypatch.setattr(blocked, "MAX_LOGITS", largest)
    assert torch.autograd.gradcheck(attend, operands())


@pytest.mark.parametrize("largest", [0, 2**24], ids=["computed again", "kept"])
def test_second_derivative_of_blocks_is_refused(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "MAX_TWICE", 1)
    monkeypatch.setattr(blocked, "MIN_LOGITS", 1)
    monkeypatch.setattr(blocked, "MAX_LOGITS", largest)
    block = NonLocalBlock(4)
    x = torch.randn(1, 4, 3, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(block(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"first derivative only.*forward_explicit"):
        grad.sum().backward()


def _dual_forward(block: NonLocalBlock, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(block(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own forward-mode code
@pytest.mark.parametrize("least", [1, 2**20], ids=["operator", "definition"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    "derivative",
    [
        _dual_forward,
        lambda block, x: torch.func.jvp(block, (x,), (x,)),
        lambda block, x: torch.func.jvp(torch.func.vmap(block), (x[None],), (x[None],)),
        lambda block, x: torch.func.jacfwd(block)(x),
        lambda block, x: torch.func.jacrev(block)(x),
        lambda block, x: torch.func.vjp(block, x),
        lambda block, x: torch.func.grad(lambda x: block(x).sum())(x),
        lambda block, x: torch.func.hessian(lambda x: block(x).sum())(x),
    ],
    ids=["forward_ad", "jvp", "jvp of vmap", "jacfwd", "jacrev", "vjp", "grad", "hessian"],
)
def test_derivatives_that_would_omit_the_attention_are_refused(
    derivative, frozen: bool, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse them for small maps too, so that it does not depend on the size."""
    monkeypatch.setattr(blocked, "MIN_LOGITS", least)
    block = NonLocalBlock(4).requires_grad_(not frozen)
    with pytest.raises(NotImplementedError, match=r"does not support .* derivatives.*block\.forward_explicit\(x\)"):
        derivative(block, torch.randn(1, 4, 3, 3))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_is_a_loop_over_the_block() -> None:
    block = equations.randomise(NonLocalBlock(4))
    xs = torch.randn(3, 1, 4, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(block)(xs), torch.stack([block(x) for x in xs]))


def test_the_explicit_form_has_a_second_derivative() -> None:
    block = equations.randomise(NonLocalBlock(4))
    x = torch.randn(1, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(block.forward_explicit, x)


@each_variant
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_close_to_full_precision(variant: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    block = NonLocalBlock(16, variant, gate="scalar")
    torch.nn.init.ones_(block.gamma)
    for name, parameter in block.named_parameters():
        if "weight" in name:
            torch.nn.init.normal_(parameter, std=0.25)
    x = torch.randn(2, 16, 6, 7, requires_grad=True)
    expected = block(x)
    (expected_grad,) = torch.autograd.grad(expected.sum(), x)
    with torch.autocast("cpu", dtype=dtype):
        out = block(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out, expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(grad, expected_grad, rtol=0.1, atol=0.3)


@each_variant
def test_logits_beyond_float16_are_safe_under_autocast(variant: str) -> None:
    block = NonLocalBlock(16, variant)
    for layer in (block.query, block.key, block.saliency):
        if layer is not None:
            torch.nn.init.normal_(layer.weight)
    x = (3e3 * torch.randn(1, 16, 6, 7)).requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        out = block(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()


@each_variant
def test_projections_that_overflow_float16_are_safe(variant: str) -> None:
    block = NonLocalBlock(16, variant)
    for layer in (block.query, block.key, block.saliency, block.value):
        if layer is not None:
            torch.nn.init.constant_(layer.weight, 10.0)
    with torch.autocast("cpu", dtype=torch.float16):
        out = block(torch.full((1, 16, 5, 5), 6e4))
    assert not out.isnan().any()


@each_variant
@pytest.mark.parametrize("magnitude", [1e4, 1e12, 1e20, 1e30])
def test_large_activations_give_no_nan(variant: str, magnitude: float) -> None:
    torch.manual_seed(0)
    block = NonLocalBlock(16, variant)
    x = (magnitude * torch.randn(2, 16, 6, 7)).requires_grad_()
    out = block(x)
    assert out.isfinite().all()
    out.mean().backward()
    assert x.grad.isfinite().all()


@each_variant
@pytest.mark.parametrize("magnitude", [torch.nan, torch.inf, 1e20, 1e38])
def test_one_image_of_a_batch_does_not_change_another(variant: str, magnitude: float) -> None:
    torch.manual_seed(0)
    block = NonLocalBlock(16, variant)
    for layer in (block.query, block.key):
        if layer is not None:
            torch.nn.init.normal_(layer.weight)  # logits that rescaling would change
    x = torch.randn(2, 16, 6, 6)
    x[0, 3, 2, 2] = magnitude
    alone, together = x[1:].clone().requires_grad_(), x.requires_grad_()
    expected, found = block(alone)[0], block(together)[1]
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    torch.testing.assert_close(together.grad[1], alone.grad[0])


def test_a_query_that_could_overflow_does_not_change_another() -> None:
    """softmax(q.k) v with q = (1e38, 1e38) and (0.3, 0.2): row one is one-hot, row two follows the equation."""
    query = torch.tensor([[[1e38, 1e38], [0.3, 0.2]]])
    key = torch.tensor([[[1.0, 2.0], [8.0, 9.0], [3.0, 3.0]]])
    value = torch.eye(3)[None]
    expected = torch.softmax(query[0, 1].double() @ key[0].double().mT, dim=0).float()
    torch.testing.assert_close(attend(query, key, value)[0], torch.stack([torch.tensor([0.0, 1.0, 0.0]), expected]))


@each_variant
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit.trace")
@pytest.mark.parametrize("preset", ["paper", "slowfast"])
def test_a_traced_block_accepts_other_sizes(variant: str, preset: str) -> None:
    """40 x 40 positions need several blocks of rows; their number must not enter the trace."""
    torch.manual_seed(0)
    block = NonLocalBlock(8, variant, preset=preset, gate="none").eval()
    for weight in block.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    traced = torch.jit.trace(block, torch.randn(1, 8, 40, 40).requires_grad_())
    for size in ((3, 5), (41, 41), (52, 36)):
        x = torch.randn(2, 8, *size)
        torch.testing.assert_close(traced(x), block.forward_explicit(x))


def attend_in_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Run PyTorch's attention on (B, 1, N, D); its backward pass needs its output."""
    return torch.nn.functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], scale=1.0)[:, 0]


def attend_by_tanh(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute a function other than attention whose backward pass needs its output."""
    return ((q @ k.mT) @ v).tanh()


@each_variant
@pytest.mark.parametrize("other", [attend_in_heads, attend_by_tanh])
def test_another_implementation_is_differentiable(variant: str, other) -> None:
    torch.manual_seed(0)
    block = NonLocalBlock(8, variant)
    x = torch.randn(2, 8, 4, 5, requires_grad=True)
    block.forward_with(x, other).sin().sum().backward()
    if other is attend_in_heads:
        (expected,) = torch.autograd.grad(block.forward_explicit(x).sin().sum(), x)
        torch.testing.assert_close(x.grad, expected)
    assert x.grad.isfinite().all()


@each_variant
def test_the_output_of_another_implementation_is_not_modified(variant: str) -> None:
    given: list[torch.Tensor] = []

    def remember(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        given.append((q @ k.mT).softmax(dim=-1) @ v)
        copies.append(given[-1].clone())
        return given[-1]

    copies: list[torch.Tensor] = []
    with torch.no_grad():
        NonLocalBlock(8, variant).forward_with(torch.randn(1, 8, 4, 5), remember)
    for output, copy in zip(given, copies, strict=True):
        assert torch.equal(output, copy)


@each_variant
def test_compiles_as_one_graph(variant: str) -> None:
    block = equations.randomise(NonLocalBlock(6, variant))
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    _assert_same_gradients(compiled, block, torch.randn(2, 6, 5, 7, dtype=torch.float64))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile's default backend needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiles_to_machine_code_for_any_size() -> None:
    block = equations.randomise(NonLocalBlock(6))
    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for shape in ((2, 6, 5, 7), (3, 6, 8, 4)):
        _assert_same_gradients(compiled, block, torch.randn(shape, dtype=torch.float64))


def _assert_same_gradients(compiled, block, x: torch.Tensor) -> None:
    results = []
    for forward in (compiled, block):
        leaf = x.clone().requires_grad_()
        out = forward(leaf)
        out.square().sum().backward()
        results.append((out, leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-10)


@each_variant
@pytest.mark.parametrize("batch", [1, 2])
def test_exports_with_dynamic_sizes(variant: str, batch: int) -> None:
    block = NonLocalBlock(6, variant, pool=2).eval()
    auto = torch.export.Dim.DYNAMIC
    sizes = ({0: auto} if batch > 1 else {}) | {2: auto, 3: auto}
    program = torch.export.export(block, (torch.randn(batch, 6, 8, 10),), dynamic_shapes=(sizes,))
    x = torch.randn(batch if batch == 1 else 3, 6, 13, 9)
    torch.testing.assert_close(program.module()(x), block(x))


@each_variant
def test_activation_checkpointing_changes_nothing(variant: str) -> None:
    block = equations.randomise(NonLocalBlock(6, variant))
    x = torch.randn(2, 6, 5, 7, dtype=torch.float64, requires_grad=True)
    kept = torch.autograd.grad(block(x).square().sum(), [x, *block.parameters()])
    again = checkpoint(block, x, use_reentrant=False).square().sum()
    for a, b in zip(torch.autograd.grad(again, [x, *block.parameters()]), kept, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def _data_parallel_worker(rank: int, rendezvous: str, results: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    block = equations.randomise(NonLocalBlock(6))
    wrapped = torch.nn.parallel.DistributedDataParallel(block)
    wrapped(_data_parallel_input()[rank : rank + 1]).square().sum().backward()
    if rank == 0:
        torch.save({n: p.grad for n, p in block.named_parameters()}, results)
    dist.barrier()  # a process may abort if the other exits first
    dist.destroy_process_group()


def _data_parallel_input() -> torch.Tensor:
    return torch.randn(2, 6, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_two_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    results = tmp_path / "grads.pt"
    mp.spawn(_data_parallel_worker, (str(tmp_path / "rendezvous"), str(results)), nprocs=2)
    block = equations.randomise(NonLocalBlock(6))
    block(_data_parallel_input()).square().sum().div(2).backward()  # DDP averages over processes
    for name, grad in torch.load(results).items():
        torch.testing.assert_close(grad, block.get_parameter(name).grad)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("batch", [1, 2])
def test_memory_format_is_kept(dims: int, batch: int) -> None:
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    x = torch.randn(batch, 6, 4, 5, 3)[..., 0] if dims == 2 else torch.randn(batch, 6, 4, 5, 3)
    block = NonLocalBlock(6, dims=dims)
    assert block(x.contiguous()).is_contiguous()
    assert block(x.contiguous(memory_format=last)).is_contiguous(memory_format=last)
    torch.testing.assert_close(block(x.contiguous(memory_format=last)), block(x.contiguous()))


@each_variant
def test_shapes_are_known_without_values(variant: str) -> None:
    with FakeTensorMode():
        out = NonLocalBlock(6, variant)(torch.randn(2, 6, 4, 5))
    assert out.shape == (2, 6, 4, 5)


@each_variant
def test_an_empty_batch_passes_through(variant: str) -> None:
    x = torch.randn(0, 6, 4, 5, requires_grad=True)
    out = NonLocalBlock(6, variant)(x)
    out.sum().backward()
    assert out.shape == x.grad.shape == (0, 6, 4, 5)
