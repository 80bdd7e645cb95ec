"""Index streams on the device of the step: drawn on the host, there before the step needs them.

Which indices a batch has is a pure function of seed and step (`gramrun.data.batches`), of numpy's generators
and integers alone, so that a run on a GPU sees the same pairs as one on a CPU. To draw and copy them step by
step would make the device wait for the host; so the batches of many steps go over in one copy, out of pinned
memory, which the device makes while it still works at earlier steps. On a CPU nothing has to go anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

STEPS_AT_ONCE = 64  # 512 KB of 1,024 indices: one copy takes a GPU's bus less time than one step


class IndexStream:
    """The batches of indices of one stream, on a device.

    Args:
        draw: a step, from 0, to its batch: int64, shape (B,), the same B at every step.
        device: where the batches are wanted.
        steps_at_once: how many go there in one copy; by default 1 on a CPU, else `STEPS_AT_ONCE`.
    """

    def __init__(
        self, draw: Callable[[int], np.ndarray], device: torch.device, steps_at_once: int | None = None
    ) -> None:
        self._draw = draw
        self._device = device
        self._steps = steps_at_once or (1 if device.type == "cpu" else STEPS_AT_ONCE)
        # Two: a step may ask for the batch before its own, or after it, in a block of another.
        self._block = lru_cache(maxsize=2)(self._bring)

    def batch(self, step: int) -> Tensor:
        """The batch of a step, from 0: int64, shape (B,), on the device. Not to be changed."""
        block, place = divmod(step, self._steps)
        return self._block(block)[place]

    def _bring(self, block: int) -> Tensor:
        first = block * self._steps
        drawn = torch.from_numpy(np.stack([self._draw(first + i) for i in range(self._steps)]))
        if self._device.type == "cuda":
            drawn = drawn.pin_memory()  # the allocator keeps it until its copy is done
        return drawn.to(self._device, non_blocking=True)
