import json
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dnlnet import files, locks
from dnlnet.cli import main as cli
from dnlnet.files import write_json
from dnlnet.lens.measure import theory


def _walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[list[str], bool]]:
    """Yield every command below this one, and whether it is a group."""
    inner = getattr(command, "commands", {})
    yield list(path), bool(inner)
    for name, child in inner.items():
        yield from _walk(child, (*path, name))


ALL = list(_walk(typer.main.get_command(cli.app)))


def without_torch(code: str, *arguments: object) -> None:
    """Run code in a process that must not import torch, passing `arguments` as JSON."""
    code = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from dnlnet.cli.main import app\n"
        "arguments = json.loads(sys.argv[1])\n"
        "def run(*words):\n"
        "    result = CliRunner().invoke(app, words)\n"
        "    assert not {'torch', 'matplotlib'} & set(sys.modules), words\n"
        "    return result\n" + code
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_needs_neither_torch_nor_numpy() -> None:
    without_torch(
        "for command in arguments:\n"
        "    result = run(*command, '--help')\n"
        "    assert result.exit_code == 0 and 'Usage:' in result.output, (command, result.output)\n"
        "assert 'numpy' not in sys.modules\n",
        *(path for path, _ in ALL),
    )


# Wrong input, and a fact in the message: the suggestion or the missing path.
SLIPS = {
    "train camvid-mbv2-dnll --out a": "'camvid-mbv2-dnl'",
    "train scenes-tiny-dnl --out a --set iterations=5": "schedule.iterations",
    "train --data /nowhere --out a": "/nowhere",
    "train camvid-mbv2-dnl --data /nowhere --out a": "/nowhere",
    "train --out a": "--data",
    "eval /nowhere": "/nowhere",
    "predict street /nowhere.jpg": "/nowhere.jpg",
    "attend streat a.jpg -o b": "'street'",
    "profile streat": "'street'",
    "explore streat": "'street'",
    "export streat --format onnx": "'street'",
    "info streat": "'street'",
    "consistency streat": "'street'",
    "data check camvidd /nowhere": "'camvid'",
    "recipes show camvid-mbv2-dnll": "'camvid-mbv2-dnl'",
    "complexity camvid-mbv2-dnll": "'camvid-mbv2-dnl'",
    "study camvid-mbv2-dnll --out a": "'camvid-mbv2-dnl'",
    "bench predict camvid-mbv2-dnll": "'camvid-mbv2-dnl'",
}
LISTS = ("recipes list", "recipes show scenes-tiny-dnl", "data list", "models", "info street", "version")


def test_wrong_input_is_refused_and_lists_are_printed_without_torch() -> None:
    without_torch(
        "slips, lists = arguments\n"
        "for line, fact in slips.items():\n"
        "    assert fact in str(run(*line.split()).exception), line\n"
        "for line in lists:\n"
        "    assert run(*line.split()).exit_code == 0, line\n",
        SLIPS,
        LISTS,
    )


COMPLETIONS = {
    "train ade20k-r101-": ["ade20k-r101-dnl", "ade20k-r101-nl"],
    "data check coco": ["coco", "coco_folder"],
    "demo --variant dnl_": ["dnl_dagger", "dnl_star"],
    "train coco-micro-dnl-c4 --set data.short": ["data.short_side="],
    "train x --set data.short": ["data.short_side=", "data.short_sides="],
    "train x --set model.backbone=hrnet": ["model.backbone=hrnet_w18", "model.backbone=hrnet_w48"],
    "train kinetics-r50-dnl --device cpu --set model.backbone=": [
        f"model.backbone=slow_only_{size}" for size in ("r101", "r50", "tiny")
    ],
    "study ucf6-* --set data.fra": ["data.frames="],
    "recipes show camvid-mbv2-dnl --set data.fra": [],
    "recipes show kinetics-r50-nl_": ["kinetics-r50-nl_pairwise", "kinetics-r50-nl_unary"],
}


def test_shell_completion_needs_no_torch() -> None:
    without_torch(
        "import os\n"
        "from contextlib import redirect_stdout, suppress\n"
        "from io import StringIO\n"
        "for line, expected in arguments[0].items():\n"
        "    words = ['dnlnet', *line.split()]\n"
        "    os.environ |= {'_DNLNET_COMPLETE': 'complete_bash', 'COMP_WORDS': ' '.join(words),\n"
        "                   'COMP_CWORD': str(len(words) - 1)}\n"
        "    with redirect_stdout(StringIO()) as output, suppress(SystemExit):\n"
        "        app(prog_name='dnlnet')\n"
        "    assert sorted(output.getvalue().split()) == expected, line\n"
        "assert 'torch' not in sys.modules\n",
        COMPLETIONS,
    )


def test_help_fits_the_terminal_keeps_brackets_and_shows_an_example() -> None:
    for command, is_group in ALL:
        shown = CliRunner().invoke(cli.app, [*command, "--help"], env={"COLUMNS": "80"}).output
        assert max(map(len, shown.splitlines())) <= 80, command
        assert "\\[" not in shown, command
        assert is_group or f"Example: dnlnet {' '.join(command)}" in " ".join(shown.split()), command
    shown = CliRunner().invoke(cli.app, ["explore", "--help"], env={"COLUMNS": "80"}).output
    assert '"dnlnet[demo]"' in shown


def test_help_groups_the_commands_with_the_most_used_first() -> None:
    lines = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "80"}).output.splitlines()
    panels: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("╭─ "):
            title = line.strip("╭─╮ ")
        elif line.startswith("│ ") and line[2] not in " -":
            panels.setdefault(title, []).append(line.split()[1])
    assert list(panels) == [
        "Start here",
        "Use a model",
        "Look inside attention",
        "Train",
        "Reproduce the paper",
    ]
    assert panels["Start here"] == ["demo", "models", "predict", "attend", "train", "eval"]
    assert sum(map(len, panels.values())) == 19


@pytest.mark.parametrize("debug", [False, True])
def test_bad_input_is_one_line_and_exit_code_2_or_a_traceback(debug: bool) -> None:
    code = "from dnlnet.cli.main import main; main()"
    command = [sys.executable, "-c", code, *["--debug"] * debug, "recipes", "show", "camvid-mbv2-dnll"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "'camvid-mbv2-dnll'" in done.stderr
    assert "'camvid-mbv2-dnl'" in done.stderr
    assert ("Traceback" in done.stderr) == debug
    if not debug:
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.strip().splitlines()) == 1
        assert "--debug" not in done.stderr


def _raise(error: Exception) -> None:
    raise error


def _main(monkeypatch: pytest.MonkeyPatch, error: Exception, *arguments: str) -> int:
    monkeypatch.setattr(cli, "app", lambda: _raise(error))
    monkeypatch.setattr(sys, "argv", ["dnlnet", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code)


def test_names_in_an_error_are_escaped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped, but line breaks stay."""
    assert _main(monkeypatch, ValueError("\x1b[31m.png: 1 missing:\n  a")) == 2
    assert capsys.readouterr().err.startswith("error: \\x1b[31m.png: 1 missing:\n  a")


@pytest.mark.parametrize("error", [RuntimeError("boom\nand more"), KeyError("boom"), RecursionError("boom")])
def test_an_unexpected_error_is_one_sentence_and_a_saved_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert _main(monkeypatch, error, "predict", "my model") == 70
    said = capsys.readouterr().err
    assert said.startswith(f"error: internal error, please report it: {type(error).__name__}: ")
    assert len(said.splitlines()) == 1
    assert "--debug" in said
    (saved,) = tmp_path.iterdir()
    assert str(saved) in said
    assert "dnlnet predict 'my model'" in saved.read_text()
    assert "in _raise" in saved.read_text()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")]
)
def test_too_little_memory_is_not_an_internal_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, error) == 2
    assert "not enough memory" in capsys.readouterr().err


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Return the stop signals, and restore their handlers after the test."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    usual = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield numbers
    for number, handler in usual.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("place", ["writing", "release"])
def test_a_signal_ends_a_command_after_cleanup(
    place: str,
    signals: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    release = locks._release_folder

    def interrupted(*arguments: Any) -> None:
        if place == "release":
            signal.raise_signal(number)
        release(*arguments)

    def work() -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path), files.atomic_write(tmp_path / "a.txt") as temporary:
            temporary.write_text("half of it")
            if place == "writing":
                signal.raise_signal(number)
        pytest.fail("the signal was lost")

    monkeypatch.setattr(locks, "_release_folder", interrupted)
    monkeypatch.setattr(cli, "app", work)
    for number in signals:
        signal.signal(number, signal.SIG_DFL)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 128 + number
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"] * (place == "release")
        assert capsys.readouterr().err == "stopped\n"


class _Deleted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def _lose_signal() -> None:
    _Deleted()
    for _ in range(1000):
        time.sleep(0.01)
    pytest.fail("the signal was lost")


def _change_signal() -> None:
    """Replace an exception, as pydantic does while building a model."""
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException as error:
        raise TypeError("Error building a model") from error


@pytest.mark.parametrize("work", [_lose_signal, _change_signal])
def test_a_signal_at_a_bad_moment_ends_the_command(
    work: Callable[[], None],
    signals: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "app", work)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "stopped\n"


def test_an_ignored_signal_stays_ignored(signals: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # like nohup
    monkeypatch.setattr(cli, "app", lambda: signal.raise_signal(signal.SIGHUP))
    cli.main()


def test_an_unknown_command_is_bad_usage() -> None:
    assert CliRunner().invoke(cli.app, ["verfy"]).exit_code == 2


@pytest.mark.parametrize("asked", ["--version", "-V", "version"])
def test_version(asked: str) -> None:
    assert CliRunner().invoke(cli.app, [asked]).output.startswith("dnlnet 0.")


def test_verify_prints_and_writes_every_claim(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["verify", "--json", str(tmp_path / "a" / "verify.json")])
    assert result.exit_code == 0
    rows = json.loads((tmp_path / "a" / "verify.json").read_text())
    assert {row["where"] for row in rows} >= {"Eq. 4", "Eq. 5", "Eq. 9", "Prop. 1", "Sec. 4.1"}
    assert all(row["holds"] for row in rows if row["relied_on"])
    assert "does not hold" in result.output


@pytest.mark.parametrize(("relied_on", "code"), [(True, 1), (False, 0)])
def test_verify_fails_only_on_claims_the_block_relies_on(
    relied_on: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theory, "verify", lambda seed: [theory.Claim("Eq. 0", "0 = 1", 1.0, 0.0, relied_on)])
    assert CliRunner().invoke(cli.app, ["verify"]).exit_code == code


def test_bench_block_prints_a_table_and_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dnlnet.bench import block as bench

    monkeypatch.setitem(bench.SIZES, "6x7", (6, 7))
    monkeypatch.setattr(bench, "MULTIPLY", 64)
    path = tmp_path / "bench.json"
    arguments = ["bench", "block", "--variants", "gc", "--sizes", "6x7", "--channels", "8", "--rounds", "1"]
    result = CliRunner().invoke(cli.app, [*arguments, "--no-memory", "--threads", "1", "--json", str(path)])
    assert result.exit_code == 0, result.output
    content = json.loads(path.read_text())
    assert [row["training"] for row in content["rows"]] == [False, True]
    assert "torch" in content["machine"]


def test_json_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_json(path, [1, 2])
    with pytest.raises(TypeError):
        write_json(path, [object()])
    assert json.loads(path.read_text()) == [1, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_a_warning_does_not_show_a_line_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(sys, "argv", ["dnlnet"])
    monkeypatch.setattr(cli, "app", lambda: None)
    cli.main()
    assert warnings.formatwarning(UserWarning("weights \x1b are NaN"), UserWarning, "load.py", 1) == (
        "warning: weights \\x1b are NaN\n"
    )
