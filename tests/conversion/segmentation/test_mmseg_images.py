"""Image preparation in mmsegmentation: colours, normalisation, size and padding."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dnlnet
from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.conversion.converting import convert
from dnlnet.conversion.family import ForeignCheckpoint
from dnlnet.conversion.segmentation.mmseg import FAMILY
from dnlnet.segmentation.recipe import SegmentationRecipe
from foreign import SMALL, Size, State, filled, mmseg_logits, mmseg_plan, mmseg_shapes
from mmseg_configs import IMAGENET, RESIZE, config

STATE = filled(mmseg_shapes(SMALL, "dnl_block"))
DOUBLE = {name: x.double() for name, x in STATE.items()}
OTHER = "mean=[10., 60., 110.], std=[50., 70., 90.]"


def smooth_image(height: int = 49, width: int = 64) -> np.ndarray:
    """Return a smooth image whose red differs from its blue."""
    coarse = torch.rand(1, 3, 5, 6, generator=torch.Generator().manual_seed(3)) * torch.tensor([255, 180, 90]).view(
        3, 1, 1
    )
    fine = F.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)[0]
    return np.asarray(fine.round().to(torch.uint8).permute(1, 2, 0).contiguous())


def converted(text: str, tmp_path: Path, state: State = STATE) -> Path:
    torch.save({"meta": {"cfg": text}, "state_dict": state}, tmp_path / "a.pth")
    convert(tmp_path / "a.pth", tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def logits_of(file: Path, image: np.ndarray) -> Tensor:
    """Return the logits that `predict` uses."""
    stored = read_model_file(file)
    model = stored.recipe.predictor(load_network(stored), stored.classes)
    return model.logits(torch.from_numpy(image.copy()).permute(2, 0, 1)).double()


def recipe_of(text: str | None, name: str = "a.pth", state: State = STATE) -> SegmentationRecipe:
    meta = {} if text is None else {"cfg": text}
    recipe = FAMILY.convert(ForeignCheckpoint(Path(name), state, meta)).recipe
    assert isinstance(recipe, SegmentationRecipe)
    return recipe


def their_pixels(
    image: np.ndarray, rgb: bool = True, mean: list[float] | None = None, std: list[float] | None = None
) -> Tensor:
    """Follow SegDataPreProcessor: read BGR, reverse on request; mean and std are in the resulting order."""
    blue_first = torch.from_numpy(image.copy()).permute(2, 0, 1).flip(0).double()
    x = blue_first.flip(0) if rgb else blue_first
    if mean is not None and std is not None:
        x = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    return x[None]


def whole(x: Tensor, align_corners: bool = False) -> Tensor:
    return mmseg_logits(DOUBLE, mmseg_plan(SMALL), "dnl_block", x, align_corners)[0]


def rescaled(x: Tensor, long: int, short: int) -> Tensor:
    """Follow mmcv's imrescale: as large as both limits allow, with rounded sides and aligned borders."""
    height, width = x.shape[-2:]
    factor = min(long / max(height, width), short / min(height, width))
    size = int(height * factor + 0.5), int(width * factor + 0.5)
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


@pytest.mark.parametrize(
    ("text", "rgb", "mean", "std"),
    [
        (IMAGENET, True, MEAN, STD),
        (IMAGENET.replace("bgr_to_rgb=True, ", ""), False, MEAN, STD),
        (IMAGENET.replace("bgr_to_rgb=True", "bgr_to_rgb=False"), False, MEAN, STD),
        (IMAGENET.replace("bgr_to_rgb", "rgb_to_bgr"), True, MEAN, STD),  # reverses the channels, like bgr_to_rgb
        ("bgr_to_rgb=True", True, None, None),
        ("size=(64, 64)", False, None, None),
        (f"bgr_to_rgb=True, {OTHER}", True, [10.0, 60.0, 110.0], [50.0, 70.0, 90.0]),
        (OTHER, False, [10.0, 60.0, 110.0], [50.0, 70.0, 90.0]),
    ],
)
def test_pixels_follow_the_data_preprocessor(
    text: str, rgb: bool, mean: list[float] | None, std: list[float] | None, tmp_path: Path
) -> None:
    image = smooth_image()
    theirs = whole(their_pixels(image, rgb, mean, std))
    file = converted(config(pixels=text, resize=""), tmp_path)
    torch.testing.assert_close(logits_of(file, image), theirs, rtol=1e-3, atol=1e-3)
    assert np.array_equal(dnlnet.load(file).predict(image).labels, theirs.argmax(1)[0])
    stored = read_model_file(file)
    exportable = stored.recipe.exportable(load_network(stored).eval())
    exported = exportable(torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float())[0]
    torch.testing.assert_close(exported.double(), theirs, rtol=1e-3, atol=1e-3)


OLDER = """
model = dict(backbone=dict(type='ResNetV1c', depth=50, strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4),
             contract_dilation=True), decode_head=dict(type='DNLHead', align_corners=False),
             test_cfg=dict(mode='whole'))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='MultiScaleFlipAug', img_scale={scale}, flip=False,
    transforms=[dict(type='Resize', keep_ratio=True), dict(type='RandomFlip'), {normalize}
                dict(type='ImageToTensor', keys=['img']), dict(type='Collect', keys=['img'])])]
data = dict(test=dict(pipeline=test_pipeline))
"""


@pytest.mark.parametrize(
    ("normalize", "rgb", "mean"),
    [
        (f"dict(type='Normalize', mean={MEAN}, std={STD}),", True, MEAN),  # to_rgb is true by default there
        (f"dict(type='Normalize', mean={MEAN}, std={STD}, to_rgb=False),", False, MEAN),
        ("", False, None),
    ],
)
def test_pixels_of_older_versions_follow_the_test_pipeline(
    normalize: str, rgb: bool, mean: list[float] | None, tmp_path: Path
) -> None:
    image = smooth_image()
    text = OLDER.format(normalize=normalize, scale=(64, 64))
    ours = logits_of(converted(text, tmp_path), image)
    theirs = whole(their_pixels(image, rgb, mean, STD if mean else None))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("height", "width"), [(49, 70), (70, 49), (64, 96)])
def test_images_are_padded_to_a_multiple(height: int, width: int, align_corners: bool, tmp_path: Path) -> None:
    image = smooth_image(height, width)
    text = config(pixels=f"bgr_to_rgb=True, {OTHER}, test_cfg=dict(size_divisor=32)", resize="")
    model = converted(text.replace("align_corners=False", f"align_corners={align_corners}"), tmp_path)
    x = their_pixels(image, True, [10.0, 60.0, 110.0], [50.0, 70.0, 90.0])
    padded = F.pad(x, (0, -width % 32, 0, -height % 32))  # zeros, below and to the right, after normalisation
    theirs = whole(padded, align_corners)[..., :height, :width]
    ours = logits_of(model, image)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("align_corners", [False, True])
def test_windows_slide_over_the_padded_image(align_corners: bool, tmp_path: Path) -> None:
    image = smooth_image(50, 70)
    text = config(
        pixels=f"{IMAGENET}, test_cfg=dict(size_divisor=32)",
        resize="",
        test="mode='slide', crop_size=(64, 64), stride=(32, 32)",
    )
    model = converted(text.replace("align_corners=False", f"align_corners={align_corners}"), tmp_path)
    padded = F.pad(their_pixels(image, True, MEAN, STD), (0, 26, 0, 14))
    parts = [whole(padded[..., left : left + 64], align_corners) for left in (0, 32)]
    total = torch.cat([parts[0][..., :32], (parts[0][..., 32:] + parts[1][..., :32]) / 2, parts[1][..., 32:]], dim=3)
    ours = logits_of(model, image)
    torch.testing.assert_close(ours, total[..., :50, :70], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("scale", [(2048, 40), (60, 60), (41, 90)])
@pytest.mark.parametrize("align_corners", [False, True])
def test_images_are_resized_as_in_the_test_pipeline(
    scale: tuple[int, int], align_corners: bool, older: bool, tmp_path: Path
) -> None:
    image = smooth_image(50, 75)
    normalize = f"dict(type='Normalize', mean={MEAN}, std={STD}),"
    text = (
        OLDER.format(normalize=normalize, scale=scale)
        if older
        else config(resize=RESIZE.replace("(2048, 512)", str(scale)))
    )
    model = converted(text.replace("align_corners=False", f"align_corners={align_corners}"), tmp_path)
    x = rescaled(their_pixels(image, True, MEAN, STD), max(scale), min(scale))
    theirs = F.interpolate(whole(x, align_corners), (50, 75), mode="bilinear", align_corners=align_corners)
    ours = logits_of(model, image)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_cityscapes_model_is_tested_at_the_size_in_its_configuration() -> None:
    state = filled(mmseg_shapes(Size(classes=19), "dnl_block"), "meta")
    name = "dnl_r50-d8_512x1024_40k_cityscapes.pth"
    found = recipe_of(config(resize=RESIZE.replace("(2048, 512)", "(1024, 512)")), name, state).evaluation
    assert (found.short_side, found.long_side) == (512, 1024)


@pytest.mark.parametrize(
    ("classes", "crop", "sides"),
    [
        (19, "512x1024", (1024, 2048)),
        (19, "769x769", (1025, 2049)),
        (150, "512x512", (512, 2048)),
        (59, "480x480", (520, 520)),
    ],
)
def test_without_a_configuration_images_have_the_published_size(
    classes: int, crop: str, sides: tuple[int, int]
) -> None:
    state = filled(mmseg_shapes(Size(classes=classes), "dnl_block"), "meta")
    result = FAMILY.convert(ForeignCheckpoint(Path(f"dnl_r50-d8_{crop}_40k.pth"), state, {}))
    assert isinstance(result.recipe, SegmentationRecipe)
    assert (result.recipe.evaluation.short_side, result.recipe.evaluation.long_side) == sides
    assert any("--set evaluation.short_side" in note for note in result.messages())
    assert any("--set model.pixels" in note for note in result.messages())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("keep_ratio=True, ", "", "without keeping its proportions"),  # false by default
        ("keep_ratio=True, scale=(2048, 512)", "keep_ratio=True, scale_factor=0.5", "Resize without a scale"),
        ("scale=(2048, 512)", "scale=(2048, 512), interpolation='nearest'", "interpolation is 'nearest'"),
        (RESIZE, f"{RESIZE} dict(type='Pad', size_divisor=32),", "has Pad"),
        (RESIZE, f"{RESIZE} dict(type='CLAHE'),", "has CLAHE"),
        ("dict(type='LoadImageFromFile')", "dict(type='LoadImageFromFile', color_type='grayscale')", "color_type is"),
        (IMAGENET, f"{IMAGENET}, test_cfg=dict(size=(64, 64))", "pads images to a fixed size"),
        (IMAGENET, f"{IMAGENET}, pad_val=3, test_cfg=dict(size_divisor=32)", "pad_val is 3"),
        (IMAGENET, f"{IMAGENET}, test_cfg=dict(size_divisor='x')", "size_divisor is 'x'"),
        ("std=[58.395, 57.12, 57.375,]", "size=(64, 64)", "mean without a std"),
        ("std=[58.395, 57.12, 57.375,]", "std=[1, 0, 1]", "std is"),
        ("mean=[123.675, 116.28, 103.53,]", "mean=[1, 2]", r"mean is \(1, 2\)"),
        (RESIZE, f"{RESIZE} dict(type='Normalize', mean=[1, 1, 1], std=[1, 1, 1]),", "normalises pixels twice"),
        ("mode='whole'", "mode='slide', crop_size=(64, 64), stride=(65, 64)", r"stride is \(65, 64\)"),
    ],
)
def test_unsupported_preparations_are_refused(old: str, new: str, says: str) -> None:
    text = config()
    assert old in text
    with pytest.raises(ValueError, match=says) as error:
        recipe_of(text.replace(old, new))
    assert "validation error" not in str(error.value)
