"""Conversion of a checkpoint to a model file."""

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
        path: the checkpoint.
        out: the model file to write, `.safetensors`.
        settings: recipe settings that replace what was found or assumed, such as ``model.align_corners=true``.
        partial: leave out tensors outside the network that the model has no place for.
        config: training configuration, for a checkpoint that does not contain it.
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
    trained = checkpoint.meta.get("iter")
    iteration = trained if isinstance(trained, int) else recipe.schedule.iterations
    origin = f"{family.name}: {path.name}"
    write_model_file(out, state, ModelFile(out, recipe, converted.classes, iteration, None, origin))
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


def _check_unused(path: Path, family: Family, unused: list[str], partial: bool) -> None:
    inside = [name for name in unused if name.startswith(family.inside)]
    if inside:
        raise ValueError(
            f"{path}: its network has layers that ours lacks; without them its outputs would differ"
            + list_names("unknown", inside)
        )
    if unused and not partial:
        where = list_names("unknown", unused)
        raise ValueError(f"{path}: has tensors without a place in the model; --partial leaves them out{where}")
