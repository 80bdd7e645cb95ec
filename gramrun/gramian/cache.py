"""Options and storage of cached embeddings: float32 or bfloat16, in memory or in a memory-mapped file."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gramrun.base.files import disk_errors
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
        folder: where to put the unnamed file that backs the tensor, or None for memory. The file is deleted
            when the process ends, however it ends.

    Returns:
        Shape (rows, width).

    Raises:
        RunError: when the file cannot be made or the disk is full.
    """
    if folder is None or rows * width == 0:
        return torch.zeros(rows, width, dtype=dtype)
    with disk_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        size = cache_bytes(rows, width, dtype)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, not a signal later
        else:
            file.truncate(size)
        mapped = np.memmap(file, dtype=_SAME_SIZE[dtype], mode="r+", shape=(rows, width))
    return torch.from_numpy(mapped).view(dtype)  # the mapping outlives the open file


def cache_bytes(rows: int, width: int, dtype: torch.dtype) -> int:
    """The size of what `cache_tensor` makes."""
    return rows * width * dtype.itemsize
