import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.backbones.pixels import CAFFE_MEAN, MEAN, STD
from dnlnet.conversion.converting import convert, match_network
from dnlnet.conversion.family import Converted, ForeignCheckpoint
from dnlnet.conversion.segmentation.torchcv import FAMILY
from dnlnet.segmentation.network import Segmentor
from dnlnet.segmentation.recipe import SegmentationRecipe
from foreign import (
    SMALL,
    Plan,
    Size,
    State,
    filled,
    torchcv_logits,
    torchcv_plan,
    torchcv_shapes,
)

# The `nonlocal` of the authors' configurations, by file name; with_gc and with_nl follow from the tensors.
LN = {"whiten_type": ["ln_nostd"], "nowd": ["nl"], "weight_init_scale": 1.0}  # NLnowd_ln, the recipe of the README
CONFIGURATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "NLnowd_ln": (LN, {}),
    "NLnowd in_nostd": ({**LN, "whiten_type": ["in_nostd"], "nowd": []}, {}),
    "NLnowd_in": ({**LN, "whiten_type": ["channel"]}, {}),  # centres nothing
    "NLbn": ({"whiten_type": ["channel"], "temp": 0.05}, {}),
    "NLbn by sample": ({"whiten_type": ["ln_nostd"], "temp": 0.1}, {}),
    "NLbn in_nostd": (
        {"whiten_type": ["in_nostd"], "temp": 0.5},
        {},
    ),  # also centres nothing, because the other class has this name
    "NL": ({"whiten_type": [], "temp": 1.0}, {"mask": False}),
    "NL use_out": ({"whiten_type": [], "temp": 1.0}, {"mask": False, "use_out": True}),
    "NL out_bn": ({"whiten_type": [], "temp": 1.0}, {"mask": False, "use_out": True, "out_bn": True}),
    "NL out_bn alone": ({"whiten_type": [], "temp": 1.0}, {"mask": False, "out_bn": True}),
    "NLin_nogc out_bn": (
        {"whiten_type": ["channel"], "temp": 0.05},
        {"mask": False, "use_out": True, "out_bn": True},
    ),
    "NLbn out_bn": ({"whiten_type": ["channel"], "temp": 0.05}, {"use_out": True, "out_bn": True}),
    "NLin_nogc": ({"whiten_type": ["channel"], "temp": 0.05}, {"mask": False}),
    "NLln_nogc": ({**LN, "nowd": ["gc"]}, {"mask": False}),
    "NLunary": ({"whiten_type": ["channel"], "temp": 0.06, "with_unary": True}, {"mask": False}),
    "NLunary by sample": ({"whiten_type": ["ln_nostd"], "temp": 0.06, "with_unary": True}, {"mask": False}),
    "Unary": ({}, {"query": False}),
    "base": ({}, {"query": False, "mask": False, "module": "gcb"}),
}


def small_state(**parts: Any) -> State:
    state = filled(torchcv_shapes(SMALL, **parts))
    state["backbone.prefix.conv1.weight"] /= 60  # its input is in 0..255
    return state


def outputs(model: Path, pixels: Tensor) -> tuple[Tensor, Tensor]:
    network = load_network(read_model_file(model)).double().eval()
    assert isinstance(network, Segmentor)
    assert network.auxiliary is not None
    std, mean, caffe = torch.tensor([STD, MEAN, CAFFE_MEAN], dtype=torch.float64).view(3, 3, 1, 1)
    network.backbone.renormalise = torch.stack([std, mean - caffe])  # to the same precision as the rest
    images = (pixels - mean) / std
    return network(images).logits, network.auxiliary(network.backbone(images)[-2])


def assert_equal(
    model: Path, state: State, settings: dict[str, Any], parts: dict[str, Any], size: tuple[int, int], plan: Plan
) -> None:
    pixels = torch.randint(0, 256, (1, 3, *size)).double()
    exact = {name: x.double() for name, x in state.items()}
    theirs = torchcv_logits(exact, plan, pixels, settings, parts.get("module", "nlm"))
    torch.testing.assert_close(outputs(model, pixels), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("size", [(48, 64), (49, 65)], ids=["pool rounds up", "pool is exact"])
def test_outputs_equal_torchcvs(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    settings, parts = CONFIGURATIONS[name]
    state = small_state(**parts)
    content = {"state_dict": {f"module.{n}": x for n, x in state.items()}, "config_dict": {"nonlocal": settings}}
    torch.save(content, tmp_path / "a.pth")
    convert(tmp_path / "a.pth", tmp_path / "m.safetensors")
    assert_equal(tmp_path / "m.safetensors", state, settings, parts, size, torchcv_plan(SMALL))


TEMPERATURE = ["model.preset=authors_temperature"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("NLnowd_ln", []),
        ("NLnowd_in", ["model.block.centring=none"]),
        ("NLbn", [*TEMPERATURE, "model.block.temperature=0.05"]),
        ("NL", []),
        ("NLin_nogc", ["model.variant=nl_pairwise", *TEMPERATURE, "model.block.temperature=0.05"]),
        ("NLunary", ["model.variant=dnl_dagger", "model.block.unary_scaled=false", *TEMPERATURE,
                     "model.block.temperature=0.06"]),
    ],
)  # fmt: skip
def test_the_advice_for_a_file_without_a_configuration_suffices(
    name: str, settings: list[str], tmp_path: Path
) -> None:
    described, parts = CONFIGURATIONS[name]
    state = small_state(**parts)
    torch.save(state, tmp_path / "a.pth")
    said = convert(tmp_path / "a.pth", tmp_path / "m.safetensors").notes
    advice = next(note for note in said if note.startswith("the weights do not show"))
    assert all(f"--set {setting}" in advice for setting in settings)
    assert any("output stride of 8" in note for note in said)
    assert any("blue first" in note for note in said)
    given = convert(tmp_path / "a.pth", tmp_path / "m.safetensors", settings).notes
    assert not settings or not any("do not show" in note for note in given)
    assert_equal(tmp_path / "m.safetensors", state, described, parts, (49, 65), torchcv_plan(SMALL))


@pytest.mark.parametrize(
    ("backbone", "grid"),
    [
        ("deepbase_resnet50_dilated8", None),
        ("deepbase_resnet50_dilated8", [1, 2, 4]),
        ("deepbase_resnet50_dilated16", [1, 1, 1]),
        ("deepbase_resnet50_dilated16", [1, 2, 4]),
        ("deepbase_resnet50", [1, 1, 1]),
    ],
)
def test_strides_and_dilations_follow_the_configuration(
    backbone: str, grid: list[int] | None, tmp_path: Path
) -> None:
    state = small_state()
    tree = {"nonlocal": LN, "network": {"backbone": backbone, "multi_grid": grid, "model_name": "nonlocalnowd"}}
    torch.save({"state_dict": state, "config_dict": tree}, tmp_path / "a.pth")
    said = convert(tmp_path / "a.pth", tmp_path / "m.safetensors").notes
    assert not any("output stride" in note for note in said)
    scale = {"8": 8, "6": 16, "0": 32}[backbone[-1]]
    plan = torchcv_plan(SMALL, scale, None if grid is None else tuple(grid))
    assert_equal(tmp_path / "m.safetensors", state, LN, {}, (65, 97), plan)


@pytest.mark.parametrize(("blocks", "backbone"), [((3, 4, 6, 3), "resnet50s"), ((3, 4, 23, 3), "resnet101s")])
def test_every_network_of_torchcv_has_a_counterpart_for_all_tensors(blocks: tuple[int, ...], backbone: str) -> None:
    theirs = filled(torchcv_shapes(Size(blocks, auxiliary=512)), "meta")
    result = FAMILY.convert(ForeignCheckpoint(Path("a.pth"), theirs, {}))
    matched = match_network(result)
    assert not matched.unused
    assert len(matched.state) == len(theirs)
    assert result.recipe.model.backbone == backbone
    assert isinstance(result.recipe, SegmentationRecipe)
    assert result.recipe.evaluation.window == (769, 769)
    assert any("recipe of the authors' README" in note for note in result.messages())


@pytest.mark.parametrize(
    ("classes", "lr", "weights"), [(19, 0.01, 19), (150, 0.02, 0), (60, 0.01, 0), (59, 0.01, 0), (7, 0.01, 0)]
)
def test_training_settings_follow_the_authors_configurations(classes: int, lr: float, weights: int) -> None:
    theirs = filled(torchcv_shapes(replace(SMALL, classes=classes)), "meta")
    recipe = FAMILY.convert(ForeignCheckpoint(Path("a.pth"), theirs, {})).recipe
    assert isinstance(recipe, SegmentationRecipe)
    assert recipe.optim.lr == lr
    assert (recipe.loss.auxiliary_weight, recipe.data.aspects) == (0.4, (0.9, 1.1))
    assert len(recipe.loss.class_weights or ()) == weights


def converted(nonlocal_: dict[str, Any], tree: dict[str, Any] | None = None, **parts: bool) -> Converted:
    state = filled(torchcv_shapes(SMALL, **parts), "meta")  # type: ignore[arg-type]
    return FAMILY.convert(
        ForeignCheckpoint(Path("a.pth"), state, {"config_dict": {"nonlocal": nonlocal_, **(tree or {})}})
    )


def test_the_configuration_in_the_file_is_used() -> None:
    scaled = converted({"whiten_type": ["channel"], "temp": 0.1, "downsample": False}).recipe
    assert scaled.model.block == {"scaled": True, "temperature": 0.1, "centring": "channel"}
    assert scaled.optim.no_decay == ()
    free = converted({"whiten_type": ["ln_nostd"], "nowd": ["nl"], "downsample": True}).recipe
    assert free.model.block == {"scaled": False, "centring": "sample", "pool": 2}
    assert free.optim.no_decay == ("block.query", "block.key")
    unary = converted({"whiten_type": ["channel"], "temp": 0.06, "with_unary": True}, mask=False).recipe.model
    assert (unary.variant, unary.block["unary_scaled"], unary.block["centring"]) == ("dnl_dagger", False, "channel")


def test_the_effect_of_a_whitening_is_mentioned() -> None:
    nothing = converted({"whiten_type": ["channel"], "nowd": ["nl"]}, {"network": {"model_name": "nonlocalnowd"}})
    assert all(fact in nothing.notes[0] for fact in ("not centred", "['channel']", "nonlocalnowd"))
    assert "centred by channel" in converted({"whiten_type": ["channel"], "temp": 1.0}).notes[0]


CAFFE = {"mean": [102.9801, 115.9465, 122.7717], "std": [1.0, 1.0, 1.0], "div_value": 1.0}


@pytest.mark.parametrize(
    ("nonlocal_", "tree", "says"),
    [
        ({"whiten_type": ["bn_affine"], "temp": 1.0}, {}, r"whitens by \['bn_affine'\]; supported: one of"),
        ({"whiten_type": ["in"], "nowd": []}, {}, r"whitens by \['in'\]"),
        ({"whiten_type": ["channel"], "temp": 1.0, "with_unary": True}, {}, "with_unary and a saliency"),
        ({"whiten_type": ["channel"], "temp": "low"}, {}, r"nonlocal\.temp is 'low'; expected a number"),
        (LN, {"network": {"backbone": "hrnet48"}}, r"network\.backbone is 'hrnet48'; supported: resnets"),
        (LN, {"network": {"backbone": "resnet50_dilated8", "multi_grid": [1, 2]}}, r"multi_grid is \[1, 2\]"),
        (LN, {"network": {"norm_type": "instance"}}, r"norm_type is 'instance'; supported: batch norms"),
        (LN, {"data": {"normalize": {**CAFFE, "std": [2.0]}}}, "its pixels are 'BGR' with"),
        (LN, {"data": {"normalize": CAFFE, "input_mode": "GRAY"}}, "its pixels are 'GRAY' with"),
    ],
)
def test_unsupported_configurations_are_refused(nonlocal_: dict[str, Any], tree: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        converted(nonlocal_, tree)


def test_other_pixel_statistics_are_stored_in_the_model() -> None:
    """(x / div_value - mean) / std, in the order of the input mode."""
    unit = {"div_value": 255.0, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    model = converted(LN, {"data": {"normalize": unit, "input_mode": "RGB"}}).recipe.model
    assert model.network_pixels().mean == pytest.approx((123.675, 116.28, 103.53))
    assert model.network_pixels().deviation == pytest.approx((58.395, 57.12, 57.375))
    assert not model.network_pixels().blue_first
    reverse = converted(LN, {"data": {"normalize": unit, "input_mode": "BGR"}}).recipe.model
    assert reverse.network_pixels().mean == pytest.approx((103.53, 116.28, 123.675))
    assert reverse.network_pixels().blue_first


def test_a_network_without_a_proper_name_is_recognised_by_its_keys() -> None:
    block = converted(
        {"whiten_type": ["channel"], "temp": 0.5}, {"network": {"model_name": ["nonlocalbn"]}}
    ).recipe.model.block
    assert block == {"scaled": True, "temperature": 0.5, "centring": "channel"}


def test_given_pixel_settings_are_not_assumed() -> None:
    said = converted(LN, {"data": {"normalize": CAFFE, "input_mode": "BGR"}}).messages()
    assert not any("blue first" in note for note in said)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nlm.ctb.key_bn.weight", r"layers that ours lacks.*\n1 unknown:\n  nlm\.ctb\.key_bn"),
        ("nlm.ctb.channel_add_conv.0.weight", r"bottleneck .*nlm\.ctb\.channel_add_conv\.0\.weight"),
    ],
)
@pytest.mark.parametrize("partial", [False, True])
def test_a_partly_supported_block_is_refused(name: str, says: str, partial: bool, tmp_path: Path) -> None:
    torch.save(small_state() | {name: torch.ones(1)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=says) as error:
        convert(tmp_path / "a.pth", tmp_path / "m.safetensors", partial=partial)
    assert "--partial" not in str(error.value)
    with pytest.raises(ValueError, match=r"a\.conf: .*torchcv.*--set"):
        convert(tmp_path / "a.pth", tmp_path / "m.safetensors", config=tmp_path / "a.conf")


def test_the_objects_of_a_configuration_are_read_without_running_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authors' checkpoints contain a pyhocon tree and NumPy scores."""

    class ConfigTree(OrderedDict[str, Any]):
        def __init__(self) -> None:
            super().__init__()
            self.history: dict[str, Any] = {}
            executed.append("their code")

    executed: list[str] = []
    module = ModuleType("pyhocon.config_tree")
    ConfigTree.__module__, ConfigTree.__qualname__ = module.__name__, "ConfigTree"
    module.ConfigTree = ConfigTree  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyhocon", ModuleType("pyhocon"))
    monkeypatch.setitem(sys.modules, "pyhocon.config_tree", module)
    tree, inner = ConfigTree(), ConfigTree()
    inner["whiten_type"], inner["temp"] = ["channel"], 0.05
    tree["nonlocal"] = inner
    state: State = filled(torchcv_shapes(SMALL))
    content = {"config_dict": tree, "state_dict": state, "runner_state": {"max_performance": np.float64(0.8)}}
    torch.save(content, tmp_path / "a.pth")
    executed.clear()
    result = convert(tmp_path / "a.pth", tmp_path / "m.safetensors")
    assert not executed
    assert result.recipe.model.block == {"scaled": True, "temperature": 0.05, "centring": "channel"}
