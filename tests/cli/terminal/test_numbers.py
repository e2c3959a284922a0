import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.cli.terminal.sizes import parse_size

STORED = Path(__file__).parents[2] / "artifacts" / "stored" / "model.safetensors"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("demo --steps 0", "--steps"),
        ("demo --steps 99999999999", "--steps"),
        ("demo --seed -1", "--seed"),
        ("verify --seed -1", "--seed"),
        ("verify --seed 4294967296", "--seed"),
        ("train scenes-tiny-dnl --out OUT --seed 4294967296", "--seed"),
        ("train scenes-tiny-dnl --out OUT --seed nan", "--seed"),
        ("train scenes-tiny-dnl --out OUT --workers -1", "--workers"),
        ("train scenes-tiny-dnl --out OUT --workers 100000", "--workers"),
        ("train scenes-tiny-dnl --out OUT --skip-nonfinite inf", "--skip-nonfinite"),
        ("eval MODEL --workers 100000", "--workers"),
        ("eval MODEL --window 0", "--window"),
        ("eval MODEL --window 100000", "--window"),
        ("predict MODEL a.png --threshold nan", "--threshold"),
        ("predict MODEL a.png --threshold inf", "--threshold"),
        ("predict MODEL a.png --max-pixels 99999999999", "--max-pixels"),
        ("attend MODEL a.png -o OUT --max-pixels 0", "--max-pixels"),
        ("explore MODEL --max-megabytes inf", "--max-megabytes"),
        ("explore MODEL --max-megabytes nan", "--max-megabytes"),
        ("explore MODEL --max-pixels 99999999999", "--max-pixels"),
        ("explore MODEL --port 65536", "--port"),
        ("export MODEL --format onnx --tolerance nan", "--tolerance"),
        ("export MODEL --format onnx --tolerance inf", "--tolerance"),
        ("export MODEL --format onnx --tolerance -1", "--tolerance"),
        ("consistency MODEL --width 0", "--width"),
        ("consistency MODEL --width 100000", "--width"),
        ("consistency MODEL --images 0", "--images"),
        ("bench block --channels 0", "--channels"),
        ("bench block --channels 10000000", "--channels"),
        ("bench block --rounds 0", "--rounds"),
        ("bench block --threads 100000", "--threads"),
        ("bench predict --batch 100000", "--batch"),
        ("bench predict --rounds inf", "--rounds"),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_name(arguments: str, option: str, tmp_path: Path) -> None:
    places = {"OUT": str(tmp_path / "out"), "MODEL": str(STORED)}
    words = [places.get(word, word) for word in arguments.split()]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 2, done.output
    assert re.search(rf"Invalid value for '{option}'", done.output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("1x1", "expected sides of 16 to 65536 pixels"),
        ("0x0", "expected sides of 16 to 65536 pixels"),
        ("99999x99", "expected sides of 16 to 65536 pixels"),
        ("9" * 5000 + "x9", "expected height x width in pixels"),
        ("-5x5", "expected height x width in pixels"),
        ("infx5", "expected height x width in pixels"),
        ("65536x65536", "of 65536 x 65536 takes at least"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_anything_is_measured(size: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CliRunner().invoke(
            app, ["bench", "predict", "scenes-tiny-dnl", "--batch", "999", "--size", size], catch_exceptions=False
        )


def test_a_block_that_memory_cannot_hold_is_refused() -> None:
    arguments = ["bench", "block", "--channels", "65536", "--sizes", "128x256", "--variants", "gc"]
    with pytest.raises(ValueError, match="a block of 65536 channels on 128x256 takes at least"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_clip_has_frames() -> None:
    assert parse_size("8x112x96", (8, 256, 256)) == (8, 112, 96)
    with pytest.raises(ValueError, match="expected 1 to 65536 frames"):
        parse_size("0x112x96", (8, 256, 256))
