"""`dnlnet attend`: figures, numbers and a page of what models attend to in pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from dnlnet.data.labelled import LabelledImages
    from dnlnet.detection.predictor import DetectionModel
    from dnlnet.lens.views import Picture, Point
    from dnlnet.segmentation.predictor import SegmentationModel


def attend(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, a run folder, or a name on the hub.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Pictures or videos, or folders.")],
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y", help="A query point in pixels; X,Y,FRAME in a clip; may be repeated. Default: chosen."
        ),
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Another model to compare with; may be repeated.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data set that the pictures are of: their labels are shown.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Folder for the figures.")] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="HTML", help="Write one page to explore all pictures with, for a browser.")
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(min=1024, max=1_000_000_000, help="Larger pictures are made smaller.")
    ] = 4_000_000,
) -> None:
    """Show what a model attends to: the pairwise maps of query points, the unary map, and both together.

    OUT gets, for each picture, a figure as PNG and PDF, the raw maps (.npz), and what is in them (.json). The page is
    one file that needs no server: point at a pixel to see its maps. Query points snap to the block's grid. Of a video
    the clip in its middle is shown, frame by frame. What cannot be read is listed at the end; the exit code is then
    1, or 2 if nothing could be read.

    Example: dnlnet attend runs/dnl street.jpg --query 120,80 --against runs/nl -o figures --page explore.html
    """
    if out is None and page is None:
        raise ValueError("nothing to write: give a folder for figures with -o OUT, a file with --page HTML, or both")
    queries = [_query(text) for text in query or []]

    from dnlnet.cli.attend_video import attend_videos
    from dnlnet.cli.problems import end_with, say_left_out
    from dnlnet.cli.progress import counting_progress
    from dnlnet.data.inputs import find_pictures
    from dnlnet.data.labelled import BadFileError
    from dnlnet.files import atomic_write
    from dnlnet.lens.explorer import explorer_page
    from dnlnet.recipes.catalog import open_all_splits
    from dnlnet.recipes.load import open_together, read_together

    files = read_together([model, *(against or ())])
    recipe = next(iter(files.values())).recipe
    if data is not None and recipe.task != "segmentation":
        raise ValueError(f"--data shows the labels of pixels; that of a {recipe.task} model has none: leave it out")
    if recipe.task == "video":
        if page is not None or out is None:
            raise ValueError("the page is for pictures; give a folder for the figures of videos with -o OUT")
        attend_videos(files, inputs, queries, out)
        return
    points = [_point(query) for query in queries]
    labelled = None if data is None else list(open_all_splits(recipe.data.name, data)[0].values())
    models = open_together(files)
    found = find_pictures(inputs, out)
    say_left_out(found)
    problems, shown = [str(problem) for problem in found.problems], []
    with counting_progress() as progress:
        task = progress.add_task("looking", total=len(found.paths))
        for name, path in found.paths.items():
            try:
                picture = _look(name, path, models, labelled, max_pixels)
                for point in points:
                    picture.require_inside(point)
                if out is not None:
                    _write(picture, points or picture.interior_points(), path, out / name)
                if page is not None:
                    shown.append(picture)
            except BadFileError as error:
                problems.append(str(error))
            progress.advance(task)
    count = len(found.paths) + len(found.problems)
    if out is not None and len(problems) < count:
        typer.echo(f"written: {count - len(problems)} x png, pdf, npz, json in {out}")
    if shown and page is not None:
        with atomic_write(page) as temporary:
            temporary.write_text(explorer_page(shown), encoding="utf-8")
        typer.echo(f"written: {page} ({page.stat().st_size / 1e6:.1f} MB); open it in a browser")
    end_with(problems, count)


def _query(text: str) -> tuple[int, ...]:
    """(x, y) or (x, y, frame)."""
    try:
        x, y, *frame = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--query {text}: expected x,y in whole pixels, such as 120,80") from None
    if len(frame) > 1:
        raise ValueError(f"--query {text}: expected x,y, or x,y,frame for a video")
    return x, y, *frame


def _point(query: tuple[int, ...]) -> "Point":
    """(row, column)."""
    if len(query) > 2:
        raise ValueError(f"--query {','.join(map(str, query))}: a picture has no frames; expected x,y")
    column, row = query
    return row, column


def _look(
    name: Path,
    path: Path,
    models: "Mapping[str, SegmentationModel | DetectionModel]",
    labelled: "list[LabelledImages] | None",
    max_pixels: int,
) -> "Picture":
    """A picture with the views of all models' blocks, and its labels if it is one of the data set's."""
    import numpy as np
    from PIL import Image

    from dnlnet.cli.problems import say
    from dnlnet.data.pictures import read_picture
    from dnlnet.lens.views import Picture, views_of
    from dnlnet.recipes.catalog import find_labels

    pixels = read_picture(path)
    labels = None if labelled is None else find_labels(labelled, path)
    if labelled is not None and labels is None:
        say(f"{path}: is not a picture of the data set; shown without labels")
    height, width = pixels.shape[:2]
    if height * width > max_pixels:
        scale = (max_pixels / (height * width)) ** 0.5
        size = max(1, int(width * scale)), max(1, int(height * scale))
        say(f"{path}: made smaller, from {width} x {height} to {size[0]} x {size[1]} pixels")
        pixels = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
        labels = (
            None if labels is None else np.asarray(Image.fromarray(labels).resize(size, Image.Resampling.NEAREST))
        )
    views = [view for title, model in models.items() for view in views_of(title, model, pixels)]
    return Picture(str(name), pixels, views, labels, next(iter(models.values())).classes)


def _write(picture: "Picture", points: "list[Point]", path: Path, target: Path) -> None:
    """The figure, the maps and their description of the picture at a path."""
    from dnlnet.lens.figures import attention_figure
    from dnlnet.lens.record import record

    write_shown(path, target, attention_figure(picture, points), *record(picture, points))


def write_shown(
    path: Path, target: Path, figure: "Figure", content: dict[str, Any], arrays: "Mapping[str, Any]"
) -> None:
    """What is shown of a picture or video, under one name with four endings, or none of it and a `BadFileError`."""
    from dnlnet.cli.tables import write_json, write_maps
    from dnlnet.data.labelled import BadFileError, Problem
    from dnlnet.lens.panels import PRINT_DOTS, save_figure
    from dnlnet.recipes.job import writing_problem

    png, pdf, npz, json = files = [target.with_name(target.name + end) for end in (".png", ".pdf", ".npz", ".json")]
    try:
        save_figure(figure, png, PRINT_DOTS)
        save_figure(figure, pdf, PRINT_DOTS)
        write_maps(npz, arrays)
        write_json(json, content)
    except OSError as error:
        raise BadFileError(Problem(path, writing_problem(error, files))) from None
