"""Numerical checks of the paper's claims, each with its residual.

A claim is checked as printed, in float64, on random data with means far from zero. Where it does not hold, another
row shows the corrected claim. The block relies on some of the identities; those must hold.
"""

# B batch, N positions, D embedding width, C channels; P pairwise softmax, U unary softmax, A attention

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from dnlnet.attention import VARIANTS, NonLocalBlock

EXACT = 1e-10


@dataclass(frozen=True)
class Claim:
    """One claim with its residual, which is 0 if the claim holds exactly, in the units of its text."""

    where: str
    text: str
    residual: float
    tolerance: float = EXACT
    relied_on: bool = False
    remark: str = ""

    @property
    def holds(self) -> bool:
        """Return whether the residual is within the tolerance; NaN never is."""
        return self.residual <= self.tolerance


@dataclass(frozen=True)
class AttentionSample:
    """Random queries and keys (N, D), saliencies (N), and an upstream gradient of the attention (N, N)."""

    query: Tensor
    key: Tensor
    saliency: Tensor
    grad: Tensor

    @property
    def pairwise(self) -> Tensor:
        """p_ij = (q_i - mu_q).(k_j - mu_k)."""
        return (self.query - self.query.mean(0)) @ (self.key - self.key.mean(0)).mT

    @property
    def unary(self) -> Tensor:
        """u_j = mu_q.k_j."""
        return self.key @ self.query.mean(0)


def verify(seed: int = 0) -> list[Claim]:
    """Check the paper's claims numerically, on data drawn from `seed`.

    >>> all(claim.holds for claim in verify() if claim.relied_on)
    True
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sample = AttentionSample(draw(40, 6) + 0.7, draw(40, 6) - 0.4, draw(40), draw(40, 40))
    parts: tuple[Callable[[AttentionSample], Iterator[Claim]], ...] = (
        _split,
        _product_form,
        _gradients,
        _block_equals_equation,
        _complexity,
        _proposition_1,
    )
    return [claim for part in parts for claim in part(sample)]


def _split(s: AttentionSample) -> Iterator[Claim]:
    dot = s.query @ s.key.mT
    to_key_mean = s.query @ s.key.mean(0)
    means = s.query.mean(0) @ s.key.mean(0)
    rest = s.pairwise + s.unary + to_key_mean[:, None]
    yield Claim(
        "Eq. 4",
        "q.k = p + mu_q.k + q.mu_k + mu_q.mu_k, as printed",
        _gap(dot, rest + means),
        remark="sign misprint: off by 2 mu_q.mu_k, constant, so Eq. 5 is not affected",
    )
    yield Claim("Eq. 4", "the same with - mu_q.mu_k", _gap(dot, rest - means), relied_on=True)
    yield Claim(
        "Eq. 5", "softmax(q.k) = softmax(p + u)", _gap(_softmax(dot), _softmax(s.pairwise + s.unary)), relied_on=True
    )
    centred = (s.query - s.query.mean(0)) @ s.key.mT
    yield Claim(
        "Eq. 6",
        "softmax(p) needs only the query centred: the key mean cancels",
        _gap(_softmax(s.pairwise), _softmax(centred)),
        relied_on=True,
    )
    means_of_p = torch.cat([s.pairwise.mean(0), s.pairwise.mean(1)])
    yield Claim(
        "Sec. 3.1", "whitening makes the mean of p over queries, and over keys, zero", means_of_p.abs().max().item()
    )


def _product_form(s: AttentionSample) -> Iterator[Claim]:
    product = _softmax(s.pairwise) * _softmax(s.unary)
    scaled = product / product.sum(-1, keepdim=True)
    joint = _softmax(s.pairwise + s.unary)
    yield Claim("Eq. 9", "softmax(p + u) = softmax(p) softmax(u) / lambda_i", _gap(joint, scaled))
    joint = _softmax(s.pairwise + s.saliency)
    cat_query = torch.cat([s.query - s.query.mean(0), torch.ones(len(s.query), 1).double()], 1)
    cat_key = torch.cat([s.key, s.saliency[:, None]], 1)
    yield Claim(
        "Eq. 13",
        "softmax(p + m) is one product, [q - mu_q, 1].[k, m]",
        _gap(joint, _softmax(cat_query @ cat_key.mT)),
        relied_on=True,
    )


def _gradients(s: AttentionSample) -> Iterator[Claim]:
    """Check dL/dP and dL/dU of A = P U / lambda (coupled) and of A = P + U (decoupled), by autograd."""
    pair = _softmax(s.pairwise).requires_grad_()
    unary = _softmax(s.unary).expand(len(pair), -1).clone().requires_grad_()

    def grads(attention: Tensor) -> tuple[Tensor, Tensor]:
        to_pair, to_unary = torch.autograd.grad(attention, (pair, unary), s.grad)
        return to_pair, to_unary

    norm = (pair * unary).sum(-1, keepdim=True)
    held, exact = grads(pair * unary / norm.detach()), grads(pair * unary / norm)
    other = unary.detach(), pair.detach()
    norm = norm.detach()
    yield Claim(
        "after Eq. 9",
        "coupled: dL/dP = dL/dA U and dL/dU = dL/dA P, as printed",
        max(_relative_gap(h, s.grad * o) for h, o in zip(held, other, strict=True)),
        remark="the factor 1/lambda_i is missing in print",
    )
    yield Claim(
        "after Eq. 9",
        "the same times 1/lambda_i, with lambda_i held constant",
        max(_relative_gap(h, s.grad * o / norm) for h, o in zip(held, other, strict=True)),
    )
    attention = pair.detach() * unary.detach() / norm
    reach = s.grad - (attention * s.grad).sum(-1, keepdim=True)
    yield Claim(
        "after Eq. 9",
        "with lambda_i differentiated: dL/dP = U / lambda_i (dL/dA - sum_j A dL/dA)",
        max(_relative_gap(e, reach * o / norm) for e, o in zip(exact, other, strict=True)),
    )
    yield _vanishing(s)
    yield Claim(
        "after Eq. 10",
        "decoupled: dL/dP = dL/dU = dL/dA, whatever the other term is",
        max(_gap(g, s.grad) for g in grads(pair + unary)),
    )


def _vanishing(s: AttentionSample) -> Claim:
    """Check the pairwise gradient of keys whose unary logits are lowered by 30."""
    hidden = torch.arange(len(s.unary)) % 2 == 0
    pair = _softmax(s.pairwise).requires_grad_()
    product = pair * _softmax(s.unary - 30 * hidden)
    attention = product / product.sum(-1, keepdim=True)
    (grad,) = torch.autograd.grad(attention, pair, s.grad)
    return Claim(
        "after Eq. 9",
        "the pairwise gradient vanishes at keys the unary term ignores (share of the gradient there)",
        (grad[:, hidden].norm() / grad.norm()).item(),
        1e-6,
    )


def _block_equals_equation(s: AttentionSample) -> Iterator[Claim]:
    """Compare block(x) with the written-out equation, in values and in gradients of the input."""
    x = s.grad[:8, :35].reshape(1, 8, 5, 7)
    for name, row in VARIANTS.items():
        block = NonLocalBlock(8, name).double()
        for i, parameter in enumerate(block.parameters()):
            flat = torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64)
            parameter.data = torch.sin((40 + i) * flat).view_as(parameter)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, expected = block(ours), _equation(block, theirs)
        out.square().sum().backward()
        expected.square().sum().backward()
        residual = max(_relative_gap(out, expected), _relative_gap(_grad(ours), _grad(theirs)))
        yield Claim(row.paper.split(",")[0], f"block {name} equals its equation", residual, relied_on=True)


def _equation(block: NonLocalBlock, x: Tensor) -> Tensor:
    """Return x + omega v, with omega exactly as the paper writes it for the variant, both means removed."""
    tokens = x.flatten(2).mT[0]
    value: Tensor = block.value(tokens)
    pair = unary = torch.zeros(len(tokens), len(tokens), dtype=x.dtype)
    if block.query is not None and block.key is not None:
        query, key = block.query(tokens), block.key(tokens)
        pair = (query - query.mean(0)) @ (key - key.mean(0)).mT
        unary = (query.mean(0) @ key.mT).expand_as(pair)
    if block.saliency is not None:
        unary = block.saliency(tokens).squeeze(1).expand(len(tokens), -1)
    row = block.variant
    if row.coupled:
        attention = _softmax(pair + unary)
    else:
        attention = sum([_softmax(pair)] * row.pairwise + [_softmax(unary)] * bool(row.unary), start=0 * pair)
    return x + (attention @ value).mT.view_as(x)


def _complexity(_: AttentionSample) -> Iterator[Claim]:
    """Check the counts of section 4.1 at the paper's C = 512 and 97 x 97 positions, on the meta device."""
    C, HW = 512, 97 * 97
    space = {"nl": 2 * C**2, "dnl": (2 * C + 1) * C}
    time = {
        "nl": (2 * C**2 + (1.5 * C + 1) * HW) * HW,
        "dnl": ((2 * C + 1) * C + (1.5 * C + 2) * HW) * HW,
    }
    for name, formula in {"nl": "2C^2", "dnl": "(2C+1)C"}.items():
        block = NonLocalBlock(C, name).to("meta")
        weights = sum(p.numel() for p in block.parameters() if p.dim() == 2)
        yield Claim("Sec. 4.1", f"space of {name}: {formula} weights", abs(weights - space[name]), 0)
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            block(torch.empty(1, C, 97, 97, device="meta"))
        counted = counter.get_total_flops() / 2 + HW**2  # matrix multiplies, and one exponential per pair
        yield Claim(
            "Sec. 4.1",
            f"time of {name} at 97 x 97 as its formula, {time[name] / 1e9:.3f} G (relative excess of ours)",
            max(0.0, counted / time[name] - 1),
            1e-12,
            remark=f"ours: {counted / 1e9:.3f} G" + ("; unary is one sum, not a map" if name == "dnl" else ""),
        )
    for what, cost, printed in (("space", space, 0.1), ("time", time, 0.15)):
        percent = 100 * (cost["dnl"] / cost["nl"] - 1)
        yield Claim(
            "Sec. 4.1",
            f"DNL costs {printed} % more {what} than NL",
            abs(percent - printed),
            0.005,
            remark=f"the formulas give {percent:.3f} %",
        )


def objective(query: Tensor, key: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Return the objective of Proposition 1 (Eq. 3) as the appendix rewrites it."""

    def ratio(points: Tensor, origin: Tensor, others: Tensor) -> Tensor:
        spread = others - others.mean(0)
        matrix = spread.mT @ spread / spread.square().sum()
        moved = points - origin
        return ((moved @ matrix) * moved).sum() / moved.square().sum()

    return ratio(query, alpha, key) + ratio(key, beta, query)


def _objective_as_printed(s: AttentionSample, point: Tensor) -> Tensor:
    """Return Eq. 3 with its triple sums."""
    query, key = s.query - point[: s.query.shape[1]], s.key - point[s.query.shape[1] :]

    def ratio(left: Tensor, right: Tensor) -> Tensor:
        dot = left @ right.mT
        differences = (dot[:, :, None] - dot[:, None, :]).square().sum()
        return differences / (left.square().sum() * torch.cdist(right, right).square().sum())

    return ratio(query, key) + ratio(key, query)


def _proposition_1(s: AttentionSample) -> Iterator[Claim]:
    """Check that the gradient is zero at the means, and separately that they are a maximum."""
    width = s.query.shape[1]
    at_mean = torch.cat([s.query.mean(0), s.key.mean(0)])

    def value(point: Tensor) -> Tensor:
        return objective(s.query, s.key, point[:width], point[width:])

    def slope(point: Tensor) -> Tensor:
        point = point.detach().requires_grad_()
        return torch.autograd.grad(value(point), point)[0]

    curvature = torch.linalg.eigvalsh(torch.autograd.functional.hessian(value, at_mean)).max().item()
    yield Claim(
        "App. B",
        "Eq. 3 can be rewritten with the matrices A and B",
        abs(value(at_mean + 0.3) - _objective_as_printed(s, at_mean + 0.3)).item(),
    )
    yield Claim("Prop. 1", "alpha, beta = the means are a stationary point", slope(at_mean).norm().item())
    yield Claim(
        "Prop. 1",
        "the Hessian there is not positive anywhere (largest eigenvalue)",
        curvature,
        remark="so the means are a stationary point, not a maximum",
    )
    point = at_mean + 1e-3
    for _ in range(200):
        step = slope(point)
        point = point + 0.1 * step / step.norm()
    yield Claim(
        "Prop. 1",
        "no point has a larger objective (gain found by gradient ascent)",
        (value(point) - value(at_mean)).item(),
        remark=f"{value(at_mean):.3f} at the means, {value(point):.3f} after ascent",
    )


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


def _grad(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad


def _gap(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


def _relative_gap(a: Tensor, b: Tensor) -> float:
    return _gap(a, b) / b.abs().max().item()
