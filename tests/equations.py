"""The paper's equations, implemented independently of the package, which only provides the weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet import NonLocalBlock

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def randomise(block: NonLocalBlock, seed: int = 0, std: float = 0.6) -> NonLocalBlock:
    """Draw non-zero weights, biases and gates in float64."""
    generator = torch.Generator().manual_seed(seed)
    block = block.double()
    for parameter in block.parameters():
        parameter.data = std * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return block


def of_keys(block: NonLocalBlock, layer: torch.nn.Linear, x: Tensor) -> Tensor:
    """Return W x + b at each key position (M, D) of one sample (C, ...), max-pooled before or (like mmcv) after."""
    s = block.settings

    def pooled(y: Tensor) -> Tensor:
        return POOLS[block.dims](y[None], (1, s.pool, s.pool)[-block.dims :])[0] if s.pool > 1 else y

    def linear(y: Tensor) -> Tensor:
        flat = layer.weight @ y.flatten(1)
        return (flat if layer.bias is None else flat + layer.bias[:, None]).view(-1, *y.shape[1:])

    return (pooled(linear(x)) if s.pool_projected else linear(pooled(x))).flatten(1).T


def attention(block: NonLocalBlock, x: Tensor) -> dict[str, Tensor | None]:
    """Return both normalised terms and the attention of one sample (C, ...): Eq. 2, 5, 6, 7, 12, 13 and 14."""
    s, row = block.settings, block.variant.name
    xs = x.flatten(1).T
    p = u = None
    if row not in ("gc",):
        q = xs @ block.query.weight.T + block.query.bias
        k = of_keys(block, block.key, x)
        mu_q, mu_k = (
            {"channel": y.mean(0), "sample": y.mean().expand(y.shape[1]), "none": 0 * y[0]}[s.centring]
            for y in (q, k)
        )
        scale = (q.shape[1] ** -0.5 if s.scaled else 1) / s.temperature
        p = scale * (q - mu_q) @ (k - mu_k).T
        u = ((scale if s.unary_scaled or row == "nl" else 1) * (k @ mu_q)).expand(len(q), -1)
    if row in ("dnl", "dnl_star", "gc"):
        u = of_keys(block, block.saliency, x).T.expand(len(xs), -1)
    pair, unary = (None if t is None else t.softmax(-1) for t in (p, u))
    combined = {
        "nl": lambda: (scale * q @ k.T).softmax(-1),
        "nl_pairwise": lambda: pair,
        "nl_unary": lambda: unary,
        "dnl_star": lambda: (p + u).softmax(-1),
        "dnl_dagger": lambda: pair + unary,
        "dnl": lambda: pair + unary,
        "gc": lambda: unary,
    }[row]()
    return {"pairwise": pair, "unary": unary, "combined": combined}


def output(block: NonLocalBlock, x: Tensor) -> Tensor:
    """Return the block's output in training mode, for a whole batch."""
    s = block.settings
    added = []
    for sample in x:
        maps = attention(block, sample)
        value = of_keys(block, block.value, sample)
        if block.variant.name in ("dnl", "dnl_dagger"):
            own = value if s.values == "shared" else of_keys(block, block.unary_value, sample)
            pair, unary = maps["pairwise"] @ value, maps["unary"] @ own
            gamma = block.gamma if "scalar" in s.gate else 1
            y = gamma * (pair + unary) if s.gate == "scalar" else gamma * pair + unary
        else:
            y = maps["combined"] @ value
            if s.gate == "scalar" or ("scalar" in s.gate and block.variant.name not in ("gc", "nl_unary")):
                y = block.gamma * y
        if s.projection:
            y = y @ block.projection.weight.T + (block.projection.bias if s.projection_bias else 0)
        added.append(y.T)
    y = torch.stack(added)
    if s.gate in ("norm", "scalar_pairwise_norm"):
        mean, var = y.mean((0, 2), keepdim=True), y.var((0, 2), unbiased=False, keepdim=True)
        y = (y - mean) / (var + 1e-5).sqrt() * block.norm.weight[:, None] + block.norm.bias[:, None]
    return x + y.view_as(x)


def sharp_operands() -> list[Tensor]:
    """Return operands whose logits span several hundred units."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, 23, 8), (2, 31, 8), (2, 31, 5))
    query, key, value = (torch.randn(*size, generator=generator) for size in sizes)
    return [(4 * query).requires_grad_(), (4 * key).requires_grad_(), value.requires_grad_()]
