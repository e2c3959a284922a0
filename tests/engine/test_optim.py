import pytest
import torch
from torch import nn

from dnlnet.engine.optim import build_optimizer, freeze, parameter_groups, set_training_mode
from dnlnet.engine.settings import Optim
from dnlnet.segmentation.tiny import TinySegmentor


@pytest.mark.parametrize(("nesterov", "expected"), [(False, [0.9, 0.71]), (True, [0.81, 0.539])])
def test_momentum_follows_its_formula(nesterov: bool, expected: list[float]) -> None:
    """v = 0.9 v + g, and w decreases by 0.1 v, or by 0.1 (g + 0.9 v); here g is 1."""
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    optimizer = build_optimizer([{"params": [weight], "lr": 0.1}], Optim(lr=0.1, nesterov=nesterov))
    seen = []
    for _ in expected:
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        seen.append(weight.item())
    assert seen == pytest.approx(expected)


def test_every_trained_parameter_is_in_one_group() -> None:
    model = TinySegmentor(3, width=4)
    groups = parameter_groups(model, Optim(lr=0.1, no_decay=(r"block\.(query|key)",), decay_norms=False))
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    without = {id(p) for p in groups[1]["params"]}
    assert groups[1]["weight_decay"] == 0
    expected = {
        id(p)
        for name, p in model.named_parameters()
        if "query" in name or "key" in name or name.split(".")[-2] == "1"
    }
    assert without == expected


def test_frozen_parameters_are_in_no_group() -> None:
    model = TinySegmentor(3, width=4)
    freeze(model, ["features.0."])
    trained = {id(p) for group in parameter_groups(model, Optim(lr=0.1)) for p in group["params"]}
    assert not trained & {id(p) for p in model.features[0].parameters()}
    with pytest.raises(ValueError, match="no parameter's name begins with 'stem'"):
        freeze(model, ["stem"])


def test_frozen_norms_keep_their_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False), nn.Dropout())
    freeze(model, ["0."])
    set_training_mode(model, frozen_statistics=False)
    assert [module.training for module in model] == [False, True, True, True]
    set_training_mode(model, frozen_statistics=True)
    assert [module.training for module in model] == [False, False, False, True]
