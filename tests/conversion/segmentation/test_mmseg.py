from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dnlnet
from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.conversion.converting import convert, match_network
from dnlnet.conversion.family import Converted, ForeignCheckpoint
from dnlnet.conversion.segmentation.mmseg import FAMILY
from dnlnet.segmentation.data.cityscapes import CLASSES
from dnlnet.segmentation.network import Segmentor
from dnlnet.segmentation.recipe import SegmentationRecipe
from foreign import SMALL, Size, State, filled, mmseg_logits, mmseg_plan, mmseg_shapes
from mmseg_configs import config

NAME = "dnl_r50-d8_512x1024_40k_cityscapes_20200904_233629-53d4ea93.pth"
WINDOWED = "dnl_r50-d8_769x769_40k_cityscapes_20200820_232206-0f283785.pth"
PUBLISHED = [
    f"dnl_r{depth}-d8_{size}_{data}.pth"
    for depth in (50, 101)
    for size, data in (
        *((size, f"{rounds}k_cityscapes") for size in ("512x1024", "769x769") for rounds in (40, 80)),
        *(("512x512", f"{rounds}k_ade20k") for rounds in (80, 160)),
    )
]


def small_state(kind: str | None = "dnl_block", size: Size = SMALL) -> State:
    return filled(mmseg_shapes(size, kind))


def converted(path: Path, state: State, out: Path, *settings: str, **meta: Any) -> Converted:
    torch.save({"meta": meta, "state_dict": state, "optimizer": {"state": {0: torch.ones(1)}}}, path)
    return convert(path, out, settings)


def recipe_of(name: str, state: State, **meta: Any) -> SegmentationRecipe:
    recipe = FAMILY.convert(ForeignCheckpoint(Path(name), state, meta)).recipe
    assert isinstance(recipe, SegmentationRecipe)
    return recipe


def doubled(state: State) -> State:
    return {name: x.double() for name, x in state.items()}


def outputs(model: Path, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of our network, and those of the auxiliary head at its own size."""
    network = load_network(read_model_file(model)).double().eval()
    assert isinstance(network, Segmentor)
    assert network.auxiliary is not None
    return network(images).logits, network.auxiliary(network.backbone(images)[-2])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("kind", ["dnl_block", "nl_block", None])
def test_outputs_equal_mmsegmentations(kind: str | None, align_corners: bool, tmp_path: Path) -> None:
    state = small_state(kind)
    converted(tmp_path / (WINDOWED if align_corners else NAME), state, tmp_path / "m.safetensors")
    images = torch.randn(2, 3, 49, 64, dtype=torch.float64)
    theirs = mmseg_logits(doubled(state), mmseg_plan(SMALL), kind, images, align_corners)
    torch.testing.assert_close(outputs(tmp_path / "m.safetensors", images), theirs, rtol=1e-9, atol=1e-9)


def test_the_tensors_of_a_dnl_block_are_kept(tmp_path: Path) -> None:
    state = small_state()
    converted(tmp_path / NAME, state, tmp_path / "m.safetensors")
    ours = load_network(read_model_file(tmp_path / "m.safetensors")).state_dict()
    for kind in ("weight", "bias", "running_mean", "running_var"):
        assert torch.equal(ours[f"head.block.norm.{kind}"], state[f"decode_head.dnl_block.conv_out.bn.{kind}"])


@cache
def full_size(depth: int, classes: int) -> State:
    blocks = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}[depth]
    return filled(mmseg_shapes(Size(blocks, classes=classes), "dnl_block"), "meta")


@pytest.mark.parametrize(("depth", "classes"), [(50, 150), (101, 19)])
def test_every_tensor_of_a_published_model_is_used(depth: int, classes: int) -> None:
    theirs = full_size(depth, classes)
    result = FAMILY.convert(ForeignCheckpoint(Path(NAME), theirs, {}))
    matched = match_network(result)
    assert not matched.unused
    assert len(matched.state) == len(theirs)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_name_of_a_published_model_determines_training_and_test_settings(name: str) -> None:
    windowed, indoors = "769x769" in name, "ade20k" in name
    recipe = recipe_of(name, full_size(50 if "r50" in name else 101, 150 if indoors else 19))
    assert recipe.model.backbone == ("resnet50c" if "r50" in name else "resnet101c")
    assert recipe.model.align_corners == windowed
    assert recipe.evaluation.window == ((769, 769) if windowed else None)
    assert recipe.evaluation.stride == ((513, 513) if windowed else None)
    assert recipe.evaluation.short_side == (512 if indoors else 1025 if windowed else 1024)
    assert recipe.data.name == ("ade20k" if indoors else "cityscapes")
    assert recipe.optim.no_decay == (("block.query", "block.key") if windowed else ())
    assert f"_{recipe.schedule.iterations // 1000}k_" in name


D16: dict[str, Any] = {"strides": (1, 2, 2, 1), "dilations": (1, 1, 1, 2)}
D32: dict[str, Any] = {"strides": (1, 2, 2, 2), "dilations": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    "plan",
    [{}, D16, D32, {"contract_dilation": False}, {"multi_grid": (1, 2, 4)}, {**D16, "style": "caffe"}],
    ids=["d8", "d16", "d32", "not contracted", "multi grid", "caffe"],
)
def test_strides_and_dilations_follow_the_configuration(plan: dict[str, Any], tmp_path: Path) -> None:
    state = small_state()
    converted(tmp_path / "a.pth", state, tmp_path / "m.safetensors", cfg=config(plan))
    images = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    caffe = plan.get("style") == "caffe"
    blocks = mmseg_plan(SMALL, **{key: value for key, value in plan.items() if key != "style"})
    theirs = mmseg_logits(doubled(state), blocks, "dnl_block", images, False, caffe=caffe)
    torch.testing.assert_close(outputs(tmp_path / "m.safetensors", images), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("named", [True, False], ids=["by its name", "by its configuration"])
def test_heads_are_dilated_as_in_d6_models(named: bool, tmp_path: Path) -> None:
    state, path = small_state(None), tmp_path / ("fcn_d6_r50-d16_512x1024_40k.pth" if named else "a.pth")
    meta = {} if named else {"config": config(D16, "dilation=6,", "dilation=6,")}
    converted(path, state, tmp_path / "m.safetensors", **meta)
    images = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    theirs = mmseg_logits(doubled(state), mmseg_plan(SMALL, **D16), None, images, False, dilation=6)
    torch.testing.assert_close(outputs(tmp_path / "m.safetensors", images), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("strides=(1, 2, 1, 1)", "strides=(1, 1, 1, 1)", r"backbone\.strides are \(1, 1, 1, 1\); supported:"),
        ("dilations=(1, 1, 2, 4)", "dilations=some()", r"dilations are not a plain value"),
        (
            "style='pytorch'",
            "style='other'",
            r"its backbone\.style is 'other'; supported: 'pytorch' or 'caffe'",
        ),
        ("type='ResNetV1c'", "type='ResNetV1d'", r"its backbone\.type is 'ResNetV1d'"),
        ("depth=50", "dcn=dict(type='DCN')", r"its backbone\.dcn is .*; it is supported only if it is absent"),
        ("'SyncBN'", "'GN'", r"its backbone\.norm_cfg\.type is 'GN'"),
        ("'SyncBN'", "'BN', 'eps': 1e-3", r"its backbone\.norm_cfg\.eps is 0\.001"),
        ("channels=512", "act_cfg=dict(type='GELU')", r"its decode_head\.act_cfg is {'type': 'GELU'}"),
        ("channels=512", "in_index=2", r"in_index is 2; supported: the last map"),
        ("channels=512", "dilation=0", r"the dilations \(0, 1\); expected whole numbers"),
        ("channels=512", "temperature='low'", r"temperature is 'low'; expected a number"),
        ("mode='whole'", "mode='slide'", r"test_cfg is {'mode': 'slide'}; expected crop_size and stride"),
        ("mode='whole'", "mode='other'", r"test_cfg\.mode is 'other'"),
        ("crop_size", "_base_ = 'a.py'\ncrop_size", r"other files \(_base_\).*--config"),
    ],
)
def test_unsupported_configurations_are_refused(old: str, new: str, says: str) -> None:
    text = config().replace("num_convs=1", "num_convs=1" if "num_convs" in old else "dilation=1, num_convs=1")
    assert old in text
    with pytest.raises(ValueError, match=says):
        recipe_of(NAME, small_state(), cfg=text.replace(old, new, 1))


def test_caffe_pixels_are_recognised() -> None:
    text = config().replace("123.675, 116.28, 103.53", "102.9801, 115.9465, 122.7717")
    text = text.replace("58.395, 57.12, 57.375", "1, 1, 1").replace("bgr_to_rgb=True", "bgr_to_rgb=False")
    assert recipe_of(NAME, small_state(), cfg=text).model.caffe_pixels


def test_an_unknown_key_is_mentioned() -> None:
    result = FAMILY.convert(ForeignCheckpoint(Path(NAME), small_state(), {"cfg": config(head="colour=3,")}))
    assert "ignored unknown keys in the decode_head of its configuration: colour" in result.notes
    unread = FAMILY.convert(ForeignCheckpoint(Path(NAME), small_state(), {"cfg": "model = dict("}))
    assert "its configuration is not valid Python, so it was ignored" in unread.notes


def test_the_configuration_in_the_file_takes_precedence_over_its_name() -> None:
    slide = "test_cfg=dict(\n        crop_size=(769, 769,),\n        mode='slide',\n        stride=(513, 512,)),"
    text = config(head="temperature=0.1,").replace("test_cfg=dict(mode='whole'),", slide, 1)
    recipe = recipe_of(NAME, small_state(), cfg=text.replace("align_corners=False", "align_corners=True"))
    assert recipe.model.align_corners
    assert recipe.model.block == {"temperature": 0.1}
    assert (recipe.evaluation.window, recipe.evaluation.stride) == ((769, 769), (513, 512))
    assert recipe.data.crop == (64, 64)
    assert recipe.schedule.iterations == 160_000
    older = recipe_of(NAME, small_state(), config="test_cfg = dict(mode='slide', crop_size=65, stride=(43, 43))")
    assert (older.evaluation.window, older.evaluation.stride) == ((65, 65), (43, 43))


def test_a_text_with_python_warnings_is_read_silently() -> None:
    recipe = recipe_of(NAME, small_state(), cfg="a = '\\d'\nmodel = dict(decode_head=dict(temperature=0.2))")
    assert recipe.model.block == {"temperature": 0.2}


def test_the_name_of_a_file_next_to_an_older_configuration_does_no_harm() -> None:
    recipe = recipe_of(
        NAME, small_state(), config="/configs/dnl-r50.py\nmodel = dict(decode_head=dict(temperature=0.2))"
    )
    assert recipe.model.block == {"temperature": 0.2}


def test_assumptions_are_mentioned_until_they_are_set(tmp_path: Path) -> None:
    path, out = tmp_path / "mine.pth", tmp_path / "m.safetensors"
    needed = ("model.output_stride=8", "model.block.attention=softmax")
    said = converted(path, small_state(), out, *needed).notes
    assert any(note.startswith("align_corners is False") for note in said)
    assert any(note.startswith("images are fed to the network whole") for note in said)
    assert any("does not name its 5 classes" in note for note in said)
    assert "left out: the state of the optimiser" in said
    settings = (
        "model.align_corners=true",
        "evaluation.window=null",
        "schedule.iterations=7",
        "model.head_dilation=1",
        "model.pixels.blue_first=false",
        "evaluation.short_side=512",
    )
    given = converted(path, small_state(), out, *needed, *settings).notes
    assert not any("align_corners" in note or "fed to" in note or "assumed" in note for note in given)
    recipe = read_model_file(out).recipe
    assert isinstance(recipe, SegmentationRecipe)
    assert recipe.model.align_corners


def test_a_configuration_may_be_a_separate_file(tmp_path: Path) -> None:
    torch.save(small_state(), tmp_path / "a.pth")
    (tmp_path / "a.py").write_text(config(head="temperature=0.1,"))
    result = convert(tmp_path / "a.pth", tmp_path / "m.safetensors", config=tmp_path / "a.py")
    assert result.recipe.model.block == {"temperature": 0.1}
    assert not any("assumed" in note for note in result.notes)
    (tmp_path / "a.py").write_bytes(b"\xff")
    with pytest.raises(FileNotFoundError, match=r"b\.py: no such configuration file"):
        convert(tmp_path / "a.pth", tmp_path / "m.safetensors", config=tmp_path / "b.py")
    with pytest.raises(ValueError, match=r"a\.py: .*text file"):
        convert(tmp_path / "a.pth", tmp_path / "m.safetensors", config=tmp_path / "a.py")


def test_a_head_with_another_block_is_refused_by_name() -> None:
    state = small_state(None) | {"decode_head.gc_block.channel_add_conv.0.weight": torch.ones(1)}
    with pytest.raises(ValueError, match=r"bottleneck .*gc_block\.channel_add_conv\.0\.weight"):
        recipe_of(NAME, state)
    state = small_state() | {"backbone.layer2.0.downsample.2.weight": torch.ones(1)}
    with pytest.raises(ValueError, match="ResNetV1d"):
        recipe_of(NAME, state)


def test_classes_come_from_the_file(tmp_path: Path) -> None:
    names, palette = ("a", "b", "c", "d", "e"), [[1, 2, 3]] * 5
    result = converted(tmp_path / NAME, small_state(), tmp_path / "m.safetensors", CLASSES=names, PALETTE=palette)
    assert read_model_file(tmp_path / "m.safetensors").classes.names == names
    assert result.classes.palette == ((1, 2, 3),) * 5
    newer = FAMILY.convert(ForeignCheckpoint(Path(NAME), small_state(), {"dataset_meta": {"classes": names}}))
    assert newer.classes.names == names


def test_known_classes_keep_our_spelling_so_that_the_model_can_be_scored() -> None:
    theirs = [name.title() + " " for name in CLASSES.names]
    state = filled(mmseg_shapes(Size(classes=19), "nl_block"), "meta")
    result = FAMILY.convert(ForeignCheckpoint(Path(NAME), state, {"CLASSES": theirs}))
    assert result.classes == CLASSES
    other = FAMILY.convert(ForeignCheckpoint(Path(NAME), state, {"CLASSES": [f"thing {n}" for n in range(19)]}))
    assert other.classes.names[3] == "thing 3"
    assert other.recipe.data.name == "folder"


def test_an_averaged_copy_is_skipped_with_a_note(tmp_path: Path) -> None:
    state = small_state()
    copy = {f"ema_{name.replace('.', '_')}": tensor for name, tensor in state.items()}
    result = converted(tmp_path / NAME, state | copy, tmp_path / "m.safetensors")
    assert any("averaged copy" in note for note in result.notes)
    assert not result.unused


def test_a_converted_model_predicts(tmp_path: Path) -> None:
    converted(tmp_path / WINDOWED, small_state(), tmp_path / "m.safetensors", "evaluation.window=[33,33]",
              "evaluation.stride=[22,22]")  # fmt: skip
    model = dnlnet.load(tmp_path / "m.safetensors")
    image = torch.randint(0, 255, (40, 52, 3), dtype=torch.uint8).numpy()
    prediction = model.predict(image)
    assert prediction.labels.shape == (40, 52)
