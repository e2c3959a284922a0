"""Pixels, size and padding of a test image, from configurations of mmcv and mmengine.

A missing key has the library's default, which differs between generations. mmengine's data preprocessor keeps the
colours as they are read, blue first, and normalises only if it has a mean; its `Resize` does not keep proportions.
The older `Normalize` reverses the colours, and the older `Resize` keeps proportions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dnlnet.backbones.pixels import Pixels
from dnlnet.conversion.mm_config import MMConfig, agreed_pixels, read_pixels, require_known
from dnlnet.conversion.values import are_counts, is_count
from dnlnet.errors import shown

# Supported steps of a test pipeline.
_STEPS = {
    "LoadImageFromFile",
    "LoadAnnotations",
    "PackSegInputs",
    "ImageToTensor",
    "DefaultFormatBundle",
    "Collect",
    "MultiScaleFlipAug",
    "RandomFlip",  # inside a MultiScaleFlipAug without flip
    "Resize",
    "Normalize",
}
_READING: Mapping[str, tuple[Any, ...]] = {"color_type": ("color",), "channel_order": ("bgr",)}
_RESIZING: Mapping[str, tuple[Any, ...]] = {
    "interpolation": ("bilinear",),
    "backend": ("cv2",),
    **dict.fromkeys(("ratio_range", "min_size"), (None,)),
}
# Places of the test pipeline in a configuration.
_PIPELINES = (("test_dataloader", "dataset"), ("data", "test"), ("val_dataloader", "dataset"), ("data", "val"))


@dataclass(frozen=True)
class Resizing:
    """Maximum lengths of an image's sides; None if it is not resized."""

    short: int | None = None
    long: int | None = None


def test_steps(config: MMConfig) -> tuple[Mapping[str, Any], ...] | None:
    """Return the steps of the test pipeline, including nested ones; None if the configuration has none."""
    found = [config.part(*path).get("pipeline") for path in _PIPELINES]
    pipeline = next(
        (steps for steps in (*found, config.names.get("test_pipeline")) if isinstance(steps, tuple)), None
    )
    return None if pipeline is None else tuple(_steps(pipeline))


def _steps(pipeline: tuple[Any, ...]) -> Iterator[Mapping[str, Any]]:
    for step in pipeline:
        if isinstance(step, Mapping):
            yield step
            if isinstance(step.get("transforms"), tuple):
                yield from _steps(step["transforms"])


def check_steps(steps: tuple[Mapping[str, Any], ...]) -> list[str]:
    """Raise for steps of a test pipeline that this package cannot repeat; return notes about the others."""
    kinds = [str(step.get("type")) for step in steps]
    if strange := [kind for kind in kinds if kind not in _STEPS]:
        raise ValueError(f"its test pipeline has {', '.join(strange)}; supported: {', '.join(sorted(_STEPS))}")
    for step in steps:
        if step.get("type") == "LoadImageFromFile":
            require_known(step, "LoadImageFromFile", _READING)
    if any(step.get("flip") is True or step.get("img_ratios") is not None for step in steps):
        return [
            "its test pipeline averages probabilities over sizes or mirror images; here an image is predicted once: "
            "--set evaluation.flip=true and evaluation.scales=[...] average logits"
        ]
    return []


def find_pixels(config: MMConfig, steps: tuple[Mapping[str, Any], ...] | None) -> Pixels | None:
    """Return how pixels are normalised; None if the configuration does not show it."""
    normalisers = [step for step in steps or () if step.get("type") == "Normalize"]
    own = config.part("model").get("data_preprocessor", config.names.get("data_preprocessor"))
    if isinstance(own, Mapping):
        if normalisers and "mean" in own:
            raise ValueError("its configuration normalises pixels twice, in a data preprocessor and in a Normalize")
        if normalisers:
            raise ValueError("its configuration has both a data preprocessor and a Normalize, which is not supported")
        # Both keys reverse the colours of a file.
        reversed_ = own.get("bgr_to_rgb", False) is True or own.get("rgb_to_bgr", False) is True
        return read_pixels(own, "data_preprocessor", red_first=reversed_)
    if normalisers:
        return agreed_pixels(normalisers, "Normalize")
    return None if steps is None else read_pixels({}, "Normalize", red_first=False)


def find_resizing(steps: tuple[Mapping[str, Any], ...]) -> Resizing:
    """Return the size to which the steps resize an image."""
    resizes = [step for step in steps if step.get("type") == "Resize"]
    if not resizes:
        return Resizing()
    outer = next((step for step in steps if step.get("type") == "MultiScaleFlipAug"), {})
    older = "img_scale" in outer or "img_scale" in resizes[0]
    require_known(resizes[0], "Resize", _RESIZING)
    scale = outer.get("img_scale", resizes[0].get("img_scale", resizes[0].get("scale")))
    scale = (scale, scale) if isinstance(scale, int) else scale
    if len(resizes) > 1:
        raise ValueError(f"its test pipeline has {len(resizes)} Resize; supported: one")
    if scale is None:
        raise ValueError("its test pipeline has a Resize without a scale; supported: a scale of two whole numbers")
    if not are_counts(scale, 2):
        raise ValueError(f"its test pipeline has a Resize to {shown(scale)}; supported: two whole numbers")
    if resizes[0].get("keep_ratio", older) is not True:
        raise ValueError(
            f"its test pipeline resizes an image to {scale[0]} x {scale[1]} without keeping its proportions "
            "(keep_ratio=False, the default), which is not supported; pass a configuration with keep_ratio=True if "
            "keeping them is acceptable"
        )
    return Resizing(min(scale), max(scale))


def find_divisor(config: MMConfig) -> int:
    """Return the number that divides both sides of a padded test image."""
    own = config.part("model", "data_preprocessor") or config.part("data_preprocessor")
    test = own.get("test_cfg")
    if not isinstance(test, Mapping) or not test:
        return 1
    if test.get("size") is not None:
        raise ValueError(
            f"its data_preprocessor.test_cfg pads images to a fixed size, {shown(test['size'])}; supported: "
            "size_divisor"
        )
    divisor = test.get("size_divisor")
    if not is_count(divisor):
        raise ValueError(f"its data_preprocessor.test_cfg.size_divisor is {shown(divisor)}; expected a whole number")
    require_known(own, "data_preprocessor", {"pad_val": (0,)})
    return divisor
