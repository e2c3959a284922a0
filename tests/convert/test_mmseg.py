from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dnlnet
from dnlnet.convert import Converted, convert
from dnlnet.convert.checking import fitted
from dnlnet.convert.family import Checkpoint
from dnlnet.convert.mmseg import FAMILY
from dnlnet.data.cityscapes import CLASSES
from dnlnet.models.segmentor import Segmentor
from dnlnet.recipes.load import load_network
from dnlnet.recipes.model_file import read_model_file
from dnlnet.recipes.schema import SegmentationRecipe
from foreign import SMALL, Size, State, filled, mmseg_logits, mmseg_shapes, use_small_backbones

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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_backbones(monkeypatch)


def small_state(kind: str | None = "dnl_block", size: Size = SMALL) -> State:
    return filled(mmseg_shapes(size, kind))


def converted(path: Path, state: State, out: Path, *settings: str, **meta: Any) -> Converted:
    torch.save({"meta": meta, "state_dict": state, "optimizer": {"state": {0: torch.ones(1)}}}, path)
    return convert(path, out, settings)


def recipe_of(name: str, state: State, **meta: Any) -> SegmentationRecipe:
    recipe = FAMILY.convert(Checkpoint(Path(name), state, meta)).recipe
    assert isinstance(recipe, SegmentationRecipe)
    return recipe


def outputs(model: Path, images: Tensor) -> tuple[Tensor, Tensor]:
    """Of our network: logits, and those of the auxiliary head at its own size."""
    network = load_network(read_model_file(model)).double().eval()
    assert isinstance(network, Segmentor)
    assert network.auxiliary is not None
    return network(images).logits, network.auxiliary(network.backbone(images)[-2])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("kind", ["dnl_block", "nl_block", None])
def test_outputs_are_theirs(kind: str | None, align_corners: bool, tmp_path: Path) -> None:
    state = small_state(kind)
    converted(tmp_path / (WINDOWED if align_corners else NAME), state, tmp_path / "m.safetensors")
    images = torch.randn(2, 3, 49, 64, dtype=torch.float64)
    theirs = mmseg_logits(
        {name: x.double() for name, x in state.items()}, SMALL, kind, images, align_corners=align_corners
    )
    torch.testing.assert_close(outputs(tmp_path / "m.safetensors", images), theirs, rtol=1e-9, atol=1e-9)


def test_the_tensors_of_a_dnl_block_are_kept_as_they_are(tmp_path: Path) -> None:
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
def test_every_tensor_of_a_published_model_has_its_place(depth: int, classes: int) -> None:
    theirs = full_size(depth, classes)
    result = FAMILY.convert(Checkpoint(Path(NAME), theirs, {}))
    state, unused = fitted(result.state, result.recipe, len(result.classes))
    assert not unused
    assert not result.unused
    assert len(state) == len(theirs)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_name_of_a_published_model_tells_how_it_was_trained_and_is_tested(name: str) -> None:
    windowed, indoors = "769x769" in name, "ade20k" in name
    recipe = recipe_of(name, full_size(50 if "r50" in name else 101, 150 if indoors else 19))
    assert recipe.model.backbone == ("resnet50c" if "r50" in name else "resnet101c")
    assert recipe.model.align_corners == windowed
    assert recipe.evaluation.window == ((769, 769) if windowed else None)
    assert recipe.evaluation.stride == ((513, 513) if windowed else None)
    assert recipe.evaluation.short_side == (512 if indoors else None)
    assert recipe.data.name == ("ade20k" if indoors else "cityscapes")
    assert recipe.optim.no_decay == (("block.query", "block.key") if windowed else ())
    assert f"_{recipe.schedule.iterations // 1000}k_" in name


def test_the_configuration_in_the_file_is_believed_before_its_name() -> None:
    state = small_state()
    slide = "test_cfg=dict(mode='slide', crop_size=(769, 769), stride=(513, 513))"
    config = f"crop_size = (769, 769)\nmodel = dict(decode_head=dict(align_corners=True, temperature=0.1), {slide})"
    recipe = recipe_of(NAME, state, config=f"{config}\nmax_iters=160000")
    assert recipe.model.align_corners
    assert recipe.model.block == {"temperature": 0.1}
    assert recipe.evaluation.window == (769, 769)
    assert recipe.schedule.iterations == 160_000
    with pytest.raises(ValueError, match="mode dot_product; this package has embedded_gaussian alone"):
        recipe_of(NAME, state, cfg="mode='dot_product'")


def test_what_is_assumed_is_said_and_can_be_replaced(tmp_path: Path) -> None:
    result = converted(tmp_path / "mine.pth", small_state(), tmp_path / "m.safetensors", "model.align_corners=true")
    assert any("align_corners is assumed to be False" in note for note in result.notes)
    assert any("does not name its 5 classes" in note for note in result.notes)
    assert "left out: the state of the optimiser" in result.notes
    recipe = read_model_file(tmp_path / "m.safetensors").recipe
    assert isinstance(recipe, SegmentationRecipe)
    assert recipe.model.align_corners


def test_classes_are_those_of_the_file(tmp_path: Path) -> None:
    names, palette = ("a", "b", "c", "d", "e"), [[1, 2, 3]] * 5
    result = converted(tmp_path / NAME, small_state(), tmp_path / "m.safetensors", CLASSES=names, PALETTE=palette)
    assert read_model_file(tmp_path / "m.safetensors").classes.names == names
    assert result.classes.palette == ((1, 2, 3),) * 5
    newer = FAMILY.convert(Checkpoint(Path(NAME), small_state(), {"dataset_meta": {"classes": names}}))
    assert newer.classes.names == names


def test_known_classes_keep_our_spelling_so_that_the_model_can_be_scored() -> None:
    theirs = [name.title() + " " for name in CLASSES.names]
    state = filled(mmseg_shapes(Size(classes=19), "nl_block"), "meta")
    result = FAMILY.convert(Checkpoint(Path(NAME), state, {"CLASSES": theirs}))
    assert result.classes == CLASSES
    other = FAMILY.convert(Checkpoint(Path(NAME), state, {"CLASSES": [f"thing {n}" for n in range(19)]}))
    assert other.classes.names[3] == "thing 3"
    assert other.recipe.data.name == "folder"


def test_an_averaged_copy_is_left_out_with_a_word(tmp_path: Path) -> None:
    state = small_state()
    copy = {f"ema_{name.replace('.', '_')}": tensor for name, tensor in state.items()}
    result = converted(tmp_path / NAME, state | copy, tmp_path / "m.safetensors")
    assert any("averaged copy" in note for note in result.notes)
    assert not result.unused


def test_a_converted_model_predicts(tmp_path: Path) -> None:
    converted(tmp_path / WINDOWED, small_state(), tmp_path / "m.safetensors", "evaluation.window=[33,33]",
              "evaluation.stride=[22,22]")  # fmt: skip
    model = dnlnet.load(tmp_path / "m.safetensors")
    picture = torch.randint(0, 255, (40, 52, 3), dtype=torch.uint8).numpy()
    prediction = model.predict(picture)
    assert prediction.labels.shape == (40, 52)
