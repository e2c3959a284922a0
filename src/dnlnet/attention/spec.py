"""The paper's attention variants and the settings of known implementations, as rows of two tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from dnlnet.errors import shown, unknown

Unary = Literal["query_mean", "saliency"]
Gate = Literal["none", "scalar", "scalar_pairwise", "norm", "scalar_pairwise_norm"]
Values = Literal["shared", "separate"]
Centring = Literal["channel", "sample", "none"]
Attention = Literal["softmax", "dot"]
Initial = Literal["normal", "mmseg", "slowfast", "mmdet"]
LARGEST_FACTOR = 65_536  # for reductions and pooling
TEMPERATURES = (1e-6, 1e6)


@dataclass(frozen=True)
class Variant:
    """The terms of an attention, and how they are combined.

    With p_ij = (q_i - mu_q).(k_j - mu_k), the unary logit u_j is ``mu_q.k_j`` (`query_mean`) or
    ``m_j = W_m x_j`` (`saliency`). A coupled variant is softmax(p + u); otherwise each term has its own
    softmax and they are added.
    """

    name: str
    pairwise: bool
    unary: Unary | None
    coupled: bool
    paper: str

    def __post_init__(self) -> None:
        if not self.pairwise and self.unary is None:
            raise ValueError("a variant needs a pairwise term, a unary term, or both")
        if self.coupled and not (self.pairwise and self.unary):
            raise ValueError("a coupled variant needs both terms: there is nothing to couple in one")

    @property
    def separate(self) -> bool:
        """Return whether there are two terms with a softmax each."""
        return self.pairwise and self.unary is not None and not self.coupled

    @property
    def embeds(self) -> bool:
        """Return whether the pairwise term or mu_q.k needs q and k."""
        return self.pairwise or self.unary == "query_mean"


VARIANTS: Mapping[str, Variant] = {
    row.name: row
    for row in (
        Variant("nl", True, "query_mean", True, "Eq. 2, 5"),
        Variant("nl_pairwise", True, None, False, "Eq. 6"),
        Variant("nl_unary", False, "query_mean", False, "Eq. 7"),
        Variant("dnl_star", True, "saliency", True, "Eq. 13"),
        Variant("dnl_dagger", True, "query_mean", False, "Eq. 14"),
        Variant("dnl", True, "saliency", False, "Eq. 12"),
        Variant("gc", False, "saliency", False, "Eq. 12, its unary term alone"),
    )
}


@dataclass(frozen=True)
class BlockSettings:
    """Settings of a block other than its attention variant. Defaults are the paper's.

    Args:
        embed_reduction: Divisor of the channels that gives the query and key width.
        value_reduction: Divisor of the channels that gives the value width. Above 1 it needs `projection`.
        value_bias: Give W_v a bias.
        projection: Map the attended values back to the input's channels.
        projection_bias: Give that map a bias.
        scaled: Divide the logits q.k by the square root of the embedding width.
        temperature: Another divisor of the logits q.k.
        gate: Factor of the block's output before it is added to the input. `none`; `scalar`: one zero-initialised
            gamma; `scalar_pairwise`: the same, but not for a separate unary term; `norm`: batch norm with
            zero-initialised weight; `scalar_pairwise_norm`: the authors' gamma, then batch norm of the whole output,
            which starts with weight 1 (their `out_bn`).
        pool: Max-pool the keys and values by this factor in space (never in time).
        unary_scaled: Apply scale and temperature to a separate unary term mu_q.k too (Eq. 7, 14). The authors' code
            does not.
        centring: Means to subtract: over positions, per `channel` (the paper); over positions and channels of the
            `sample`; or `none`: mu_q = 0.
        attention: Weights of the term with q.k. `softmax`, or `dot`: the logits themselves, divided by the number of
            keys, as in PySlowFast and mmcv's mode `dot_product` (which has neither scale nor temperature).
        pool_projected: Pool keys and values after their projections, as mmcv's `sub_sample` does, not before.
        initial: Weights before training. `normal`: N(0, 0.01), biases 0. `mmseg`: the same, but the projection has
            mmcv's default, N(0, sqrt(2 / C)), and the saliency PyTorch's, uniform within 1 / sqrt(C). `slowfast`:
            N(0, sqrt(2 / outputs)), biases 0 (fvcore's c2_msra_fill). `mmdet`: `normal`, with a projection of zeros.
        values: `shared`: one W_v for both terms (the paper). `separate`: another one for a separate unary term, which
            the paper calls similarly effective (Sec. 4.1).
    """

    embed_reduction: int = 2
    value_reduction: int = 1
    value_bias: bool = False
    projection: bool = False
    projection_bias: bool = False
    scaled: bool = False
    temperature: float = 1.0
    unary_scaled: bool = True
    gate: Gate = "none"
    pool: int = 1
    centring: Centring = "channel"
    attention: Attention = "softmax"
    pool_projected: bool = False
    initial: Initial = "normal"
    values: Values = "shared"

    def __post_init__(self) -> None:
        for name in ("embed_reduction", "value_reduction", "pool"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_FACTOR:
                raise ValueError(f"{name} must be a whole number within 1..{LARGEST_FACTOR}, got {shown(value)}")
        for name in ("value_bias", "projection", "projection_bias", "scaled", "unary_scaled", "pool_projected"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {shown(getattr(self, name))}")
        coldest, hottest = TEMPERATURES
        number = isinstance(self.temperature, int | float) and not isinstance(self.temperature, bool)
        if not number or not coldest <= self.temperature <= hottest:
            raise ValueError(
                f"temperature must be a number within {coldest:g}..{hottest:g}, got {shown(self.temperature)}"
            )
        kinds = {"gate": Gate, "centring": Centring, "attention": Attention, "initial": Initial, "values": Values}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                raise unknown(name, getattr(self, name), get_args(kind))
        if self.value_reduction > 1 and not self.projection:
            raise ValueError(
                f"value_reduction={self.value_reduction} leaves fewer channels than came in; "
                "set projection=True to map them back"
            )
        if self.projection_bias and not self.projection:
            raise ValueError("projection_bias=True has no projection to act on; set projection=True")


@dataclass(frozen=True)
class Preset:
    """Settings of one code base, with its exceptions for some variants."""

    settings: BlockSettings
    exceptions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# In the authors' code, mu_q.k has neither scale nor temperature.
_AUTHORS = BlockSettings(gate="scalar_pairwise", centring="sample", unary_scaled=False)
_AUTHORS_NL: Mapping[str, Mapping[str, Any]] = {"nl": {"scaled": True, "temperature": 1.0}}

PRESETS: Mapping[str, Preset] = {
    "paper": Preset(BlockSettings()),
    # The authors' segmentation code: its README recipe, and its configurations with a temperature.
    "authors": Preset(_AUTHORS, _AUTHORS_NL),
    "authors_temperature": Preset(replace(_AUTHORS, centring="channel", scaled=True, temperature=0.05), _AUTHORS_NL),
    # The authors' detection code.
    "authors_detection": Preset(
        replace(_AUTHORS, embed_reduction=4, centring="channel", scaled=True, temperature=0.05), _AUTHORS_NL
    ),
    "mmseg": Preset(
        BlockSettings(
            value_reduction=2,
            value_bias=True,
            projection=True,
            scaled=True,
            temperature=0.05,
            gate="norm",
            initial="mmseg",
        ),
        # mmcv's NonLocal2d; its subclass for DNL cannot pool.
        {"nl": {"temperature": 1.0, "pool_projected": True}, "nl_pairwise": {"pool_projected": True}},
    ),
    "slowfast": Preset(
        BlockSettings(
            value_reduction=2,
            value_bias=True,
            projection=True,
            projection_bias=True,
            scaled=True,
            gate="norm",
            pool=2,
            initial="slowfast",
        )
    ),
}


_DOT_PRODUCTS = ("nl", "nl_pairwise", "dnl")


def find_variant(name: str) -> Variant:
    """Return the row of `VARIANTS` with this name.

    >>> find_variant("dnl").unary
    'saliency'
    """
    if name not in VARIANTS:
        raise unknown("variant", name, VARIANTS)
    return VARIANTS[name]


def resolve_settings(variant: Variant, preset: str = "paper", /, **options: Any) -> BlockSettings:
    """Return the preset's settings for this variant, overridden by `options`.

    >>> resolve_settings(VARIANTS["dnl"], "mmseg", pool=2).temperature
    0.05
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    names = [f.name for f in fields(BlockSettings)]
    for name in options:
        if name not in names:
            raise unknown("option", name, names)
    row = PRESETS[preset]
    settings = replace(row.settings, **{**row.exceptions.get(variant.name, {}), **options})
    if settings.centring == "none" and variant.unary == "query_mean" and not variant.coupled:
        raise ValueError(f"centring='none' makes mu_q zero, and {variant.name} is left without its unary term mu_q.k")
    if settings.attention == "dot" and variant.name not in _DOT_PRODUCTS:
        raise ValueError(
            f"attention='dot' is defined for {', '.join(_DOT_PRODUCTS)}, not for {variant.name}; use softmax"
        )
    if settings.values == "separate" and not variant.separate:
        having = " and ".join(name for name, row in VARIANTS.items() if row.separate)
        raise ValueError(
            f"values='separate' is for {having}, whose two terms are separate; {variant.name} has one: use shared"
        )
    if settings.pool_projected and (not variant.pairwise or variant.unary == "saliency"):
        raise ValueError(
            f"pool_projected=True is defined for nl and nl_pairwise, not for {variant.name}; leave it out"
        )
    return settings
