"""Index streams: which pairs make the gradient batch B', which members make the Gramian batch B.

Every batch is a pure function of (seed, step). Nothing has to be saved to resume a run exactly, reading
one stream never disturbs another, and evaluation cannot change training.
"""

from __future__ import annotations

import numpy as np

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
        self._epoch = -1
        self._permutation = np.empty(0, dtype=np.int64)

    def batch(self, step: int) -> np.ndarray:
        """The pairs of step `step` (from 0): int64, shape (batch_size,)."""
        epoch, start = divmod(step * self.batch_size, self.pairs)
        head = self._order(epoch)[start : start + self.batch_size]
        missing = self.batch_size - len(head)
        return np.concatenate([head, self._order(epoch + 1)[:missing]]) if missing else head

    def _order(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            generator = np.random.default_rng((self.seed, PERMUTATION_STREAM, epoch))
            self._permutation = generator.permutation(self.pairs)
            self._epoch = epoch
        return self._permutation
