"""torch.hub finds the block and the models in a clone."""

from pathlib import Path

import pytest
import torch

import dnlnet
from dnlnet.bundled import MODELS

ROOT = str(Path(__file__).parents[1])


def test_a_block_from_the_hub_is_the_packages_block() -> None:
    block = torch.hub.load(ROOT, "nonlocal_block", 8, "nl", source="local", gate="scalar")
    assert isinstance(block, dnlnet.NonLocalBlock)
    x = torch.rand(1, 8, 5, 6)
    assert torch.equal(block(x), x)  # a new block behind this gate is the identity


@pytest.mark.parametrize("name", ["street", "pets"])
def test_models_from_the_hub_are_the_packages_models(name: str) -> None:
    if name not in MODELS:
        pytest.skip(f"{name} is not installed")
    pixels = torch.rand(3, 64, 64)
    ours, theirs = dnlnet.load(name), torch.hub.load(ROOT, name, source="local")
    assert torch.equal(torch.as_tensor(ours.predict(pixels).labels), torch.as_tensor(theirs.predict(pixels).labels))
