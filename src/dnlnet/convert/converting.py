"""From the checkpoint of another code base to a model file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dnlnet.artifacts.model_file import ModelFile, write_model_file
from dnlnet.convert.checking import list_names, match_network
from dnlnet.convert.detection import mmdet
from dnlnet.convert.family import Converted, Family, ForeignCheckpoint
from dnlnet.convert.reading import describe_left_out, read_checkpoint
from dnlnet.convert.segmentation import mmseg, torchcv
from dnlnet.convert.video import pytorchvideo, slowfast
from dnlnet.recipes.override import override

FAMILIES: tuple[Family, ...] = (mmseg.FAMILY, torchcv.FAMILY, mmdet.FAMILY, slowfast.FAMILY, pytorchvideo.FAMILY)


def recognise(checkpoint: ForeignCheckpoint) -> Family | None:
    """The family that a checkpoint belongs to, or None.

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
        path: the checkpoint.
        out: the model file to write, `.safetensors`.
        settings: values of the recipe that replace what was found or assumed, as ``model.align_corners=true``.
        partial: leave out tensors that the model has no place for, if they lie outside the network.
        config: the configuration used for training, for a checkpoint that does not contain it.
    """
    if out.suffix != ".safetensors":
        raise ValueError(f"{out}: a model file ends in .safetensors")
    if out.exists() and out.samefile(path):
        raise ValueError(f"{out}: is the checkpoint itself; give the model file another name")
    checkpoint = read(path)
    family = recognise(checkpoint)
    if family is None:
        known = "; ".join(f"{row.name}: {row.source}" for row in FAMILIES)
        names = ", ".join(list(checkpoint.state)[:3])
        raise ValueError(
            f"{path}: not a checkpoint of a code base known here (tensors {names}, ...); known are {known}"
        )
    if config is not None:
        checkpoint = _add_config(checkpoint, family, config)
    try:
        converted = family.convert(checkpoint)
        _require_settings(converted, settings)
        recipe = override(converted.recipe, settings)
        state, unused = match_network(converted.state, recipe, len(converted.classes), converted.names)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    unused = [*converted.unused, *unused]
    _check_unused(path, family, unused, partial)
    left_out = describe_left_out(checkpoint)
    notes = (*converted.messages(settings), *([f"left out: {', '.join(left_out)}"] if left_out else []))
    result = replace(
        converted, state=state, recipe=recipe, notes=notes, assumed=(), unused=tuple(unused), family=family.name
    )
    said = checkpoint.meta.get("iter")
    iteration = said if isinstance(said, int) else recipe.schedule.iterations
    origin = f"{family.name}: {path.name}"
    write_model_file(out, state, ModelFile(out, recipe, converted.classes, iteration, None, origin))
    return result


def read(path: Path) -> ForeignCheckpoint:
    """Read a checkpoint of any code base; nothing in it is executed."""
    if path.is_file() and (reason := slowfast.caffe2_problem(path)) is not None:
        raise ValueError(reason)
    return read_checkpoint(path)


def _require_settings(converted: Converted, settings: Sequence[str]) -> None:
    """Raise unless every assumption that decides the outputs is replaced by a setting."""
    if missing := [row.text for row in converted.assumed if row.required and row.holds(settings)]:
        raise ValueError(
            "neither a configuration in the file nor its name tells what its outputs depend on; pass the "
            f"configuration, --config FILE, or say it: {'; '.join(missing)}"
        )


def _add_config(checkpoint: ForeignCheckpoint, family: Family, config: Path) -> ForeignCheckpoint:
    """The checkpoint with this configuration added."""
    if family.config is None:
        raise ValueError(f"{config}: configurations of {family.name} are not read from files; use --set instead")
    if not config.is_file():
        raise FileNotFoundError(f"{config}: no such configuration file")
    try:
        text = config.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{config}: is not a text file, so not a configuration") from None
    return replace(checkpoint, meta={**checkpoint.meta, family.config: text})


def _check_unused(path: Path, family: Family, unused: list[str], partial: bool) -> None:
    inside = [name for name in unused if name.startswith(family.inside)]
    if inside:
        raise ValueError(
            f"{path}: its network has layers that ours lacks, and its outputs would differ without them"
            + list_names("unknown", inside)
        )
    if unused and not partial:
        where = list_names("unknown", unused)
        raise ValueError(f"{path}: has tensors that the model has no place for; --partial leaves them out{where}")
