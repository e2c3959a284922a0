"""Compare exported files, with blocked and plain attention, with the network itself: time, peak memory, outputs.

Weights are random. Peak memory is measured in child processes (Linux only).

Example: python benchmarks/export.py cityscapes-r101-dnl --size 769x769
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dnlnet.backbones.fold import first_tensor, fold_batch_norms
from dnlnet.bench.block import describe_machine
from dnlnet.bench.memory import measure_in_child, peak_of
from dnlnet.bench.timing import compare_times
from dnlnet.cli.terminal.options import parse_size
from dnlnet.cli.terminal.tables import print_table
from dnlnet.deployment import FREE_AXES, Attention, portable
from dnlnet.deployment.programs import read_onnx, read_program, write_onnx, write_program
from dnlnet.deployment.runtimes import FirstOutput
from dnlnet.files import write_json
from dnlnet.layout import convert_to_channels_last, to_channels_last
from dnlnet.registry import find_recipe, network_of

_SMALL = 64  # side of the image used for tracing
_FILES: Mapping[str, tuple[Any, Any]] = {"onnx": (write_onnx, read_onnx), "torch": (write_program, read_program)}
FORMS: Mapping[str, tuple[str, Attention] | None] = {
    "dnlnet": None,
    "onnx, blocked": ("onnx", "blocked"),
    "onnx, plain": ("onnx", "plain"),
    "torch, blocked": ("torch", "blocked"),
    "torch, plain": ("torch", "plain"),
}


@dataclass(frozen=True)
class FormCost:
    """Cost and accuracy of one form of the network.

    Args:
        form: Key of `FORMS`.
        seconds: Best time for one image.
        ratio: Time relative to the first form.
        peak_bytes: Peak memory beyond weights and input, or None if it cannot be measured.
        difference: Largest difference from the first form's outputs, relative to their largest value.
    """

    form: str
    seconds: float
    ratio: float
    peak_bytes: int | None
    difference: float


def main() -> None:
    """Measure the selected forms, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="camvid-mbv2-dnl", help="recipe of the network")
    parser.add_argument("--size", metavar="HxW", help="height and width of the image")
    parser.add_argument("--forms", default="all", help=f"separated by semicolons: {'; '.join(FORMS)}")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved runs: best times, median ratios")
    parser.add_argument("--threads", type=int, default=2, help="threads of the network")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    chosen = list(FORMS) if given.forms == "all" else [form.strip() for form in given.forms.split(";")]
    if unknown := [form for form in chosen if form not in FORMS]:
        parser.error(f"unknown form {unknown[0]!r}; expected some of: {'; '.join(FORMS)}")
    shape = network_of(find_recipe(given.recipe))[1]
    if len(shape) != 2:
        parser.error(f"{given.recipe} takes clips; choose a recipe for images")
    if given.size is not None:
        shape = parse_size(given.size, shape)
    title = f"{given.recipe} on {' x '.join(map(str, shape))} pixels"
    print(f"{title}; writing the files takes a minute")
    rows = bench_export(given.recipe, shape, chosen, rounds=given.rounds, threads=given.threads)
    machine = describe_machine(given.threads)
    print_table(
        title,
        [
            {
                "form": row.form,
                "ms": f"{1e3 * row.seconds:,.0f}",
                f"of {chosen[0]}": f"{row.ratio:.2f}",
                "peak MB": "-" if row.peak_bytes is None else f"{1e-6 * row.peak_bytes:,.0f}",
                "difference": f"{row.difference:.1e}",
            }
            for row in rows
        ],
        caption=f"peak: beyond weights and input; {machine}",
    )
    if given.json is not None:
        about = {"machine": machine, "recipe": given.recipe, "size": shape}
        write_json(given.json, {**about, "rows": [asdict(row) for row in rows]})
        print(f"written: {given.json}")


@torch.inference_mode()
def bench_export(
    recipe: str, size: Sequence[int], forms: Sequence[str], *, rounds: int, threads: int
) -> list[FormCost]:
    """Write the files of these forms and measure them on one image in interleaved rounds."""
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        task: dict[str, Any] = {"recipe": recipe, "folder": folder, "threads": threads}
        folded = _folded(recipe)
        for form in forms:
            if FORMS[form] is not None:
                _write(folded, Path(folder), form)
        del folded
        command = [__file__, "--child"]
        peaks = {form: measure_in_child(command, {**task, "form": form, "size": size}) for form in forms}
        runs = {form: _load(form=form, **task) for form in forms}
        image = _image(size)
        outputs = {form: run(image) for form, run in runs.items()}
        first = outputs[forms[0]]
        far = {form: float((output - first).abs().max() / first.abs().max()) for form, output in outputs.items()}
        times = compare_times({form: lambda run=run: run(image) for form, run in runs.items()}, rounds)
    return [FormCost(form, *times[form], peaks[form], far[form]) for form in forms]


def _folded(recipe: str) -> nn.Module:
    torch.manual_seed(0)
    return fold_batch_norms(network_of(find_recipe(recipe))[0]().eval(), _image((_SMALL, _SMALL)))


def _image(size: Sequence[int], batch: int = 1) -> Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))


def _write(network: nn.Module, folder: Path, form: str) -> None:
    kind, attention = FORMS[form]
    # The exporter treats a batch size of one as a constant; use two.
    deployed = FirstOutput(portable(network, attention), 2)
    _FILES[kind][0](deployed, _path(folder, form), _image((_SMALL + 1, _SMALL + 3), 2), FREE_AXES, {})


def _path(folder: Path | str, form: str) -> Path:
    return Path(folder) / f"{form}.pt2"  # PyTorch warns about any other suffix


def _load(recipe: str, folder: str, threads: int, form: str) -> Callable[[Tensor], Tensor]:
    """Return a function that applies this form to contiguous images."""
    chosen = FORMS[form]
    if chosen is None:
        network = convert_to_channels_last(_folded(recipe))
        return lambda x: first_tensor(network(to_channels_last(x)))
    read = _FILES[chosen[0]][1]
    path = _path(folder, form)
    run = read(path, threads) if chosen[0] == "onnx" else read(path)
    return lambda x: torch.from_numpy(run(x)["output"])


@torch.inference_mode()
def _measure_peak(task: str) -> int:
    options = json.loads(task)
    image = _image(options.pop("size"))
    torch.set_num_threads(options["threads"])
    run = _load(**options)
    run(_image((_SMALL, _SMALL)))  # load the libraries that every call needs
    return peak_of(lambda: run(image))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(_measure_peak(sys.argv[2]))
    else:
        main()
