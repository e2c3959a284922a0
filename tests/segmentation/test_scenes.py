import pytest
import torch

from dnlnet.segmentation.scenes import run


def test_short_training_beats_the_untrained_net_by_a_fifth() -> None:
    seen: list[int] = []
    outcome = run(steps=50, size=48, progress=lambda step, loss: seen.append(step))
    assert outcome.after.miou() > outcome.before.miou() + 0.2
    assert seen == list(range(1, 51))
    assert outcome.seconds > 0


def test_a_seed_is_one_run() -> None:
    first, again, other = (run(steps=2, size=16, seed=seed) for seed in (0, 0, 1))
    for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(first.after.counts, again.after.counts)
    assert not torch.equal(first.model.classifier.weight, other.model.classifier.weight)


def test_all_runs_are_scored_on_the_same_scenes() -> None:
    truths = [run(variant=None, steps=1, size=16, seed=seed).after.counts.sum(dim=1) for seed in (0, 1)]
    assert torch.equal(*truths)


def test_a_run_leaves_the_random_weights_of_others_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    run(variant=None, steps=1, size=16)
    torch.random.set_rng_state(state)
    assert torch.equal(torch.rand(3), expected)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        run(steps=0)
    with pytest.raises(ValueError, match="unknown variant"):
        run(variant="dnll", steps=1)
