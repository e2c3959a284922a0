"""Prediction time of equivalent forms of a network."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from dnlnet.backbones.bfloat16 import InBfloat16, choose_precision
from dnlnet.backbones.fold import first_tensor, fold_batch_norms
from dnlnet.bench.timing import compare_times
from dnlnet.deployment.runtimes import open_network, require_backend, write_network
from dnlnet.layout import convert_to_channels_last, to_channels_last

BFLOAT16 = "folded, channels_last, bfloat16"  # `dnlnet predict --precision bfloat16`
# `dnlnet predict --backend` uses the forms with free sizes.
FORMS = (
    "eager",
    "channels_last",
    "folded",
    "folded, channels_last",
    "folded, inductor",
    BFLOAT16,
    "onnxruntime",
    "openvino",
    "onnxruntime, free sizes",
    "openvino, free sizes",
)
_RUNTIMES = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class FormTime:
    """Time of one form of a network.

    Args:
        form: One of `FORMS`.
        seconds: Best time for the whole batch.
        ratio: Ratio of the time to that of the first form.
        difference: Largest difference of the logits from those of the first form.
    """

    form: str
    seconds: float
    ratio: float
    difference: float


def require_form(form: str) -> None:
    """Raise unless the runtime, compiler or instructions that the form needs exist on this machine."""
    if form == BFLOAT16:
        choose_precision("bfloat16")
    runtime = form.partition(",")[0]
    if runtime in _RUNTIMES:
        require_backend(runtime)
    if form == "folded, inductor" and not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        raise ModuleNotFoundError("torch.compile needs a C++ compiler; install g++")


def available_forms() -> list[str]:
    """Return the forms that can be measured on this machine.

    >>> available_forms()[:2]
    ['eager', 'channels_last']
    """
    available = []
    for form in FORMS:
        with suppress(ModuleNotFoundError, ValueError):
            require_form(form)
            available.append(form)
    return available


def equivalent_form(
    form: str, network: nn.Module, folded: nn.Module, image: Tensor, folder: Path, threads: int
) -> Callable[[], Tensor]:
    """Return a call that runs the network on an image or clip in this form, with exported files in `folder`."""
    runtime, _, free = form.partition(", ")
    if runtime in _RUNTIMES:
        path = folder / f"{free or 'fixed'}.onnx"
        if not path.exists():
            write_network(folded, path, image, free=bool(free))
        return partial(open_network(path, runtime, threads), image)
    chosen = deepcopy(folded if form.startswith("folded") else network)
    if "channels_last" in form:
        chosen, image = convert_to_channels_last(chosen), to_channels_last(image)
    if form == BFLOAT16:
        chosen = InBfloat16(chosen)
    if form.endswith("inductor"):
        chosen = torch.compile(chosen)  # type: ignore[assignment]
    return lambda: first_tensor(chosen(image))


@torch.inference_mode()
def bench_predict(
    network: nn.Module, image: Tensor, forms: Sequence[str], *, rounds: int = 5, threads: int = 2
) -> list[FormTime]:
    """Time these forms in interleaved rounds, and compare their logits with those of the first."""
    torch.set_num_threads(threads)
    folded = fold_batch_norms(network.eval(), image)
    with tempfile.TemporaryDirectory() as folder:
        calls = {form: equivalent_form(form, network, folded, image, Path(folder), threads) for form in forms}
    outputs = {form: call() for form, call in calls.items()}
    reference = outputs[forms[0]]
    times = compare_times(calls, rounds)
    return [FormTime(form, *times[form], float((outputs[form] - reference).abs().max())) for form in forms]
