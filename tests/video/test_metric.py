import math
from typing import Any

import pytest
import torch

from dnlnet.video.metric import TopK, averaged


def samples(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(count, classes, generator=generator)
    return scores, torch.randint(0, classes, (count,), generator=generator)


def test_scores_equal_a_plain_sort() -> None:
    scores, labels = samples(200, 12)
    metric = TopK(12)
    for start in range(0, 200, 30):
        metric.update(scores[start : start + 30], labels[start : start + 30])
    order = scores.argsort(dim=1, descending=True)
    expected = {f"top{k}": (order[:, :k] == labels[:, None]).any(dim=1).double().mean().item() for k in (1, 5)}
    assert metric.scores() == pytest.approx(expected)
    assert metric.count == 200
    for label, score in enumerate(metric.class_scores()):
        assert score == pytest.approx((order[labels == label, 0] == label).double().mean().item())


def test_merged_processes_score_like_one() -> None:
    scores, labels = samples(50, 7)
    whole = TopK(7)
    whole.update(scores, labels)
    parts = [TopK(7) for _ in range(3)]
    for rank, part in enumerate(parts):
        part.update(scores[rank::3], labels[rank::3])
        part.skipped = [f"{rank}.mp4: is empty"] if rank else []
        part.notes = [f"{rank}.mp4: is cut off"] if rank else []
    states: list[Any] = []
    for part in parts:
        part.merge(lambda mine: states.append(mine) or [mine])
    parts[0].merge(lambda _: states)
    assert parts[0].scores() == whole.scores()
    assert torch.equal(parts[0].counts, whole.counts)
    assert parts[0].skipped == ["1.mp4: is empty", "2.mp4: is empty"]
    assert parts[0].notes == ["1.mp4: is cut off", "2.mp4: is cut off"]


def test_top5_is_1_with_fewer_than_five_classes() -> None:
    scores, labels = samples(20, 3)
    metric = TopK(3)
    metric.update(scores, labels)
    assert metric.scores()["top5"] == 1.0
    assert metric.scores()["top1"] < 1.0


def test_equal_scores_rank_the_lower_class_first() -> None:
    metric = TopK(7)
    metric.update(torch.zeros(7, 7), torch.arange(7))
    assert metric.scores() == {"top1": 1 / 7, "top5": 5 / 7}
    assert metric.class_scores() == [1, 0, 0, 0, 0, 0, 0]


def test_nan_scores_are_wrong() -> None:
    metric = TopK(2)
    metric.update(torch.full((2, 2), math.nan), torch.tensor([0, 1]))
    assert metric.scores() == {"top1": 0, "top5": 0}


def test_scores_without_samples_are_nan_and_none() -> None:
    metric = TopK(2)
    assert all(math.isnan(score) for score in metric.scores().values())
    assert metric.class_scores() == [None, None]


def test_the_first_score_is_top1() -> None:
    assert next(iter(TopK(2).scores())) == "top1"


def test_views_are_averaged_after_softmax() -> None:
    logits = torch.tensor([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 0.0]])
    torch.testing.assert_close(averaged(logits), sum(row.softmax(0) for row in logits) / 3)
    assert int(averaged(logits).argmax()) == 1
    assert averaged(logits.half()).dtype == torch.float32


def test_invalid_input_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        TopK(0)
    with pytest.raises(ValueError, match=r"\(2, 3\) .*\(B, 4\)"):
        TopK(4).update(torch.zeros(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match=r"label 4 is outside 0\.\.3"):
        TopK(4).update(torch.zeros(1, 4), torch.tensor([4]))
