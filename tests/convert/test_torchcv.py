import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dnlnet.convert import convert
from dnlnet.convert.checking import fitted
from dnlnet.convert.family import Checkpoint
from dnlnet.convert.torchcv import FAMILY
from dnlnet.data.transforms import normalised
from dnlnet.models.segmentor import Segmentor
from dnlnet.recipes.load import load_network, read_model_file
from dnlnet.recipes.schema import SegmentationRecipe
from foreign import SMALL, Size, State, filled, torchcv_logits, torchcv_shapes, use_small_backbones

ROOT = (SMALL.head // 2) ** 0.5  # what scaled logits are divided by


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_backbones(monkeypatch)


def outputs(model: Path, pixels: Tensor) -> tuple[Tensor, Tensor]:
    network = load_network(read_model_file(model)).double().eval()
    assert isinstance(network, Segmentor)
    assert network.auxiliary is not None
    images = normalised(pixels).double()
    return network(images).logits, network.auxiliary(network.backbone(images)[-2])


@pytest.mark.parametrize(
    ("parts", "settings", "whitening", "divisor"),
    [
        ({}, [], "ln_nostd", 1.0),
        ({}, ["model.preset=authors_temperature"], "in_nostd", ROOT * 0.05),
        ({}, ["model.block.centring=channel"], "in_nostd", 1.0),
        ({"mask": False}, [], None, ROOT),
        ({"query": False}, [], None, 1.0),
        ({"query": False, "mask": False, "module": "gcb"}, [], None, 1.0),
    ],
    ids=["dnl", "temperature", "channel", "nl", "unary", "baseline"],
)
@pytest.mark.parametrize("size", [(48, 64), (49, 65)], ids=["pool rounds up", "pool is exact"])
def test_outputs_are_theirs(
    parts: dict[str, Any],
    settings: list[str],
    whitening: str | None,
    divisor: float,
    size: tuple[int, int],
    tmp_path: Path,
) -> None:
    state = filled(torchcv_shapes(SMALL, **parts))
    state["backbone.prefix.conv1.weight"] /= 60  # its input is in 0..255
    torch.save({"state_dict": {f"module.{name}": x for name, x in state.items()}}, tmp_path / "a.pth")
    convert(tmp_path / "a.pth", tmp_path / "m.safetensors", settings)
    pixels = torch.randint(0, 256, (1, 3, *size)).double()
    theirs = torchcv_logits(
        {name: x.double() for name, x in state.items()}, SMALL, pixels, whitening, divisor, parts.get("module", "nlm")
    )
    torch.testing.assert_close(outputs(tmp_path / "m.safetensors", pixels), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("blocks", "backbone"), [((3, 4, 6, 3), "resnet50s"), ((3, 4, 23, 3), "resnet101s")])
def test_their_networks_have_a_network_of_all_their_tensors(blocks: tuple[int, ...], backbone: str) -> None:
    theirs = filled(torchcv_shapes(Size(blocks, auxiliary=512)), "meta")
    result = FAMILY.convert(Checkpoint(Path("a.pth"), theirs, {}))
    state, unused = fitted(result.state, result.recipe, len(result.classes))
    assert not unused
    assert not result.unused
    assert len(state) == len(theirs)
    assert result.recipe.model.backbone == backbone
    assert isinstance(result.recipe, SegmentationRecipe)
    assert result.recipe.evaluation.window == (769, 769)
    assert any("recipe of the authors' README" in note for note in result.notes)
    assert any("blue first" in note for note in result.notes)


def with_configuration(nonlocal_: dict[str, Any], **parts: bool) -> SegmentationRecipe:
    state = filled(torchcv_shapes(SMALL, **parts), "meta")  # type: ignore[arg-type]
    recipe = FAMILY.convert(Checkpoint(Path("a.pth"), state, {"config_dict": {"nonlocal": nonlocal_}})).recipe
    assert isinstance(recipe, SegmentationRecipe)
    return recipe


def test_the_configuration_in_the_file_is_used() -> None:
    scaled = with_configuration({"whiten_type": ["in_nostd"], "temp": 0.1, "downsample": False})
    assert scaled.model.block == {"scaled": True, "temperature": 0.1, "centring": "channel"}
    assert scaled.optim.no_decay == ()
    free = with_configuration({"whiten_type": ["ln_nostd"], "nowd": ["nl"], "downsample": True})
    assert free.model.block == {"scaled": False, "centring": "sample", "pool": 2}
    with pytest.raises(ValueError, match=r"whitens by \['bn_affine'\]; this package has: ln_nostd, in_nostd"):
        with_configuration({"whiten_type": ["bn_affine"], "temp": 1.0})


def test_the_objects_of_their_configuration_are_read_without_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their checkpoints hold a tree of pyhocon and scores of NumPy, which are not tensors."""

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
