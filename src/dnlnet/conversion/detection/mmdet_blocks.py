"""Attention blocks of the authors' detection code, and the equivalent settings of ours.

Some settings are not in the tensors, only in the configuration that a checkpoint may contain.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dnlnet.attention.spec import find_variant, resolve_settings
from dnlnet.conversion.mm_config import MMConfig
from dnlnet.conversion.names import State, size
from dnlnet.detection.recipes import RELEASED_BLOCKS

PRESET = "authors_detection"
_BLOCK = re.compile(r"backbone\.(layer\d\.\d+)\.(nl_gc_block|nonlocal_block|context_block)\.(.+)")


@dataclass(frozen=True)
class ForeignBlock:
    """One kind of block in their code, and its equivalent in ours.

    Args:
        module: Name in residual blocks.
        key: Name in configurations.
        layers: Our layers and parameters by the original names, which identify it.
        variant: Our variant.
        options: Our options that override the preset.
        published: Settings that are not in the tensors, as in the authors' configurations.
        defaults: The same settings, if a configuration does not contain them.
    """

    module: str
    key: str
    layers: Mapping[str, str]
    variant: str
    options: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


_EMBEDDED = {"conv_query": "query", "conv_key": "key", "conv_value": "value", "gamma": "gamma"}
_NL_GC_PUBLISHED = {"temp": 0.05, "downsample": False, "whiten_type": ("channel",)}
_NL_GC_DEFAULTS = {"temp": 1.0, "downsample": True, "whiten_type": ("channel",)}
_NL_PUBLISHED = {
    "temp": 1.0,
    "downsample": False,
    "mode": "embedded_gaussian",
    "use_scale": True,
    "whiten_type": None,
    "fixbug": True,
}

_BLOCKS = (
    ForeignBlock(
        "nl_gc_block", "nlgcb", _EMBEDDED | {"conv_mask": "saliency"}, "dnl", {}, _NL_GC_PUBLISHED, _NL_GC_DEFAULTS
    ),
    ForeignBlock("nl_gc_block", "nlgcb", _EMBEDDED, "nl_pairwise", {}, _NL_GC_PUBLISHED, _NL_GC_DEFAULTS),
    ForeignBlock(
        "nonlocal_block",
        "nlb",
        {"theta.conv": "query", "phi.conv": "key", "g.conv": "value", "conv_out.conv": "projection"},
        "nl",
        RELEASED_BLOCKS["nl"],
        _NL_PUBLISHED,
        _NL_PUBLISHED | {"fixbug": False},
    ),
    ForeignBlock("context_block", "gcb", {"conv_value": "value", "conv_mask": "saliency"}, "gc"),
)


def find_blocks(state: State) -> tuple[ForeignBlock | None, frozenset[str]]:
    """Return the kind of all blocks, and the residual blocks that contain them."""
    found: dict[tuple[str, str], set[str]] = {}
    for name in state:
        if parts := _BLOCK.fullmatch(name):
            found.setdefault((parts[1], parts[2]), set()).add(re.sub(r"\.(weight|bias)$", "", parts[3]))
    if not found:
        return None, frozenset()
    kinds = {(module, frozenset(layers)) for (_, module), layers in found.items()}
    for block in _BLOCKS:
        if kinds == {(block.module, frozenset(block.layers))}:
            return block, frozenset(place for place, _ in found)
    listed = "; ".join(f"{module} of {', '.join(sorted(layers))}" for module, layers in sorted(kinds, key=str))
    known = "; ".join(f"{block.module} of {', '.join(sorted(block.layers))}" for block in _BLOCKS)
    raise ValueError(f"it has unsupported blocks: {listed}; supported: {known}")


def block_options(block: ForeignBlock, state: State, config: MMConfig) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings that differ from the preset, and notes about what is assumed."""
    said = next((part for part in config.everywhere(block.key) if isinstance(part, Mapping)), None)
    values = dict(block.published) if said is None else {**block.defaults, **said}
    for key in sorted(block.published.keys() - {"temp", "downsample"}):
        if values[key] != block.published[key]:
            raise ValueError(f"its blocks have {key}={values[key]!r}; only {block.published[key]!r} is supported")
    wanted = dict(block.options)
    if block.published and not isinstance(values["temp"], int | float):
        raise ValueError(f"its blocks have temp={values['temp']!r}; expected a number")
    if block.published:
        wanted |= {"temperature": float(values["temp"]), "pool": 2 if values["downsample"] else 1}
        queries = [name for name in state if re.search(r"\.(conv_query|theta\.conv)\.weight$", name)]
        ratios = {size(state, name, 1) // size(state, name) for name in queries}
        if len(ratios) != 1:
            raise ValueError(
                f"its blocks reduce channels by {', '.join(map(str, sorted(ratios)))}; expected one number"
            )
        (wanted["embed_reduction"],) = ratios
    if block.options:  # values are as wide as queries and keys
        wanted["value_reduction"] = wanted["embed_reduction"]
    preset = asdict(resolve_settings(find_variant(block.variant), PRESET))
    options = {name: value for name, value in wanted.items() if preset[name] != value}
    if said is not None or not block.published:
        return options, ()
    assumed = ", ".join(f"{key}={value!r}" for key, value in block.published.items())
    return options, (
        f"its configuration is unknown: its blocks are assumed to have {assumed}; --config FILE provides it",
    )
