"""Show what video models attend to over the frames of a clip: figures and maps."""

# T frames, H, W size of a frame

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dnlnet.attention import Terms
from dnlnet.data.inputs import Inputs, find_inputs
from dnlnet.lens.show.attend import AttendRequest, AttendResult, Query, attend_each
from dnlnet.lens.show.attend_files import Arrays, numbered_maps, write_attention
from dnlnet.lens.show.clip_figure import ClipPoint, clip_figure, clip_position
from dnlnet.lens.trace.capture import capture_blocks
from dnlnet.video.data.opening import is_video, open_any
from dnlnet.video.predictor import VideoModel

_DOTS = 150  # per inch: as wide as a screen


def attend_clips(models: Mapping[str, VideoModel], request: AttendRequest) -> AttendResult:
    """Show what models (by title) attend to in the middle clip of each video.

    Queries are (x, y) in pixels of the video, for the middle frame, or (x, y, frame) with the clip's frames counted
    from 1. Default: the centre of the middle frame.
    """
    if request.page is not None:
        text = "a page shows images only, so none is written for videos"
        if request.out is None:
            raise ValueError(f"{text}; write figures with -o OUT instead")
        request.progress.say(text)
    first = next(iter(models.values()))
    for title, model in models.items():
        if _clip_text(model) != _clip_text(first):
            raise ValueError(
                f"{title}: takes clips of {_clip_text(model)}, the first model clips of {_clip_text(first)}; compare "
                "models with the same clips"
            )
    figures: list[Figure] = []

    def show(name: Path, source: Any) -> None:
        with open_any(source) as video:
            size, frames = video.size, first.frames(video)
            for note in video.notes:
                request.progress.say(f"{video.path}: {note}")
        terms = {title: clip_terms(model, frames) for title, model in models.items()}
        blocks = {f"{title} {block}": each for title, found in terms.items() for block, each in found.items()}
        count, height, width = frames.shape[:3]
        points = [_point(query, size, (count, height, width)) for query in request.queries]
        points = points or [(count // 2, height // 2, width // 2)]
        heading = source.name if isinstance(source, Path) else str(name)
        if len(models) == 1:  # the title names the model, not every row
            ((title, rows),) = terms.items()
            figure = clip_figure(frames, rows, points, title=f"{heading}: {title}")
        else:
            figure = clip_figure(frames, blocks, points, title=heading)
        if request.out is None:
            figures.append(figure)
        else:
            content, maps = describe_clip(str(name), frames, blocks, points)
            write_attention(name, request.out / name, figure, content, maps, _DOTS)

    def find(inputs: Iterable[Path], out: Path | None) -> Inputs:
        return find_inputs(inputs, is_video, "videos in it", out)

    result = attend_each(find, models, request, show, "video")
    result.figures = figures
    return result


def _clip_text(model: VideoModel) -> str:
    clip = model.clip
    return (
        f"{clip.count} frames, {clip.stride} / {clip.rate:g} seconds apart, at {model.evaluation.short_side} pixels"
    )


def _point(query: Query, size: tuple[int, int], clip: ClipPoint) -> ClipPoint:
    """Return (frame, row, column) in the clip for a point in pixels of the video."""
    count, height, width = clip
    x, y, *rest = query
    frame = rest[0] - 1 if rest else count // 2
    if not (0 <= x < size[1] and 0 <= y < size[0] and 0 <= frame < count):
        raise ValueError(
            f"query x={x}, y={y}, frame {frame + 1} is outside the clip of {size[1]} x {size[0]} pixels and {count} "
            "frames"
        )
    return frame, y * height // size[0], x * width // size[1]


@torch.inference_mode()
def clip_terms(model: VideoModel, frames: NDArray[np.uint8]) -> dict[str, Terms]:
    """Return the terms of every block on the frames (T, H, W, 3) of a clip, by the block's short name."""
    clip = torch.from_numpy(np.ascontiguousarray(frames.transpose(3, 0, 1, 2)))[None]
    with capture_blocks(model.network) as blocks:
        model.network(model.normalised(clip))
    return {name.removeprefix("backbone.").removesuffix(".non_local"): terms for name, terms in blocks.items()}


def describe_clip(
    name: str, frames: NDArray[np.uint8], blocks: Mapping[str, Terms], points: Sequence[ClipPoint]
) -> tuple[dict[str, Any], Arrays]:
    """Return the queries with their positions on each map, and the maps, named "number of the block/term".

    Pairwise and combined maps are (Q, t, h, w) for Q points, a unary map is (t, h, w).

    >>> from dnlnet import NonLocalBlock
    >>> terms = NonLocalBlock(8, "dnl", dims=3).terms(torch.randn(1, 8, 4, 3, 5))
    >>> content, maps = describe_clip("run", np.zeros((4, 6, 10, 3), np.uint8), {"dnl": terms}, [(1, 3, 9)])
    >>> content["blocks"][0]["queries"], maps["0/pairwise"].shape
    ([{'frame': 1, 'x': 9, 'y': 3, 'time': 1, 'row': 1, 'column': 4}], (1, 4, 3, 5))
    """
    arrays: Arrays = {}
    described = []
    for number, (title, terms) in enumerate(blocks.items()):
        positions = [clip_position(point, frames, terms) for point in points]
        arrays |= numbered_maps(number, terms.maps(positions))
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
