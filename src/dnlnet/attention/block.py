"""The non-local block: one module for every variant of the paper, in 1d, 2d and 3d."""

# B batch, C channels, N positions, M key positions, D embedding width

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dnlnet.attention.initial import initialise
from dnlnet.attention.maps import AttentionMaps, Positions, Terms
from dnlnet.attention.operator import attend, attend_explicit
from dnlnet.attention.spec import find_variant, resolve_settings
from dnlnet.attention.terms import (
    Embeddings,
    attention_logits,
    clamp_to_finite,
    unary_logits,
    weigh_by_dot_products,
)

_POOLS: dict[int, Callable[..., Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
_EMBEDDED = ("query", "key", "saliency")  # as in `Embeddings`
_AXES = {1: "L", 2: "H, W", 3: "T, H, W"}


class Attended(NamedTuple):
    """Values weighed by each softmax of a variant, None where it has no such softmax."""

    pairwise: Tensor | None = None  # (B, N, C), by the pairwise term or the sum of both terms
    unary: Tensor | None = None  # (B, 1, C)


class NonLocalBlock(nn.Module):
    """z_i = x_i + sum_j w(x_i, x_j) W_v x_j, with the attention w of the chosen variant.

    The attention matrix is never formed: time is O(N M), memory O(N + M), in training too. Weights do not depend on
    `dims`, so a 2d block's state dict loads into a 3d block.

    Args:
        channels: Number of input and output channels.
        variant: Row of `dnlnet.VARIANTS`: nl, nl_pairwise, nl_unary, dnl_star, dnl_dagger, dnl, gc.
        dims: 1 for (B, C, L), 2 for (B, C, H, W), 3 for (B, C, T, H, W).
        preset: Row of `dnlnet.PRESETS`: paper, authors, authors_temperature, authors_detection, mmseg, slowfast.
        **options: Fields of `dnlnet.BlockSettings` that override the preset.

    >>> block = NonLocalBlock(64, "dnl")
    >>> block(torch.randn(2, 64, 12, 20)).shape
    torch.Size([2, 64, 12, 20])
    >>> block.attention_maps(torch.randn(1, 64, 12, 20), queries=[(6, 10)]).pairwise.shape
    torch.Size([1, 1, 12, 20])
    """

    gamma: nn.Parameter | None

    def __init__(
        self,
        channels: int,
        variant: str = "dnl",
        dims: int = 2,
        *,
        preset: str = "paper",
        **options: Any,
    ) -> None:
        super().__init__()
        if dims not in _AXES:
            raise ValueError(f"dims must be 1, 2 or 3, got {dims!r}")
        self.channels, self.dims = channels, dims
        self.variant = row = find_variant(variant)
        self.settings = settings = resolve_settings(row, preset, **options)
        embed, width = channels // settings.embed_reduction, channels // settings.value_reduction
        if min(embed, width) < 1:
            raise ValueError(
                f"channels={channels} is too few for embed_reduction={settings.embed_reduction} "
                f"and value_reduction={settings.value_reduction}"
            )
        self.scale = (embed**-0.5 if settings.scaled else 1.0) / settings.temperature
        self.unary_factor = 1.0 if settings.unary_scaled or row.coupled else 1 / self.scale
        self.query = nn.Linear(channels, embed) if row.embeds else None
        self.key = nn.Linear(channels, embed) if row.embeds else None
        self.saliency = nn.Linear(channels, 1) if row.unary == "saliency" else None
        self.value = nn.Linear(channels, width, bias=settings.value_bias)
        own = settings.values == "separate"
        self.unary_value = nn.Linear(channels, width, bias=settings.value_bias) if own else None
        self.projection = nn.Linear(width, channels, settings.projection_bias) if settings.projection else None
        self.norm = nn.BatchNorm1d(channels) if settings.gate.endswith("norm") else None
        gated = settings.gate == "scalar" or (settings.gate.startswith("scalar_pairwise") and row.pairwise)
        self.gamma = nn.Parameter(torch.empty(1)) if gated else None
        self.register_load_state_dict_pre_hook(_accept_convolution_weights)  # type: ignore[no-untyped-call]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights by `BlockSettings.initial`; set biases and gates to 0."""
        for name, layer in self.named_children():
            if isinstance(layer, nn.Linear):
                initialise(layer, name, self.settings.initial)
        if self.norm is not None:
            self.norm.reset_parameters()
            if self.settings.gate == "norm":
                nn.init.zeros_(self.norm.weight)
        if self.gamma is not None:
            nn.init.zeros_(self.gamma)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, shaped like x, without forming the attention matrix."""
        if not self.variant.pairwise:
            return self._add_attended(x, self._attend_once)
        columns = self.projection is None and x.is_contiguous()
        fused = partial(self._attend, attend=partial(attend, columns=columns))
        # PyTorch's kernels for CUDA need their output in the backward pass, `dnlnet::attend` does not.
        return self._add_attended(x, fused, in_place=not x.is_cuda)

    def forward_explicit(self, x: Tensor) -> Tensor:
        """Return the same output by way of the N x M attention: slower and larger, but twice differentiable."""
        return self.forward_with(x, attend_explicit)

    def forward_with(self, x: Tensor, attend: Attend) -> Tensor:
        """Return the same output by another implementation of softmax(q.k) v, of (B, N, D), (B, M, D) and (B, M, C).

        >>> from torch.nn.functional import scaled_dot_product_attention
        >>> block, x = NonLocalBlock(8), torch.randn(1, 8, 4, 5)
        >>> y = block.forward_with(x, lambda q, k, v: scaled_dot_product_attention(q, k, v, scale=1.0))
        >>> torch.testing.assert_close(y, block(x))
        """
        return self._add_attended(x, partial(self._attend, attend=attend))

    def _attend(self, x: Tensor, attend: Attend) -> Attended:
        """Weigh the values by each softmax of the variant."""
        projected = self._project(x, *_EMBEDDED, "value", "unary_value")
        dots = self.settings.attention == "dot"
        logits, added = attention_logits(
            self._embeddings(projected), self.variant, self.settings.centring, exact=dots
        )
        value = clamp_to_finite(projected["value"])
        own = value if self.unary_value is None else clamp_to_finite(projected["unary_value"])
        weigh = weigh_by_dot_products if dots else attend
        if not self.variant.pairwise:
            return Attended(unary=weigh(logits.query, logits.key, own))
        # First, because the backward pass of the other needs more memory and then runs before this one's.
        unary = None if added is None else attend(added.query, added.key, own)
        return Attended(pairwise=weigh(logits.query, logits.key, value), unary=unary)

    def _attend_once(self, x: Tensor) -> Attended:
        """Weigh the values by a unary term alone, with one query and one value per image.

        Projections are linear, and weights add up to 1: the mean query is the query of the mean, and the weighted sum
        of values is the value of the weighted sum.
        """
        tokens, context = self._tokens(x)
        embeddings = self._embeddings(self._project_each(_EMBEDDED, tokens.mean(dim=1, keepdim=True), context))
        logits = unary_logits(embeddings, self.settings.centring)
        layer = self.value if self.unary_value is None else self.unary_value
        return Attended(unary=clamp_to_finite(layer(attend(logits.query, logits.key, context))))

    def _add_attended(self, x: Tensor, attend: Callable[[Tensor], Attended], in_place: bool = False) -> Tensor:
        """z = x + norm(W_o (gamma y + unary))."""
        self._check_input(x)
        attended = attend(x)
        pairwise, unary = attended.pairwise, attended.unary
        if self.gamma is not None and pairwise is not None:
            pairwise = self.gamma * pairwise
        if self.gamma is not None and unary is not None and self.settings.gate == "scalar":
            unary = self.gamma * unary
        y = clamp_to_finite(_sum(pairwise, unary, in_place))
        if self.projection is not None:
            y = self.projection(y)
        if self.norm is not None:
            y = self.norm(y.expand(-1, x[0, 0].numel(), -1).mT).mT
        return (x.flatten(2) + y.mT).view(x.shape)

    @torch.no_grad()
    def attention_maps(self, x: Tensor, queries: Positions) -> AttentionMaps:
        """Return the pairwise, unary and combined attention of chosen query positions.

        Args:
            x: Input of the block.
            queries: Positions on the input map, counted from 0: (row, column) in 2d, (time, row, column) in 3d.

        For `nl`, each of the two terms of Eq. 5 gets its own softmax, as in the paper's analysis.
        """
        return self.terms(x).maps(queries)

    @torch.no_grad()
    def iter_attention_maps(self, x: Tensor, rows: int = 256) -> Iterator[AttentionMaps]:
        """Iterate over the maps of all positions in order, `rows` at a time.

        >>> block = NonLocalBlock(8)
        >>> [m.combined.shape[1] for m in block.iter_attention_maps(torch.randn(1, 8, 5, 5), rows=10)]
        [10, 10, 5]
        """
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        yield from map(self.terms(x).maps_of_rows, torch.arange(x[0, 0].numel()).split(rows))

    @torch.no_grad()
    def terms(self, x: Tensor) -> Terms:
        """Return the logits of the block's terms on this input, which give the maps of any query.

        >>> terms = NonLocalBlock(8, "nl").terms(torch.randn(1, 8, 5, 6))
        >>> terms.size, terms.maps([(2, 3)]).pairwise.shape
        ((5, 6), torch.Size([1, 1, 5, 6]))
        """
        self._check_input(x)
        if self.settings.attention == "dot":
            raise ValueError("attention='dot' has no maps: its weights may be negative and do not add up to 1")
        embeddings = self._embeddings(self._project(x, *_EMBEDDED))
        size = x.shape[2:]
        key_size = [length // window for length, window in zip(size, self._pool_window(), strict=True)]
        return Terms.of(embeddings, self.variant, self.settings.centring, size, key_size)

    def _project(self, x: Tensor, *names: str) -> dict[str, Tensor]:
        """Apply the projections of these names that the variant has, and pool what attention reads."""
        projected = self._project_each(names, *self._tokens(x))
        if self.settings.pool == 1 or not self.settings.pool_projected:
            return projected
        size = x.shape[2:]
        return {
            name: y if name == "query" else _to_tokens(self._pool(y.mT.reshape(*y.mT.shape[:2], *size)))
            for name, y in projected.items()
        }

    def _project_each(self, names: Sequence[str], tokens: Tensor, context: Tensor) -> dict[str, Tensor]:
        layers = {name: getattr(self, name) for name in names}
        return {
            name: layer(tokens if name == "query" else context) for name, layer in layers.items() if layer is not None
        }

    def _tokens(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions that attend, and those they attend to, once in the precision of autocast."""
        kind = x.device.type
        if x.dtype != torch.float64 and torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))  # not once for each projection
        tokens = _to_tokens(x)
        pools_input = self.settings.pool > 1 and not self.settings.pool_projected
        return tokens, _to_tokens(self._pool(x)) if pools_input else tokens

    def _embeddings(self, projected: Mapping[str, Tensor]) -> Embeddings:
        """q = W_q x, k = W_k x, m = W_m x, with the scale of the logits q.k in q."""
        embedded = {name: clamp_to_finite(projected[name]) for name in _EMBEDDED if name in projected}
        if "query" in embedded and self.scale != 1:
            embedded["query"] = clamp_to_finite(embedded["query"] * self.scale)
        query, key, saliency = map(embedded.get, _EMBEDDED)
        return Embeddings(query, key, saliency, self.unary_factor)

    def _pool(self, x: Tensor) -> Tensor:
        if self.settings.pool == 1:
            return x
        window = self._pool_window()
        return _POOLS[self.dims](x, kernel_size=window, stride=window)

    def _pool_window(self) -> tuple[int, ...]:
        """Return the window of spatial pooling: 2, 2 x 2, or 1 x 2 x 2 (frames, rows, columns)."""
        return (1,) * (self.dims == 3) + (self.settings.pool,) * min(self.dims, 2)

    def _check_input(self, x: Tensor) -> None:
        expected = f"(B, {self.channels}, {_AXES[self.dims]})"
        if x.dim() != self.dims + 2:
            hint = "; add the batch dimension with x[None]" if x.dim() == self.dims + 1 else ""
            raise ValueError(f"a {self.dims}d block takes {expected}, got {x.dim()}-d {tuple(x.shape)}{hint}")
        if x.shape[1] != self.channels:
            raise ValueError(f"the block was made for {expected}, got {x.shape[1]} channels: {tuple(x.shape)}")
        if not x.is_floating_point():
            raise ValueError(f"the block takes floating point features, got {x.dtype}; convert with x.float()")
        for size, window in zip(x.shape[2:], self._pool_window(), strict=True):
            if size < window:
                reason = "is empty" if size == 0 else f"is smaller than the pooling window {self._pool_window()}"
                raise ValueError(f"the map {tuple(x.shape[2:])} {reason}; expected {expected}")

    def extra_repr(self) -> str:
        """Return variant and settings for `repr`."""
        settings = ", ".join(f"{name}={value!r}" for name, value in asdict(self.settings).items())
        return f"{self.channels}, {self.variant.name!r}, dims={self.dims}, {settings}"


class NonLocal1d(NonLocalBlock):
    """`NonLocalBlock` on sequences, (B, C, L)."""

    def __init__(self, channels: int, variant: str = "dnl", *, preset: str = "paper", **options: Any) -> None:
        super().__init__(channels, variant, dims=1, preset=preset, **options)


class NonLocal2d(NonLocalBlock):
    """`NonLocalBlock` on images, (B, C, H, W)."""

    def __init__(self, channels: int, variant: str = "dnl", *, preset: str = "paper", **options: Any) -> None:
        super().__init__(channels, variant, dims=2, preset=preset, **options)


class NonLocal3d(NonLocalBlock):
    """`NonLocalBlock` on video, (B, C, T, H, W)."""

    def __init__(self, channels: int, variant: str = "dnl", *, preset: str = "paper", **options: Any) -> None:
        super().__init__(channels, variant, dims=3, preset=preset, **options)


def _sum(pairwise: Tensor | None, unary: Tensor | None, in_place: bool) -> Tensor:
    """Add the terms that the variant has."""
    if pairwise is None or unary is None:
        y = unary if pairwise is None else pairwise
        assert y is not None
        return y
    return pairwise.add_(unary) if in_place else pairwise + unary


def _to_tokens(x: Tensor) -> Tensor:
    """Flatten (B, C, ...) to (B, N, C).

    Channels-last memory has this order already. A single image in channels-first memory is not copied, because the
    matrix multiply reads both orders equally fast. A larger batch is, or each projection would copy it.
    """
    tokens = x.flatten(2).mT
    return tokens if x.shape[0] == 1 else tokens.contiguous()


def _accept_convolution_weights(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Let weights of 1x1 convolutions, (D, C, 1, 1), load into linear layers."""
    for name, layer in module.named_modules(remove_duplicate=False):  # a tied layer has two names
        key = f"{prefix}{name}.weight"
        weight = state_dict.get(key)
        if isinstance(layer, nn.Linear) and weight is not None and weight.shape[2:].numel() == 1:
            state_dict[key] = weight.flatten(1)
