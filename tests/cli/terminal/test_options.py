import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.cli.terminal.options import choose, parse_size

STORED = Path(__file__).parents[2] / "artifacts" / "stored" / "model.safetensors"


@pytest.mark.parametrize(
    "arguments",
    [
        "demo --steps 0",
        "demo --steps 99999999999",
        "verify --seed -1",
        "verify --seed 4294967296",
        "train scenes-tiny-dnl --out OUT --seed nan",
        "train scenes-tiny-dnl --out OUT --lr nan",
        "train scenes-tiny-dnl --out OUT --workers -1",
        "train scenes-tiny-dnl --out OUT --skip-nonfinite inf",
        "eval MODEL --workers 100000",
        "eval MODEL --window 0",
        "predict MODEL a.png --threshold nan",
        "predict MODEL a.png --threshold inf",
        "predict MODEL a.png --max-pixels 99999999999",
        "attend MODEL a.png -o OUT --max-pixels 0",
        "explore MODEL --max-megabytes nan",
        "explore MODEL --max-pixels 99999999999",
        "explore MODEL --port 65536",
        "export MODEL --format onnx --tolerance nan",
        "consistency MODEL --width 0",
        "consistency MODEL --images 0",
        "bench block --channels 10000000",
        "bench block --rounds 0",
    ],
)
def test_an_out_of_range_number_is_refused_by_name(arguments: str, tmp_path: Path) -> None:
    places = {"OUT": str(tmp_path / "out"), "MODEL": str(STORED)}
    words = [places.get(word, word) for word in arguments.split()]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 2, done.output
    assert re.search(rf"Invalid value for '{words[-2]}'", done.output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", ["1x1", "0x0", "99999x99", "9" * 5000 + "x9", "-5x5", "infx5", "8x32x32"])
def test_an_impossible_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match=f"--size {size[:60]}"):
        parse_size(size, (512, 1024))


def test_a_clip_has_frames() -> None:
    assert parse_size("8x112x96", (8, 256, 256)) == (8, 112, 96)
    with pytest.raises(ValueError, match=r"--size 0x112x96: .*1 .* 65536"):
        parse_size("0x112x96", (8, 256, 256))


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ("bench predict scenes-tiny-dnl --batch 999 --size 65536x65536", "65536 x 65536"),
        ("bench block --channels 65536 --sizes 128x256 --variants gc", "128x256"),
    ],
)
def test_sizes_beyond_the_memory_are_refused_before_anything_is_measured(arguments: str, size: str) -> None:
    done = CliRunner().invoke(app, arguments.split())
    assert isinstance(done.exception, ValueError)
    assert size in str(done.exception)


def test_choose_accepts_all_or_a_list() -> None:
    known = {"a": 1, "b": 2}
    assert choose("letter", "all", known) == ["a", "b"]
    assert choose("letter", "b, a", known) == ["b", "a"]
    with pytest.raises(ValueError, match="letter 'c'"):
        choose("letter", "a,c", known)
