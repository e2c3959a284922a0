"""Choice of layers and heads of a transformer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dnlnet.attention import Terms
from dnlnet.errors import unknown
from dnlnet.lens.trace.recorded import HeadChoice, RecordedAttention


@dataclass(frozen=True)
class LayerChoice:
    """Layers and heads to show.

    Args:
        layers: Attention layers by name, or by number from 0 in running order. None for all.
        heads: "mean", the number of one head, or "all" for the mean followed by each head.
    """

    layers: Sequence[int | str] | None = None
    heads: HeadChoice = "mean"

    def of(self, captured: Mapping[str, Terms | RecordedAttention]) -> dict[int, RecordedAttention]:
        """Return the chosen layers by number. Default: all layers whose tokens lie on an image."""
        found = [layer for layer in captured.values() if isinstance(layer, RecordedAttention)]
        if self.layers is None:
            return {number: layer for number, layer in enumerate(found) if _has_maps(layer)}
        names = [layer.call.name for layer in found]
        return {number: found[number] for number in (layer_number(layer, names) for layer in self.layers)}


def layer_number(layer: int | str, names: Sequence[str]) -> int:
    """Return the number of an attention layer given by number or name."""
    if isinstance(layer, str):
        if layer not in names:
            raise unknown("attention layer", layer, names)
        return names.index(layer)
    if not 0 <= layer < len(names):
        raise ValueError(f"there is no attention layer {layer}; the model has {len(names)}, counted from 0")
    return layer


def _has_maps(layer: RecordedAttention) -> bool:
    """Return whether the layer has maps of an image. Attention of the class token alone has one query, so none."""
    layout = layer.layout
    return not isinstance(layout, str) and layout.is_image and prod(layout.size) > 1
