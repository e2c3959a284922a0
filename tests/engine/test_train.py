import errno
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from dnlnet.engine.batches import Batches
from dnlnet.engine.log import read_log
from dnlnet.engine.run import Run
from dnlnet.engine.train import NonFiniteError, Outcome, training_step

sys.path.insert(0, str(Path(__file__).parent))
from toy import Error, Fit, Line, Points, fit, fit_slowly, network, settings

from observer import Recorder
from warm import begin, event

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


def crash_at(iteration: int) -> Recorder:
    def crash(done: int) -> None:
        if done == iteration:
            raise CrashError

    return Recorder(crash)


@pytest.mark.parametrize("points", [[1], [7], [5, 6], [29], [3, 11, 12, 26]])
def test_a_crashed_run_ends_like_an_uninterrupted_one(points: list[int], uninterrupted: Path, tmp_path: Path) -> None:
    for point in points:
        with pytest.raises(CrashError):
            fit(tmp_path, ITERATIONS, progress=crash_at(point))
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_and_restarted_process_ends_like_an_uninterrupted_one(
    attempt: int, uninterrupted: Path, tmp_path: Path
) -> None:
    """Send SIGKILL at a random moment."""
    ready = event()
    process = begin(fit_slowly, tmp_path, ITERATIONS, ready)
    ready.wait()
    time.sleep(random.Random(attempt).uniform(0.05, 0.6))
    process.kill()
    process.join()
    assert not (tmp_path / "last.safetensors").exists()
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_first_and_the_run_resumes(number: int, uninterrupted: Path, tmp_path: Path) -> None:
    def act(done: int) -> None:
        if done == 11:
            os.kill(os.getpid(), number)

    usual = signal.signal(number, signal.default_int_handler)  # may be ignored, like SIGHUP under nohup
    outcome = fit(tmp_path, ITERATIONS, progress=Recorder(act))
    signal.signal(number, usual)
    # Iteration 12 asks to stop, and its answer is read while iteration 13 runs.
    assert (outcome.finished, outcome.signal, outcome.iteration) == (False, number, 13)
    assert (tmp_path / "checkpoints" / "000013.json").exists()
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


def test_a_damaged_checkpoint_costs_only_the_iterations_since_the_previous_one(
    uninterrupted: Path, tmp_path: Path
) -> None:
    with pytest.raises(CrashError):
        fit(tmp_path, ITERATIONS, progress=crash_at(12))
    path = tmp_path / "checkpoints" / "000010.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    observed = Recorder()
    assert fit(tmp_path, ITERATIONS, progress=observed).finished
    assert "000010: this checkpoint is damaged" in observed.said[0]
    assert observed.said[1] == "resuming from iteration 5 of 30"
    assert_same_run(tmp_path, uninterrupted)


def fit_with(monkeypatch: pytest.MonkeyPatch, score: Any, folder: Path, **options: Any) -> Outcome:
    """Run with evaluations that call `score` with the number of samples already scored."""
    counted = iter(range(1000))
    usual = Fit.score

    def scoring(self: Fit, *arguments: Any) -> None:
        score(next(counted))
        usual(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Fit, "score", scoring)
        return fit(folder, ITERATIONS, save_every=7, **options)


def stop_at(number: int, place: int) -> Any:
    def score(counted: int) -> None:
        torch.rand(3)  # advances the random generator
        if counted == place:
            os.kill(os.getpid(), number)

    return score


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("place", [0, 7, 13, 24])  # ten samples each after iterations 10, 20 and 30
def test_a_signal_during_an_evaluation_stops_at_the_next_sample(
    number: int, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = stop_at(number, -1)
    assert fit_with(monkeypatch, never, tmp_path / "a").finished
    scored: list[int] = []

    def score(counted: int) -> None:
        scored.append(counted)
        stop_at(number, place)(counted)

    outcome = fit_with(monkeypatch, score, tmp_path / "b")
    assert (outcome.finished, outcome.signal, outcome.iteration) == (False, number, 10 * (1 + place // 10))
    assert scored[-1] == place
    assert not [line for line in read_log(tmp_path / "b") if line["event"] == "evaluation"][place // 10 :]
    if place < 20:  # killed between the evaluation and the next checkpoint, so the evaluation is repeated
        with pytest.raises(CrashError):
            fit_with(monkeypatch, never, tmp_path / "b", progress=crash_at(outcome.iteration + 1))
    assert fit_with(monkeypatch, never, tmp_path / "b").finished
    assert_same_run(tmp_path / "b", tmp_path / "a")
    assert fit_with(monkeypatch, pytest.fail, tmp_path / "b").finished  # no evaluation is due


def test_a_signal_before_an_evaluation_prevents_it(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(done: int) -> None:
        if done == 29:
            os.kill(os.getpid(), signal.SIGTERM)

    scored: list[int] = []
    outcome = fit_with(monkeypatch, scored.append, tmp_path, progress=Recorder(act))
    assert (outcome.finished, outcome.iteration, len(scored)) == (False, 30, 20)
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


def test_a_first_nan_score_does_not_stay_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, scores = Error.scores, iter([float("nan"), float("-inf")])
    monkeypatch.setattr(Error, "scores", lambda self: {"minus_error": next(scores, usual(self)["minus_error"])})
    outcome = fit(tmp_path, ITERATIONS)
    lines = [line["minus_error"] for line in read_log(tmp_path) if line["event"] == "evaluation"]
    assert lines[:2] == [None, None]
    assert outcome.best == lines[2] is not None
    assert (tmp_path / "best.safetensors").exists()
    for path in tmp_path.rglob("*.json*"):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)


def test_a_nan_best_score_in_a_checkpoint_is_ignored(tmp_path: Path) -> None:
    """The first versions could save NaN as the best score, and then never found a better one."""
    fit(tmp_path, 10)
    path = tmp_path / "checkpoints" / "000010.json"
    content = json.loads(path.read_text())
    content["state"] = {**content["state"], "best": float("nan")}
    del content["checksum"], content["state"]["unscored"]
    path.write_text(json.dumps(content))
    assert fit(tmp_path, 10).best is None


def test_a_run_without_an_intact_checkpoint_reports_that_it_restarts(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        fit(tmp_path, ITERATIONS, progress=crash_at(12))
    for path in (tmp_path / "checkpoints").glob("*.json"):
        path.write_text("{}")
    observed = Recorder()
    assert fit(tmp_path, ITERATIONS, progress=observed).finished
    assert [line.partition(": ")[2] for line in observed.said[2:4]] == [
        "no intact checkpoint to resume from; starting from the beginning",
        "removed 12 lines after the point of resuming",  # iteration 12 was not read yet
    ]
    assert_same_run(tmp_path, uninterrupted)


def test_damaged_lines_of_the_log_do_not_stop_the_run(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        fit(tmp_path, ITERATIONS, progress=crash_at(12))
    path = tmp_path / "log.jsonl"
    lines = path.read_bytes().splitlines()
    lines[3] = lines[3][:-1] + b"\xff"
    path.write_bytes(b"\n".join(lines) + b"\n")
    observed = Recorder()
    assert fit(tmp_path, ITERATIONS, progress=observed).finished
    assert observed.said[1] == f"{path}: line 4 is damaged and skipped"
    expected = list(read_log(uninterrupted))
    assert list(read_log(tmp_path)) == [*expected[:3], *expected[4:]]


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors", "000015.safetensors", "000015.json"])
def test_a_full_disk_gives_one_sentence_and_the_run_resumes_later(
    name: str, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if target.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(
            OSError, match=r"[^\n]*(could not be written|could not save).*: the disk is full; [^\n]*$"
        ):
            fit(tmp_path, ITERATIONS)
    assert not list(tmp_path.rglob(".*"))
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


def test_a_log_that_cannot_grow_gives_one_sentence_and_the_run_resumes_later(
    uninterrupted: Path, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    with pytest.raises(CrashError):
        fit(tmp_path, ITERATIONS, progress=crash_at(6))
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=r"(tfevents|log\.jsonl).*: could not be written: the file is larger"):
            fit(tmp_path, ITERATIONS, save_every=100, evaluate_every=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


def test_a_killed_data_worker_gives_one_sentence_and_the_run_resumes(uninterrupted: Path, tmp_path: Path) -> None:
    def act(done: int) -> None:
        if done == 13:
            reader = multiprocessing.active_children()[0]
            os.kill(reader.pid or 0, signal.SIGKILL)
            reader.join()

    with pytest.raises(OSError, match=r"a process that reads data \(pid \d+\) .*run the same command again"):
        fit(tmp_path, ITERATIONS, workers=2, progress=Recorder(act))
    assert multiprocessing.active_children() == []
    assert (tmp_path / "checkpoints" / "000010.json").exists()
    assert fit(tmp_path, ITERATIONS).finished
    assert_same_run(tmp_path, uninterrupted)


def test_data_workers_end_with_a_failed_run(tmp_path: Path) -> None:
    """Workers ignore signals, so a process with live workers could not exit."""
    with pytest.raises(CrashError) as crashed:
        fit(tmp_path / "a", ITERATIONS, workers=2, progress=crash_at(3))
    with pytest.raises(NonFiniteError) as refused:
        fit(tmp_path / "b", ITERATIONS, workers=2, data=Line(broken=3))
    assert multiprocessing.active_children() == []
    assert crashed.tb is not None
    assert refused.tb is not None


def test_a_checkpoint_of_another_network_is_refused_with_one_sentence(tmp_path: Path) -> None:
    fit(tmp_path, 5)
    with pytest.raises(ValueError, match=r"^the checkpoint of iteration 5 does not fit this run: [^\n]*$"):
        fit(tmp_path, 5, model=nn.Sequential(nn.Linear(4, 1)))


def test_a_finished_run_started_again_changes_nothing(uninterrupted: Path) -> None:
    before = {path: path.read_bytes() for path in uninterrupted.glob("*.safetensors")}
    assert fit(uninterrupted, ITERATIONS).finished
    assert {path: path.read_bytes() for path in uninterrupted.glob("*.safetensors")} == before


def test_phases_follow_each_other_and_resume_in_the_middle(tmp_path: Path) -> None:
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


def test_a_nan_loss_stops_the_run_and_reports_the_details(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError) as raised:
        fit(tmp_path, ITERATIONS, data=Line(broken=3), batch=1, frozen_statistics=True)
    text = str(raised.value)
    assert "the loss is not finite ({'square': nan}) on point 3" in text
    iteration = int(text.split()[1].rstrip(":"))
    assert f"(iteration {iteration // 5 * 5 if iteration % 5 else iteration - 5})" in text


def test_some_nan_losses_may_be_skipped(tmp_path: Path) -> None:
    options = {"data": Line(broken=3), "batch": 1, "frozen_statistics": True, "clip": 1.0}
    assert fit(tmp_path / "a", 30, skip_nonfinite=2, **options).finished
    skipped = [line for line in read_log(tmp_path / "a") if "skipped" in line]
    assert [line["skipped"] for line in skipped] == [1.0, 2.0][: len(skipped)]
    assert skipped
    weights = load_file(tmp_path / "a" / "last.safetensors")
    assert all(value.isfinite().all() for value in weights.values())
    with pytest.raises(NonFiniteError):
        fit(tmp_path / "b", 60, skip_nonfinite=1, **options)


class Spoilt(Line):
    """Points, one of them with a NaN or infinite input."""

    def __init__(self, value: float, index: int = 3) -> None:
        super().__init__()
        self.x[index] = value


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
def test_a_skipped_iteration_leaves_the_statistics_unchanged(value: float, tmp_path: Path) -> None:
    observed = Recorder()
    options = {"skip_nonfinite": 100, "average": 0.5, "progress": observed}
    assert fit(tmp_path, 30, data=Spoilt(value), **options).finished
    for name in ("last.safetensors", "best.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(tmp_path / name).values())
    skipped = [line for line in read_log(tmp_path) if "skipped" in line]
    assert 3 <= len(skipped) <= 12  # each of six epochs contains the point once
    assert [line for line in observed.said if "more may be" in line] == [
        f"iteration {line['iteration']}: skipped, not finite; at most {100 - number} more may be"
        for number, line in enumerate(skipped, start=1)
    ]
    assert any(note.startswith("skipped") for *_, note in observed.steps)


def test_skipping_an_iteration_equals_training_without_it(tmp_path: Path) -> None:
    """A skipped batch changes nothing: the run sees the same points in the same order, without the invalid ones."""
    data = Spoilt(torch.nan)
    model, kept = network(dropout=0), network(dropout=0)
    fit(tmp_path / "skipped", 30, data=data, model=model, skip_nonfinite=100, batch=2)
    run = Run(kept, settings(batch=2), torch.device("cpu"))
    batches = Batches(len(data), 2, 0, 30, 0, 0, 1)
    for iteration, indices in enumerate(batches):
        x, y = (torch.stack([data[draw][part] for draw in indices]) for part in (0, 1))
        if x.isfinite().all():
            kept.train()
            run.optimizer.zero_grad()
            (kept(x).squeeze(1) - y).square().mean().backward()
            run.update(0.05 * settings(30).schedule.factor(iteration))
    for ours, theirs in zip(model.state_dict().values(), kept.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs)


class Cliff(Fit):
    """Finite loss with an infinite gradient: the square root at zero."""

    def losses(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"square": super().losses(model, batch)["square"] + (0 * model[0].weight).sum().abs().sqrt()}


def test_an_infinite_gradient_does_not_reach_the_weights(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"iteration 1: the gradient is not finite on point \d+, "):
        fit(tmp_path, 30, task=Cliff())


def test_nan_weights_are_never_saved(tmp_path: Path) -> None:
    observed = Recorder()
    with pytest.raises(
        NonFiniteError, match=r"iteration \d+: \d\.\w+ is no longer finite; the last checkpoint is intact"
    ):
        fit(tmp_path, 60, lr=3e38, skip_nonfinite=1000, momentum=0, progress=observed)
    assert any("skipped, not finite" in line for line in observed.said)
    for path in (*tmp_path.glob("*.safetensors"), *tmp_path.glob("checkpoints/*.safetensors")):
        assert all(tensor.isfinite().all() for name, tensor in load_file(path).items() if "optimizer" not in name)


def test_processes_exchange_gradients_once_per_accumulated_batch(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        run = Run(network(dropout=0), settings(batch=6, accumulate=3), torch.device("cpu"))
        run.model = nn.parallel.DistributedDataParallel(run.bare)
        exchanged: list[int] = []

        def hook(_: None, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
            exchanged.append(bucket.index())
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        run.model.register_comm_hook(None, hook)
        parts = [Points(torch.randn(2, 4), torch.randn(2), "a") for _ in range(3)]
        training_step(Fit(), run, parts, 0.1, stop=False)
        assert exchanged == [0]
    finally:
        torch.distributed.destroy_process_group()


def test_accumulated_parts_give_the_same_step(tmp_path: Path) -> None:
    options = {"frozen_statistics": True, "batch": 4}
    fit(tmp_path / "whole", 10, model=network(dropout=0), **options)
    fit(tmp_path / "parts", 10, model=network(dropout=0), accumulate=2, **options)
    for key, value in load_file(tmp_path / "whole" / "last.safetensors").items():
        torch.testing.assert_close(value, load_file(tmp_path / "parts" / "last.safetensors")[key])


def test_the_update_equals_pytorchs_sgd(tmp_path: Path) -> None:
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


def test_the_update_equals_pytorchs_adamw_with_named_groups(tmp_path: Path) -> None:
    """Statistics of the norm are frozen; otherwise the gradient of the preceding bias is only rounding errors."""
    model, reference = network(dropout=0), network(dropout=0).eval()
    options = {"optimizer": "adamw", "weight_decay": 0.1, "decay_norms": False, "no_decay": (r"3\.bias",)}
    fit(tmp_path, 6, model=model, batch=20, frozen_statistics=True, **options)
    named = dict(reference.named_parameters())
    decaying, constant = ["0.weight", "0.bias", "3.weight"], ["1.weight", "1.bias", "3.bias"]
    optimizer = torch.optim.AdamW(
        [
            {"params": [named[name] for name in decaying], "weight_decay": 0.1},
            {"params": [named[name] for name in constant], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.999),
        eps=1e-8,
    )
    assert {*decaying, *constant} == set(named)
    data = Line()
    for i in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 - i / 6) ** 0.9
        optimizer.zero_grad()
        (reference(data.x).squeeze(1) - data.y).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), reference.state_dict())


def test_clipping_bounds_the_step(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 1))
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    fit(tmp_path, 1, model=model, clip=0.01)
    step = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert float(step.norm()) == pytest.approx(0.05 * 0.01, rel=1e-3)


def test_averaged_weights_are_saved(tmp_path: Path) -> None:
    model = network()
    first = model[0].weight.detach().clone()
    expected, seen = first.clone(), []

    def act(done: int) -> None:
        expected.mul_(0.75).add_(model[0].weight.detach(), alpha=0.25)
        seen.append(expected)

    fit(tmp_path, 3, model=model, average=0.75, progress=Recorder(act))
    kept = load_file(tmp_path / "last.safetensors")
    assert len(seen) == 3
    torch.testing.assert_close(kept["0.weight"], expected)
    assert not torch.equal(kept["0.weight"], model[0].weight)
    assert int(kept["1.num_batches_tracked"]) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"average": 0.9},
        {"precision": "bfloat16"},
        {"precision": "float16"},
        {"clip": 1.0},
        {"optimizer": "adamw", "weight_decay": 0.01},
        {"optimizer": "adamw", "average": 0.9, "precision": "float16"},
    ],
)
def test_every_compute_setting_resumes_exactly(options: dict[str, Any], tmp_path: Path) -> None:
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


def test_frozen_layers_do_not_change(tmp_path: Path) -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit(tmp_path, 5, model=model, frozen=("0.", "1."))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"3.weight", "3.bias"}
    with pytest.raises(ValueError, match="every parameter is frozen"):
        fit(tmp_path / "none", 5, frozen=("0.", "1.", "3."))


def test_training_reduces_the_error(uninterrupted: Path) -> None:
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


def test_a_changed_number_in_the_log_is_reported(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        fit(tmp_path, ITERATIONS, progress=crash_at(12))
    path = tmp_path / "log.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    changed = {**json.loads(lines[3]), "lr": 7.0}
    path.write_text("".join([*lines[:3], json.dumps(changed) + "\n", *lines[4:]]))
    observed = Recorder()
    assert fit(tmp_path, ITERATIONS, progress=observed).finished
    assert any(f"{path}: lines have changed or are missing" in line for line in observed.said)
    assert fit(uninterrupted, ITERATIONS, progress=observed).finished
    assert not any(f"{uninterrupted / 'log.jsonl'}" in line for line in observed.said)


def test_the_progress_of_a_run_is_observed(tmp_path: Path) -> None:
    observed = Recorder()
    outcome = fit(tmp_path, ITERATIONS, progress=observed)
    assert outcome.began == 0
    assert observed.done("training") == list(range(1, 31))
    assert observed.done("evaluating") == list(range(1, 11)) * 3
    assert re.fullmatch(r"loss \d+\.\d{3}  lr \S+  \S+ samples/s", observed.steps[0][3])
    again = Recorder()
    assert fit(tmp_path, ITERATIONS, progress=again).began == 30
    assert again.steps == []


def test_the_first_iterations_announce_duration_first_score_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(0.0, 3.0)  # seconds; read at the start and at the end of each iteration
    monkeypatch.setattr("dnlnet.engine.train.perf_counter", lambda: next(clock))
    recorder = Recorder()
    fit(tmp_path, ITERATIONS, progress=recorder)
    (said,) = [text for text in recorder.said if "first score" in text]
    for fact in ("84 s for 28 iterations", "after iteration 10, in about 24 s", str(tmp_path)):
        assert fact in said
    assert recorder.said.index(said) == 0


def test_fast_iterations_announce_the_duration_after_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(0.0, 0.09)
    monkeypatch.setattr("dnlnet.engine.train.perf_counter", lambda: next(clock))
    recorder = Recorder()
    fit(tmp_path, ITERATIONS, progress=recorder)
    assert sum("1 s for 7 iterations" in text for text in recorder.said) == 1  # 23 iterations take 2.07 s


def test_a_checkpoint_holds_the_description_of_a_model(tmp_path: Path) -> None:
    for name, options in (("plain", {}), ("averaged", {"average": 0.5})):
        fit(tmp_path / name, 5, metadata={"recipe": "x"}, **options)
        path = tmp_path / name / "checkpoints" / "000005.safetensors"
        with safe_open(path, "pt") as file:
            about = file.metadata()
        assert (about["recipe"], about["iteration"]) == ("x", "5")
        for key, value in load_file(tmp_path / name / "last.safetensors").items():
            assert torch.equal(load_file(path)[about["prefix"] + key], value)
