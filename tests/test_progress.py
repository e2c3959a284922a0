import io
import subprocess
import sys

import pytest
from rich.console import Console

from dnlnet.progress import SILENT, Bars, Prefixed
from observer import Recorder


def bars(terminal: bool = False) -> tuple[Bars, io.StringIO]:
    shown = io.StringIO()
    return Bars(Console(file=shown, width=200, force_terminal=terminal)), shown


def test_a_log_file_gets_a_line_every_few_steps() -> None:
    observed, shown = bars()
    with observed.track("training", 100, start=95, unit="iteration") as tracker:
        for number in range(95, 100):
            tracker.advance(note=f"loss {number}")
    lines = shown.getvalue().splitlines()
    assert [line for line in lines if line.startswith("iteration")] == [
        "iteration 96 of 100: loss 95",
        "iteration 98 of 100: loss 97",
        "iteration 100 of 100: loss 99",
    ]


def test_unfinished_work_leaves_no_empty_line_in_a_log_file() -> None:
    observed, shown = bars()
    with observed.track("training", 2) as tracker:
        tracker.advance()
    assert shown.getvalue() == ""


def test_nothing_is_shown_before_work_begins() -> None:
    observed, shown = bars(terminal=True)
    observed.track("training", 2)
    assert shown.getvalue() == ""


def test_an_inner_bar_disappears_when_its_work_is_done() -> None:
    observed, _ = bars(terminal=True)
    with observed.track("training", 2) as outer:
        with observed.track("evaluating", 1) as inner:
            inner.advance()
            assert observed._bars is not None
            assert [task.visible for task in observed._bars.tasks] == [True, True]
        assert [task.visible for task in observed._bars.tasks] == [True, False]
        outer.advance(2)
    assert observed._bars is None


def test_an_error_leaves_no_bar() -> None:
    observed, _ = bars(terminal=True)
    with pytest.raises(KeyError), observed.track("training", 2), observed.track("evaluating", 1):
        raise KeyError
    assert observed._bars is None


def test_messages_are_printed_as_they_are() -> None:
    observed, shown = bars()
    observed.say("[red]a[/red] " + "x" * 300)
    assert shown.getvalue() == "[red]a[/red] " + "x" * 300 + "\n"


def test_control_characters_are_escaped() -> None:
    shown, output = bars()
    shown.say("a\x1b[31m.png\nb.png")
    with shown.track("c\x1b[2J.png", 1) as bar:
        bar.advance(note="d\x07")
    assert "a\\x1b[31m.png\nb.png" in output.getvalue()
    assert "c\\x1b[2J.png" in output.getvalue()
    assert not {"\x1b", "\x07"} & set(output.getvalue())


def test_only_the_main_process_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    observed = Bars()
    observed.say("a message")
    with observed.track("training", 1, unit="iteration") as tracker:
        tracker.advance()
    assert capsys.readouterr() == ("", "")


def test_a_prefix_names_messages_and_bars() -> None:
    recorder = Recorder()
    observed = Prefixed(recorder, "dnl")
    observed.say("resuming")
    with observed.track("training", 2) as tracker:
        tracker.advance()
    assert recorder.said == ["dnl: resuming"]
    assert recorder.steps == [("dnl training", 1, 2, "")]


def test_silent_progress_can_be_tracked() -> None:
    SILENT.say("nothing")
    with SILENT.track("nothing") as tracker:
        tracker.advance()


def test_a_loaded_kernel_package_is_no_notebook() -> None:
    """Programs that use Jupyter without running in it still report to standard error."""
    code = "import ipykernel.kernelapp, dnlnet.progress as p; p.BARS.say('hello'); print(p.BARS.console.is_jupyter)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "hello\n")
