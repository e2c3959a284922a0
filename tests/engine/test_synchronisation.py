"""Training steps that do not make the host wait for the device.

The device is `meta`: its tensors have no values, so that a step that reads one fails.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dnlnet.data.samples import Sample
from dnlnet.data.scenes import CLASSES
from dnlnet.engine import train as engine
from dnlnet.engine.loading import to_host
from dnlnet.engine.run import Run
from dnlnet.engine.train import NonFiniteError, training_step
from dnlnet.segmentation.losses import SegmentationLoss
from dnlnet.segmentation.schema import Ohem
from dnlnet.segmentation.task import SegmentationTask
from dnlnet.segmentation.tiny import TinySegmentor
from waiting import META, counted

sys.path.insert(0, str(Path(__file__).parent))
from toy import Fit, Line, fit, settings


@pytest.mark.parametrize(
    "wait",
    [
        Tensor.item,
        bool,
        float,
        Tensor.tolist,
        Tensor.cpu,
        lambda x: x.to("cpu"),
        torch.nonzero,
        torch.unique,
        lambda x: torch.equal(x, x),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.copy_(torch.ones(1)),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: x.new_tensor([1.0]),
    ],
)
def test_waits_are_counted(wait: Callable[[Tensor], Any]) -> None:
    x = torch.ones(1, device=META)
    with counted() as waits, suppress(RuntimeError):  # there are no values to read
        wait(x)
    assert waits


def segmentation(loss: SegmentationLoss) -> tuple[SegmentationTask, Sample]:
    # The attention is too large to be computed by its definition, whose weights the host checks on a CPU.
    image = torch.zeros(2, 3, 256, 256, dtype=torch.uint8, device=META)
    return SegmentationTask(CLASSES, loss), Sample(image, image[:, 0], ["a.png", "b.png"])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize(
    "options",
    [{}, {"clip": 1.0}, {"average": 0.9}, {"accumulate": 2}, {"channels_last": True}, {"frozen_statistics": True}],
)
def test_a_training_step_does_not_wait(
    optimizer: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Tensor] = []
    monkeypatch.setattr(engine, "to_host", copied.append)
    monkeypatch.setattr(Run, "autocast", lambda _: nullcontext())  # which `meta` does not have
    task, batch = segmentation(SegmentationLoss(torch.ones(len(CLASSES), device=META), Ohem(kept=100)))
    run = Run(TinySegmentor(len(CLASSES)), settings(optimizer=optimizer, momentum=0.9, **options), META)
    parts = [batch] * options.get("accumulate", 1)
    for _ in range(2):  # the first one creates the optimiser's state
        with counted() as waits:
            training_step(task, run, parts, 0.1, stop=False)
        assert waits == []
    assert [values.shape for values in copied] == [(3 * len(parts) + 1,)] * 2


def test_the_host_reads_a_step_after_starting_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are read at once only at the start, and before an evaluation, a checkpoint or the end of a stage."""
    events: list[str] = []

    def copying(values: Tensor) -> Callable[[], Tensor]:
        started = sum(event.startswith("start") for event in events) + 1

        def read() -> Tensor:
            events.append(f"read {started}")
            return values

        events.append(f"start {started}")
        return read

    monkeypatch.setattr(engine, "to_host", copying)
    monkeypatch.setattr(Fit, "score", lambda *_: events.append("evaluate"))
    usual = engine.Checkpoints.save
    monkeypatch.setattr(engine.Checkpoints, "save", lambda *args: (events.append("save"), usual(*args)))
    fit(tmp_path, 8, 3, save_every=6, evaluate_every=4)
    evaluated = ["evaluate"] * 10
    assert events == [
        *("start 1", "read 1", "start 2", "start 3", "read 2", "start 4", "read 3", "read 4", *evaluated),
        *("start 5", "start 6", "read 5", "read 6", "save", "start 7", "start 8", "read 7", "read 8", *evaluated),
        *("start 9", "start 10", "read 9", "start 11", "read 10", "read 11", *evaluated, "save"),
    ]


def test_a_copy_to_the_host_waits_only_for_earlier_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator is imitated: the copy starts first, then the event that the host later waits for is recorded."""
    events: list[Any] = []
    event = SimpleNamespace(synchronize=lambda: events.append("wait"))
    stream = SimpleNamespace(record_event=lambda: events.append("record") or event)
    copy = SimpleNamespace(copy_=lambda values, non_blocking: events.append(("copy", non_blocking)) or copy)
    allocated: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "empty_like", lambda _, **options: allocated.append(options) or copy)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: events.append(device) or stream)
    read = to_host(torch.ones(2, device=META))
    assert allocated == [{"device": "cpu", "pin_memory": True}]
    assert events == [("copy", True), META, "record"]
    assert read() is copy
    assert events[-1] == "wait"


class Fragile(Fit):
    """Task that fails on weights that are not finite."""

    def losses(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        if not next(model.parameters()).isfinite().all():
            raise ValueError("no prediction")
        return super().losses(model, batch)


def test_damage_is_reported_even_if_the_next_step_fails(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"the loss is not finite .* on point 3; ") as raised:
        fit(tmp_path, 30, task=Fragile(), data=Line(broken=3), batch=1, frozen_statistics=True, save_every=100)
    assert "no prediction" in str(raised.value.__context__)


@pytest.mark.parametrize("skipped", [0, 1])
def test_damage_is_found_before_it_is_saved(skipped: int, tmp_path: Path) -> None:
    options = {"batch": 1, "frozen_statistics": True, "save_every": 1, "evaluate_every": 1, "keep": 100}
    with pytest.raises(NonFiniteError) as raised:
        fit(tmp_path, 60, data=Line(broken=3), skip_nonfinite=skipped, average=0.5, **options)
    iteration = int(str(raised.value).split()[1].rstrip(":"))
    assert f"the last checkpoint is intact (iteration {iteration - 1})" in str(raised.value)
    assert len(list((tmp_path / "checkpoints").glob("*.safetensors"))) == iteration - 1
    for path in tmp_path.rglob("*.safetensors"):
        assert all(value.isfinite().all() for value in load_file(path).values() if value.is_floating_point())


def test_the_damaged_micro_batch_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        NonFiniteError, match=r"the loss is not finite .* on (point \d+, point 3|point 3, point \d+); "
    ):
        fit(tmp_path, 30, data=Line(broken=3), accumulate=2)
