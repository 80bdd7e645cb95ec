"""Arrays in unnamed files: memory that the system may write out."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from gramrun.base.files import disk_errors


def mapped_array(shape: tuple[int, ...], dtype: DTypeLike, folder: Path) -> np.ndarray:
    """Make an array of zeros in an unnamed file of `folder`, which the system may write out to free memory.

    The file is deleted with the array, at the latest when the process ends, however it ends.

    Raises:
        RunError: when the file cannot be made or the disk is full.
    """
    with disk_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, not a signal later
        else:
            file.truncate(size)
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)  # it outlives the open file
