import pytest

from dnlnet.engine.batches import Batches


def test_every_epoch_has_every_sample_once_in_another_order() -> None:
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


def test_a_later_start_gives_the_rest() -> None:
    whole = list(Batches(samples=10, batch=4, start=0, stop=9, seed=3))
    assert list(Batches(samples=10, batch=4, start=5, stop=9, seed=3)) == whole[5:]
    assert len(Batches(samples=10, batch=4, start=5, stop=9, seed=3)) == 4


def test_another_seed_is_another_order() -> None:
    assert list(Batches(10, 4, 0, 3, seed=0)) != list(Batches(10, 4, 0, 3, seed=1))


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared evenly by 2 processes"):
        Batches(10, 5, 0, 1, seed=0, world_size=2)
    with pytest.raises(ValueError, match="no sample to train on"):
        Batches(0, 5, 0, 1, seed=0)
