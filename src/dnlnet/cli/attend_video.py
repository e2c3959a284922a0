"""What video models attend to, over the frames of a clip."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dnlnet.attention import Terms
    from dnlnet.recipes.model_file import ModelFile
    from dnlnet.recipes.schema import VideoRecipe


def attend_videos(
    files: "Mapping[str, ModelFile]", inputs: Sequence[Path], queries: Sequence[tuple[int, ...]], out: Path
) -> None:
    """A figure, the maps and their description for the clip in the middle of each video.

    Queries are (x, y) in pixels of the video, in the middle frame, or (x, y, frame) with frames of the clip counted
    from 1; without any, the middle.
    """
    from dnlnet.cli.attend import write_shown
    from dnlnet.cli.problems import end_with, say, say_left_out
    from dnlnet.cli.progress import counting_progress
    from dnlnet.data.inputs import find_inputs
    from dnlnet.data.labelled import BadFileError
    from dnlnet.lens.clip_figure import clip_figure
    from dnlnet.lens.clips import clip_record, clip_terms
    from dnlnet.recipes.load import TrainedVideo
    from dnlnet.recipes.schema import VideoRecipe
    from dnlnet.video.data.video import is_video, open_video

    found = find_inputs(inputs, is_video, "videos in it", out)
    say_left_out(found)
    recipes: dict[str, VideoRecipe] = {}
    for title, file in files.items():
        if not isinstance(file.recipe, VideoRecipe):
            raise ValueError(f"{file.path}: is a {file.recipe.task} model; compare video models")
        recipes[title] = file.recipe
    expected = _looks_at(next(iter(recipes.values())))
    for title, recipe in recipes.items():
        if _looks_at(recipe) != expected:
            text = f"looks at {_looks_at(recipe)}, not at {expected}; compare models of the same frames"
            raise ValueError(f"{title}: {text}")
    models = {title: TrainedVideo(files[title], recipe) for title, recipe in recipes.items()}
    first = next(iter(models.values()))
    problems = [str(problem) for problem in found.problems]

    def show(name: Path, path: Path) -> None:
        with open_video(path) as video:
            size = video.size
            for note in video.notes:
                say(f"{path}: {note}")
        frames = first.frames(path)
        blocks: dict[str, Terms] = {}
        for title, model in models.items():
            blocks |= clip_terms(title, model, frames)
        points = [_point(query, size, frames.shape[:3]) for query in queries] or [
            tuple(length // 2 for length in frames.shape[:3])
        ]
        figure = clip_figure(frames, blocks, points, title=path.name)
        write_shown(path, out / name, figure, *clip_record(str(name), frames, blocks, points))

    with counting_progress() as progress:
        task = progress.add_task("looking", total=len(found.paths))
        for name, path in found.paths.items():
            try:
                show(name, path)
            except BadFileError as error:
                problems.append(str(error))
            progress.advance(task)
    count = len(found.paths) + len(found.problems)
    if len(problems) < count:
        typer.echo(f"written: {count - len(problems)} x png, pdf, npz, json in {out}")
    end_with(problems, count)


def _looks_at(recipe: "VideoRecipe") -> str:
    data, side = recipe.data, recipe.evaluation.short_side
    return f"{data.frames} frames {data.stride} / {data.rate:g} seconds apart with {side} pixels"


def _point(query: tuple[int, ...], size: tuple[int, int], clip: tuple[int, ...]) -> tuple[int, int, int]:
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
