"""Attention kernels: selection, and equality of their results."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from dnlnet import NonLocalBlock
from dnlnet.attention import blocked, operator
from dnlnet.attention.operator import attend, attend_explicit
from waiting import META, counted

FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
NAMES = {
    FLASH: "can_use_flash_attention",
    EFFICIENT: "can_use_efficient_attention",
    SDPBackend.CUDNN_ATTENTION: "can_use_cudnn_attention",
}


def operands(
    queries: int = 9, keys: int = 11, width: int = 3, value: int = 5, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, queries, width), (2, keys, width), (2, keys, value)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def results(attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    out = attend(q, k, v)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad((out * weight).sum(), (q, k, v))


@dataclass
class Fused:
    """Stand-in for PyTorch's fused kernels on a GPU, with the widths each accepts and the calls made."""

    takes: dict[SDPBackend, Callable[[int, int], bool]]
    calls: list[tuple[int, int]] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        def rule(takes: Callable[[int, int], bool]) -> Callable[[object], bool]:
            return lambda params: takes(params.query.shape[-1], params.value.shape[-1])

        for kernel, name in NAMES.items():
            patch.setattr(torch.backends.cuda, name, rule(self.takes.get(kernel, lambda width, value: False)))
        patch.setattr(F, "scaled_dot_product_attention", self.attend)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> Tensor:
        assert scale == 1
        assert all(t.shape[-1] % 8 == 0 for t in (query, key, value))
        self.calls.append((query.shape[-1], value.shape[-1]))
        return attend_explicit(query, key, value)


def flash(width: int, value: int) -> bool:
    return width == value <= 256


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("width", "value", "calls"),
    [
        (256, 512, [(256, 256), (256, 256)]),  # the paper's widths: two calls, no padding
        (128, 256, [(256, 256)]),
        (30, 20, [(32, 32)]),
        (64, 300, [(256, 256), (64, 64)]),
    ],
)
def test_half_precision_runs_on_flash_attention_with_the_values_in_parts(
    width: int, value: int, calls: list[tuple[int, int]], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = Fused({FLASH: flash})
    fused.install(monkeypatch)
    q, k, v = operands(width=width, value=value, dtype=dtype)
    scaled = (q.float() / width, k.float(), v.float())
    out = operator._attend_cuda(scaled[0].to(dtype), k, v)
    assert fused.calls == calls
    torch.testing.assert_close(out.float(), attend_explicit(*scaled), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(("width", "value"), [(300, 600), (257, 512), (256, 256), (5, 700)])
def test_parts_and_padding_change_neither_output_nor_gradients(
    width: int, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare in float64, which is treated as half precision here."""
    Fused({EFFICIENT: lambda width, value: True}).install(monkeypatch)
    monkeypatch.setattr(operator, "_HALF_PRECISION", (torch.float64,))
    q, k, v = operands(width=width, value=value)
    torch.testing.assert_close(results(operator._attend_cuda, q, k, v), results(attend_explicit, q, k, v))


def test_full_precision_keeps_its_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = Fused({FLASH: flash, EFFICIENT: lambda width, value: True})
    fused.install(monkeypatch)
    operator._attend_cuda(*operands(width=256, value=512, dtype=torch.float32))
    assert fused.calls == [(256, 512)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_without_a_kernel_for_the_shapes_the_blocked_operator_runs(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = Fused({FLASH: lambda width, value: False})
    fused.install(monkeypatch)
    monkeypatch.setattr(blocked, "MIN_LOGITS", 1)
    q, k, v = operands(value=600, dtype=dtype)
    expected, _ = torch.ops.dnlnet.attend(q, k, v)
    torch.testing.assert_close(operator._attend_cuda(q, k, v), expected, rtol=0, atol=0)
    assert fused.calls == []


@pytest.mark.parametrize("missing", ["SDPAParams", "can_use_cudnn_attention"])
def test_without_pytorchs_experimental_names_the_blocked_operator_runs(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.backends.cuda, missing)
    q, k, v = operands(dtype=torch.float32)
    with pytest.warns(UserWarning, match=missing):
        out = operator._attend_cuda(q, k, v)
    torch.testing.assert_close(out, attend_explicit(q, k, v))


@pytest.mark.parametrize(
    "constants",
    [
        {},
        {"MIN_LOGITS": 1},
        {"MIN_LOGITS": 1, "FORWARD_ROWS": 9, "BACKWARD_ROWS": 18},
        {"MIN_LOGITS": 1, "MAX_LOGITS": 50},
        {"MIN_LOGITS": 1, "MAX_LOGITS": 110, "FORWARD_ROWS": 20},
        {"MAX_LOGITS": 0},
    ],
)
@pytest.mark.parametrize("queries", [1, 9, 16])
@pytest.mark.parametrize("padded_from", [1, 100])
def test_every_block_size_computes_the_same(
    constants: dict[str, int], queries: int, padded_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"FORWARD_ROWS": 4, "BACKWARD_ROWS": 3, "MIN_PADDED": padded_from}
    for name, size in (sizes | constants).items():
        monkeypatch.setattr(blocked, name, size)
    q, k, v = operands(queries)
    torch.testing.assert_close(results(attend, q, k, v), results(attend_explicit, q, k, v), rtol=1e-12, atol=1e-12)
    columns = partial(attend, columns=True)
    torch.testing.assert_close(results(columns, q, k, v), results(attend_explicit, q, k, v), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(attend(q, k, v), attend_explicit(q, k, v), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(columns(q, k, v), attend_explicit(q, k, v), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_the_output_of_the_operator_can_have_contiguous_positions(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "MIN_LOGITS", 1)
    with torch.set_grad_enabled(training):
        assert attend(*operands(), columns=True).mT.is_contiguous()
        assert attend(*operands()).is_contiguous()


@pytest.mark.parametrize("magnitude", [1e10, 1e19, 1e30, 3e38])
def test_logits_that_overflow_leave_the_output_finite(magnitude: float) -> None:
    """Query and key are finite but their products overflow: the softmax is one-hot at the largest product."""
    q, k, v = operands(dtype=torch.float32)
    q, k = (t.detach().clamp(-1, 1).mul(magnitude).requires_grad_() for t in (q, k))
    out, *grads = results(attend, q, k, v)
    one_hot = (q.double() @ k.double().mT).argmax(-1)
    torch.testing.assert_close(out, torch.stack([v[b, one_hot[b]] for b in range(2)]))
    assert all(grad.isfinite().all() for grad in grads)


def test_no_private_name_of_pytorch_is_used() -> None:
    """PyTorch may rename private functions in any release."""
    folder = Path(operator.__file__).parent
    private = re.compile(r"\b(?:torch|forward_ad|nn|F)\b(?:\.\w+)*\.(?:_C\b|_[a-z]\w*)|import _[a-zA-Z]")
    found = [(path.name, use) for path in folder.glob("*.py") for use in private.findall(path.read_text())]
    assert found == []


def test_a_kernel_for_values_of_their_own_width_takes_them_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values in parts would compute the logits twice."""
    fused = Fused({FLASH: flash, SDPBackend.CUDNN_ATTENTION: lambda width, value: width <= 256})
    fused.install(monkeypatch)
    q, k, v = operands(width=250, value=500, dtype=torch.bfloat16)
    out = operator._attend_cuda(q / 250, k, v)
    assert fused.calls == [(256, 504)]
    torch.testing.assert_close(out, attend_explicit(q / 250, k, v), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("variant", ["nl", "dnl", "nl_unary"])
def test_the_block_does_not_wait_for_a_device(variant: str) -> None:
    block = NonLocalBlock(4, variant).to(META)
    x = torch.zeros(2, 4, 5, 6, device=META, requires_grad=True)
    with counted() as waits:
        block(x).sum().backward()
    assert waits == []


@pytest.mark.parametrize("keep", [False, True])
def test_the_operators_arithmetic_does_not_wait_for_a_device(keep: bool) -> None:
    """On a CPU, the host looks at the norms of q and k. Elsewhere, huge logits are bounded without a look."""
    query, key, value = (t.detach().to(META) for t in operands(dtype=torch.float32))
    with counted() as waits:
        out, softmax = blocked.attend(query, key, value, keep)
        grads = blocked.attend_backward(out, query, key, value, softmax)
    assert waits == []
    assert [grad.shape for grad in grads] == [query.shape, key.shape, value.shape]


def test_logits_are_bounded_the_same_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with the CPU's own branch, for rows that overflow and rows that do not."""
    q, k, v = (t.detach() for t in operands(dtype=torch.float32))
    q[0, :3] *= 1e30
    k = k * 1e20
    expected = blocked.attend(q, k, v)[0]
    monkeypatch.setattr(blocked, "bound_logits", lambda query, key: (*blocked._shrink_overflowing(query, key), True))
    torch.testing.assert_close(blocked.attend(q, k, v)[0], expected, rtol=0, atol=0)
    assert expected.isfinite().all()
