"""Arrays and tables written to files, hashed as files and as contents on the way: nothing is read back.

Arrays come in pieces, so that an array that is made of others, such as the pairs of one split, is never in
memory as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from gramrun.base.files import sha256_of
from gramrun.data.background import in_background

_PIECE = 1 << 22  # values at once


@dataclass(frozen=True)
class Pieces:
    """A one-dimensional array, piece by piece.

    Attributes:
        dtype: of the values.
        length: how many there are.
        pieces: gives them in order, as contiguous arrays.
    """

    dtype: np.dtype[Any]
    length: int
    pieces: Callable[[], Iterator[np.ndarray]]

    @classmethod
    def of(cls, values: np.ndarray, chosen: np.ndarray | None = None) -> Pieces:
        """An array, or what a mask of the same shape chooses of it."""

        def pieces() -> Iterator[np.ndarray]:
            for start in range(0, len(values), _PIECE):
                piece = values[start : start + _PIECE]
                yield np.ascontiguousarray(piece if chosen is None else piece[chosen[start : start + _PIECE]])

        return cls(values.dtype, len(values) if chosen is None else int(np.count_nonzero(chosen)), pieces)


class ContentWriter:
    """Writes arrays, then tables, each in ascending order of their names, and hashes what they say.

    The content hash is a SHA-256 over names, dtypes, shapes and values, independent of file formats and
    their versions.

    Args:
        folder: where the files go; its folders must be there.

    Attributes:
        files: size (``bytes``) and ``sha256`` of each file, by name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._content = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1)
        self.files: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> ContentWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def array(self, name: str, array: Pieces) -> None:
        """Write ``.npy`` (version 1.0)."""
        header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
        digest, size = hashlib.sha256(), 0
        self._content.update(f"{name} {array.dtype.str} {(array.length,)}\n".encode())
        with (self._folder / name).open("w+b") as file:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (array.length,)})
            size = file.tell()
            file.seek(0)
            digest.update(file.read())
            for piece in in_background(array.pieces()):
                data = memoryview(piece.view(np.uint8))  # type: ignore[arg-type]
                hashed = self._pool.submit(self._content.update, data)
                file.write(data)
                digest.update(data)
                size += len(data)
                hashed.result()
        self.files[name] = {"bytes": size, "sha256": digest.hexdigest()}

    def table(self, name: str, frame: pd.DataFrame, text: str) -> None:
        """Write ``vocabularies/NAME.parquet``; what it says is `text`, its CSV."""
        file = f"vocabularies/{name}.parquet"
        self._content.update(f"{name}\n{text}".encode())
        frame.to_parquet(self._folder / file, index=False)
        path = self._folder / file
        self.files[file] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}

    def content_hash(self) -> str:
        """The hash of all that was written, as 64 hex digits."""
        return self._content.hexdigest()
