"""Export a model for other programs, and compare the exported file with the model."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dnlnet.artifacts.model_file import ModelFile, file_metadata, open_model, write_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.data.scenes import SMALLEST, scene
from dnlnet.deployment import FREE_AXES, Attention, Exportable, Query, portable
from dnlnet.deployment.programs import (
    TOLERANCE,
    Arrays,
    computed,
    largest_difference,
    read_onnx,
    read_program,
    write_onnx,
    write_program,
)
from dnlnet.engine.memory import require_memory
from dnlnet.errors import unknown
from dnlnet.files import atomic_write, json_text
from dnlnet.registry import accepted_options

Format = Literal["onnx", "torch", "safetensors"]
Part = Literal["whole", "pyramid"]
HALF_TOLERANCE = 2e-2
_PROGRAMS = {"onnx": (write_onnx, read_onnx), "torch": (write_program, read_program)}
_EXTRA = 33  # extra pixels per free axis of the second test input


class DifferenceError(Exception):
    """An exported file does not compute the same as the model."""


@dataclass(frozen=True)
class Exported:
    """Exported file, and its differences from the model.

    Args:
        path: Exported file.
        takes: Name and axes of the input.
        outputs: Names of the outputs.
        differences: Largest difference of each output relative to its largest value, per input shape tested.
        remark: Note for the user.
    """

    path: Path
    takes: str
    outputs: tuple[str, ...]
    differences: dict[str, dict[str, float]]
    remark: str = ""

    @property
    def largest(self) -> float:
        """Largest of all differences."""
        return max(value for of_input in self.differences.values() for value in of_input.values())


def export(
    model: str | Path | ModelFile,
    path: Path | str,
    format: Format = "onnx",
    *,
    size: tuple[int, int] | None = None,
    free: Sequence[str] | None = None,
    queries: Sequence[Query] = (),
    part: Part = "whole",
    attention: Attention = "blocked",
    half: bool = False,
    tolerance: float | None = None,
) -> Exported:
    """Export a model, run the exported file, and compare the outputs. Raises if they differ, and writes nothing.

    Args:
        model: Model file, run folder, or name on the Hugging Face hub.
        path: File to write.
        format: `onnx` (ONNX Runtime and others), `torch` (`torch.export.load`) or `safetensors` (dnlnet).
        size: Height and width of the input. Default: free; tested at the size in the recipe.
        free: Axes of free length: any of batch, height and width. Default: none with `size`, otherwise all that the
            network allows.
        queries: Points whose attention maps become additional outputs.
        part: For a detector: the whole, or only its backbone and feature pyramid.
        attention: For onnx and torch: `blocked` loops over blocks of queries, with memory linear in the image
            size; `plain` forms the N x N map, for runtimes without loops.
        half: Store weights in 16 bits (safetensors only).
        tolerance: Largest allowed difference, relative to an output's largest value.
    """
    for axis in free or ():
        if axis not in FREE_AXES:
            raise unknown("axis", axis, FREE_AXES)
    if format not in get_args(Format):
        raise unknown("format", format, get_args(Format))
    if attention not in get_args(Attention):
        raise unknown("attention", attention, get_args(Attention))
    if half and format != "safetensors":
        raise ValueError(f"--half is for safetensors; {format} keeps the precision that the network computes in")
    if format == "safetensors" and (queries or free or part != "whole"):
        raise ValueError("a safetensors file holds weights alone: axes, maps and parts are for onnx and torch")
    allowed = tolerance if tolerance is not None else HALF_TOLERANCE if half else TOLERANCE
    file = open_model(model)
    recipe, path = file.recipe, Path(path)
    asked = accepted_options(
        recipe.task, recipe.exportable, with_maps=queries or None, part=None if part == "whole" else part
    )
    exportable: Callable[[nn.Module], Exportable] = partial(recipe.exportable, **asked)
    if path.exists() and path.samefile(file.path):
        raise ValueError(f"{path}: is the model itself; choose another file")
    network = load_network(file).eval()
    reference = exportable(network)
    lengths = size or reference.size
    example = example_input(reference, lengths)

    def attempt(free: Sequence[str]) -> Exported:
        with atomic_write(path) as temporary:
            if format == "safetensors":
                state = network.state_dict()
                if half:
                    state = {name: x.half() if x.is_floating_point() else x for name, x in state.items()}
                write_model_file(temporary, state, file)
                read = deepcopy(network)
                read.load_state_dict(load_file(temporary))
                compute = computed(exportable(read))
            else:
                write, run = _PROGRAMS[format]
                # Tracing with a batch of one would fix the batch size to one.
                traced = example_input(reference, lengths, 2) if "batch" in free else example
                folded = portable(recipe.fold(network), attention, traced=reference.traced)
                try:
                    write(exportable(folded), temporary, traced, free, _about(file))
                except Exception as error:  # each exporter has its own errors
                    if not free or isinstance(error, ValueError | OSError | ImportError):
                        raise
                    reason = str(error.__cause__ or error).strip().splitlines()[0]
                    raise ValueError(
                        f"this network cannot be exported to {format} with free axes: {reason}; leave --dynamic out"
                    ) from error
                compute = run(temporary)
            expect = computed(reference)
            inputs = [example, *_others(reference, example, free)]
            differences = {_shape(x): largest_difference(expect(x), _tried(compute, x)) for x in inputs}
            exported = Exported(
                path, _axes(reference, example, free), reference.outputs, differences, reference.remark
            )
            if not exported.largest <= allowed:
                raise DifferenceError(
                    f"what was written differs from the model by {exported.largest:.2g} of an output's largest "
                    f"value, more than {allowed:g}; {path} was not written"
                )
        return exported

    if free is not None or size is not None or format == "safetensors":
        return attempt(free or ())
    with suppress(Exception):  # each exporter and runtime has its own errors
        return attempt(FREE_AXES)
    exported = attempt(())
    fixed = (
        f"the input is fixed at {_shape(example)}: with free axes, this network cannot be exported to {format} "
        "(--dynamic all shows why)"
    )
    return replace(exported, remark="\n".join(filter(None, [reference.remark, fixed])))


def example_input(exportable: Exportable, size: tuple[int, int], batch: int = 1) -> Tensor:
    """Return generated scenes in 0..255 as an input of this height and width, with a different scene per frame."""
    if min(size) < SMALLEST:
        raise ValueError(f"the size must be at least {SMALLEST} x {SMALLEST} pixels, got {size[0]} x {size[1]}")
    frames = exportable.frames
    values = batch * frames * size[0] * size[1] * 3
    require_memory(8 * values, f"an input of {size[0]} x {size[1]} pixels", "lower --size")
    images = torch.stack([torch.from_numpy(scene(seed, size)[0]) for seed in range(batch * frames)]) * 255
    if "time" in exportable.takes.axes:
        return images.view(batch, frames, *images.shape[1:]).transpose(1, 2).contiguous()
    return images if "batch" in exportable.takes.axes else images[0]


def _others(exportable: Exportable, example: Tensor, free: Sequence[str]) -> list[Tensor]:
    """Return an input with another length on each free axis, if there are any."""
    axes = set(exportable.takes.free(free).values())
    if not axes:
        return []
    height, width = (
        length + _EXTRA * (axis in axes) for axis, length in zip(FREE_AXES[1:], example.shape[-2:], strict=True)
    )
    return [example_input(exportable, (height, width), 2 if "batch" in axes else 1)]


def _tried(compute: Callable[[Tensor], Arrays], x: Tensor) -> Arrays:
    try:
        return compute(x)
    except Exception as error:  # each runtime has its own errors
        reason = str(error).strip().splitlines()[-1]
        raise DifferenceError(f"what was written does not run on an input of {_shape(x)}: {reason}") from error


def _about(model: ModelFile) -> dict[str, str]:
    scores = {} if model.scores is None else {"scores": json_text(model.scores)}
    return file_metadata(model.recipe, model.classes) | scores | {"pixels": "RGB in 0..255"}


def _axes(exportable: Exportable, example: Tensor, free: Sequence[str]) -> str:
    lengths = {**dict(enumerate(example.shape)), **exportable.takes.free(free)}
    return f"{exportable.takes.name} ({', '.join(str(lengths[place]) for place in sorted(lengths))})"


def _shape(x: Tensor) -> str:
    return " x ".join(map(str, x.shape))
