"""From a model file to a file that other programs read, compared with the model before it gets its name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dnlnet.backbones.fold import fold_batch_norms
from dnlnet.detection.network import Detector
from dnlnet.engine.memory import require_memory
from dnlnet.errors import unknown
from dnlnet.export.deployed import (
    Deployed,
    DeployedDetector,
    DeployedPyramid,
    DeployedSegmentor,
    DeployedVideo,
    Query,
)
from dnlnet.export.programs import (
    Arrays,
    computed,
    largest_difference,
    read_onnx,
    read_program,
    write_onnx,
    write_program,
)
from dnlnet.files import atomic_write, json_text
from dnlnet.recipes.build_video import pixels_of
from dnlnet.recipes.load import load_network
from dnlnet.recipes.model_file import ModelFile, file_metadata, write_model_file
from dnlnet.recipes.schema import DetectionRecipe, SegmentationRecipe, VideoRecipe
from dnlnet.segmentation.data.scenes import SMALLEST, scene
from dnlnet.video.network import VideoClassifier

Format = Literal["onnx", "torch", "safetensors"]
Part = Literal["whole", "pyramid"]
AXES = ("batch", "height", "width")  # that may be free
TOLERANCE = 1e-4  # as a share of an output's largest value: rounding in float32
HALF_TOLERANCE = 2e-2
_PROGRAMS = {"onnx": (write_onnx, read_onnx), "torch": (write_program, read_program)}
_EXTRA = 33  # further pixels of the second input that a file with free axes is tried on


class DifferenceError(Exception):
    """A written file does not compute what the model does."""


@dataclass(frozen=True)
class Exported:
    """What was written, and how near it is to the model.

    Args:
        path: the file.
        takes: the input's name and axes.
        outputs: their names.
        differences: for each input tried, by its shape, the largest difference of each output as a share of the
            output's largest value.
        remark: what a user should know.
    """

    path: Path
    takes: str
    outputs: tuple[str, ...]
    differences: dict[str, dict[str, float]]
    remark: str = ""

    @property
    def largest(self) -> float:
        """The largest of all differences."""
        return max(value for of_input in self.differences.values() for value in of_input.values())


def export_model(
    model: ModelFile,
    path: Path,
    form: Format = "onnx",
    *,
    size: tuple[int, int] | None = None,
    free: Sequence[str] = (),
    queries: Sequence[Query] = (),
    part: Part = "whole",
    half: bool = False,
    tolerance: float | None = None,
) -> Exported:
    """Write a model for other programs, run what was written, and compare; nothing stays that differs.

    Args:
        model: from `dnlnet.recipes.model_file.read_model_file`.
        path: of the file to write.
        form: `onnx` for ONNX Runtime and others, `torch` for `torch.export.load`, `safetensors` for dnlnet itself.
        size: height and width of the input; by itself that of the recipe.
        free: those of batch, height and width that may be others at run time.
        queries: points whose attention maps are put out as well.
        part: of a detector, the whole or its backbone with the feature pyramid.
        half: keep weights in 16 bits (safetensors).
        tolerance: the largest difference allowed, as a share of an output's largest value.
    """
    for axis in free:
        if axis not in AXES:
            raise unknown("axis", axis, AXES)
    if form not in get_args(Format):
        raise unknown("format", form, get_args(Format))
    if half and form != "safetensors":
        raise ValueError(f"--half is for safetensors; {form} keeps the precision that the network computes in")
    if form == "safetensors" and (queries or free or part != "whole"):
        raise ValueError("a safetensors file holds weights alone: axes, maps and parts are for onnx and torch")
    allowed = tolerance if tolerance is not None else HALF_TOLERANCE if half else TOLERANCE
    network = load_network(model).eval()
    reference = _deployed(model, network, queries, part)
    lengths, frames = size or default_size(model), _frames(model)
    example = example_input(reference, lengths, frames=frames)
    with atomic_write(path) as temporary:
        if form == "safetensors":
            state = {name: _halved(tensor) if half else tensor for name, tensor in network.state_dict().items()}
            write_model_file(temporary, state, model)
            network.load_state_dict(load_file(temporary))
            compute = computed(_deployed(model, network, queries, part))
        else:
            write, read = _PROGRAMS[form]
            # A batch of one would be taken for a batch that is always one.
            traced = example_input(reference, lengths, 2, frames) if "batch" in free else example
            write(_deployed(model, _folded(network), queries, part), temporary, traced, free, _about(model))
            compute = read(temporary)
        expect = computed(reference)
        inputs = [example, *_others(reference, example, free)]
        differences = {_shape(x): largest_difference(expect(x), _tried(compute, x)) for x in inputs}
        exported = Exported(path, _axes(reference, example, free), reference.outputs, differences, _remark(reference))
        if not exported.largest <= allowed:
            raise DifferenceError(
                f"what was written differs from the model by {exported.largest:.2g} of an output's largest value, "
                f"more than {allowed:g}; {path} was not written"
            )
    return exported


def default_size(model: ModelFile) -> tuple[int, int]:
    """Height and width of the input that a recipe was made for; a detector's images are 3 high and 4 wide."""
    recipe = model.recipe
    if isinstance(recipe, DetectionRecipe):
        return recipe.data.short_side, recipe.data.short_side * 4 // 3
    if isinstance(recipe, VideoRecipe):
        return recipe.evaluation.short_side, recipe.evaluation.short_side
    assert isinstance(recipe, SegmentationRecipe)
    return recipe.evaluation.window or recipe.data.crop


def example_input(deployed: Deployed, size: tuple[int, int], batch: int = 1, frames: int = 1) -> Tensor:
    """Generated scenes as an input of this height and width, in 0..255; in a clip every frame is another scene."""
    if min(size) < SMALLEST:
        raise ValueError(f"the size must be at least {SMALLEST} x {SMALLEST} pixels, got {size[0]} x {size[1]}")
    values = batch * frames * size[0] * size[1] * 3
    require_memory(8 * values, f"an input of {size[0]} x {size[1]} pixels", "lower --size")
    images = torch.stack([torch.from_numpy(scene(seed, size)[0]) for seed in range(batch * frames)]) * 255
    if "time" in deployed.takes.axes:
        return images.view(batch, frames, *images.shape[1:]).transpose(1, 2).contiguous()
    return images if "batch" in deployed.takes.axes else images[0]


def _frames(model: ModelFile) -> int:
    return model.recipe.data.frames if isinstance(model.recipe, VideoRecipe) else 1


def _deployed(model: ModelFile, network: nn.Module, queries: Sequence[Query], part: Part) -> Deployed:
    if isinstance(network, Detector):
        if queries:
            raise ValueError("a detector is written without maps; dnlnet attend shows them")
        return DeployedPyramid(network) if part == "pyramid" else DeployedDetector(network)
    if part != "whole":
        raise ValueError(f"only a detector has the part {part}; {model.path} is a {model.recipe.task} model")
    if isinstance(model.recipe, VideoRecipe):
        return DeployedVideo(network, pixels_of(model.recipe.data), queries)
    return DeployedSegmentor(network, queries)


def _folded(network: nn.Module) -> nn.Module:
    """With fewer layers, where it is known how."""
    if isinstance(network, Detector | VideoClassifier):
        return network
    return fold_batch_norms(network, torch.zeros(1, 3, 64, 64))


def _halved(tensor: Tensor) -> Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def _others(deployed: Deployed, example: Tensor, free: Sequence[str]) -> list[Tensor]:
    """An input of other lengths on every free axis."""
    axes = set(deployed.takes.free(free).values())
    if not axes:
        return []
    height, width = (
        length + _EXTRA * (axis in axes) for axis, length in zip(AXES[1:], example.shape[-2:], strict=True)
    )
    frames = example.shape[2] if "time" in deployed.takes.axes else 1
    return [example_input(deployed, (height, width), 2 if "batch" in axes else 1, frames)]


def _tried(compute: Callable[[Tensor], Arrays], x: Tensor) -> Arrays:
    try:
        return compute(x)
    except Exception as error:  # each runtime has errors of its own
        reason = str(error).strip().splitlines()[-1]
        raise DifferenceError(f"what was written does not run on an input of {_shape(x)}: {reason}") from error


def _about(model: ModelFile) -> dict[str, str]:
    scores = {} if model.scores is None else {"scores": json_text(model.scores)}
    return file_metadata(model.recipe, model.classes) | scores | {"pixels": "RGB in 0..255"}


def _axes(deployed: Deployed, example: Tensor, free: Sequence[str]) -> str:
    lengths = {**dict(enumerate(example.shape)), **deployed.takes.free(free)}
    return f"{deployed.takes.name} ({', '.join(str(lengths[place]) for place in sorted(lengths))})"


def _shape(x: Tensor) -> str:
    return " x ".join(map(str, x.shape))


def _remark(deployed: Deployed) -> str:
    if isinstance(deployed, DeployedDetector):
        return (
            "a whole detector is written by PyTorch's older, tracing exporter: the newer one does not follow a "
            "number of objects that depends on the image"
        )
    return ""
