"""Index streams: which pairs make the gradient batch B', which members make the Gramian batch B.

Every batch is a pure function of (seed, step). Nothing has to be saved to resume a run exactly, reading
one stream never disturbs another, and evaluation cannot change training. Nor is an order ever held: the
memory that a stream takes is its batch, whatever the number of pairs.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gramrun.data.permutation import permuted, round_keys

(
    LEFT_GRAMIAN_STREAM,
    RIGHT_GRAMIAN_STREAM,
    PERMUTATION_STREAM,
    LEFT_OBSERVER_STREAM,
    RIGHT_OBSERVER_STREAM,
    LEFT_REFERENCE_STREAM,
    RIGHT_REFERENCE_STREAM,
) = range(7)


def step_generator(seed: int, stream: int, step: int) -> np.random.Generator:
    """The random numbers of one step of one stream.

    Args:
        seed: the run's seed.
        stream: which stream; different streams are independent.
        step: the step, from 0.
    """
    return np.random.default_rng((seed, stream, step))


class ShuffledPairs:
    """Gradient batches: every pair once per epoch, in a new seeded order each epoch.

    The stream is one endless sequence of permutations cut into batches of equal size, so a batch may
    span the end of one epoch and the start of the next and no pair is ever dropped.

    Args:
        pairs: n.
        batch_size: |B'|, at most n.
        seed: the run's seed.
    """

    def __init__(self, pairs: int, batch_size: int, seed: int) -> None:
        if not 1 <= batch_size <= pairs:
            raise ValueError(f"batch_size must lie in 1..{pairs}, not {batch_size}")
        self.pairs = pairs
        self.batch_size = batch_size
        self.seed = seed

    def batch(self, step: int) -> np.ndarray:
        """The pairs of step `step` (from 0): int64, shape (batch_size,)."""
        epoch, start = divmod(step * self.batch_size, self.pairs)
        stop = start + self.batch_size
        if stop <= self.pairs:
            return self._order(epoch, start, stop)
        head, tail = self._order(epoch, start, self.pairs), self._order(epoch + 1, 0, stop - self.pairs)
        return np.concatenate([head, tail])

    def _order(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """From where to where of an epoch's order."""
        positions = np.arange(start, stop, dtype=np.int64)
        return permuted(positions, self.pairs, _epoch_keys(self.pairs, self.seed, epoch))


@lru_cache(maxsize=4)  # a batch needs one or two; to seed them costs more than to draw the batch
def _epoch_keys(pairs: int, seed: int, epoch: int) -> np.ndarray:
    return round_keys((seed, PERMUTATION_STREAM, epoch), pairs)
