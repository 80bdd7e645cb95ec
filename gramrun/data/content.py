"""Arrays and tables written to files and hashed at once, in pieces: nothing is read back or held twice."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from gramrun.files import sha256_of

_PIECE_BYTES = 1 << 24


def write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Write ``.npy`` (version 1.0) and give its size and SHA-256, as ``bytes`` and ``sha256``.

    Args:
        path: the file.
        array: C-contiguous, or it is copied.
    """
    digest, size = hashlib.sha256(), 0

    class Hashing:
        """What `numpy.lib.format` writes the header to."""

        def write(self, piece: Any) -> None:
            nonlocal size
            file.write(piece)
            digest.update(piece)
            size += len(piece)

    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        out = Hashing()
        np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(array))
        for piece in _pieces(array):
            out.write(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def write_table(path: Path, frame: pd.DataFrame) -> dict[str, Any]:
    """Write Parquet and give its size and SHA-256, as `write_array` does."""
    frame.to_parquet(path, index=False)
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _pieces(array: np.ndarray) -> list[memoryview]:
    data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return [data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES)]


class ContentHash:
    """SHA-256 over names, dtypes, shapes and values, independent of file formats and their versions.

    Arrays are to be added in ascending order of their names, then tables in that of theirs. The hash is
    computed in a thread, while the caller writes the same values to the disk.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> ContentHash:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add_array(self, name: str, array: np.ndarray) -> None:
        """Take an array's name, dtype, shape and values."""
        self._wait()  # so that two arrays at most are alive
        self._last = self._pool.submit(self._update, f"{name} {array.dtype.str} {array.shape}\n", array)

    def add_table(self, name: str, frame: pd.DataFrame) -> None:
        """Take a table's name and what it says, as CSV."""
        text = f"{name}\n{frame.to_csv(index=False, lineterminator=chr(10))}".encode()
        self._wait()
        self._digest.update(text)

    def hexdigest(self) -> str:
        """The hash of all that was added, as 64 hex digits."""
        self._wait()
        return self._digest.hexdigest()

    def _update(self, header: str, array: np.ndarray) -> None:
        self._digest.update(header.encode())
        for piece in _pieces(np.ascontiguousarray(array)):
            self._digest.update(piece)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
            self._last = None
