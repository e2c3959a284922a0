"""Assumptions about an mmsegmentation file without a configuration."""

from pathlib import Path

import pytest
import torch

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.conversion.converting import convert
from dnlnet.conversion.family import ForeignCheckpoint
from dnlnet.conversion.segmentation.mmseg import FAMILY
from dnlnet.segmentation.recipe import SegmentationRecipe
from foreign import SMALL, Size, State, filled, mmseg_logits, mmseg_plan, mmseg_shapes
from mmseg_configs import config

PUBLISHED = "dnl_r50-d8_512x1024_40k_cityscapes_20200904_233629-53d4ea93.pth"


def saved(folder: Path, name: str, kind: str | None = "dnl_block", size: Size = SMALL) -> Path:
    torch.save(filled(mmseg_shapes(size, kind)), folder / name)
    return folder / name


@pytest.mark.parametrize(
    "name",
    [
        "fcn_d6_r50-d16_512x1024_40k.pth",
        "fcn-d6_r50-d16_4xb2-40k_cityscapes-512x1024_2021-98d5d1bc.pth",
        "fcn-d6_r50b-d16_512x1024_80k_cityscapes.pth",
    ],
)
def test_names_of_both_generations_give_the_dilation_of_the_heads(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, name, None)
    convert(path, tmp_path / "m.safetensors")
    network = load_network(read_model_file(tmp_path / "m.safetensors")).double().eval()
    images = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    state = {key: x.double() for key, x in filled(mmseg_shapes(SMALL, None)).items()}
    plan = mmseg_plan(SMALL, strides=(1, 2, 2, 1), dilations=(1, 1, 1, 2))
    theirs = mmseg_logits(state, plan, None, images, False, dilation=6)[0]
    torch.testing.assert_close(network(images).logits, theirs, rtol=1e-9, atol=1e-9)


def test_settings_that_change_the_output_must_be_given(tmp_path: Path) -> None:
    path, out = saved(tmp_path, "mine.pth"), tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=r"--config FILE") as error:
        convert(path, out)
    assert "--set model.block.attention=softmax" in str(error.value)
    assert "--set model.output_stride=8" in str(error.value)
    assert not out.exists()
    with pytest.raises(ValueError, match=r"--set model\.output_stride=8"):
        convert(path, out, ["model.block.attention=softmax"])
    notes = convert(path, out, ["model.block.attention=softmax", "model.output_stride=8"]).notes
    assert not any("attention=" in note or "output_stride" in note for note in notes)


def test_a_published_name_is_enough_and_each_assumption_names_its_setting(tmp_path: Path) -> None:
    notes = convert(saved(tmp_path, PUBLISHED), tmp_path / "m.safetensors").notes
    for key in (
        "block.attention=dot",
        "block.scaled=false",
        "block.temperature=",
        "model.align_corners",
        "model.pixels",
    ):
        assert any(f"--set model.{key.removeprefix('model.')}" in note for note in notes), key
    assert any("--set model.head_dilation" in note for note in notes)
    plain = convert(saved(tmp_path, PUBLISHED.replace("dnl", "fcn"), None), tmp_path / "m.safetensors").notes
    assert not any("attention=" in note for note in plain)


def test_a_head_with_one_output_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, PUBLISHED, size=Size(SMALL.blocks, SMALL.widths, 12, 10, classes=1))
    with pytest.raises(ValueError, match=r"decode_head has one output.*supported: one output per class"):
        convert(path, tmp_path / "m.safetensors")


def recipe_of(text: str, state: State) -> SegmentationRecipe:
    recipe = FAMILY.convert(ForeignCheckpoint(Path("a.pth"), state, {"cfg": text})).recipe
    assert isinstance(recipe, SegmentationRecipe)
    return recipe


@pytest.mark.parametrize("kind", ["dnl_block", "nl_block"])
def test_dot_products_are_converted(kind: str, tmp_path: Path) -> None:
    state = filled(mmseg_shapes(SMALL, kind))
    torch.save(
        {"meta": {"cfg": config(head="mode='dot_product', temperature=2.0,")}, "state_dict": state},
        tmp_path / "a.pth",
    )
    convert(tmp_path / "a.pth", tmp_path / "m.safetensors")
    network = load_network(read_model_file(tmp_path / "m.safetensors")).double().eval()
    images = torch.randn(1, 3, 49, 64, dtype=torch.float64)
    double = {name: x.double() for name, x in state.items()}
    theirs = mmseg_logits(double, mmseg_plan(SMALL), kind, images, False, mode="dot_product")[0]
    torch.testing.assert_close(network(images).logits, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["dnl_block", "nl_block"])
@pytest.mark.parametrize("mode", ["gaussian", "concatenation"])
def test_other_modes_are_refused(mode: str, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"mode {mode}; supported: embedded_gaussian and dot_product"):
        recipe_of(config(head=f"mode='{mode}',"), filled(mmseg_shapes(SMALL, kind)))


@pytest.mark.parametrize(("main", "side"), [(6, 1), (1, 6), (6, 6), (2, 3)])
def test_each_head_has_its_own_dilation(main: int, side: int, tmp_path: Path) -> None:
    """An auxiliary head without the key has dilation 1, independently of the main head."""
    state = filled(mmseg_shapes(SMALL, None))
    heads = (f"dilation={main}," if main > 1 else "", f"dilation={side}," if side > 1 else "")
    torch.save({"meta": {"cfg": config({}, *heads)}, "state_dict": state}, tmp_path / "a.pth")
    convert(tmp_path / "a.pth", tmp_path / "m.safetensors")
    network = load_network(read_model_file(tmp_path / "m.safetensors")).double().eval()
    images = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    double = {name: x.double() for name, x in state.items()}
    logits, _ = mmseg_logits(double, mmseg_plan(SMALL), None, images, False, dilation=main)
    _, auxiliary = mmseg_logits(double, mmseg_plan(SMALL), None, images, False, dilation=side)
    ours = network(images).logits, network.auxiliary(network.backbone(images)[-2])
    torch.testing.assert_close(ours, (logits, auxiliary), rtol=1e-9, atol=1e-9)


def test_an_averaged_model_is_described_as_the_average(tmp_path: Path) -> None:
    """mmengine's EMAHook swaps the two before saving: `state_dict` is the average, `ema_state_dict` the weights."""
    state = filled(mmseg_shapes(SMALL, "dnl_block"))
    torch.save({"state_dict": state, "ema_state_dict": {"module.x": torch.ones(1)}}, tmp_path / PUBLISHED)
    notes = convert(tmp_path / PUBLISHED, tmp_path / "m.safetensors").notes
    assert any("the weights are the average" in note and "without averaging" in note for note in notes)


@pytest.mark.parametrize("kind", ["dnl_block", "nl_block", None])
def test_heads_that_do_not_concatenate_their_input_are_converted(kind: str | None, tmp_path: Path) -> None:
    """The classifier reads the second convolution if concat_input=False."""
    state = filled(mmseg_shapes(SMALL, kind, concat=False))
    torch.save(state, tmp_path / PUBLISHED)
    convert(tmp_path / PUBLISHED, tmp_path / "m.safetensors")
    network = load_network(read_model_file(tmp_path / "m.safetensors")).double().eval()
    images = torch.randn(1, 3, 49, 64, dtype=torch.float64)
    double = {name: x.double() for name, x in state.items()}
    theirs = mmseg_logits(double, mmseg_plan(SMALL), kind, images, False)[0]
    torch.testing.assert_close(network(images).logits, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"decode_head.psp_modules.0.1.conv.weight"}, "psp_modules"),
        ({"decode_head.aspp_modules.0.conv.weight"}, "aspp_modules"),
        ({"decode_head.cca.gamma"}, "cca"),
    ],
)
def test_other_heads_of_mmsegmentation_are_refused_by_name(names: set[str], says: str, tmp_path: Path) -> None:
    state = {name: torch.ones(2, 2, 1, 1) for name in names | {"backbone.layer1.0.conv1.weight"}}
    torch.save(state | {"decode_head.conv_seg.weight": torch.ones(2, 2, 1, 1)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=rf"its decode_head .*{says}.*; supported: DNLHead, NLHead and FCNHead"):
        convert(tmp_path / "a.pth", tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "layer", ["backbone.layer1.0.conv.0.conv.weight", "backbone.stage2.0.branches.0.0.conv1.weight"]
)
def test_other_backbones_are_not_called_resnets(layer: str, tmp_path: Path) -> None:
    """MobileNetV2 and HRNet."""
    state = {n: x for n, x in filled(mmseg_shapes(SMALL, None)).items() if not n.startswith("backbone.")}
    torch.save(state | {layer: torch.ones(2, 2, 1, 1)}, tmp_path / "fcn_r50-d8_512x512_80k.pth")
    with pytest.raises(
        ValueError, match=r"its backbone is not a ResNet of four stages .*; supported: resnet50 \(3, 4, 6, 3\)"
    ) as error:
        convert(tmp_path / "fcn_r50-d8_512x512_80k.pth", tmp_path / "m.safetensors")
    assert "7 x 7" not in str(error.value).partition("supported")[0]
