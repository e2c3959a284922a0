"""Configurations in checkpoints of the authors' segmentation code."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dnlnet.backbones.pixels import CAFFE, Pixels
from dnlnet.conversion.resnets import Dilations, nondefault_dilations
from dnlnet.conversion.values import are_colours, are_counts, is_number, nested, pixels_of
from dnlnet.errors import shown

# Our centring for each whitening of their two block classes, and the unsupported ones. Other names have no effect
# there, such as `channel` in nonlocalnowd and `in_nostd` in nonlocalbn.
_CENTRING: Mapping[str, Mapping[str, str]] = {
    "nonlocalbn": {"channel": "channel", "ln_nostd": "sample"},
    "nonlocalnowd": {"in_nostd": "channel", "ln_nostd": "sample"},
}
_REFUSED = {"nonlocalbn": ("spatial", "bn", "bn_affine"), "nonlocalnowd": ("in", "ln", "fln", "fln_nostd")}
_BLOCKS_OF_LAST_STAGE = 3


@dataclass
class TorchcvConfig:
    """Configuration of a checkpoint's network; its parts are empty if it is missing."""

    nonlocal_: Mapping[str, Any]
    network: Mapping[str, Any]
    pixels: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> "TorchcvConfig":
        """Read the tree under `config_dict`, if there is one."""
        tree = nested(meta, "config_dict")
        network, chosen = nested(tree, "network"), nested(tree, "nonlocal") or nested(tree, "unary")
        norm = str(network.get("norm_type", "batchnorm"))
        if "batchnorm" not in norm:
            raise ValueError(f"its network.norm_type is {shown(norm)}; supported: batch norms")
        return cls(chosen, network, nested(tree, "data"))

    def block(self, variant: str) -> tuple[str, dict[str, Any]]:
        """Return the variant and its options that differ from the preset `authors`.

        Args:
            variant: Variant of the tensors: dnl, nl or gc.
        """
        chosen = self.nonlocal_
        if not chosen:
            return variant, {}
        options: dict[str, Any] = {"pool": 2} if chosen.get("downsample") is True else {}
        if variant == "gc":
            return variant, options
        centring = self._centring()
        options |= self._scale()
        unary = chosen.get("with_unary") is True
        if unary and (variant == "dnl" or centring == "none"):
            other = "a saliency" if variant == "dnl" else "no whitening"
            raise ValueError(f"its block has with_unary and {other}, which is not one of the paper's variants")
        if variant == "nl" and centring != "none":
            variant = "dnl_dagger" if unary else "nl_pairwise"
        if unary:
            options["unary_scaled"] = False
        if variant != "nl":
            options["centring"] = centring
            kinds = shown(list(_words(chosen.get("whiten_type"))))
            done = "not centred" if centring == "none" else f"centred by {centring}"
            self.notes.append(f"queries and keys are {done}, the effect of whiten_type {kinds} in {self._class()}")
        return variant, options

    def strides(self) -> tuple[int, Dilations | None]:
        """Return the output stride of the backbone, and its dilations unless they are the defaults."""
        name = self.network.get("backbone")
        if name is None:
            return 8, None
        found = re.fullmatch(r"(?:deepbase_)?resnet\d+(?:_dilated(8|16))?", str(name))
        if found is None:
            raise ValueError(f"its network.backbone is {shown(name)}; supported: resnets, dilated by 8, 16 or not")
        if found[1] is None:
            return 32, None
        grid = self.network.get("multi_grid")
        rates = [1] * _BLOCKS_OF_LAST_STAGE if grid is None else grid
        if not are_counts(rates, _BLOCKS_OF_LAST_STAGE):
            raise ValueError(f"its network.multi_grid is {shown(grid)}; expected three whole numbers")
        output_stride = int(found[1])
        base = 32 // output_stride
        # The first block, which had a stride, has half the dilation.
        last = (base * rates[0] // 2, *(base * rate for rate in rates[1:]))
        return output_stride, nondefault_dilations(
            output_stride, [(1,), (1,), (1, 2) if output_stride == 8 else (1,), last]
        )

    def network_pixels(self) -> Pixels:
        """Return how pixels are normalised, (x / div_value - mean) / std; by default as in Caffe."""
        normal = nested(self.pixels, "normalize")
        if not normal:
            return CAFFE
        mode, mean, std = self.pixels.get("input_mode", "BGR"), normal.get("mean"), normal.get("std")
        scale = normal.get("div_value", 1.0)
        known = mode in ("BGR", "RGB") and is_number(scale, positive=True)
        if not (known and are_colours(mean) and are_colours(std, positive=True)):
            raise ValueError(
                f"its pixels are {shown(mode)} with {shown(dict(normal))}; expected BGR or RGB, and mean and "
                "positive std of three numbers"
            )
        return pixels_of(mean, std, blue_first=mode == "BGR", scale=scale)

    def frees_embeddings(self, variant: str | None) -> bool:
        """Return whether queries and keys are trained without weight decay, as in the README's recipe."""
        return "nl" in _words(self.nonlocal_.get("nowd")) if self.nonlocal_ else variant == "dnl"

    def _class(self) -> str:
        """Return the name of its block class."""
        name = str(self.network.get("model_name"))
        if name in _CENTRING:
            return name
        return "nonlocalbn" if "temp" in self.nonlocal_ else "nonlocalnowd"

    def _centring(self) -> str:
        known, kinds = _CENTRING[self._class()], _words(self.nonlocal_.get("whiten_type"))
        effective = [kind for kind in kinds if kind in known]
        refused = [kind for kind in kinds if kind in _REFUSED[self._class()]]
        if refused or len(effective) > 1:
            raise ValueError(f"its block whitens by {shown(list(kinds))}; supported: one of {', '.join(known)}")
        return known[effective[0]] if effective else "none"

    def _scale(self) -> dict[str, Any]:
        if self._class() == "nonlocalnowd":
            return {"scaled": "nl" not in _words(self.nonlocal_.get("nowd"))}
        temperature = self.nonlocal_.get("temp", 1.0)
        if not isinstance(temperature, int | float) or not temperature > 0:
            raise ValueError(f"its nonlocal.temp is {shown(temperature)}; expected a number above 0")
        return {"scaled": True, "temperature": float(temperature)}


def _words(value: Any) -> tuple[str, ...]:
    """Return a name or a list of names as a tuple."""
    return (value,) if isinstance(value, str) else tuple(map(str, value)) if isinstance(value, list | tuple) else ()
