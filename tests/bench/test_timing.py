"""Rounds are shuffled, and ratios compare calls of the same round."""

from itertools import pairwise, permutations

import pytest

from dnlnet.bench import timing


def test_every_call_follows_every_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TURN", 0.0)
    seen: list[str] = []
    calls = {name: lambda name=name: seen.append(name) for name in "abcd"}
    times = timing.time_rounds(calls, rounds=12)
    assert [len(times[name]) for name in "abcd"] == [12] * 4
    assert all(sorted(seen[start : start + 4]) == list("abcd") for start in range(0, 48, 4))
    assert {(one, other) for one, other in pairwise(seen) if one != other} == set(permutations("abcd", 2))


def test_a_call_is_compared_with_the_first_call_of_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"eager": [2.0, 8.0, 4.0], "folded": [1.0, 6.0, 2.0]}
    monkeypatch.setattr(timing, "time_rounds", lambda calls, rounds: times)
    found = timing.compare_times(dict.fromkeys(times, lambda: None), rounds=3)
    assert found == {"eager": (2.0, 1.0), "folded": (1.0, 0.5)}


def test_a_slow_round_does_not_change_the_ratio() -> None:
    # The quiet rounds of the two calls differ: best over best would give 0.5.
    assert timing.paired_ratio([1.0, 4.0, 6.0], [1.0, 4.0, 6.0]) == 1.0
    assert timing.paired_ratio([3.0, 1.0, 3.0], [3.0, 2.0, 3.0]) == 1.0
