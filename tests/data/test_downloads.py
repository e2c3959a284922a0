import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from dnlnet.data import downloads
from dnlnet.data.downloads import download
from dnlnet.data.images import read_pixels

COLOURS = np.array([[[0, 51, 102], [153, 204, 255]], [[255, 0, 0], [1, 2, 3]]], dtype=np.uint8)


def test_an_image_is_downloaded_from_its_url(address: str, tmp_path: Path) -> None:
    Image.fromarray(COLOURS).save(tmp_path / "a picture.png")
    (tmp_path / "text.png").write_text("no picture")
    assert np.array_equal(read_pixels(f"{address}/a%20picture.png"), COLOURS)
    with pytest.raises(ValueError, match=rf"^{address}/text.png: is not an image"):
        read_pixels(f"{address}/text.png")
    with pytest.raises(FileNotFoundError, match=rf"^{address}/none.png: cannot be downloaded .*404"):
        read_pixels(f"{address}/none.png")


def test_a_downloaded_file_keeps_its_name(address: str, tmp_path: Path) -> None:
    (tmp_path / "a picture.png").write_bytes(b"a")
    found = download(f"{address}/a%20picture.png?size=3", tmp_path / "out")
    assert (found.name, found.read_bytes()) == ("a picture.png", b"a")


class _Elsewhere(BaseHTTPRequestHandler):
    """Server that redirects every request."""

    to = ""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.to)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Elsewhere)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_redirects_are_followed_but_not_to_local_files(
    address: str, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(COLOURS).save(tmp_path / "a.png")
    monkeypatch.setattr(_Elsewhere, "to", f"{address}/a.png")
    assert np.array_equal(read_pixels(f"{elsewhere}/moved.png"), COLOURS)
    monkeypatch.setattr(_Elsewhere, "to", (tmp_path / "a.png").as_uri())
    with pytest.raises(FileNotFoundError, match=rf"^{elsewhere}/moved.png: cannot be downloaded .*not allowed"):
        read_pixels(f"{elsewhere}/moved.png")


def test_a_silent_or_absent_server_gives_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        with pytest.raises(FileNotFoundError, match=rf"^{url}: cannot be downloaded \(no answer for 0.1 seconds\)"):
            read_pixels(url)
    with pytest.raises(FileNotFoundError, match=rf"^{url}: cannot be downloaded \(Connection refused\)"):
        read_pixels(url)
