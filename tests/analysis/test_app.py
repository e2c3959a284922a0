"""The application: what it does, and that it does it in a real browser."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dnlnet
from dnlnet.analysis.app import Explorer
from trees import truncate, write_image


@pytest.fixture(scope="module")
def explorer(run: Path) -> Explorer:
    return Explorer({"tiny": dnlnet.load(run)}, max_megabytes=0.1, max_pixels=10_000)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    write_image(tmp_path / "a.png", seed=1, size=(40, 56))
    return tmp_path / "a.png"


def test_a_pixel_shows_every_term_and_the_prediction(explorer: Explorer, photo: Path) -> None:
    picture = explorer.open(photo)
    text, shown = explorer.at(picture, (20, 10))
    assert "Pixel x=10, y=20" in text
    assert "row 5, column 2 of its 10 x 14 map, seen as" in text
    assert [caption for _, caption in shown] == ["pairwise, tiny", "unary, tiny", "both together, tiny"]
    assert all(pixels.shape == (40, 56, 3) for pixels, _ in shown)
    ((painted, caption),) = explorer.predictions(picture)
    assert (painted.shape, caption) == ((40, 56, 3), "prediction, tiny")


def test_different_pixels_show_different_maps(explorer: Explorer, photo: Path) -> None:
    picture = explorer.open(photo)
    first, second = (explorer.at(picture, point)[1] for point in ((0, 0), (39, 55)))
    assert not np.array_equal(first[0][0], second[0][0])


def test_what_is_no_picture_is_refused(explorer: Explorer, photo: Path, tmp_path: Path) -> None:
    text = tmp_path / "page.jpg"
    text.write_text("<html>")
    truncate(photo)
    for path in (text, photo):
        with pytest.raises(ValueError, match=path.name):
            explorer.open(path)


def test_files_and_pictures_too_large_are_refused(explorer: Explorer, tmp_path: Path) -> None:
    (tmp_path / "large.jpg").write_bytes(bytes(200_000))
    with pytest.raises(ValueError, match=r"the file has 0\.2 MB; at most 0\.1 MB are taken"):
        explorer.open(tmp_path / "large.jpg")
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")  # few bytes, many pixels
    with pytest.raises(ValueError, match=r"bomb\.png"):
        Explorer(explorer.models, 20, 10_000).open(tmp_path / "bomb.png")
    Image.new("RGB", (200, 100)).save(tmp_path / "wide.png")
    with pytest.raises(ValueError, match=r"200 x 100 pixels, more than 10,000: make it smaller"):
        explorer.open(tmp_path / "wide.png")


@pytest.fixture
def address(run: Path) -> Iterator[str]:
    """A started application."""
    pytest.importorskip("gradio", reason="the application needs gradio")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dnlnet", "explore", str(run), "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ)
    try:
        for _ in range(600):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stdout.read().decode()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()  # an interrupt is ignored by what a shell runs in the background
        process.communicate()


def test_clicking_in_an_uploaded_picture_shows_its_maps(
    address: str, browser: Any, photo: Path, tmp_path: Path
) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector("text=What does a pixel attend to?")
    page.set_input_files("input[type=file]", photo)
    page.wait_for_selector("#maps img")
    assert page.locator("#maps img").count() == 4  # three maps and the prediction
    page.locator("#picture img").first.click(position={"x": 3, "y": 3})
    page.wait_for_selector("text=row 0, column 0")
    (tmp_path / "not.png").write_text("no picture")
    page.set_input_files("input[type=file]", tmp_path / "not.png")
    page.wait_for_selector("text=not.png is not a picture that can be read")
    assert page.locator("#maps img").count() == 4  # what was shown stays
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    page.close()
