"""A small application in the browser: one's own picture, click in it, see what the pixel attends to.

Needs gradio, which is imported when the application is made.
"""

# H, W size of the picture

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dnlnet.bundled import PHOTOS
from dnlnet.data.labelled import open_picture
from dnlnet.data.pictures import read_picture
from dnlnet.errors import load_extra
from dnlnet.files import make_folder
from dnlnet.lens.show.attended_image import (
    LEARNT_LITTLE,
    AttendedImage,
    ImageModel,
    classes_of,
    is_nearly_uniform,
)
from dnlnet.lens.show.layers import with_few_layers
from dnlnet.lens.show.local_only import LocalOnly
from dnlnet.lens.show.page.fit import shrink
from dnlnet.lens.show.panels import overlay_heat
from dnlnet.lens.show.query_points import Point
from dnlnet.names import in_html, printable

if TYPE_CHECKING:
    from gradio import Blocks

MAX_MEGABYTES = 20
MAX_PIXELS = 50_000_000  # of a picture that is read, to be made smaller
LOOK_SIDE = 512
MOST_VIEWS = 4  # of a transformer
_LEAST_SIDE = 8
_MARK = 5  # pixels from the middle of the mark to its edge, for each 200 of the picture's height

# Thumbnails have the shape of the picture, not a square with bars around it.
_CSS = "#maps .thumbnail-item { aspect-ratio: auto; height: auto; } #maps .thumbnail-item img { height: auto; }"

Shown = tuple[NDArray[np.uint8], str]  # pixels (H, W, 3) and what they are


class Explorer:
    """What the application does, without the application.

    Args:
        models: to look into, by their titles.
        max_megabytes: larger files are refused.
        max_pixels: and larger pictures.
        look_side: pictures with a longer side are made smaller before they are looked at, to answer within seconds.
        every_layer: of a transformer is shown; otherwise a few, spread over its depth.
    """

    def __init__(
        self,
        models: Mapping[str, ImageModel],
        max_megabytes: float = MAX_MEGABYTES,
        max_pixels: int = MAX_PIXELS,
        look_side: int = LOOK_SIDE,
        every_layer: bool = False,
    ) -> None:
        for title, model in models.items():
            if not isinstance(model, ImageModel):
                raise ValueError(f"{title} does not look at pictures, which this is for; see dnlnet attend")
        self.models, self.max_megabytes, self.max_pixels = models, max_megabytes, max_pixels
        self.look_side, self.every_layer = look_side, every_layer

    def open(self, path: Path) -> AttendedImage:
        """Look at an uploaded file; a ValueError says in one sentence why it cannot be."""
        name, pixels = path.name, self._read(path)
        height, width = pixels.shape[:2]
        if max(height, width) > self.look_side:
            pixels = np.asarray(shrink(pixels, self.look_side))
            name += f", made smaller: {pixels.shape[1]} x {pixels.shape[0]} of its {width} x {height} pixels"
        views = [view for title, model in self.models.items() for view in model.views(title, pixels)]
        picture = AttendedImage(name, pixels, views, classes=classes_of(self.models.values()))
        return picture if self.every_layer else with_few_layers(picture, MOST_VIEWS)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        with _reading(path):
            megabytes = path.stat().st_size / 1e6
        if megabytes > self.max_megabytes:
            raise ValueError(f"the file has {megabytes:.1f} MB; at most {self.max_megabytes:g} MB are taken")
        with _reading(path), open_picture(path, decode=False) as picture:
            width, height = picture.size
        pixels = f"{path.name} has {width} x {height} pixels"
        if width * height > self.max_pixels:
            raise ValueError(f"{pixels}, more than {self.max_pixels:,}: make it smaller")
        if min(width, height) < _LEAST_SIDE:
            raise ValueError(f"{pixels}, too few to click in; at least {_LEAST_SIDE} x {_LEAST_SIDE} are needed")
        with _reading(path):
            return read_picture(path)

    def at(self, picture: AttendedImage, point: Point) -> tuple[list[str], list[Shown]]:
        """What every view shows of a pixel: sentences, and pictures with their captions."""
        picture.require_inside(point)
        row, column = point
        lines, shown = [f"Pixel x={column}, y={row} of {picture.name}"], []
        for view in picture.views:
            position = view.position(point, picture)
            label = None if view.prediction is None else int(view.prediction[point])
            found = "" if label is None else f", predicted {picture.class_name(label)}"
            size = " x ".join(map(str, view.terms.size))
            lines.append(f"{view.title}: row {position[0]}, column {position[1]} of its {size} map{found}")
            maps = view.terms.maps([position])
            # Long captions are cut off.
            title = view.title if view.place is None or len(self.models) > 1 else view.place.inside
            for name, attention in (
                ("Pairwise", None if maps.pairwise is None else maps.pairwise[0, 0]),
                ("Unary", None if maps.unary is None else maps.unary[0]),
                ("Combined", maps.combined[0, 0]),
            ):
                if attention is not None:
                    over = view.over_picture(attention, picture)
                    warm = overlay_heat(picture.pixels, over)
                    caption = f"{name}, {title}{f': {LEARNT_LITTLE}' if is_nearly_uniform(over) else ''}"
                    shown.append((_marked((255 * warm).astype(np.uint8), point), caption))
        return lines, shown

    def predictions(self, picture: AttendedImage) -> list[Shown]:
        """The classes that every view found, in their colours."""
        if picture.classes is None:
            return []
        found = {view.title: view.prediction for view in picture.views if view.prediction is not None}
        return [(picture.classes.paint(labels), f"Prediction, {title}") for title, labels in found.items()]


def launch(explorer: Explorer, port: int, browser: bool) -> None:
    """Start the application and wait until it is stopped; only this machine can reach it.

    What is uploaded and shown lies in a folder of its own, which is removed at the end.
    """
    _require_free(port)
    with TemporaryDirectory(prefix="dnlnet-explore-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder  # the only way to tell; gradio reads it when it is imported
        gr = load_extra("gradio", "demo")
        starlette = load_extra("starlette.middleware", "demo")
        _keep_uploads_apart()
        working = Lock()
        app = build_app(explorer, Path(folder), working)
        try:
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
                css=_CSS,
                theme=gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
                app_kwargs={"middleware": [starlette.Middleware(LocalOnly)]},
            )
        finally:
            app.close(verbose=False)
            working.acquire()  # for good: nothing is written any more


def build_app(explorer: Explorer, folder: Path, working: Lock) -> "Blocks":
    """Build the application, to be started with `launch`; it tells nobody that it runs.

    An uploaded file is removed once it is read; what is shown of it lies in `folder` until the session ends, or for
    an hour. `working` is held while a request is answered.
    """
    load_extra("gradio", "demo")  # says what to install
    import gradio as gr

    def opened(path: str, request: gr.Request) -> Any:
        with working:
            try:
                picture = explorer.open(Path(path))
            except ValueError as error:
                gr.Warning(in_html(error))
                return gr.skip()  # what was shown before stays
            finally:
                Path(path).unlink(missing_ok=True)
            return picture, *shown_at(picture, picture.interior_points(count=1)[0], request)

    def example(path: Path) -> Callable[[gr.Request], Any]:
        def show(request: gr.Request) -> Any:
            with working:
                picture = explorer.open(path)
                return picture, *shown_at(picture, picture.interior_points(count=1)[0], request)

        return show

    def chosen(picture: AttendedImage | None, event: gr.SelectData, request: gr.Request) -> Any:
        if picture is None:
            gr.Warning("the picture was forgotten; choose it again")
            return gr.skip()
        column, row = (int(coordinate) for coordinate in event.index)
        with working:
            return shown_at(picture, (row, column), request)

    def shown_at(picture: AttendedImage, point: Point, request: gr.Request) -> tuple[str, str, list[tuple[str, str]]]:
        lines, shown = explorer.at(picture, point)
        place = session_folder(request)
        gallery = [(_saved(pixels, place), printable(name)) for pixels, name in shown + explorer.predictions(picture)]
        return _saved(_marked(picture.pixels, point), place), "<br>".join(map(in_html, lines)), gallery

    def session_folder(request: gr.Request) -> Path:
        # The browser chooses the session's name, which may be any text.
        return folder / "shown" / sha256(str(request.session_hash).encode()).hexdigest()

    def closed(request: gr.Request) -> None:
        rmtree(session_folder(request), ignore_errors=True)

    app: Blocks
    with gr.Blocks(title="dnlnet explore", analytics_enabled=False, delete_cache=(600, 3600)) as app:
        gr.HTML(
            f"<h2>What does a pixel attend to?</h2>{', '.join(map(in_html, explorer.models))}. Click in the picture, "
            f"or choose another of at most {explorer.max_megabytes:g} MB."
        )
        state = gr.State(None, time_to_live=3600)
        with gr.Row():
            with gr.Column(scale=2):
                upload = gr.UploadButton("Choose a picture", file_types=["image"], type="filepath")
                with gr.Row():
                    examples = {photo: gr.Button(f"Example: {photo.stem}", size="sm") for photo in PHOTOS}
                image = gr.Image(label="Click in it", interactive=False, elem_id="picture", buttons=["fullscreen"])
                text = gr.HTML()
            gallery = gr.Gallery(
                label="Attention",
                columns=2,
                height="auto",
                object_fit="contain",
                scale=3,
                elem_id="maps",
                buttons=["download", "fullscreen"],
            )
        upload.upload(opened, upload, [state, image, text, gallery])
        for photo, button in examples.items():
            button.click(example(photo), None, [state, image, text, gallery])
        app.load(example(PHOTOS[0]), None, [state, image, text, gallery])
        image.select(chosen, state, [image, text, gallery])
        app.unload(closed)
    return app


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Every way in which reading a picture fails becomes one sentence without its folder."""
    try:
        yield
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path.name} is not a picture that can be read") from error


def _require_free(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            text = f"port {port} cannot be used: {error.strerror}; choose another, such as --port {port % 65535 + 1}"
            raise OSError(text) from None


def _keep_uploads_apart() -> None:
    """Give each upload a path of its own: gradio's is the same for equal files, and is removed after reading."""
    upload = load_extra("gradio.route_utils", "demo").GradioUploadFile
    usual = upload.__init__

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        usual(self, *arguments, **options)
        self.sha.update(token_bytes(16))  # the name of its folder

    upload.__init__ = begin


def _saved(pixels: NDArray[np.uint8], folder: Path) -> str:
    """The path of a new file with these pixels."""
    make_folder(folder)
    path = folder / f"{token_hex(16)}.png"
    Image.fromarray(pixels).save(path, compress_level=1)
    return str(path)


def _marked(pixels: NDArray[np.uint8], point: Point) -> NDArray[np.uint8]:
    """The pixels with a ring of white and black around the point."""
    reach = _MARK * max(1, pixels.shape[0] // 200)
    rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
    distance = np.hypot(rows - point[0], columns - point[1])
    pixels = pixels.copy()
    pixels[np.abs(distance - reach) < reach / 2] = 0
    pixels[np.abs(distance - reach) < reach / 4] = 255
    return pixels
