"""Conversion of a checkpoint to a model file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from dnlnet.artifacts.model_file import ModelFile, write_model_file
from dnlnet.conversion.detection import mmdet
from dnlnet.conversion.family import Converted, Family, ForeignCheckpoint
from dnlnet.conversion.names import their_name
from dnlnet.conversion.reading import describe_left_out, read_checkpoint
from dnlnet.conversion.segmentation import mmseg, torchcv
from dnlnet.conversion.video import pytorchvideo, slowfast
from dnlnet.recipes.override import override
from dnlnet.recipes.recipe import Recipe

FAMILIES: tuple[Family, ...] = (mmseg.FAMILY, torchcv.FAMILY, mmdet.FAMILY, slowfast.FAMILY, pytorchvideo.FAMILY)
# Counters used only by cumulative averages and missing from older checkpoints.
_COUNTERS = "num_batches_tracked"


def recognise(checkpoint: ForeignCheckpoint) -> Family | None:
    """Return the family of a checkpoint, or None.

    >>> import torch
    >>> recognise(ForeignCheckpoint(Path("a.pth"), {"fc.weight": torch.ones(2, 2)}, {})) is None
    True
    """
    return next((family for family in FAMILIES if family.matches(checkpoint.state)), None)


def convert(
    path: Path, out: Path, settings: Sequence[str] = (), *, partial: bool = False, config: Path | None = None
) -> Converted:
    """Convert a checkpoint of another code base to a model file.

    Args:
        path: The checkpoint.
        out: The model file to write, `.safetensors`.
        settings: Recipe settings that replace what was found or assumed, such as ``model.align_corners=true``.
        partial: Leave out tensors outside the network that the model has no place for.
        config: Training configuration, for a checkpoint that does not contain it.
    """
    if out.suffix != ".safetensors":
        raise ValueError(f"{out}: expected a file name that ends in .safetensors")
    if out.exists() and out.samefile(path):
        raise ValueError(f"{out}: is the checkpoint itself; choose another name for the model file")
    checkpoint = read(path)
    family = recognise(checkpoint)
    if family is None:
        known = "; ".join(f"{row.name}: {row.source}" for row in FAMILIES)
        names = ", ".join(list(checkpoint.state)[:3])
        raise ValueError(
            f"{path}: not a checkpoint of a supported code base (tensors {names}, ...); supported: {known}"
        )
    if config is not None:
        checkpoint = _add_config(checkpoint, family, config)
    try:
        converted = family.convert(checkpoint)
        _require_settings(converted, settings)
        matched = match_network(replace(converted, recipe=override(converted.recipe, settings)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    _check_unused(path, family, matched.unused, partial)
    left_out = describe_left_out(checkpoint)
    notes = (*matched.messages(settings), *([f"left out: {', '.join(left_out)}"] if left_out else []))
    result = replace(matched, notes=notes, assumed=(), family=family.name)
    trained = checkpoint.meta.get("iter")
    iteration = trained if isinstance(trained, int) else result.recipe.schedule.iterations
    origin = f"{family.name}: {path.name}"
    write_model_file(out, result.state, ModelFile(out, result.recipe, result.classes, iteration, None, origin))
    return result


def read(path: Path) -> ForeignCheckpoint:
    """Read a checkpoint of any code base; nothing in it is executed."""
    if path.is_file() and (reason := slowfast.caffe2_problem(path)) is not None:
        raise ValueError(reason)
    return read_checkpoint(path)


def _require_settings(converted: Converted, settings: Sequence[str]) -> None:
    """Raise unless settings replace every assumption that decides the outputs."""
    if missing := [row.text for row in converted.assumed if row.required and row.holds(settings)]:
        raise ValueError(
            "its outputs depend on settings that neither the file nor its name contains; pass the configuration, "
            f"--config FILE, or {'; '.join(missing)}"
        )


def _add_config(checkpoint: ForeignCheckpoint, family: Family, config: Path) -> ForeignCheckpoint:
    """Return the checkpoint with this configuration."""
    if family.config is None:
        raise ValueError(f"{config}: a {family.name} configuration cannot be read from a file; use --set")
    if not config.is_file():
        raise FileNotFoundError(f"{config}: no such configuration file")
    try:
        text = config.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{config}: is not a text file; expected a configuration") from None
    return replace(checkpoint, meta={**checkpoint.meta, family.config: text})


def _check_unused(path: Path, family: Family, unused: Sequence[str], partial: bool) -> None:
    inside = [name for name in unused if name.startswith(family.inside)]
    if inside:
        raise ValueError(
            f"{path}: its network has layers that ours lacks; without them its outputs would differ"
            + list_names("unknown", inside)
        )
    if unused and not partial:
        where = list_names("unknown", unused)
        raise ValueError(f"{path}: has tensors without a place in the model; --partial leaves them out{where}")


def match_network(converted: Converted) -> Converted:
    """Keep the tensors of the recipe's network, in its order and precision; the others become unused.

    Raises ValueError with the names of all tensors that are missing or have another shape.
    """
    state, names = converted.state, converted.names
    with torch.device("meta"):
        network = converted.recipe.build(len(converted.classes), pretrained=False)
    own: dict[str, Tensor] = network.state_dict()
    missing = [_both_names(name, names) for name in own if name not in state and not name.endswith(_COUNTERS)]
    misshapen = [
        f"{_both_names(name, names)} is {tuple(state[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    strange = [
        f"{_both_names(name, names)} ({tensor.dtype}, {tensor.layout})"
        for name, tensor in state.items()
        if name in own and (tensor.is_complex() or tensor.is_quantized or tensor.layout != torch.strided)
    ]
    if missing or misshapen or strange:
        raise ValueError(
            f"its tensors do not match {describe_network(converted.recipe)}"
            + list_names("missing", missing)
            + list_names("of another shape", misshapen)
            + list_names("of an unsupported type", strange)
        )
    # Copy, because tensors of a checkpoint may share memory and those of a model file must not.
    whole = {
        name: state[name].to(tensor.dtype, copy=True).contiguous()
        if name in state
        else torch.zeros_like(tensor, device="cpu")
        for name, tensor in own.items()
    }
    others = [their_name(name, names) for name in state if name not in own and not name.endswith(_COUNTERS)]
    return replace(converted, state=whole, unused=(*converted.unused, *others))


def describe_network(recipe: Recipe) -> str:
    """Describe the network of a recipe in a few words.

    >>> from dnlnet.registry import find_recipe
    >>> describe_network(find_recipe("cityscapes-r101-dnl"))
    'a network for segmentation: resnet101s with dnl (preset paper)'
    """
    model = recipe.model
    block = "no block" if model.variant is None else f"{model.variant} (preset {model.preset})"
    return f"a network for {recipe.task}: {model.layers} with {block}"


def list_names(what: str, names: Sequence[str]) -> str:
    """Return a headline with one name per line below it; empty if there are none.

    >>> print(list_names("missing", ["a", "b"]))
    <BLANKLINE>
    2 missing:
      a
      b
    """
    return "".join([f"\n{len(names)} {what}:", *(f"\n  {name}" for name in names)]) if names else ""


def _both_names(ours: str, names: Mapping[str, str]) -> str:
    theirs = their_name(ours, names)
    return ours if theirs == ours else f"{theirs} (here {ours})"
