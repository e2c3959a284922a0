"""The application's functions, and its use in a real browser."""

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch
from PIL import Image

import dnlnet
from dnlnet.artifacts.model_file import write_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.data.classes import Classes
from dnlnet.lens.show.explorer import Explorer
from dnlnet.lens.show.explorer_app import launch
from trees import truncate, write_image


@pytest.fixture(scope="module")
def explorer(run: Path) -> Explorer:
    """Return an explorer for a model with sharper attention than a few training steps produce."""
    model = dnlnet.load(run)
    for name, parameter in model.network.named_parameters():
        if name.endswith(("query.weight", "saliency.weight")):
            parameter.data *= 100
    return Explorer({"tiny": model.predictor}, max_megabytes=0.1, max_pixels=10_000)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", seed=1, size=(40, 56))
    return tmp_path / "a.png"


def test_a_pixel_shows_every_term_and_the_prediction(explorer: Explorer, photo: Path) -> None:
    image = explorer.open(photo)
    (pixel, said), shown = explorer.at(image, (20, 10))
    assert pixel == "Pixel x=10, y=20 of a.png"
    assert "row 5, column 2 of its 10 x 14 map, predicted" in said
    assert [caption for _, caption in shown] == ["Pairwise, tiny", "Unary, tiny", "Combined, tiny"]
    assert all(pixels.shape == (40, 56, 3) for pixels, _ in shown)
    ((painted, caption),) = explorer.predictions(image)
    assert (painted.shape, caption) == ((40, 56, 3), "Prediction, tiny")


def test_different_pixels_show_different_maps(explorer: Explorer, photo: Path) -> None:
    image = explorer.open(photo)
    first, second = (explorer.at(image, point)[1] for point in ((0, 0), (39, 55)))
    assert not np.array_equal(first[0][0], second[0][0])


def test_files_that_are_not_images_are_refused(explorer: Explorer, photo: Path, tmp_path: Path) -> None:
    text = tmp_path / "page.jpg"
    text.write_text("<html>")
    truncate(photo)
    for path in (text, photo):
        with pytest.raises(ValueError, match=path.name):
            explorer.open(path)


def test_files_and_images_too_large_are_refused(explorer: Explorer, tmp_path: Path) -> None:
    (tmp_path / "large.jpg").write_bytes(bytes(200_000))
    with pytest.raises(ValueError, match=r"0\.2 MB.* 0\.1 MB"):
        explorer.open(tmp_path / "large.jpg")
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")  # few bytes, many pixels
    with pytest.raises(ValueError, match=r"bomb\.png"):
        Explorer(explorer.models, 20, 10_000).open(tmp_path / "bomb.png")
    Image.new("RGB", (200, 100)).save(tmp_path / "wide.png")
    with pytest.raises(ValueError, match=r"wide\.png has 200 x 100 pixels.* 10,000"):
        explorer.open(tmp_path / "wide.png")


def test_an_image_too_small_to_click_gives_one_sentence(explorer: Explorer, tmp_path: Path) -> None:
    for size in ((1, 1), (30, 1), (7, 8)):
        write_image(tmp_path / "a.png", size=size)
        with pytest.raises(ValueError, match=rf"a\.png has {size[1]} x {size[0]} pixels.* at least 8 x 8"):
            explorer.open(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"gone\.png.*not a readable image"):
        explorer.open(tmp_path / "gone.png")


def test_a_large_image_is_shrunk_with_a_message(explorer: Explorer, tmp_path: Path) -> None:
    write_image(tmp_path / "wide.png", size=(50, 100))
    image = Explorer(explorer.models, max_side=40).open(tmp_path / "wide.png")
    assert image.size == (20, 40)
    lines, _ = explorer.at(image, (0, 0))
    assert lines[0] == "Pixel x=0, y=0 of wide.png, downscaled from 100 x 50 to 40 x 20 pixels"


def test_a_phone_photo_is_accepted_and_shrunk(explorer: Explorer, tmp_path: Path) -> None:
    Image.new("RGB", (4000, 3000)).save(tmp_path / "phone.jpg")
    image = Explorer(explorer.models, max_side=64).open(tmp_path / "phone.jpg")
    assert image.size == (48, 64)


def test_a_nearly_uniform_map_is_labelled_and_drawn_dark(explorer: Explorer, photo: Path) -> None:
    image = explorer.open(photo)
    (view,) = image.views
    unary = view.terms.unary
    flat = replace(view.terms, unary=replace(unary, key=torch.zeros_like(unary.key)))
    _, shown = explorer.at(replace(image, views=[replace(view, terms=flat)]), (20, 10))
    captions = {caption.split(",")[0]: (caption, pixels) for pixels, caption in shown}
    assert captions["Unary"][0].startswith("Unary, ")
    assert captions["Unary"][0].endswith(": nearly uniform: this block has learnt little yet")
    assert np.median(captions["Unary"][1].max(axis=2)) < 160
    assert captions["Pairwise"][0] == "Pairwise, tiny"


def test_a_port_in_use_suggests_another(explorer: Explorer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} cannot be used: .*; choose another, such as --port \d+"):
            launch(explorer, port, browser=False)


EVIL = "<img src=x onerror=alert(1)>![a](https://evil.example/a.png)"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the application's temporary files."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def address(run: Path, place: Path) -> Iterator[str]:
    """Start the application for a model with unusual names, and return its address."""
    pytest.importorskip("gradio", reason="the application needs gradio")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    trained = dnlnet.load(run)
    names = [f"{EVIL} {number}" for number in range(len(trained.classes))]
    file = replace(trained.file, classes=Classes(names, trained.classes.palette))
    write_model_file(place.parent / "evil.safetensors", load_network(trained.file).state_dict(), file)
    command = [sys.executable, "-m", "dnlnet", "explore", place.parent / "evil.safetensors"]
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [*map(str, command), "--port", str(port), "--no-browser"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=partial(_take_terminal, inside),
        env=os.environ | {"TMPDIR": str(place)},
    )
    os.close(inside)
    try:
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, os.read(terminal, 10_000).decode()
            time.sleep(0.2)
        address = f"http://127.0.0.1:{port}"
        yield address
        assert ask(address, "POST", "/gradio_api/upload", FORM, UPLOAD)[0] == 200  # never read
        assert list(place.rglob("raw.png"))
    finally:
        os.close(terminal)  # sends SIGHUP
        code = process.wait(timeout=60)
    assert code == 128 + signal.SIGHUP
    assert not list(place.iterdir())


def _take_terminal(terminal: int) -> None:
    """Make this the controlling terminal; closing it signals the process."""
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also under nohup


def ask(address: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, str]:
    connection = HTTPConnection(address.removeprefix("http://"), timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, content


BOUNDARY = "part"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
UPLOAD = f"""--{BOUNDARY}\r
Content-Disposition: form-data; name="files"; filename="raw.png"\r
Content-Type: image/png\r
\r
no image\r
--{BOUNDARY}--\r
""".encode()


def test_other_names_and_other_sites_are_refused(address: str, place: Path) -> None:
    assert ask(address, "GET", "/", {})[0] == 200
    status, _ = ask(address, "GET", "/config", {"Host": "evil.example"})
    assert status == 400
    for foreign in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        status, _ = ask(address, "POST", "/gradio_api/upload", FORM | foreign, UPLOAD)
        assert status == 403, foreign
    assert not [path for path in place.rglob("*") if path.is_file()]
    own = {"Origin": address, "Sec-Fetch-Site": "same-origin"}
    assert ask(address, "POST", "/gradio_api/upload", FORM | own, UPLOAD)[0] == 200


def test_sessions_uploading_the_same_image_at_once_all_see_it(address: str, photo: Path) -> None:
    upload = UPLOAD.replace(b"no image", photo.read_bytes())
    config = json.loads(ask(address, "GET", "/config", {})[1])
    (event,) = [each["id"] for each in config["dependencies"] if each["targets"][0][1] == "upload"]
    sessions = [f"session {number}" for number in range(3)]
    for session in sessions:
        (path,) = json.loads(ask(address, "POST", "/gradio_api/upload", FORM, upload)[1])
        given = {"path": path, "orig_name": "raw.png", "meta": {"_type": "gradio.FileData"}}
        body = json.dumps({"data": [given], "fn_index": event, "session_hash": session}).encode()
        kind = {"Content-Type": "application/json"}
        assert ask(address, "POST", "/gradio_api/queue/join", kind, body)[0] == 200
    for session in sessions:
        _, told = ask(address, "GET", f"/gradio_api/queue/data?session_hash={quote(session)}", {})
        assert "not a readable image" not in told
        assert "of raw.png" in told


def test_clicking_an_uploaded_image_shows_its_maps(
    address: str, browser: Any, photo: Path, tmp_path: Path, place: Path
) -> None:
    others = set(place.glob("*/shown/*"))  # open sessions
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append("an alert"))
    page.goto(address)
    page.wait_for_selector("text=What does a pixel attend to?")
    page.wait_for_selector("text=of cat.jpg")  # the page starts with an example
    page.get_by_text("Example: corner").click()
    page.wait_for_selector("text=of corner.jpg")
    page.set_input_files("input[type=file]", photo)
    page.wait_for_selector("text=of a.png")
    assert page.locator("#maps img").count() == 4  # three maps and the prediction
    page.wait_for_function(  # the maps have the shape of the image, without bars, and may load after the text
        """() => {
            const box = document.querySelector("#maps .thumbnail-item").getBoundingClientRect();
            return Math.abs(box.width / box.height - 56 / 40) < 0.07;
        }"""
    )
    page.locator("#image img").first.click(position={"x": 3, "y": 3})
    page.wait_for_selector("text=row 0, column 0")
    assert page.get_by_text(f"predicted {EVIL}").count() == 1
    (tmp_path / "not.png").write_text("no image")
    page.set_input_files("input[type=file]", tmp_path / "not.png")
    page.wait_for_selector("text=not.png is not a readable image")
    assert page.locator("#maps img").count() == 4  # the previous maps stay
    write_image(tmp_path / "dot.png", size=(1, 1))
    page.set_input_files("input[type=file]", tmp_path / "dot.png")
    page.wait_for_selector("text=dot.png has 1 x 1 pixels, too few to click in")
    assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked
    (shown,) = set(place.glob("*/shown/*")) - others
    assert not [
        path for name in (photo.name, "not.png", "dot.png") for path in place.rglob(name)
    ]  # deleted after reading
    page.close()
    for _ in range(300):  # wait until the application notices
        if not shown.exists():
            break
        time.sleep(0.1)
    assert not shown.exists()
