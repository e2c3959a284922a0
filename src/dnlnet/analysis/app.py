"""A small application in the browser: one's own picture, click in it, see what the pixel attends to.

Needs gradio, which is imported when the application is made.
"""

# H, W size of the picture

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.analysis.panels import heat
from dnlnet.analysis.views import Picture, Point, views_of
from dnlnet.data.pictures import read_picture
from dnlnet.errors import load_extra
from dnlnet.tasks.detections import DetectionModel
from dnlnet.tasks.prediction import SegmentationModel

if TYPE_CHECKING:
    from gradio import Blocks

MAX_MEGABYTES = 20
MAX_PIXELS = 4_000_000
_MARK = 5  # pixels from the middle of the mark to its edge, for each 200 of the picture's height

Shown = tuple[NDArray[np.uint8], str]  # pixels (H, W, 3) and what they are


class Explorer:
    """What the application does, without the application.

    Args:
        models: to look into, by their titles.
        max_megabytes: larger files are refused.
        max_pixels: and larger pictures.
    """

    def __init__(
        self,
        models: Mapping[str, SegmentationModel | DetectionModel],
        max_megabytes: float = MAX_MEGABYTES,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.models, self.max_megabytes, self.max_pixels = models, max_megabytes, max_pixels

    def open(self, path: Path) -> Picture:
        """Look at an uploaded file; a ValueError says in one sentence why it cannot be."""
        megabytes = path.stat().st_size / 1e6
        if megabytes > self.max_megabytes:
            raise ValueError(f"the file has {megabytes:.1f} MB; at most {self.max_megabytes:g} MB are taken")
        pixels = self._read(path)
        views = [view for title, model in self.models.items() for view in views_of(title, model, pixels)]
        return Picture(path.name, pixels, views, classes=next(iter(self.models.values())).classes)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        try:
            with Image.open(path) as picture:  # only its size is read, before anything large is made
                width, height = picture.size
            if width * height > self.max_pixels:
                raise ValueError(
                    f"{path.name} has {width} x {height} pixels, more than {self.max_pixels:,}: make it smaller"
                )
            return read_picture(path)
        except (OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path.name} is not a picture that can be read") from error

    def at(self, picture: Picture, point: Point) -> tuple[str, list[Shown]]:
        """What every view shows of a pixel: a sentence, and pictures with their captions."""
        picture.require_inside(point)
        row, column = point
        lines, shown = [f"Pixel x={column}, y={row}"], []
        for view in picture.views:
            position = view.position(point, picture)
            found = "" if view.prediction is None else f", seen as {picture.class_name(int(view.prediction[point]))}"
            size = " x ".join(map(str, view.terms.size))
            lines.append(f"{view.title}: row {position[0]}, column {position[1]} of its {size} map{found}")
            maps = view.terms.maps([position])
            for name, attention in (
                ("pairwise", None if maps.pairwise is None else maps.pairwise[0, 0]),
                ("unary", None if maps.unary is None else maps.unary[0]),
                ("both together", maps.combined[0, 0]),
            ):
                if attention is not None:
                    warm = heat(picture.pixels, view.over_picture(attention, picture))
                    shown.append((_marked((255 * warm).astype(np.uint8), point), f"{name}, {view.title}"))
        return "  \n".join(lines), shown

    def predictions(self, picture: Picture) -> list[Shown]:
        """The classes that every view found, in their colours."""
        if picture.classes is None:
            return []
        found = {view.title: view.prediction for view in picture.views if view.prediction is not None}
        return [(picture.classes.paint(labels), f"prediction, {title}") for title, labels in found.items()]


def launch(explorer: Explorer, port: int, browser: bool) -> None:
    """Start the application and wait until it is stopped; only this machine can reach it."""
    gr = load_extra("gradio", "demo")
    app = build_app(explorer)
    app.launch(
        server_name="127.0.0.1",
        server_port=port,
        share=False,
        inbrowser=browser,
        max_file_size=int(1e6 * explorer.max_megabytes),
        state_session_capacity=20,
        ssr_mode=False,
        footer_links=[],
        quiet=True,
        theme=gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
    )


def build_app(explorer: Explorer) -> "Blocks":
    """The application, to be started with `launch`; it tells nobody that it runs, and forgets pictures in an hour."""
    load_extra("gradio", "demo")  # says what to install
    import gradio as gr

    def opened(path: str) -> Any:
        try:
            picture = explorer.open(Path(path))
        except ValueError as error:
            gr.Warning(str(error))
            return gr.skip()  # what was shown before stays
        return picture, *shown_at(picture, picture.interior_points(count=1)[0])

    def chosen(picture: Picture | None, event: gr.SelectData) -> Any:
        if picture is None:
            gr.Warning("the picture was forgotten; choose it again")
            return gr.skip()
        column, row = (int(coordinate) for coordinate in event.index)
        return shown_at(picture, (row, column))

    def shown_at(picture: Picture, point: Point) -> tuple[NDArray[np.uint8], str, list[Shown]]:
        text, shown = explorer.at(picture, point)
        return _marked(picture.pixels, point), text, shown + explorer.predictions(picture)

    app: Blocks
    with gr.Blocks(title="dnlnet explore", analytics_enabled=False, delete_cache=(600, 3600)) as app:
        gr.Markdown(
            f"## What does a pixel attend to?\n{', '.join(explorer.models)}. Choose a picture (at most "
            f"{explorer.max_megabytes:g} MB and {explorer.max_pixels:,} pixels), then click in it."
        )
        state = gr.State(None, time_to_live=3600)
        with gr.Row():
            with gr.Column(scale=2):
                upload = gr.UploadButton("Choose a picture", file_types=["image"], type="filepath")
                image = gr.Image(label="Click in it", interactive=False, elem_id="picture", buttons=["fullscreen"])
                text = gr.Markdown()
            gallery = gr.Gallery(
                label="Attention",
                columns=2,
                height=760,
                object_fit="contain",
                scale=3,
                elem_id="maps",
                buttons=["download", "fullscreen"],
            )
        upload.upload(opened, upload, [state, image, text, gallery])
        image.select(chosen, state, [image, text, gallery])
    return app


def _marked(pixels: NDArray[np.uint8], point: Point) -> NDArray[np.uint8]:
    """The pixels with a ring of white and black around the point."""
    reach = _MARK * max(1, pixels.shape[0] // 200)
    rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
    distance = np.hypot(rows - point[0], columns - point[1])
    pixels = pixels.copy()
    pixels[np.abs(distance - reach) < reach / 2] = 0
    pixels[np.abs(distance - reach) < reach / 4] = 255
    return pixels
