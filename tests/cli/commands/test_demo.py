import json
import os
import signal
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.runs import demo
from observer import Recorder


def fail_if_trained(*_: object, **__: object) -> None:
    raise AssertionError("trained before the input was checked")


@pytest.mark.parametrize(("variant", "against", "nets"), [("dnl", "nl", 2), ("gc", "none", 1)])
def test_demo_writes_an_image_a_page_and_scores(variant: str, against: str, nets: int, tmp_path: Path) -> None:
    out = tmp_path / "new" / "demo"
    result = CliRunner().invoke(
        app, ["demo", "--steps", "2", "--variant", variant, "--against", against, "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {
        "attention.png",
        "explore.html",
        "runs",
        "scores.json",
        "street.png",
    }
    assert {path.name for path in (out / "runs").iterdir()} == {f"{name}-2-0" for name in (variant, against)[:nets]}
    for name in ("attention.png", "street.png"):
        with Image.open(out / name) as image:
            image.load()
    scores = json.loads((out / "scores.json").read_text())
    assert (scores["steps"], scores["seed"]) == (2, 0)
    assert len(scores["nets"]) == nets
    net = scores["nets"][variant]
    assert 0 <= net["miou"]["before"] <= 1
    assert set(net["iou"]) == {"sky", "water", "meadow", "tree", "mountain", "building"}
    assert net["parameters"] > 0
    rows = scores["overlaps"]["rows"]
    assert list(rows) == [*scores["nets"], "random"]
    assert rows["random"]["pair_within"]["images"] == 64
    assert (rows[variant]["pair_within"] is None) == (variant == "gc")
    assert "explore.html" in result.output.replace("\n", "")
    assert "trained in" in result.output


def test_a_stopped_demo_resumes_with_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(done: int) -> None:
        if done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    command = ["demo", "--steps", "4", "--against", "none", "--out", str(tmp_path)]
    with monkeypatch.context() as patched:
        patched.setattr("dnlnet.progress.Bars", lambda: Recorder(interrupt, "dnl training"))
        stopped = CliRunner().invoke(app, command)
    assert stopped.exit_code == 128 + signal.SIGINT
    assert "stopped after iteration 3" in stopped.output
    # The example images are written before the training, which was stopped.
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "street.png", "explore.html"}
    assert "corner.jpg" in (tmp_path / "explore.html").read_text()
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "dnl: resuming from iteration 3 of 4" in result.output
    assert json.loads((tmp_path / "scores.json").read_text())["nets"]["dnl"]["seconds"] is None


@pytest.mark.parametrize(
    ("arguments", "suggested"), [(["--variant", "dnll"], "'dnl'"), (["--against", "nll"], "'nl'")]
)
def test_bad_options_fail_before_training(
    arguments: list[str], suggested: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "train", fail_if_trained)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo"), *arguments])
    assert isinstance(result.exception, ValueError)
    assert suggested in str(result.exception)
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("name", ["demo", "demo/runs"])
def test_a_file_as_output_fails_before_training(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "train", fail_if_trained)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("keep me")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert isinstance(result.exception, ValueError)
    assert str(path) in str(result.exception)
    assert "--out" in str(result.exception)
    assert path.read_text() == "keep me"
