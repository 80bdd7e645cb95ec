"""Options and storage of cached embeddings: float32 or bfloat16, in memory or in a memory-mapped file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gramrun.base.mapped import mapped_array
from gramrun.base.processes import Processes

CacheEntry = Literal["pair", "item"]

CACHE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_SAME_SIZE = {torch.float32: np.float32, torch.bfloat16: np.int16}  # numpy has no bfloat16


@dataclass(frozen=True)
class CacheOptions:
    """How SAGram caches embeddings.

    Attributes:
        entry: one entry per item, or per training pair (the paper).
        dtype: float32 or bfloat16.
        folder: where to memory-map the caches, or None for memory.
        rebuild_every: steps between two sums of Ŝ from its caches; 0 for never.
        split: the processes that each hold a part of the entries (`Processes.block`); None: each holds all.
    """

    entry: CacheEntry = "item"
    dtype: torch.dtype = torch.float32
    folder: Path | None = None
    rebuild_every: int = 0
    split: Processes | None = None


def cache_tensor(rows: int, width: int, dtype: torch.dtype, folder: Path | None) -> Tensor:
    """Make a tensor of zeros for cached embeddings.

    Args:
        rows: number of embeddings.
        width: numbers per embedding.
        dtype: float32 or bfloat16.
        folder: where to put the file that backs the tensor (`mapped_array`), or None for memory.

    Returns:
        Shape (rows, width).

    Raises:
        RunError: when the file cannot be made or the disk is full.
    """
    if folder is None or rows * width == 0:
        return torch.zeros(rows, width, dtype=dtype)
    return torch.from_numpy(mapped_array((rows, width), _SAME_SIZE[dtype], folder)).view(dtype)
