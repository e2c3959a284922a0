"""What video models attend to, over the frames of a clip: figures, and the maps as plain numbers."""

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
from dnlnet.lens.show.attend_images import attend_each
from dnlnet.lens.show.attend_request import AttendRequest, AttendResult, Query
from dnlnet.lens.show.attention_files import write_shown
from dnlnet.lens.show.clip_figure import ClipPoint, clip_figure, clip_position
from dnlnet.lens.trace.capture import capture_blocks
from dnlnet.video.data.opening import is_video, open_any
from dnlnet.video.predictor import VideoModel

_DOTS = 150  # per inch: as wide as a screen


def attend_clips(models: Mapping[str, VideoModel], request: AttendRequest) -> AttendResult:
    """A figure, the maps and their description for the clip in the middle of each video.

    Queries are (x, y) in pixels of the video, in the middle frame, or (x, y, frame) with frames of the clip counted
    from 1; without any, the middle.
    """
    if request.page is not None:
        raise ValueError("the page is for pictures; give a folder for the figures of videos with -o OUT")
    out, first = request.out, next(iter(models.values()))
    figures: list[Figure] = []
    for title, model in models.items():
        if _clip_text(model) != _clip_text(first):
            text = f"looks at {_clip_text(model)}, not at {_clip_text(first)}; compare models of the same frames"
            raise ValueError(f"{title}: {text}")

    def show(name: Path, source: Any) -> None:
        with open_any(source) as video:
            size, frames = video.size, first.frames(video)
            for note in video.notes:
                request.report(f"{video.path}: {note}")
        blocks: dict[str, Terms] = {}
        for title, model in models.items():
            blocks |= clip_terms(title, model, frames)
        count, height, width = frames.shape[:3]
        points = [_point(query, size, (count, height, width)) for query in request.queries]
        points = points or [(count // 2, height // 2, width // 2)]
        called = source.name if isinstance(source, Path) else str(name)
        shown = blocks
        if len(models) == 1:  # its name stands above all rows, and not in each
            (only,) = models
            shown = {block.removeprefix(f"{only} "): terms for block, terms in blocks.items()}
            called = f"{called}: {only}"
        figure = clip_figure(frames, shown, points, title=called)
        if out is None:
            figures.append(figure)
        else:
            content, maps = clip_record(str(name), frames, blocks, points)
            write_shown(name, out / name, figure, content, maps, _DOTS)

    def find(inputs: Iterable[Path], out: Path | None) -> Inputs:
        return find_inputs(inputs, is_video, "videos in it", out)

    result = attend_each(find, request, show, "video")
    result.figures = figures
    return result


def _clip_text(model: VideoModel) -> str:
    clip = model.clip
    return f"{clip.count} frames {clip.stride} / {clip.rate:g} seconds apart with {model.short_side} pixels"


def _point(query: Query, size: tuple[int, int], clip: ClipPoint) -> ClipPoint:
    """(frame, row, column) of the clip, for a point in pixels of the video."""
    count, height, width = clip
    x, y, *rest = query
    frame = rest[0] - 1 if rest else count // 2
    if not (0 <= x < size[1] and 0 <= y < size[0] and 0 <= frame < count):
        raise ValueError(
            f"query x={x}, y={y}, frame {frame + 1} is outside of the clip of {size[1]} x {size[0]} pixels and "
            f"{count} frames"
        )
    return frame, y * height // size[0], x * width // size[1]


@torch.inference_mode()
def clip_terms(title: str, model: VideoModel, frames: NDArray[np.uint8]) -> dict[str, Terms]:
    """The terms of every block of a model that looks at these frames (T, H, W, 3), by title and block."""
    clip = torch.from_numpy(np.ascontiguousarray(frames.transpose(3, 0, 1, 2)))[None]
    with capture_blocks(model.network) as blocks:
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
