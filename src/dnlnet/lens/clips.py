"""Clips with what blocks made of them: the terms for figures, and the maps as plain numbers."""

# T frames, H, W size of a frame

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dnlnet.attention import Terms
from dnlnet.lens.capture import capture
from dnlnet.lens.clip_figure import ClipPoint, clip_position
from dnlnet.video.predictor import VideoModel


@torch.inference_mode()
def clip_terms(title: str, model: VideoModel, frames: NDArray[np.uint8]) -> dict[str, Terms]:
    """The terms of every block of a model that looks at these frames (T, H, W, 3), by title and block."""
    clip = torch.from_numpy(np.ascontiguousarray(frames.transpose(3, 0, 1, 2)))[None]
    with capture(model.network) as blocks:
        model.network(model.normalised(clip))
    short = {name: name.removeprefix("backbone.").removesuffix(".non_local") for name in blocks}
    return {f"{title} {short[name]}": terms for name, terms in blocks.items()}


def clip_record(
    name: str, frames: NDArray[np.uint8], blocks: Mapping[str, Terms], points: Sequence[ClipPoint]
) -> tuple[dict[str, Any], dict[str, NDArray[np.floating]]]:
    """What was asked and where it snapped to; and the maps, named "block/term" by the number of the block.

    Pairwise and combined maps are (Q, t, h, w) for Q points, a unary map is (t, h, w).

    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl", dims=3).terms(torch.randn(1, 8, 4, 3, 5))
    >>> content, maps = clip_record("run", np.zeros((4, 6, 10, 3), np.uint8), {"dnl": terms}, [(1, 3, 9)])
    >>> content["blocks"][0]["queries"], maps["0/pairwise"].shape
    ([{'frame': 1, 'x': 9, 'y': 3, 'time': 1, 'row': 1, 'column': 4}], (1, 4, 3, 5))
    """
    arrays: dict[str, NDArray[np.floating]] = {}
    described = []
    for number, (title, terms) in enumerate(blocks.items()):
        positions = [clip_position(point, frames, terms) for point in points]
        maps = terms.maps(positions)
        for term, attention in (("pairwise", maps.pairwise), ("unary", maps.unary), ("combined", maps.combined)):
            if attention is not None:
                arrays[f"{number}/{term}"] = attention[0].cpu().numpy()
        described.append(
            {
                "title": title,
                "queries_map": list(terms.size),
                "keys_map": list(terms.key_size),
                "queries": [
                    {"frame": frame, "x": x, "y": y, "time": time, "row": row, "column": column}
                    for (frame, y, x), (time, row, column) in zip(points, positions, strict=True)
                ],
            }
        )
    count, height, width = frames.shape[:3]
    return {"video": name, "frames": count, "height": height, "width": width, "blocks": described}, arrays
