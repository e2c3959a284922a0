import math

import pytest
import torch
from torch import nn

from dnlnet.engine.optim import LearningRate, build_optimizer, freeze, parameter_groups, set_training_mode
from dnlnet.segmentation.tiny import TinySegmentor


@pytest.mark.parametrize("i", [0, 1, 37, 99, 100])
def test_poly_is_its_formula(i: int) -> None:
    assert LearningRate("poly", 100, power=0.9)(i) == pytest.approx((1 - i / 100) ** 0.9)


@pytest.mark.parametrize("i", [0, 1, 37, 99, 100])
def test_cosine_is_half_a_period(i: int) -> None:
    assert LearningRate("cosine", 100)(i) == pytest.approx(0.5 * (1 + math.cos(math.pi * i / 100)))


@pytest.mark.parametrize(("i", "factor"), [(0, 1), (7, 1), (8, 0.1), (10, 0.1), (11, 0.01), (12, 0.01)])
def test_steps_divide_by_ten_at_the_milestones(i: int, factor: float) -> None:
    assert LearningRate("step", 12, milestones=(8, 11))(i) == pytest.approx(factor)


@pytest.mark.parametrize("kind", ["poly", "step", "cosine"])
def test_warm_up_is_a_straight_line_to_the_schedule(kind: str) -> None:
    rate = LearningRate(kind, 100, milestones=(50,), warmup=10, warmup_start=0.25)
    plain = LearningRate(kind, 100, milestones=(50,))
    assert rate(0) == 0.25
    assert rate(5) == pytest.approx((0.25 + plain(10)) / 2)
    assert [rate(i) for i in range(10, 101)] == [plain(i) for i in range(10, 101)]


@pytest.mark.parametrize(("nesterov", "expected"), [(False, [0.9, 0.71]), (True, [0.81, 0.539])])
def test_momentum_is_its_formula(nesterov: bool, expected: list[float]) -> None:
    """v = 0.9 v + g, and w decreases by 0.1 v, or by 0.1 (g + 0.9 v); here g is 1."""
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    optimizer = build_optimizer("sgd", [{"params": [weight], "lr": 0.1}], 0.9, nesterov)
    seen = []
    for _ in expected:
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        seen.append(weight.item())
    assert seen == pytest.approx(expected)


def test_every_trained_parameter_is_in_one_group() -> None:
    model = TinySegmentor(3, width=4)
    groups = parameter_groups(model, 0.1, no_decay=[r"block\.(query|key)"], decay_norms=False)
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
    trained = {id(p) for group in parameter_groups(model, 0.1) for p in group["params"]}
    assert not trained & {id(p) for p in model.features[0].parameters()}
    with pytest.raises(ValueError, match="no parameter's name begins with 'stem'"):
        freeze(model, ["stem"])


def test_norms_of_frozen_layers_keep_their_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False), nn.Dropout())
    freeze(model, ["0."])
    set_training_mode(model, frozen_statistics=False)
    assert [module.training for module in model] == [False, True, True, True]
    set_training_mode(model, frozen_statistics=True)
    assert [module.training for module in model] == [False, False, False, True]
