"""Attention in tiles: the definition and its gradients, at any magnitude, in the memory of a tile."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cost import LargestTensor
from dnlnet.attention import operator, tiles
from dnlnet.attention.kernels import attend_explicit
from dnlnet.attention.operator import attend_again


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "MIN_TILED", 1)
    for name, size in {"ROWS": 4, "BACKWARD_ROWS": 3, "KEYS": 5}.items():
        monkeypatch.setattr(tiles, name, size)


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The bounds of the logits that tiles were asked to compute."""
    bounds: list[float] = []
    forward = tiles.forward

    def spy(query: Tensor, key: Tensor, value: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        bounds.append(bound)
        return forward(query, key, value, bound)

    monkeypatch.setattr(tiles, "forward", spy)
    return bounds


def operands(
    queries: int = 9, keys: int = 13, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys of growing length: the largest logits of a row are in its last tile."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, *s, generator=generator).to(dtype) for s in ((queries, 3), (keys, 3), (keys, 5)))
    growth = torch.linspace(0.1, 1, keys, dtype=dtype)[:, None]
    return scale * q, k * growth, v


def results(attend: Callable[..., Tensor], *operands: Tensor) -> tuple[Tensor, ...]:
    leaves = [operand.detach().clone().requires_grad_() for operand in operands]
    out = attend(*leaves)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad((out * weight).sum(), leaves)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (4, 5), (9, 13), (3, 4), (12, 6)])
@pytest.mark.parametrize("scale", [1.0, 120.0])
def test_tiles_compute_the_definition_and_its_gradients(
    queries: int, keys: int, scale: float, tiled: list[float]
) -> None:
    given = operands(queries, keys, scale=scale)
    torch.testing.assert_close(results(attend_again, *given), results(attend_explicit, *given), rtol=1e-9, atol=1e-9)
    (bound,) = tiled
    largest = (given[0] @ given[1].mT).abs().max().item()
    assert largest <= bound * (1 + 1e-12)
    assert (bound > tiles.SPREAD) == (scale > 1)


def test_a_reference_that_is_too_low_is_raised(tiled: list[float]) -> None:
    """In float32 exp(89) overflows, and the last logits are more than 89 above those of the first tile."""
    query, value = torch.ones(1, 9, 1), torch.randn(1, 13, 5, generator=torch.Generator().manual_seed(0))
    key = torch.linspace(-75, 75, 13).view(1, 13, 1)
    expected = results(attend_explicit, query.double(), key.double(), value.double())
    found = results(attend_again, query, key, value)
    assert tiled == [75.0]
    torch.testing.assert_close([x.double() for x in found], list(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("magnitude", [1e3, 1e10, 1e19, 1e30, 3e38])
def test_logits_too_large_for_tiles_leave_the_output_finite(magnitude: float, tiled: list[float]) -> None:
    q, k, v = operands(dtype=torch.float32)
    q, k = (magnitude * t.clamp(-1, 1) for t in (q, k))
    out, *grads = results(attend_again, q, k, v)
    one_hot = (q.double() @ k.double().mT).argmax(-1)
    torch.testing.assert_close(out, torch.stack([v[b, one_hot[b]] for b in range(2)]))
    assert all(grad.isfinite().all() for grad in grads)
    assert not tiled


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_values_near_the_largest_number_leave_the_output_finite(scale: float) -> None:
    q, k, v = operands(dtype=torch.float32, scale=scale)
    v = 3e38 * v.clamp(-1, 1)
    expected = attend_explicit(q.double(), k.double(), v.double())
    torch.testing.assert_close(attend_again(q, k, v).double(), expected, rtol=1e-4, atol=1e34)


def test_nothing_larger_than_a_tile_is_made_beside_the_operands(tiled: list[float]) -> None:
    given = [operand.requires_grad_() for operand in operands(40, 50)]
    with LargestTensor() as recorder:
        out = attend_again(*given)
        forward = recorder.elements
        out.sum().backward()
    assert len(tiled) == 1
    assert forward == recorder.elements == max(operand.numel() for operand in given)
    assert recorder.elements < 2 * 40 * 50 / 4


def test_half_precision_is_computed_in_float32(tiled: list[float]) -> None:
    given = operands(dtype=torch.bfloat16)
    found, expected = results(attend_again, *given), results(attend_explicit, *(t.double() for t in given))
    assert tiled
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours.double(), theirs, rtol=0.03, atol=0.03)
