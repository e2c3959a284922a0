"""Views of the layers and heads of a transformer: those that were asked for, and few where all are too many."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dnlnet.errors import unknown
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, LayerHead
from dnlnet.lens.trace.capture import Captured
from dnlnet.lens.trace.recorded import Heads, Recorded


@dataclass(frozen=True)
class Choice:
    """Which layers and heads to look at.

    Args:
        layers: numbers of the attentions of a model in the order in which they run, from 0, or names; None for all.
        heads: the mean over heads, the number of one, or all, after their mean.
    """

    layers: Sequence[int | str] | None = None
    heads: Heads = "mean"

    def of(self, captured: Captured) -> dict[int, Recorded]:
        """The chosen layers by number; without a choice, all whose tokens lie in a picture."""
        found = [layer for layer in captured.values() if isinstance(layer, Recorded)]
        if self.layers is None:
            return {number: layer for number, layer in enumerate(found) if _in_picture(layer)}
        names = [layer.seen.name for layer in found]
        return {number: found[number] for number in (number_of(layer, names) for layer in self.layers)}


def layer_views(title: str, captured: Captured, choice: Choice) -> list[AttentionView]:
    """Views of chosen layers and heads of a transformer's attention, on one picture."""
    views = []
    for number, layer in choice.of(captured).items():
        heads: list[Heads] = ["mean", *range(layer.heads)] if choice.heads == "all" else [choice.heads]
        if layer.heads == 1 and choice.heads in ("mean", "all"):
            heads = [0]
        for head in heads:
            which = f"mean of {layer.heads} heads" if head == "mean" else f"head {head}"
            place = LayerHead(title, f"{number} ({layer.seen.name})", which)
            views.append(AttentionView(place.title, layer.terms(head), place=place))
    return views


def with_few_layers(picture: AttendedImage, most: int, most_layers: int | None = None) -> AttendedImage:
    """A picture with views of layers spread over the depth of each model, the last among them.

    Args:
        picture: with views of all layers, and perhaps of our blocks, which all stay.
        most: number of views, unless those of one layer are more.
        most_layers: of each model.
    """
    views = picture.views
    layers: dict[str, dict[str, int]] = {}  # how many views each layer of each model has
    for view in views:
        if view.place is not None:
            counts = layers.setdefault(view.place.model, {})
            counts[view.place.layer] = counts.get(view.place.layer, 0) + 1
    kept = set()
    for model, counts in layers.items():
        count = most // (len(layers) * max(counts.values()))
        count = max(1, min(count, len(counts), most_layers or len(counts)))
        names = list(counts)
        kept |= {(model, names[(index + 1) * len(names) // count - 1]) for index in range(count)}
    shown = [view for view in views if view.place is None or (view.place.model, view.place.layer) in kept]
    return replace(picture, views=shown)


def left_out(views: Sequence[AttentionView], shown: Sequence[AttentionView]) -> str:
    """Which layers and heads of transformers are not shown, and how to see them; empty if all are."""
    sentences = []
    for model in dict.fromkeys(view.place.model for view in views if view.place is not None):
        every, some = (
            list(dict.fromkeys(view.place.layer for view in given if view.place and view.place.model == model))
            for given in (views, shown)
        )
        if len(some) < len(every):
            numbers = ", ".join(layer.partition(" ")[0] for layer in some)
            sentences.append(f"layers {numbers} of the {len(every)} of {model} are shown, others with --layers")
    heads = [view.place.head for view in shown if view.place is not None]
    if heads and all(head.startswith("mean") for head in heads):
        sentences.append("the mean over heads is shown, single ones with --heads 3 or --heads all")
    return "; ".join(sentences)


def _in_picture(layer: Recorded) -> bool:
    """Whether it has maps of a picture; that of a class token alone has only one query, and nothing of its own."""
    layout = layer.layout
    return not isinstance(layout, str) and len(layout.size) == len(layout.key_size) == 2 and prod(layout.size) > 1


def number_of(layer: int | str, names: Sequence[str]) -> int:
    """The number of an attention layer that is given by its number or its name."""
    if isinstance(layer, str):
        if layer not in names:
            raise unknown("attention layer", layer, names)
        return names.index(layer)
    if not 0 <= layer < len(names):
        raise ValueError(f"there is no attention layer {layer}; the model has {len(names)}, counted from 0")
    return layer
