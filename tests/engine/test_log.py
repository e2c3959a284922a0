import json
import signal
import sys
from pathlib import Path

import pytest

from dnlnet.engine.log import RunLog, read_log
from observer import Recorder


def log_of(folder: Path, iterations: int) -> Path:
    with RunLog(folder) as log:
        for iteration in range(1, iterations + 1):
            log.write("train", iteration, {"loss": 1 / iteration, "lr": 0.1})
    return folder / "log.jsonl"


@pytest.mark.parametrize("flip", [b"\xff", b"{", b"'"])
def test_damaged_lines_are_named_and_intact_ones_kept(flip: bytes, tmp_path: Path) -> None:
    path = log_of(tmp_path, 9)
    lines = path.read_bytes().splitlines()
    for damaged in (2, 6):
        lines[damaged] = lines[damaged][:10] + flip + lines[damaged][11:]
    path.write_bytes(b"\n".join(lines) + b"\n" + lines[8][:-7])  # the last line is cut off
    observed = Recorder()
    with RunLog(tmp_path, after=8, progress=observed):
        assert [line["iteration"] for line in read_log(tmp_path, observed)] == [1, 2, 4, 5, 6, 8]
    assert observed.said == [
        f"{path}: lines 3, 7 are damaged and skipped",
        f"{path}: removed 1 lines after the point of resuming",
    ]


@pytest.mark.parametrize("line", ["[]", "12", "null", "{}", '{"event": "train", "iteration": "9"}', "[" * 100_000])
def test_a_line_without_an_event_is_damaged(line: str, tmp_path: Path) -> None:
    path = log_of(tmp_path, 1)
    path.write_text(line + "\n" + path.read_text())
    observed = Recorder()
    assert [event["iteration"] for event in read_log(tmp_path, observed)] == [1]
    assert observed.said == [f"{path}: line 1 is damaged and skipped"]


def test_the_log_is_valid_json_even_with_nan(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        log.write("evaluation", 1, {"score": float("nan"), "by_class": {"sky": float("inf")}})
    text = (tmp_path / "log.jsonl").read_text()
    expected = {"event": "evaluation", "iteration": 1, "score": None, "by_class": {"sky": None}}
    assert json.loads(text, parse_constant=pytest.fail) == expected


def test_tensorboard_reads_the_log(tmp_path: Path) -> None:
    """A run to iteration 4, resumed from 2: TensorBoard shows each step once."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for after, until in ((0, 4), (2, 5)):
        with RunLog(tmp_path, after) as log:
            for iteration in range(after + 1, until + 1):
                log.write("train", iteration, {"loss": iteration + after / 10, "note": "x"})
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    values = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert values == [(1, 1.0), (2, 2.0), *((step, pytest.approx(step + 0.2)) for step in (3, 4, 5))]


def test_a_full_disk_gives_one_sentence(tmp_path: Path) -> None:
    """A file size limit acts like a full disk."""
    resource = pytest.importorskip("resource")
    path = log_of(tmp_path, 3)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with RunLog(tmp_path, after=3) as log:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
            with pytest.raises(OSError, match=r"log\.jsonl: could not be written: the file is larger"):
                log.write("train", 4, {"loss": 0.5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [line["iteration"] for line in read_log(tmp_path)] == [1, 2, 3]


def test_without_tensorboard_the_log_is_complete_and_one_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    observed = Recorder()
    with RunLog(tmp_path, progress=observed) as log:
        log.write("train", 1, {"loss": 0.5})
    assert [line["loss"] for line in read_log(tmp_path)] == [0.5]
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]
    (text,) = observed.said
    assert 'pip install "dnlnet[tensorboard]"' in text
