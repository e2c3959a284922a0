"""Two processes compared with one, on one machine, with gloo."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from dnlnet.cli.main import app
from dnlnet.engine.log import read_log
from warm import begin, torchrun

sys.path.insert(0, str(Path(__file__).parent))
from toy import fit_as

TRAIN = "from dnlnet.cli.main import main; main()"
TWO = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
# Use SGD: AdamW divides by the size of the gradient, which amplifies rounding errors of small gradients.
SMALL = [
    *("--set", "optim.kind=sgd", "--set", "optim.lr=0.05", "--set", "training.frozen_statistics=true"),
    *("--set", "data.crop=[32, 32]", "--set", "schedule.batch=4", "--set", "schedule.iterations=12"),
    *("--set", "training.evaluate_every=6", "--set", "training.save_every=4"),
]


def training(folder: Path) -> list[str]:
    return ["train", "scenes-tiny-dnl", "--out", str(folder), "--workers", "0", *SMALL]


def run_twice(code: str, folder: Path, *options: str, failed: bool = False) -> str:
    """Execute code in two processes with the arguments of a training run, and return their output."""
    log = folder.parent / f"{folder.name}.log"
    log.unlink(missing_ok=True)
    process = begin(torchrun, [*TWO, *options], code, training(folder), log, {"MARKER": f"{folder}.crashed"})
    process.join()
    assert (process.exitcode != 0) == failed, log.read_text()
    return log.read_text()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "alone"
    CliRunner().invoke(app, training(folder), catch_exceptions=False)
    return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "shared"
    run_twice(TRAIN, folder)
    return folder


def test_two_processes_have_the_losses_of_one_with_the_whole_batch(alone: Path, shared: Path) -> None:
    ours, theirs = ([line for line in read_log(run) if line["event"] == "train"] for run in (shared, alone))
    assert len(ours) == len(theirs) == 12
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["main"] == pytest.approx(other["main"], rel=1e-4)
    weights = load_file(alone / "last.safetensors")
    for name, value in load_file(shared / "last.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4)


def test_two_processes_score_a_model_exactly_like_one(shared: Path) -> None:
    code = f"""
import json
from pathlib import Path
from safetensors.torch import load_file
from dnlnet.engine.distributed import in_main, process_group, is_main, rank
from dnlnet.engine.evaluate import evaluate
from dnlnet.recipes.override import override
from dnlnet.recipes.context import RunContext
from dnlnet.registry import find_recipe
recipe = override(find_recipe("scenes-tiny-dnl"), ["data.crop=[32, 32]"])
def refuse():
    raise ValueError("refused")
with process_group() as device:
    try:
        in_main(refuse)
    except (ValueError, SystemExit) as ended:  # an error in the main process ends the others at once
        assert str(ended) == ("refused" if is_main() else "2")
    model = recipe.build(6)
    model.load_state_dict(load_file(Path({str(shared / "last.safetensors")!r})))
    for buffer in model.buffers():
        buffer += rank()  # the statistics differ between processes; those of the main process are used
    samples = recipe.test_samples(None, "val")
    task = recipe.training_task(samples.classes, RunContext())
    metric = evaluate(task, model, samples, device=device)
    if is_main():
        Path(OUT).write_text(json.dumps(metric.counts.tolist()))
"""
    together, alone = shared.parent / "together.json", shared.parent / "alone.json"
    run_twice(f"OUT = {str(together)!r}\n{code}", shared.parent / "score")
    exec(code, {"OUT": alone})
    counts = json.loads(together.read_text())
    assert counts == json.loads(alone.read_text())
    assert sum(map(sum, counts)) == 64 * 32 * 32


@pytest.mark.parametrize("skip", [0, 100])
def test_two_processes_stop_after_the_same_iteration(skip: int, tmp_path: Path) -> None:
    processes = [begin(fit_as, rank, tmp_path, skip) for rank in range(2)]
    for process in processes:
        process.join()
    # Both read the request of iteration 12 while iteration 13 runs.
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["13 None", "13 15"]
    lines = list(read_log(tmp_path / "run"))
    assert [line["iteration"] for line in lines if line["event"] == "train"] == list(range(1, 14))
    assert any("skipped" in line for line in lines) == (skip > 0)


STOP = """
import os, signal
from dnlnet.segmentation.task import SegmentationTask
score, counted = SegmentationTask.score, iter(range(1000))
def score_or_stop(self, *arguments):
    if next(counted) == 3 and os.environ["RANK"] == "1":
        signal.raise_signal(signal.SIGTERM)
    score(self, *arguments)
SegmentationTask.score = score_or_stop
"""
DIE = """
import os
from pathlib import Path
from dnlnet.engine import run
update = run.Run.update
def update_or_die(self, lr):
    marker = Path(os.environ["MARKER"])
    if os.environ["RANK"] == "1" and self.iteration == 9 and not marker.exists():
        marker.write_text("")
        os.kill(os.getpid(), 9)
    return update(self, lr)
run.Run.update = update_or_die
"""


def test_a_signal_to_one_of_two_stops_both_and_a_dead_process_is_restarted(shared: Path, tmp_path: Path) -> None:
    """A signal during an evaluation, then a death after resuming: the result equals an uninterrupted run."""
    folder = tmp_path / "stopped"
    output = run_twice(STOP + TRAIN, folder, failed=True)
    assert output.count("stopped after iteration 6, which is saved") == 1
    assert [line["event"] for line in read_log(folder)] == ["train"] * 6
    output = run_twice(DIE + TRAIN, folder, "--max-restarts=1")
    assert (tmp_path / "stopped.crashed").exists()
    assert "resuming from iteration 6 of 12" in output
    assert "resuming from iteration 8 of 12" in output
    assert list(read_log(folder)) == list(read_log(shared))
    weights = load_file(shared / "last.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(folder / "last.safetensors").items())
