"""State of a run: model, optimiser, moving average and random generators, saved and restored together."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from dnlnet.engine import distributed
from dnlnet.engine.checkpoint import Checkpoint, random_states, restore_random_states, save_tensors
from dnlnet.engine.optim import build_optimizer, freeze, parameter_groups
from dnlnet.engine.settings import RunSettings
from dnlnet.files import json_text
from dnlnet.layout import convert_to_channels_last

if TYPE_CHECKING:
    from timm.utils.model_ema import ModelEmaV3


class Run:
    """Model, optimiser and counters between two iterations.

    Args:
        model: Bare module. It is moved to the device, and wrapped for several processes or compilation.
        settings: Settings of the run.
        device: Device of the model.
    """

    def __init__(self, model: nn.Module, settings: RunSettings, device: torch.device) -> None:
        seed = settings.seed + distributed.rank()
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        freeze(model, settings.training.frozen)
        if settings.training.channels_last:
            model = convert_to_channels_last(model)
        self.settings, self.device = settings, device
        self.bare = model
        self._wrap()
        groups = parameter_groups(model, settings.optim)
        if not groups:
            raise ValueError("nothing to train: every parameter is frozen")
        self.optimizer = build_optimizer(groups, settings.optim)
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.training.precision == "float16")
        self.average: ModelEmaV3 | None = None
        if settings.optim.average is not None:
            # PyTorch's `AveragedModel` starts with the weights after the first step, and averages counters too.
            from timm.utils import model_ema  # slow to import, and few runs need it

            self.average = model_ema.ModelEmaV3(model, settings.optim.average)
        self.iteration = 0
        self.saved = 0
        self.skipped = 0
        self.best: float | None = None
        self.log: str | None = None  # digest of the log when the run was saved
        self.unscored = False  # an evaluation is due after this iteration but not done yet

    def _wrap(self) -> None:
        """Set `model` to the module that the forward pass calls."""
        self.model = distributed.distribute(self.bare, self.device)
        if self.settings.training.compile:
            self.model = torch.compile(self.model)  # type: ignore[assignment]

    def unfreeze(self, prefixes: Sequence[str]) -> None:
        """Also train the parameters whose names begin with one of these prefixes."""
        if not prefixes:
            return
        before = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        freeze(self.bare, prefixes, frozen=False)
        for group in parameter_groups(self.bare, self.settings.optim):
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in before]
            if group["params"]:
                self.optimizer.add_param_group(group)
        self._wrap()  # a wrapper exchanges only gradients of parameters that were trainable when it was created

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of the forward pass."""
        precision = self.settings.training.precision
        return torch.autocast(self.device.type, getattr(torch, precision), enabled=precision != "float32")

    def reducing(self, last: bool) -> AbstractContextManager[None]:
        """Return the context of a micro-batch. Processes exchange gradients only after the last one of a batch."""
        unreduced: Callable[[], AbstractContextManager[None]] | None = getattr(self.model, "no_sync", None)
        return nullcontext() if last or unreduced is None else unreduced()

    def statistics(self) -> list[Tensor]:
        """Return a copy of the batch norms' statistics, for `restore_statistics`."""
        return [buffer.clone() for buffer in self._statistics()]

    def restore_statistics(self, copies: Iterable[Tensor]) -> None:
        """Restore the batch norms' statistics after forward passes."""
        for buffer, copy in zip(self._statistics(), copies, strict=True):
            buffer.copy_(copy)

    def largest_statistic(self) -> Tensor:
        """Return the largest absolute value of the batch norms' statistics, not finite if any of them is not."""
        floating = [buffer for buffer in self._statistics() if buffer.is_floating_point()]
        if not floating:
            return torch.zeros((), device=self.device)
        return nn.utils.get_total_norm(floating, norm_type=inf)

    def _statistics(self) -> list[Tensor]:
        norms = (module for module in self.bare.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))
        return [buffer for norm in norms for buffer in norm.buffers()]

    def clip(self) -> Tensor:
        """Clip the gradients and return their norm, which is not finite if a gradient is not.

        With float16 the result is 0: the scaler skips such a step itself, and lowers the scale of the loss.
        """
        gradients = [p.grad for p in self.bare.parameters() if p.grad is not None]
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.get_total_norm(gradients)
        if self.settings.optim.clip is not None:
            nn.utils.clip_grads_with_norm_(self.bare.parameters(), self.settings.optim.clip, norm)
        return torch.zeros_like(norm) if self.scaler.is_enabled() else norm

    def update(self, lr: float) -> None:
        """Step the optimiser and update the moving average, after `clip`.

        With float16, PyTorch's scaler waits for the device, to know whether to skip the step.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update(self.bare)

    def model_to_save(self) -> nn.Module:
        """Return the model to evaluate and save: the moving average if there is one."""
        return self.bare if self.average is None else self.average.module

    @property
    def prefix(self) -> str:
        """Prefix of the tensors of `model_to_save` in a checkpoint."""
        return "model." if self.average is None else "average."

    def is_best(self, score: float) -> bool:
        """Record a score, and return whether it is the best so far; NaN never is."""
        better = isfinite(score) and (self.best is None or score > self.best)
        if better:
            self.best = score
        return better

    def checkpoint(self) -> Checkpoint:
        """Return the state that resuming the run needs. Every process must call this."""
        tensors = {f"model.{name}": value for name, value in self.bare.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average.{name}": value for name, value in self.model_to_save().state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items() if value is not None}
        states = distributed.gather(random_states(self.device))
        for rank, (_, generators) in enumerate(states):
            tensors |= {f"random.{rank}.{name}": value for name, value in generators.items()}
        state = {
            "skipped": self.skipped,
            "best": self.best,
            "unscored": self.unscored,
            "log": self.log,
            "scaler": self.scaler.state_dict(),
            "random": [state for state, _ in states],
        }
        self.saved = self.iteration
        return Checkpoint(self.iteration, tensors, state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint. Processes beyond the number that wrote it keep their seeds."""
        try:
            self._restore(checkpoint)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            where = f"the checkpoint of iteration {checkpoint.iteration} does not fit this run"
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{where}: {reason}; resume with the version that wrote it, or choose another --out"
            ) from error

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.bare.load_state_dict(_tensors_under(checkpoint.tensors, "model."))
        if self.average is not None:
            self.model_to_save().load_state_dict(_tensors_under(checkpoint.tensors, "average."))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _tensors_under(checkpoint.tensors, "optimizer.").items():
            index, _, kind = name.partition(".")
            state.setdefault(int(index), {})[kind] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.scaler.load_state_dict(dict(checkpoint.state["scaler"]))
        rank = distributed.rank()
        if rank < len(checkpoint.state["random"]):
            generators = _tensors_under(checkpoint.tensors, f"random.{rank}.")
            restore_random_states(checkpoint.state["random"][rank], generators, self.device)
        self.iteration = self.saved = checkpoint.iteration
        self.skipped, best = checkpoint.state["skipped"], checkpoint.state["best"]
        self.best = best if best is not None and isfinite(best) else None
        self.unscored = checkpoint.state.get("unscored", False)  # absent in the first versions
        self.log = checkpoint.state.get("log")


def save_model(path: Path, run: Run, metadata: Mapping[str, str]) -> None:
    """Write the weights and their metadata, in the main process only."""
    if not distributed.is_main():
        return
    save_tensors(path, run.model_to_save().state_dict(), {**metadata, "iteration": json_text(run.iteration)})


def _tensors_under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have this prefix, by the remaining name."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
