"""Views of a transformer's layers and heads: the chosen ones, or a few of many."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, LayerHead
from dnlnet.lens.trace.capture import Captured
from dnlnet.lens.trace.recorded import HeadChoice, LayerChoice


def layer_views(title: str, captured: Captured, choice: LayerChoice) -> list[AttentionView]:
    """Return views of the chosen layers and heads of a transformer on one image."""
    views = []
    for number, layer in choice.of(captured).items():
        heads: list[HeadChoice] = ["mean", *range(layer.heads)] if choice.heads == "all" else [choice.heads]
        if layer.heads == 1 and choice.heads in ("mean", "all"):
            heads = [0]
        for head in heads:
            which = f"mean of {layer.heads} heads" if head == "mean" else f"head {head}"
            place = LayerHead(title, f"{number} ({layer.call.name})", which)
            views.append(AttentionView(place.title, layer.terms(head), place=place))
    return views


def with_few_layers(image: AttendedImage, most: int, most_layers: int | None = None) -> AttendedImage:
    """Return the image with views of a few layers spread over the depth of each model, including the last.

    Args:
        image: Image with views of all layers. Views of our blocks all stay.
        most: Maximum number of views, unless a single layer has more.
        most_layers: Maximum number of layers per model.
    """
    layers = _count_views(image.views)
    kept = set()
    for model, counts in layers.items():
        count = most // (len(layers) * max(counts.values()))
        count = max(1, min(count, len(counts), most_layers or len(counts)))
        names = list(counts)
        kept |= {(model, names[(index + 1) * len(names) // count - 1]) for index in range(count)}
    shown = [view for view in image.views if view.place is None or (view.place.model, view.place.layer) in kept]
    return replace(image, views=shown)


def left_out(views: Sequence[AttentionView], shown: Sequence[AttentionView]) -> str:
    """Describe the hidden layers and heads, and how to show them. Empty if all are shown."""
    sentences = []
    kept = _count_views(shown)
    for model, every in _count_views(views).items():
        if len(kept[model]) < len(every):
            numbers = ", ".join(layer.partition(" ")[0] for layer in kept[model])
            sentences.append(
                f"layers {numbers} of the {len(every)} of {model} are shown; select others with --layers"
            )
    heads = [view.place.head for view in shown if view.place is not None]
    if heads and all(head.startswith("mean") for head in heads):
        sentences.append("the mean over heads is shown; select one with --heads 3, or all with --heads all")
    return "; ".join(sentences)


def _count_views(views: Sequence[AttentionView]) -> dict[str, Counter[str]]:
    """Return the number of views by model and layer."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for view in views:
        if view.place is not None:
            counts[view.place.model][view.place.layer] += 1
    return counts
