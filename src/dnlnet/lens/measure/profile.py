"""Profile of a model: statistics of the attention of each head, layer by layer.

It has the statistics of `dnlnet.lens.measure.statistics` over all tokens. With labels, it also has the overlaps of
Table 1 over the image tokens, for the terms and for the attention itself (see `overlaps_of_heads`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, Literal

import torch

from dnlnet.attention import Terms
from dnlnet.lens.measure.consistency import (
    Average,
    overlaps_of_heads,
    terms_on_image,
    uniform_overlaps,
)
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.measure.statistics import STATISTICS, measure_heads
from dnlnet.lens.trace.recorded import RecordedAttention

ImageValues = tuple[float | None, ...]  # one per image; None where the statistic has no value

OVERLAPS = {
    "attention_within": "attention ∩ within-category",
    "pair_within": "pair ∩ within-category",
    "uniform_within": "uniform ∩ within-category",
    "attention_boundary": "attention ∩ boundary",
    "pair_boundary": "pair ∩ boundary",
    "unary_boundary": "unary ∩ boundary",
    "uniform_boundary": "uniform ∩ boundary",
}


@dataclass(frozen=True)
class HeadProfile:
    """Statistics of one head, or means over a layer's heads.

    Args:
        layer: Name of the attention.
        head: Number of the head. None for the mean over heads.
        values: One value per image for each of `STATISTICS` and, with labels, each of `OVERLAPS`.
    """

    layer: str
    head: int | None
    values: Mapping[str, ImageValues]

    def average(self, statistic: str) -> Average | None:
        """Return mean and standard error over images; None if the statistic has no value."""
        return Average.of(self.values[statistic])


@dataclass(frozen=True, repr=False)
class Profile:
    """Profiles of all heads of a model.

    Args:
        heads: One profile per head, in running order.
    """

    heads: tuple[HeadProfile, ...]

    @classmethod
    def joined(cls, profiles: Sequence["Profile"]) -> "Profile":
        """Join profiles of the same attentions on different images."""
        first = profiles[0]
        if any([(h.layer, h.head) for h in other] != [(h.layer, h.head) for h in first] for other in profiles):
            raise ValueError("profiles of different attentions cannot be joined; join those of one model")
        return cls(
            tuple(
                replace(same[0], values={name: sum((h.values[name] for h in same), ()) for name in same[0].values})
                for same in zip(*profiles, strict=True)
            )
        )

    def of_head(self, number: int) -> "Profile":
        """Return the profiles of the heads with this number, one per layer that has it."""
        heads = tuple(head for head in self.heads if head.head == number)
        if not heads:
            most = max((head.head or 0 for head in self.heads), default=0)
            raise ValueError(f"there is no head {number}; the layers have heads 0 to {most}")
        return Profile(heads)

    @property
    def statistics(self) -> list[str]:
        """Names of the statistics of each head."""
        return list(self.heads[0].values) if self.heads else []

    def layers(self) -> list[HeadProfile]:
        """Return the mean over the heads of each layer, per image."""
        by_layer: dict[str, list[HeadProfile]] = {}
        for head in self.heads:
            by_layer.setdefault(head.layer, []).append(head)
        return [
            HeadProfile(
                layer, None, {name: _mean_of_each([head.values[name] for head in heads]) for name in self.statistics}
            )
            for layer, heads in by_layer.items()
        ]

    def table(self, heads: Literal["mean", "all"] = "mean") -> list[dict[str, Any]]:
        """Return one row per layer or per head: layer, head, and each statistic averaged over images."""
        return [
            {"layer": row.layer, "head": "mean" if row.head is None else row.head}
            | {name: row.average(name) for name in self.statistics}
            for row in (self.heads if heads == "all" else self.layers())
        ]

    def to_json(self) -> dict[str, Any]:
        """Return averages per layer and head, and the values of each image, as JSON types."""

        def row(found: HeadProfile) -> dict[str, Any]:
            averages = {name: found.average(name) for name in found.values}
            return {"layer": found.layer, "head": found.head} | {
                name: None if average is None else vars(average) for name, average in averages.items()
            }

        known = {**STATISTICS, **OVERLAPS}
        return {
            "statistics": {name: known[name] for name in self.statistics},
            "layers": [row(layer) for layer in self.layers()],
            "heads": [row(head) | {"values": {k: list(v) for k, v in head.values.items()}} for head in self.heads],
        }

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[HeadProfile]:
        return iter(self.heads)

    def __getitem__(self, index: int) -> HeadProfile:
        return self.heads[index]

    def __repr__(self) -> str:
        """Return a table of the layers, means over heads and images."""
        rows = [
            [row.layer, *("-" if (x := row.average(name)) is None else f"{x.mean:.4g}" for name in self.statistics)]
            for row in self.layers()
        ]
        lines = [["layer", *self.statistics], *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(cells))
            for cells in (list(zip(line, widths, strict=True)) for line in lines)
        )


def profile(
    captured: Mapping[str, Terms | RecordedAttention] | RecordedAttention, truths: Sequence[GroundTruth] | None = None
) -> Profile:
    """Profile all heads that were captured.

    Memory is linear in the number of tokens: attention is computed for a block of rows at a time.

    Args:
        captured: Result of `capture`, or one attention of it.
        truths: Ground truth of each image of the batch, for overlaps with it. Attention whose tokens do not lie on an
            image has none.

    >>> import timm
    >>> from dnlnet import capture
    >>> vit = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1).eval()
    >>> with capture(vit) as attention:
    ...     _ = vit(torch.rand(2, 3, 64, 64))
    >>> len(attention.profile()), attention.profile()[0].average("positions").images
    (3, 2)
    """
    named = {captured.call.name: captured} if isinstance(captured, RecordedAttention) else captured
    return Profile(tuple(head for name, found in named.items() for head in _profile(name, found, truths)))


@torch.no_grad()
def _profile(
    name: str, found: Terms | RecordedAttention, truths: Sequence[GroundTruth] | None
) -> Iterator[HeadProfile]:
    measured = measure_heads(found)
    images, heads = measured["dependence"].shape
    if truths is not None and len(truths) != images:
        raise ValueError(f"{name}: {len(truths)} ground truths for {images} images; give one per image")
    overlaps = [_overlaps(terms_on_image(found, image), truth, heads) for image, truth in enumerate(truths or ())]
    for head in range(heads):
        values = {
            key: tuple(None if isnan(x) else x for x in measured[key][:, head].tolist())
            if key in measured
            else (None,) * images
            for key in STATISTICS
        }
        if truths is not None:
            values |= {key: tuple(of_image[head][key] for of_image in overlaps) for key in OVERLAPS}
        yield HeadProfile(name, head, values)


def _mean_of_each(values: Sequence[ImageValues]) -> ImageValues:
    """Average the known values over heads, image by image."""
    averages = [Average.of(of_image) for of_image in zip(*values, strict=True)]
    return tuple(None if average is None else average.mean for average in averages)


def _overlaps(terms: Terms | None, truth: GroundTruth, heads: int) -> list[dict[str, float | None]]:
    """Return the overlaps of each head on one image; None where the tokens do not lie on an image."""
    if terms is None:
        return [dict.fromkeys(OVERLAPS)] * heads
    uniform = uniform_overlaps(terms.size, terms.key_size, truth)
    same = {"uniform_within": uniform.pair_within, "uniform_boundary": uniform.pair_boundary}
    return [vars(own) | same for own in overlaps_of_heads(terms, truth, whole=True)]
