import re
from pathlib import Path

import pytest
import torch

from dnlnet.engine import memory
from dnlnet.engine.memory import installed_bytes, step_bytes
from dnlnet.recipes.override import override
from dnlnet.registry import find_recipe
from dnlnet.runs.feasible import require_feasible
from dnlnet.runs.train import train
from dnlnet.segmentation.tiny import TinySegmentor

QUICK = ["data.crop=[32, 32]", "schedule.batch=2", "schedule.iterations=2"]


@pytest.mark.parametrize(
    ("settings", "workers", "message"),
    [
        (["data.crop=[60000, 60000]", "schedule.batch=60000"], 0, "a step of 60000 x 3 x 60000 x 60000 values takes"),
        (["data.crop=[1, 1]"], 0, "the network cannot take a step of 2 x 3 x 1 x 1 values"),
        (["model.width=60000"], 0, "a step of 2 x 3 x 32 x 32 values takes at least"),
        ([], 10**9, "reading with 1000000000 processes takes at least"),
        (["loss.class_weights=[1.0, 2.0]"], 0, "has 2 class weights for 6 classes"),
        (["data.train=trian"], 0, "scenes has no split 'trian' for this; expected 'train'"),
        (["data.test=vla"], 0, "scenes has no split 'vla' for this; expected 'val'"),
        (["schedule.then=[{train: coarse, iterations: 1, lr: 0.1}]"], 0, "scenes has no split 'coarse' for this"),
        (["training.frozen=[backbone]"], 0, "nothing to freeze: no parameter's name begins with 'backbone'"),
    ],
)
def test_infeasible_settings_are_refused_before_anything_is_written(
    settings: list[str], workers: int, message: str, tmp_path: Path
) -> None:
    recipe = override(find_recipe("scenes-tiny-dnl"), [*QUICK, *settings])
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        train(recipe, None, tmp_path / "run", workers=workers)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "classes"), [("camvid-mbv2-dnl", 11), ("coco-micro-dnl-c4", 80), ("ucf6-r50-dnl", 6)]
)
def test_the_small_recipes_need_at_most_eight_gigabytes_and_more_than_a_tenth_of_one(
    name: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = find_recipe(name)
    monkeypatch.setattr(memory, "installed_bytes", lambda _: 8 * 10**9)
    require_feasible(recipe, classes)
    monkeypatch.setattr(memory, "installed_bytes", lambda _: 10**8)
    with pytest.raises(ValueError, match=r"takes at least \d\.\d GB of memory, and there are 0\.1 GB"):
        require_feasible(recipe, classes)


def test_the_estimated_bytes_of_a_step_are_exact() -> None:
    """Two linear maps with a sigmoid between them: input, sigmoid output, and three times the weights."""
    with torch.device("meta"):
        network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 2))
        assert step_bytes(network, torch.empty(3, 4)) == 4 * (3 * 4 + 3 * 8 + 3 * (5 * 8 + 9 * 2))


def test_the_machines_memory_is_found() -> None:
    installed = installed_bytes()
    assert installed is None or installed > 10**8


def test_the_tiny_network_accepts_the_options_of_its_block() -> None:
    recipe = override(find_recipe("scenes-tiny-dnl"), ["model.block.gate=scalar", "model.block.embed_reduction=4"])
    network = recipe.build(6)
    assert isinstance(network, TinySegmentor)
    assert network.block is not None
    assert (network.block.settings.gate, network.block.settings.embed_reduction) == ("scalar", 4)
