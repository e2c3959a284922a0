"""Batches of samples, which depend only on the seed and the iteration."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

IndexAndEpoch = tuple[int, int]


class Batches(Sampler[list[IndexAndEpoch]]):
    """Samples of one process in the batches of iterations start..stop - 1.

    Every epoch shuffles all samples again; a batch may span two epochs. Sample j of the run is the same for any
    number of processes, and after any interruption.

    Args:
        samples: Number of samples in the data set.
        batch: Samples per iteration, over all processes.
        start, stop: First iteration, and the one after the last.
        seed: Random seed of the run.
        rank, world_size: Number of this process, and number of processes.

    >>> list(Batches(samples=3, batch=2, start=0, stop=3, seed=0))
    [[(2, 0), (0, 0)], [(1, 0), (2, 1)], [(0, 1), (1, 1)]]
    """

    def __init__(
        self, samples: int, batch: int, start: int, stop: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        if samples < 1:
            raise ValueError("there are no samples to train on")
        if batch % world_size:
            raise ValueError(f"a batch of {batch} cannot be shared evenly by {world_size} processes")
        self.samples, self.batch, self.start, self.stop = samples, batch, start, stop
        self.seed, self.rank, self.world_size = seed, rank, world_size

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[IndexAndEpoch]]:
        share = self.batch // self.world_size
        for iteration in range(self.start, self.stop):
            first = iteration * self.batch + self.rank * share
            yield [self._draw(number) for number in range(first, first + share)]

    def _draw(self, number: int) -> IndexAndEpoch:
        epoch, position = divmod(number, self.samples)
        return int(_shuffle(self.samples, self.seed, epoch)[position]), epoch


@lru_cache(maxsize=4)
def _shuffle(samples: int, *seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(samples)


class GroupedBatches(Batches):
    """`Batches` whose samples all come from one group, such as landscape or portrait images.

    Every epoch shuffles each group again and splits it into full batches. Samples that do not fill a batch wait for
    the group's next epoch, so every sample occurs once per epoch, however small its group. Round r yields the batches
    that epoch r completes, shuffled to mix the groups.

    Args:
        groups: Group of each sample. The other arguments are those of `Batches`.

    >>> list(GroupedBatches(groups=[0, 1, 0, 1, 0], batch=2, start=0, stop=3, seed=0))
    [[(4, 0), (0, 0)], [(3, 0), (1, 0)], [(3, 1), (1, 1)]]
    """

    def __init__(
        self, groups: Sequence[int], batch: int, start: int, stop: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__(len(groups), batch, start, stop, seed, rank, world_size)
        self.groups = tuple(groups)

    def __iter__(self) -> Iterator[list[IndexAndEpoch]]:
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


def grouped_round(groups: Sequence[int], batch: int, seed: int, number: int) -> list[list[IndexAndEpoch]]:
    """Return the batches of one round of `GroupedBatches`, which epoch `number` completes.

    >>> grouped_round([0, 1, 0, 1, 0], batch=2, seed=0, number=0)
    [[(4, 0), (0, 0)], [(3, 0), (1, 0)]]
    """
    batches = []
    for group in sorted(set(groups)):
        members = np.flatnonzero(np.array(groups) == group)
        first, last = (rounds * len(members) // batch for rounds in (number, number + 1))
        draws = [_draw_member(members, group, seed, place) for place in range(first * batch, last * batch)]
        batches += [draws[at : at + batch] for at in range(0, len(draws), batch)]
    order = np.random.default_rng((seed, number)).permutation(len(batches))
    return [batches[place] for place in order]


def _draw_member(members: NDArray[np.int64], group: int, seed: int, place: int) -> IndexAndEpoch:
    """Return the index and epoch at a position of a group's endless sequence."""
    epoch, position = divmod(place, len(members))
    return int(members[_shuffle(len(members), seed, epoch, group)[position]]), epoch
