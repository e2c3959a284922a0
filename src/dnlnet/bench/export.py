"""Exported files against the network itself: time, peak memory, and how near their outputs are."""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import first_tensor, fold_batch_norms
from dnlnet.bench.memory import measured_in_child, peak_of
from dnlnet.bench.timing import compare_times
from dnlnet.export import FREE_AXES, Attention, portable
from dnlnet.export.programs import read_onnx, read_program, write_onnx, write_program
from dnlnet.export.runtimes import FirstOutput
from dnlnet.layout import convert_to_channels_last, to_channels_last
from dnlnet.registry import find_recipe, network_of

_SMALL = 64  # side of the picture that files are traced with, and that loads what any call needs
_FILES: Mapping[str, tuple[Any, Any]] = {"onnx": (write_onnx, read_onnx), "torch": (write_program, read_program)}
FORMS: Mapping[str, tuple[str, Attention] | None] = {
    "dnlnet": None,
    "onnx, blocked": ("onnx", "blocked"),
    "onnx, plain": ("onnx", "plain"),
    "torch, blocked": ("torch", "blocked"),
    "torch, plain": ("torch", "plain"),
}


@dataclass(frozen=True)
class Row:
    """One form of the network.

    Args:
        form: a name in `FORMS`.
        seconds: the best time for one picture.
        ratio: of the time of the first form.
        peak_bytes: beyond weights and input, in a process of its own; None where that cannot be measured.
        difference: the largest from the outputs of the first form, as a share of their largest value.
    """

    form: str
    seconds: float
    ratio: float
    peak_bytes: int | None
    difference: float


@torch.inference_mode()
def bench_export(
    recipe: str, size: Sequence[int], forms: Sequence[str], *, rounds: int = 3, threads: int = 2
) -> list[Row]:
    """Write the files of these forms, and measure them in turn, `rounds` times, on one picture of this size."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        task: dict[str, Any] = {"recipe": recipe, "folder": folder, "threads": threads}
        folded = _folded(recipe)
        for form in forms:
            if FORMS[form] is not None:
                _write(folded, Path(folder), form)
        del folded
        peaks = {
            form: measured_in_child("dnlnet.bench.export", {**task, "form": form, "size": size}) for form in forms
        }
        runs = {form: _load(form=form, **task) for form in forms}
        image = _image(size)
        outputs = {form: run(image) for form, run in runs.items()}
        first = next(iter(outputs.values()))
        far = {form: float((output - first).abs().max() / first.abs().max()) for form, output in outputs.items()}
        times = compare_times({form: lambda run=run: run(image) for form, run in runs.items()}, rounds)  # type: ignore[misc]
    return [Row(form, *times[form], peaks[form], far[form]) for form in forms]


def _folded(recipe: str) -> nn.Module:
    torch.manual_seed(0)
    return fold_batch_norms(network_of(find_recipe(recipe))[0]().eval(), _image((_SMALL, _SMALL)))


def _image(size: Sequence[int], batch: int = 1) -> Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))


def _write(network: nn.Module, folder: Path, form: str) -> None:
    kind, attention = FORMS[form]  # type: ignore[misc]
    # With a batch of two, for one would be taken for a batch that is always one.
    deployed = FirstOutput(portable(network, attention), 2)
    _FILES[kind][0](deployed, _path(folder, form), _image((_SMALL + 1, _SMALL + 3), 2), FREE_AXES, {})


def _path(folder: Path | str, form: str) -> Path:
    return Path(folder) / f"{form}.pt2"  # PyTorch complains about any other ending


def _load(recipe: str, folder: str, threads: int, form: str) -> Callable[[Tensor], Tensor]:
    """What computes this form, on contiguous pictures."""
    chosen = FORMS[form]
    if chosen is None:
        network = convert_to_channels_last(_folded(recipe))
        return lambda x: first_tensor(network(to_channels_last(x)))
    read = _FILES[chosen[0]][1]
    path = _path(folder, form)
    run = read(path, threads) if chosen[0] == "onnx" else read(path)
    return lambda x: torch.from_numpy(run(x)["output"])


@torch.inference_mode()
def _measure(task: str) -> int:
    options = json.loads(task)
    image = _image(options.pop("size"))
    torch.set_num_threads(options["threads"])
    run = _load(**options)
    run(_image((_SMALL, _SMALL)))
    return peak_of(lambda: run(image))


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
