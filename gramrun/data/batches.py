"""Batches of indices: pairs of the gradient batch B', members of the Gramian batch B.

Every batch is a pure function of (seed, stream, step). A resumed run needs no saved state, streams do not
depend on one another, and evaluation cannot change training. No order of all pairs is stored: a stream takes
the memory of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gramrun.data.permutation import permuted, round_keys

STEPS_AT_ONCE = 64  # for 1,024 indices 512 KB, which a GPU receives in less time than one step takes


class Stream(IntEnum):
    """The independent random streams of a run. The numbers are part of every seed: do not change them."""

    LEFT_GRAMIAN = 0
    RIGHT_GRAMIAN = 1
    PERMUTATION = 2
    LEFT_OBSERVER = 3
    RIGHT_OBSERVER = 4
    LEFT_REFERENCE = 5
    RIGHT_REFERENCE = 6
    LEFT_IDS = 7
    RIGHT_IDS = 8
    LEFT_GRAMIAN_IDS = 9
    RIGHT_GRAMIAN_IDS = 10


def step_generator(seed: int, stream: int, step: int) -> np.random.Generator:
    """The random generator of one step of one stream.

    Args:
        seed: the run's seed.
        stream: a `Stream`.
        step: the step, from 0.
    """
    return np.random.default_rng((seed, stream, step))


class ShuffledPairs:
    """Gradient batches: every pair once per epoch, in a new order each epoch.

    The stream is an endless sequence of permutations cut into batches of equal size. A batch can span the
    end of one epoch and the start of the next; no pair is dropped.

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
        """Positions `start` to `stop` of an epoch's permutation."""
        positions = np.arange(start, stop, dtype=np.int64)
        return permuted(positions, self.pairs, _epoch_keys(self.pairs, self.seed, epoch))


@lru_cache(maxsize=4)  # a batch needs one or two; making them costs more than drawing the batch
def _epoch_keys(pairs: int, seed: int, epoch: int) -> np.ndarray:
    return round_keys((seed, Stream.PERMUTATION, epoch), pairs)


class IndexStream:
    """The batches of one stream as tensors on a device.

    Batches are drawn on the host, so runs on a GPU and on a CPU see the same indices. For a GPU the batches
    of many steps are copied at once, from pinned memory, while the device still computes earlier steps.

    Args:
        draw: maps a step, from 0, to its batch: int64, shape (B,), with the same B at every step.
        device: the device of the batches.
        steps_at_once: the number of steps per copy; by default 1 on a CPU, else `STEPS_AT_ONCE`.
    """

    def __init__(
        self, draw: Callable[[int], np.ndarray], device: torch.device, steps_at_once: int | None = None
    ) -> None:
        self._draw = draw
        self._device = device
        self._steps = steps_at_once or (1 if device.type == "cpu" else STEPS_AT_ONCE)
        # Two blocks: a step can also ask for the batch before or after its own.
        self._block = lru_cache(maxsize=2)(self._load)

    def batch(self, step: int) -> Tensor:
        """The batch of a step, from 0: int64, shape (B,), on the device. Do not modify it."""
        block, place = divmod(step, self._steps)
        return self._block(block)[place]

    def _load(self, block: int) -> Tensor:
        first = block * self._steps
        drawn = torch.from_numpy(np.stack([self._draw(first + i) for i in range(self._steps)]))
        if self._device.type == "cuda":
            drawn = drawn.pin_memory()  # the allocator keeps it until the copy is done
        return drawn.to(self._device, non_blocking=True)
