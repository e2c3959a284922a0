import math
from typing import Literal

import pytest

from dnlnet.engine.settings import Schedule


@pytest.mark.parametrize("i", [0, 1, 37, 99, 100])
def test_poly_follows_its_formula(i: int) -> None:
    assert Schedule(batch=1, kind="poly", iterations=100, power=0.9).factor(i) == pytest.approx((1 - i / 100) ** 0.9)


@pytest.mark.parametrize("i", [0, 1, 37, 99, 100])
def test_cosine_is_half_a_period(i: int) -> None:
    assert Schedule(batch=1, kind="cosine", iterations=100).factor(i) == pytest.approx(
        0.5 * (1 + math.cos(math.pi * i / 100))
    )


@pytest.mark.parametrize(("i", "factor"), [(0, 1), (7, 1), (8, 0.1), (10, 0.1), (11, 0.01), (12, 0.01)])
def test_steps_divide_by_ten_at_the_milestones(i: int, factor: float) -> None:
    assert Schedule(batch=1, kind="step", iterations=12, milestones=(8, 11)).factor(i) == pytest.approx(factor)


@pytest.mark.parametrize("kind", ["poly", "step", "cosine"])
def test_warm_up_rises_linearly_to_the_schedule(kind: Literal["poly", "step", "cosine"]) -> None:
    rate = Schedule(batch=1, kind=kind, iterations=100, milestones=(50,), warmup=10, warmup_start=0.25)
    plain = Schedule(batch=1, kind=kind, iterations=100, milestones=(50,))
    assert rate.factor(0) == 0.25
    assert rate.factor(5) == pytest.approx((0.25 + plain.factor(10)) / 2)
    assert [rate.factor(i) for i in range(10, 101)] == [plain.factor(i) for i in range(10, 101)]
