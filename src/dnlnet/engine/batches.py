"""Which samples make up which batch: a function of the seed and the iteration, and of nothing else."""

from collections.abc import Iterator
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
def _order(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, epoch)).permutation(samples)
