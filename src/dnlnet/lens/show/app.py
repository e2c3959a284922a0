"""Web application of `dnlnet explore`: upload an image, click a pixel, see what it attends to.

Needs gradio, which is imported when the application starts.
"""

# H, W size of the image

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
from dnlnet.data.image_files import open_image
from dnlnet.data.images import read_image_file
from dnlnet.errors import load_extra
from dnlnet.files import make_folder
from dnlnet.lens.show.attended_image import AttendedImage, ImageModel, attend_image, maps_by_term
from dnlnet.lens.show.layers import with_few_layers
from dnlnet.lens.show.local_only import local_only
from dnlnet.lens.show.page.fit import shrink
from dnlnet.lens.show.panels import LEARNT_LITTLE, is_nearly_uniform, overlay_heat
from dnlnet.lens.show.query_points import Point
from dnlnet.names import in_html, printable

if TYPE_CHECKING:
    from gradio import Blocks

MAX_MEGABYTES = 20
MAX_PIXELS = 50_000_000  # of an upload, before downscaling
MAX_SIDE = 512  # pixels of the model's input, to answer within seconds
MAX_VIEWS = 4  # of a transformer
_MIN_SIDE = 8
_MARK = 5  # radius of the mark in pixels, per 200 pixels of the image's height

# Thumbnails keep the shape of the image, without bars around it.
_CSS = "#maps .thumbnail-item { aspect-ratio: auto; height: auto; } #maps .thumbnail-item img { height: auto; }"

Captioned = tuple[NDArray[np.uint8], str]  # pixels (H, W, 3) and their caption


class Explorer:
    """Logic of the application: load images and show what a pixel attends to.

    Args:
        models: Models by title.
        max_megabytes: Maximum file size.
        max_pixels: Maximum image size in pixels.
        max_side: Maximum side in pixels. Larger images are downscaled.
        all_layers: Show every layer of a transformer. Default: a few, spread over its depth.
    """

    def __init__(
        self,
        models: Mapping[str, ImageModel],
        max_megabytes: float = MAX_MEGABYTES,
        max_pixels: int = MAX_PIXELS,
        max_side: int = MAX_SIDE,
        all_layers: bool = False,
    ) -> None:
        for title, model in models.items():
            if not isinstance(model, ImageModel):
                raise ValueError(f"{title}: takes no images, which this application is for; see dnlnet attend")
        self.models, self.max_megabytes, self.max_pixels = models, max_megabytes, max_pixels
        self.max_side, self.all_layers = max_side, all_layers

    def open(self, path: Path) -> AttendedImage:
        """Run the models on an uploaded image, or raise a ValueError with one sentence for the user."""
        name, pixels = path.name, self._read(path)
        height, width = pixels.shape[:2]
        if max(height, width) > self.max_side:
            pixels = np.asarray(shrink(pixels, self.max_side))
            name += f", downscaled from {width} x {height} to {pixels.shape[1]} x {pixels.shape[0]} pixels"
        image = attend_image(self.models, name, pixels)
        return image if self.all_layers else with_few_layers(image, MAX_VIEWS)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        with _reading(path):
            megabytes = path.stat().st_size / 1e6
        if megabytes > self.max_megabytes:
            raise ValueError(f"the file has {megabytes:.1f} MB; the limit is {self.max_megabytes:g} MB")
        with _reading(path), open_image(path, decode=False) as opened:
            width, height = opened.size
        pixels = f"{path.name} has {width} x {height} pixels"
        if width * height > self.max_pixels:
            raise ValueError(f"{pixels}; the limit is {self.max_pixels:,} pixels")
        if min(width, height) < _MIN_SIDE:
            raise ValueError(f"{pixels}, too few to click in; at least {_MIN_SIDE} x {_MIN_SIDE} are needed")
        with _reading(path):
            return read_image_file(path)

    def at(self, image: AttendedImage, point: Point) -> tuple[list[str], list[Captioned]]:
        """Return sentences and captioned maps of each view for a pixel."""
        image.require_inside([point])
        row, column = point
        lines, shown = [f"Pixel x={column}, y={row} of {image.name}"], []
        for view in image.views:
            position = view.position(point, image)
            label = None if view.prediction is None else int(view.prediction[point])
            found = "" if label is None else f", predicted {image.class_name(label)}"
            size = " x ".join(map(str, view.terms.size))
            lines.append(f"{view.title}: row {position[0]}, column {position[1]} of its {size} map{found}")
            # Long captions are cut off.
            title = view.title if view.place is None or len(self.models) > 1 else view.place.layer_and_head
            for term, attention in maps_by_term(view.terms.maps([position])).items():
                over = view.over_image(attention[0] if term == "unary" else attention[0, 0], image)
                heat = (255 * overlay_heat(image.pixels, over)).astype(np.uint8)
                note = f": {LEARNT_LITTLE}" if is_nearly_uniform(over) else ""
                shown.append((_marked(heat, point), f"{term.capitalize()}, {title}{note}"))
        return lines, shown

    def predictions(self, image: AttendedImage) -> list[Captioned]:
        """Return the predicted classes of each model, in their colours."""
        if image.classes is None:
            return []
        found = {view.title: view.prediction for view in image.views if view.prediction is not None}
        return [(image.classes.paint(labels), f"Prediction, {title}") for title, labels in found.items()]


def launch(explorer: Explorer, port: int, browser: bool) -> None:
    """Start the application, reachable from this machine only, and wait until it is stopped.

    Uploads and results are kept in a temporary folder, which is removed at the end.
    """
    _require_free(port)
    with TemporaryDirectory(prefix="dnlnet-explore-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder  # read when gradio is imported; there is no other way to set it
        gr = load_extra("gradio", "demo")
        _separate_uploads()
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
                app_kwargs={"middleware": local_only()},
            )
        finally:
            app.close(verbose=False)
            working.acquire()  # never released: nothing may be written into the folder any more


def build_app(explorer: Explorer, folder: Path, working: Lock) -> "Blocks":
    """Build the application, without analytics; its method `launch` starts it.

    An uploaded file is removed once it has been read. Results stay in `folder` until the session ends, or for an
    hour. `working` is held while a request is answered.
    """
    load_extra("gradio", "demo")  # names the extra if it is missing
    import gradio as gr

    def open_upload(path: str, request: gr.Request) -> Any:
        with working:
            try:
                image = explorer.open(Path(path))
            except ValueError as error:
                gr.Warning(in_html(error))
                return gr.skip()  # keeps what was shown before
            finally:
                Path(path).unlink(missing_ok=True)
            return image, *show_point(image, image.interior_points(count=1)[0], request)

    def open_example(path: Path) -> Callable[[gr.Request], Any]:
        def show(request: gr.Request) -> Any:
            with working:
                image = explorer.open(path)
                return image, *show_point(image, image.interior_points(count=1)[0], request)

        return show

    def choose_point(image: AttendedImage | None, event: gr.SelectData, request: gr.Request) -> Any:
        if image is None:
            gr.Warning("this image is no longer in memory; choose it again")
            return gr.skip()
        column, row = (int(coordinate) for coordinate in event.index)
        with working:
            return show_point(image, (row, column), request)

    def show_point(image: AttendedImage, point: Point, request: gr.Request) -> tuple[str, str, list[tuple[str, str]]]:
        lines, shown = explorer.at(image, point)
        place = session_folder(request)
        gallery = [(_saved(pixels, place), printable(name)) for pixels, name in shown + explorer.predictions(image)]
        return _saved(_marked(image.pixels, point), place), "<br>".join(map(in_html, lines)), gallery

    def session_folder(request: gr.Request) -> Path:
        # The browser chooses the name of the session, which may be any text.
        return folder / "shown" / sha256(str(request.session_hash).encode()).hexdigest()

    def end_session(request: gr.Request) -> None:
        rmtree(session_folder(request), ignore_errors=True)

    app: Blocks
    with gr.Blocks(title="dnlnet explore", analytics_enabled=False, delete_cache=(600, 3600)) as app:
        gr.HTML(
            f"<h2>What does a pixel attend to?</h2>{', '.join(map(in_html, explorer.models))}. Click a pixel, or "
            f"choose another image of at most {explorer.max_megabytes:g} MB."
        )
        state = gr.State(None, time_to_live=3600)
        with gr.Row():
            with gr.Column(scale=2):
                upload = gr.UploadButton("Choose an image", file_types=["image"], type="filepath")
                with gr.Row():
                    examples = {photo: gr.Button(f"Example: {photo.stem}", size="sm") for photo in PHOTOS}
                clicked = gr.Image(label="Click a pixel", interactive=False, elem_id="image", buttons=["fullscreen"])
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
        upload.upload(open_upload, upload, [state, clicked, text, gallery])
        for photo, button in examples.items():
            button.click(open_example(photo), None, [state, clicked, text, gallery])
        app.load(open_example(PHOTOS[0]), None, [state, clicked, text, gallery])
        clicked.select(choose_point, state, [clicked, text, gallery])
        app.unload(end_session)
    return app


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn any failure to read an image into a one-sentence error that does not reveal its folder."""
    try:
        yield
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path.name} is not a readable image") from error


def _require_free(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            text = f"port {port} cannot be used: {error.strerror}; choose another, such as --port {port % 65535 + 1}"
            raise OSError(text) from None


def _separate_uploads() -> None:
    """Give each upload its own path. Gradio's is the same for equal files, but each is removed after reading."""
    upload = load_extra("gradio.route_utils", "demo").GradioUploadFile
    usual = upload.__init__

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        usual(self, *arguments, **options)
        self.sha.update(token_bytes(16))  # the name of its folder

    upload.__init__ = begin


def _saved(pixels: NDArray[np.uint8], folder: Path) -> str:
    """Write the pixels into a new file and return its path."""
    make_folder(folder)
    path = folder / f"{token_hex(16)}.png"
    Image.fromarray(pixels).save(path, compress_level=1)
    return str(path)


def _marked(pixels: NDArray[np.uint8], point: Point) -> NDArray[np.uint8]:
    """Return the pixels with a black and white ring around the point."""
    reach = _MARK * max(1, pixels.shape[0] // 200)
    rows, columns = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
    distance = np.hypot(rows - point[0], columns - point[1])
    pixels = pixels.copy()
    pixels[np.abs(distance - reach) < reach / 2] = 0
    pixels[np.abs(distance - reach) < reach / 4] = 255
    return pixels
