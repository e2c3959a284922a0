import sys

import pytest

from dnlnet.engine.batches import Batches, GroupedBatches, grouped_round
from dnlnet.engine.loading import load_batches


def test_every_epoch_contains_every_sample_once_in_another_order() -> None:
    draws = [draw for batch in Batches(samples=7, batch=3, start=0, stop=7, seed=1) for draw in batch]
    epochs = [[index for index, epoch in draws if epoch == number] for number in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(7))] * 3
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_processes_share_the_batches_of_one(world_size: int) -> None:
    alone = list(Batches(samples=10, batch=6, start=0, stop=5, seed=0))
    shares = [
        Batches(samples=10, batch=6, start=0, stop=5, seed=0, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert [[draw for part in parts for draw in part] for parts in zip(*shares, strict=True)] == alone


def test_a_later_start_continues_the_sequence() -> None:
    whole = list(Batches(samples=10, batch=4, start=0, stop=9, seed=3))
    assert list(Batches(samples=10, batch=4, start=5, stop=9, seed=3)) == whole[5:]
    assert len(Batches(samples=10, batch=4, start=5, stop=9, seed=3)) == 4


def test_another_seed_gives_another_order() -> None:
    assert list(Batches(10, 4, 0, 3, seed=0)) != list(Batches(10, 4, 0, 3, seed=1))


def test_an_uneven_or_empty_split_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared evenly by 2 processes"):
        Batches(10, 5, 0, 1, seed=0, world_size=2)
    with pytest.raises(ValueError, match="no samples to train on"):
        Batches(0, 5, 0, 1, seed=0)


GROUPS = [0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0]  # 7 and 4


def test_every_batch_comes_from_one_group() -> None:
    for batch in GroupedBatches(GROUPS, batch=3, start=0, stop=40, seed=1):
        assert len({GROUPS[index] for index, _ in batch}) == 1
        assert len(batch) == 3


def test_grouped_samples_come_once_in_every_epoch() -> None:
    draws = [draw for batch in GroupedBatches(GROUPS, 3, 0, 40, seed=1) for draw in batch]
    assert len(set(draws)) == len(draws)
    for epoch in range(10):  # 40 batches of 3 are nearly 11 epochs of 11
        assert sorted(index for index, of in draws if of == epoch) == list(range(11))


def test_a_group_smaller_than_a_batch_is_not_lost() -> None:
    draws = [draw for batch in GroupedBatches([0, 0, 0, 0, 1], 4, 0, 10, seed=0) for draw in batch]
    assert sum(index == 4 for index, _ in draws) == 8  # 2 of 10 batches


def test_groups_are_mixed_and_every_round_has_another_order() -> None:
    rounds = [grouped_round([0] * 30 + [1] * 30, 3, seed=0, number=number) for number in range(2)]
    for batches in rounds:
        kinds = [batch[0][0] < 30 for batch in batches]
        assert len(kinds) == 20
        assert sorted(kinds) != kinds != sorted(kinds, reverse=True)
    assert [index for batch in rounds[0] for index, _ in batch] != [
        index for batch in rounds[1] for index, _ in batch
    ]
    assert grouped_round(GROUPS, 3, seed=0, number=1) == grouped_round(GROUPS, 3, seed=0, number=1)
    assert grouped_round(GROUPS, 3, seed=0, number=1) != grouped_round(GROUPS, 3, seed=1, number=1)


@pytest.mark.parametrize("batch", [1, 2, 5, 12])
def test_a_later_start_continues_the_grouped_sequence(batch: int) -> None:
    whole = list(GroupedBatches(GROUPS, batch, 0, 30, seed=3))
    assert len(whole) == 30
    for start in range(31):
        assert list(GroupedBatches(GROUPS, batch, start, 30, seed=3)) == whole[start:]


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_processes_share_the_grouped_batches_of_one(world_size: int) -> None:
    alone = list(GroupedBatches(GROUPS, 6, 0, 9, seed=0))
    shares = [GroupedBatches(GROUPS, 6, 0, 9, seed=0, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert [[draw for part in parts for draw in part] for parts in zip(*shares, strict=True)] == alone


class _Interrupted:
    """Data set whose worker raises the error of a main process that exits while receiving a batch."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        sys.excepthook(ConnectionResetError, ConnectionResetError("Connection reset by peer"), None)
        return index


def test_a_worker_is_silent_when_the_main_process_exits(capfd: pytest.CaptureFixture[str]) -> None:
    assert [batch.tolist() for batch in load_batches(_Interrupted(), 1, sampler=[0])] == [[0]]
    assert capfd.readouterr().err == ""
