"""Which samples make up which batch: a function of the seed and the iteration, and of nothing else."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

Draw = tuple[int, int]  # index, epoch


class Batches(Sampler[list[Draw]]):
    """The batches of iterations start..stop - 1, this process's share of each.

    All samples in a new order every epoch, one epoch after the other; a batch may go over the end of one. Sample j of
    the run is the same for any number of processes and wherever the run was interrupted.

    Args:
        samples: number of samples of the data.
        batch: samples of one iteration, over all processes.
        start, stop: iterations.
        seed: of the run.
        rank, world_size: which process this is, of how many.

    >>> list(Batches(samples=3, batch=2, start=0, stop=3, seed=0))
    [[(2, 0), (0, 0)], [(1, 0), (2, 1)], [(0, 1), (1, 1)]]
    """

    def __init__(
        self, samples: int, batch: int, start: int, stop: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        if samples < 1:
            raise ValueError("there is no sample to train on")
        if batch % world_size:
            raise ValueError(f"a batch of {batch} cannot be shared evenly by {world_size} processes")
        self.samples, self.batch, self.start, self.stop = samples, batch, start, stop
        self.seed, self.rank, self.world_size = seed, rank, world_size

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[Draw]]:
        share = self.batch // self.world_size
        for iteration in range(self.start, self.stop):
            first = iteration * self.batch + self.rank * share
            yield [self._draw(number) for number in range(first, first + share)]

    def _draw(self, number: int) -> Draw:
        epoch, position = divmod(number, self.samples)
        return int(_order(self.samples, self.seed, epoch)[position]), epoch


@lru_cache(maxsize=4)
def _order(samples: int, *seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(samples)


class GroupedBatches(Batches):
    """Batches of samples of one group each, such as images that are wide or high; else as `Batches`.

    Every group has its own order in every epoch, one epoch after the other, and is cut into batches without a rest:
    what does not fill a batch waits for the next epoch of the group. A sample is in every epoch once, however small
    its group. In round r come the batches that were completed by epoch r, in an order of their own, so that the
    groups are mixed.

    Args:
        groups: of each sample.
        batch: samples of one iteration, over all processes.
        start, stop: iterations.
        seed: of the run.
        rank, world_size: which process this is, of how many.

    >>> list(GroupedBatches(groups=[0, 1, 0, 1, 0], batch=2, start=0, stop=3, seed=0))
    [[(4, 0), (0, 0)], [(3, 0), (1, 0)], [(3, 1), (1, 1)]]
    """

    def __init__(
        self,
        groups: Sequence[int],
        batch: int,
        start: int,
        stop: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(len(groups), batch, start, stop, seed, rank, world_size)
        self.groups = tuple(groups)

    def __iter__(self) -> Iterator[list[Draw]]:
        share = self.batch // self.world_size
        mine = slice(self.rank * share, (self.rank + 1) * share)
        sizes = Counter(self.groups).values()

        def completed(rounds: int) -> int:
            return sum(rounds * size // self.batch for size in sizes)

        number = bisect_right(range((self.start + 1) * self.batch + 1), self.start, key=completed) - 1
        iteration = self.start
        while iteration < self.stop:
            for draws in grouped_round(self.groups, self.batch, self.seed, number)[iteration - completed(number) :]:
                if iteration == self.stop:
                    return
                yield draws[mine]
                iteration += 1
            number += 1


def grouped_round(groups: Sequence[int], batch: int, seed: int, number: int) -> list[list[Draw]]:
    """The batches of a round of `GroupedBatches`: those that epoch `number` of the groups completes.

    >>> grouped_round([0, 1, 0, 1, 0], batch=2, seed=0, number=0)
    [[(4, 0), (0, 0)], [(3, 0), (1, 0)]]
    """
    batches = []
    for group in sorted(set(groups)):
        members = np.flatnonzero(np.array(groups) == group)
        first, last = (rounds * len(members) // batch for rounds in (number, number + 1))
        draws = [_member(members, group, seed, place) for place in range(first * batch, last * batch)]
        batches += [draws[at : at + batch] for at in range(0, len(draws), batch)]
    order = np.random.default_rng((seed, number)).permutation(len(batches))
    return [batches[place] for place in order]


def _member(members: NDArray[np.int64], group: int, seed: int, place: int) -> Draw:
    """The draw at a place of a group's endless sequence."""
    epoch, position = divmod(place, len(members))
    return int(members[_order(len(members), seed, epoch, group)[position]]), epoch
