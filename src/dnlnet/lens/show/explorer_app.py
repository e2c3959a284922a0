"""Web application of `dnlnet explore`, reachable only from this machine and only through its own pages.

Needs gradio, which is imported when the application starts. Pages of other sites can send requests to this machine,
and can point their own name at 127.0.0.1 (DNS rebinding). Starlette, which comes with gradio, checks the name; the
headers Origin and Sec-Fetch-Site, which pages cannot change, reveal the sender.
"""

# H, W size of the image

import os
import socket
from collections.abc import Callable
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

from dnlnet.bundled import MODELS, PHOTOS
from dnlnet.errors import load_extra, shown
from dnlnet.files import make_folder
from dnlnet.lens.show.attended_image import AttendedImage, Point
from dnlnet.lens.show.explorer import Explorer, mark_point
from dnlnet.names import in_html, printable

if TYPE_CHECKING:
    from gradio import Blocks
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send

# Thumbnails keep the shape of the image, without bars around it.
_CSS = "#maps .thumbnail-item { aspect-ratio: auto; height: auto; } #maps .thumbnail-item img { height: auto; }"


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
            return image, *show_point(image, image.start_point(), request)

    def open_example(path: Path) -> Callable[[gr.Request], Any]:
        def show(request: gr.Request) -> Any:
            with working:
                image = explorer.open(path)
                return image, *show_point(image, image.start_point(), request)

        return show

    def choose_point(image: AttendedImage | None, event: gr.SelectData, request: gr.Request) -> Any:
        if image is None:
            gr.Warning("this image is no longer in memory; choose it again")
            return gr.skip()
        column, row = (int(coordinate) for coordinate in event.index)
        with working:
            return show_point(image, (row, column), request)

    def show_point(image: AttendedImage, point: Point, request: gr.Request) -> tuple[str, str, list[tuple[str, str]]]:
        lines, maps = explorer.at(image, point)
        place = session_folder(request)
        gallery = [(_saved(pixels, place), printable(name)) for pixels, name in maps + explorer.predictions(image)]
        return _saved(mark_point(image.pixels, point), place), "<br>".join(map(in_html, lines)), gallery

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
        own = (model.photos[0] for name, model in MODELS.items() if name in explorer.models)
        app.load(open_example(next(own, PHOTOS[0])), None, [state, clicked, text, gallery])
        clicked.select(choose_point, state, [clicked, text, gallery])
        app.unload(end_session)
    return app


def local_only() -> list["Middleware"]:
    """Return the middleware of an application that only its own pages on this machine may use."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    names = ["127.0.0.1", "localhost", "[::1]"]
    return [Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False), Middleware(OwnPagesOnly)]


class OwnPagesOnly:
    """ASGI middleware that refuses requests sent by pages of other sites."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request."""
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        if scope["type"] in ("http", "websocket"):
            reason = refusal_reason(Headers(scope=scope), scope.get("method", ""))
            if reason is not None:
                await PlainTextResponse(reason, 403, {"connection": "close"})(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refusal_reason(headers: "Headers", method: str) -> str | None:
    """Return why a request is refused, or None if it is accepted. Other sites may only link here."""
    hosts = headers.getlist("host")
    if len(hosts) != 1:
        return f"expected one Host header, got {len(hosts)}"
    origins = [origin.lower() for origin in headers.getlist("origin")]
    if any(origin not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}") for origin in origins):
        return f"a page of {shown(', '.join(origins))} may not use this application; open its own page"
    is_link = (method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == (
        "GET",
        "navigate",
        "document",
    )
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
        return "a page of another site may not use this application; open its own page"
    return None


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
