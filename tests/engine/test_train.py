import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dnlnet.engine.log import read_log
from dnlnet.engine.train import NonFiniteLossError, Progress

sys.path.insert(0, str(Path(__file__).parent))
from toy import Line, fit, network

ITERATIONS = 30


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert fit(folder, ITERATIONS).finished
    return folder


def assert_same_run(folder: Path, expected: Path) -> None:
    assert list(read_log(folder)) == list(read_log(expected))
    for name in ("last.safetensors", "best.safetensors"):
        ours, theirs = load_file(folder / name), load_file(expected / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


class CrashError(Exception):
    pass


def crash_at(iteration: int) -> Any:
    def progress(now: Progress) -> None:
        if now.iteration == iteration:
            raise CrashError

    return progress


@pytest.mark.parametrize("points", [[1], [7], [5, 6], [29], [3, 11, 12, 26]])
def test_a_run_that_crashed_ends_like_one_that_did_not(
    points: list[int], uninterrupted: Path, tmp_path: Path
) -> None:
    for point in points:
        with pytest.raises(CrashError):
            fit(tmp_path, ITERATIONS, progress=crash_at(point))
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_process_started_again_ends_like_one_that_was_not(
    attempt: int, uninterrupted: Path, tmp_path: Path
) -> None:
    """SIGKILL at a moment that nobody chose."""
    code = (
        f"import sys, time, torch; sys.path.insert(0, {str(Path(__file__).parent)!r}); torch.set_num_threads(1)\n"
        "from pathlib import Path\nfrom toy import fit\n"
        "print('ready', flush=True)\n"
        f"fit(Path({str(tmp_path)!r}), {ITERATIONS}, progress=lambda _: time.sleep(0.02))"
    )
    delay = random.Random(attempt).uniform(0.05, 0.6)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.kill()
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "last.safetensors").exists()
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_first_and_the_run_goes_on(number: int, uninterrupted: Path, tmp_path: Path) -> None:
    def progress(now: Progress) -> None:
        if now.iteration == 13:
            os.kill(os.getpid(), number)

    outcome = fit(tmp_path, ITERATIONS, progress=progress)
    assert (outcome.finished, outcome.signal, outcome.iteration) == (False, number, 14)
    assert (tmp_path / "checkpoints" / "000014.json").exists()
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


def test_a_damaged_checkpoint_costs_only_the_iterations_since_the_one_before(
    uninterrupted: Path, tmp_path: Path
) -> None:
    with pytest.raises(CrashError):
        fit(tmp_path, ITERATIONS, progress=crash_at(12))
    path = tmp_path / "checkpoints" / "000010.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    said: list[str] = []
    assert fit(tmp_path, ITERATIONS, report=said.append).finished
    assert "000010: this checkpoint is damaged" in said[0]
    assert said[1] == "going on from iteration 5 of 30"
    assert_same_run(tmp_path, uninterrupted)


def test_a_finished_run_started_again_changes_nothing(uninterrupted: Path) -> None:
    before = {path: path.read_bytes() for path in uninterrupted.glob("*.safetensors")}
    assert fit(uninterrupted, ITERATIONS).finished
    assert {path: path.read_bytes() for path in uninterrupted.glob("*.safetensors")} == before


def test_stages_follow_each_other_and_resume_in_the_middle(tmp_path: Path) -> None:
    assert fit(tmp_path / "a", 8, 7, 5).iteration == 20
    with pytest.raises(CrashError):
        fit(tmp_path / "b", 8, 7, 5, progress=crash_at(12))
    fit(tmp_path / "b", 8, 7, 5)
    assert_same_run(tmp_path / "b", tmp_path / "a")
    rates = [line["lr"] for line in read_log(tmp_path / "a") if line["event"] == "train"]
    assert rates[0] == rates[8] == rates[15] == 0.05
    assert rates[7] < 0.01


def test_data_workers_do_not_change_the_run(uninterrupted: Path, tmp_path: Path) -> None:
    fit(tmp_path, ITERATIONS, workers=2)
    assert_same_run(tmp_path, uninterrupted)


def test_a_loss_that_is_no_number_stops_with_everything_one_needs_to_know(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLossError) as raised:
        fit(tmp_path, ITERATIONS, data=Line(broken=3), batch=1, frozen_statistics=True)
    text = str(raised.value)
    assert "the loss is not finite ({'square': nan}) on point 3" in text
    iteration = int(text.split()[1].rstrip(":"))
    assert f"(iteration {iteration // 5 * 5 if iteration % 5 else iteration - 5})" in text


def test_some_losses_that_are_no_number_may_be_skipped(tmp_path: Path) -> None:
    options = {"data": Line(broken=3), "batch": 1, "frozen_statistics": True, "clip": 1.0}
    assert fit(tmp_path / "a", 30, skip_nonfinite=2, **options).finished
    skipped = [line for line in read_log(tmp_path / "a") if "skipped" in line]
    assert [line["skipped"] for line in skipped] == [1.0, 2.0][: len(skipped)]
    assert skipped
    weights = load_file(tmp_path / "a" / "last.safetensors")
    assert all(value.isfinite().all() for value in weights.values())
    with pytest.raises(NonFiniteLossError):
        fit(tmp_path / "b", 60, skip_nonfinite=1, **options)


def test_accumulated_parts_make_the_same_step(tmp_path: Path) -> None:
    options = {"frozen_statistics": True, "batch": 4}
    fit(tmp_path / "whole", 10, model=network(dropout=0), **options)
    fit(tmp_path / "parts", 10, model=network(dropout=0), accumulate=2, **options)
    for key, value in load_file(tmp_path / "whole" / "last.safetensors").items():
        torch.testing.assert_close(value, load_file(tmp_path / "parts" / "last.safetensors")[key])


def test_the_update_is_pytorchs_sgd(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 1))
    reference = nn.Sequential(nn.Linear(4, 1))
    reference.load_state_dict(model.state_dict())
    fit(tmp_path, 6, model=model, batch=20, weight_decay=0.1, momentum=0.8)
    data = Line()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.8, weight_decay=0.1)
    for i in range(6):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - i / 6) ** 0.9
        optimizer.zero_grad()
        (reference(data.x).squeeze(1) - data.y).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(model[0].weight, reference[0].weight)


def test_clipping_bounds_the_step(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 1))
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    fit(tmp_path, 1, model=model, clip=0.01)
    step = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert float(step.norm()) == pytest.approx(0.05 * 0.01, rel=1e-3)


def test_averaged_weights_are_what_is_kept(tmp_path: Path) -> None:
    model = network()
    first = model[0].weight.detach().clone()
    fit(tmp_path, 1, model=model, average=0.75)
    kept = load_file(tmp_path / "last.safetensors")
    torch.testing.assert_close(kept["0.weight"], 0.75 * first + 0.25 * model[0].weight.detach())
    assert int(kept["1.num_batches_tracked"]) == 1


@pytest.mark.parametrize(
    "options", [{"average": 0.9}, {"precision": "bfloat16"}, {"precision": "float16"}, {"clip": 1.0}]
)
def test_every_way_of_computing_resumes_exactly(options: dict[str, Any], tmp_path: Path) -> None:
    fit(tmp_path / "a", 12, **options)
    with pytest.raises(CrashError):
        fit(tmp_path / "b", 12, progress=crash_at(8), **options)
    fit(tmp_path / "b", 12, **options)
    assert_same_run(tmp_path / "b", tmp_path / "a")


def test_a_compiled_model_is_saved_under_its_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    fit(tmp_path / "compiled", 6, compile=True)
    fit(tmp_path / "eager", 6)
    assert_same_run(tmp_path / "compiled", tmp_path / "eager")


def test_frozen_layers_stay_as_they_are(tmp_path: Path) -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit(tmp_path, 5, model=model, frozen=("0.", "1."))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"3.weight", "3.bias"}
    with pytest.raises(ValueError, match="every parameter is frozen"):
        fit(tmp_path / "none", 5, frozen=("0.", "1.", "3."))


def test_training_helps(uninterrupted: Path) -> None:
    scores = [line["minus_error"] for line in read_log(uninterrupted) if line["event"] == "evaluation"]
    assert len(scores) == 3
    data, untrained = Line(10), network().eval()
    with torch.no_grad():
        error = (untrained(data.x).squeeze(1) - data.y).square().sum()
    assert max(scores) > -float(error) / 2
    assert "detail" in json.loads((uninterrupted / "log.jsonl").read_text().splitlines()[10])
    assert list((uninterrupted / "tensorboard").iterdir())


def test_a_batch_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a batch of 4 cannot be accumulated in 3 equal parts"):
        fit(tmp_path, 5, accumulate=3)
