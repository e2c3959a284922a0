"""Task that trains instantly: a line through noisy points, with dropout to use random numbers."""

import signal
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from dnlnet.engine.settings import Optim, Phase, RunSettings, Schedule, Training
from dnlnet.engine.train import Outcome, resume_point, train
from dnlnet.progress import SILENT
from observer import Recorder

CPU = torch.device("cpu")


class Points(NamedTuple):
    x: Tensor
    y: Tensor
    name: str


class Line(Dataset[Points]):
    def __init__(self, count: int = 20, broken: int | None = None) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(count, 4, generator=generator)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5, 3.0]) + 0.1 * torch.randn(count, generator=generator)
        if broken is not None:
            self.y[broken] = torch.nan

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, draw: int | tuple[int, int]) -> Points:
        index = draw if isinstance(draw, int) else draw[0]
        return Points(self.x[index], self.y[index], f"point {index}")


class Error:
    def __init__(self) -> None:
        self.squares = torch.zeros((), dtype=torch.float64)

    def merge(self, gather: Any) -> None:
        self.squares = torch.stack(gather(self.squares)).sum()

    def scores(self) -> dict[str, float]:
        return {"minus_error": -float(self.squares)}


class Fit:
    def losses(self, model: nn.Module, batch: Points) -> dict[str, Tensor]:
        return {"square": (model(batch.x).squeeze(1) - batch.y).square().mean()}

    def metric(self) -> Error:
        return Error()

    def score(self, model: nn.Module, batch: Points, metric: Error) -> None:
        metric.squares += (model(batch.x).squeeze(1) - batch.y).square().sum().double()

    def details(self, metric: Error) -> dict[str, Any]:
        return {"detail": "x"}

    def names(self, batch: Points) -> Sequence[str]:
        return batch.name


def network(dropout: float = 0.3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Linear(8, 1))


def settings(
    first: int = 30, *later: int, lr: float = 0.05, optimizer: Literal["sgd", "adamw"] = "sgd", **options: Any
) -> RunSettings:
    """Return settings from field names of any section; `lr` may be any number."""
    options = {"batch": 4, "weight_decay": 0.0, "save_every": 5, "evaluate_every": 10, **options}
    optim, schedule, training = (
        {name: options.pop(name) for name in part.model_fields if name in options}
        for part in (Optim, Schedule, Training)
    )
    then = tuple(Phase(train="train", iterations=n, lr=lr) for n in later)
    return RunSettings(
        Optim(kind=optimizer, lr=1.0, **optim).model_copy(update={"lr": lr}),
        Schedule(iterations=first, then=then, **schedule),
        Training(**training),
        **options,
    )


def fit(
    folder: Path, *iterations: int, data: Line | None = None, model: nn.Module | None = None, **options: Any
) -> Outcome:
    progress = options.pop("progress", SILENT)
    task, metadata = options.pop("task", Fit()), options.pop("metadata", None)
    return train(
        task,
        model or network(),
        [data or Line()] * max(1, len(iterations)),
        settings(*iterations, **options),
        folder,
        device=CPU,
        start=resume_point(folder, progress),
        validation=Line(10),
        metadata=metadata,
        progress=progress,
    )


def fit_slowly(folder: Path, iterations: int, ready: Event) -> None:
    ready.set()
    fit(folder, iterations, progress=Recorder(lambda _: time.sleep(0.02)))


def fit_as(rank: int, folder: Path, skip: int) -> None:
    """Train as one of two processes; the second one is asked to stop after iteration 11."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)

    def act(done: int) -> None:
        if rank == 1 and done == 11:
            signal.raise_signal(signal.SIGTERM)

    data = Line(broken=3 if skip else None)
    outcome = fit(folder / "run", 30, data=data, skip_nonfinite=skip, save_every=100, progress=Recorder(act))
    torch.distributed.destroy_process_group()
    (folder / str(rank)).write_text(f"{outcome.iteration} {outcome.signal}")
