"""Many byte strings in two arrays, as in Arrow, without a Python object for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gramrun.base.compiled import compiled


class NotTextError(ValueError):
    """A byte string is not UTF-8; `row` says which."""

    def __init__(self, row: int, string: bytes) -> None:
        super().__init__(f"{string!r} is not UTF-8")
        self.row = row


@dataclass(frozen=True)
class ByteStrings:
    """n byte strings; string i is ``data[offsets[i]:offsets[i + 1]]``.

    Attributes:
        offsets: int64, shape (n + 1,), from 0, ascending.
        data: uint8, shape (offsets[-1],).
    """

    offsets: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> ByteStrings:
        """Convert Python's bytes; for tests and small tables."""
        listed = list(strings)
        lengths = np.fromiter(map(len, listed), dtype=np.int64, count=len(listed))
        return cls(offsets_of(lengths), np.frombuffer(b"".join(listed), dtype=np.uint8))

    @classmethod
    def concatenate(cls, parts: Sequence[ByteStrings]) -> ByteStrings:
        """Join the strings of all parts, in order."""
        lengths = [np.diff(part.offsets) for part in parts]
        data = [part.data for part in parts]
        if not parts:
            return cls.of([])
        return cls(offsets_of(np.concatenate(lengths)), np.concatenate(data))

    def take(self, rows: np.ndarray) -> ByteStrings:
        """The strings at `rows`: integers, or a mask of shape (n,)."""
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        lengths = np.diff(self.offsets)[rows]
        offsets = offsets_of(lengths)
        data = np.empty(offsets[-1], dtype=np.uint8)
        _gather(self.offsets, self.data, rows, data)
        return ByteStrings(offsets, data)

    def binary(self) -> pa.Array:
        """View the strings as an Arrow array (`large_binary`), without a copy."""
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), self._buffers())

    def text(self) -> pa.Array:
        """View the strings as an Arrow array of texts (`large_string`), without a copy.

        Raises:
            NotTextError: a string is not UTF-8.
        """
        array = pa.LargeStringArray.from_buffers(len(self), *self._buffers()[1:])
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            for row, string in enumerate(self):
                try:
                    string.decode()
                except UnicodeDecodeError:
                    raise NotTextError(row, string) from error
            raise
        return array

    def are_text(self) -> np.ndarray:
        """Whether each string is UTF-8: bool, shape (n,)."""
        try:
            self.text()
        except NotTextError:
            return np.fromiter((_is_text(string) for string in self), dtype=bool, count=len(self))
        return np.ones(len(self), dtype=bool)

    def _buffers(self) -> list[pa.Buffer | None]:
        return [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[row] for row in range(len(self)))


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """The cumulative sums of n lengths, from 0: int64, shape (n + 1,)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _is_text(string: bytes) -> bool:
    try:
        string.decode()
    except UnicodeDecodeError:
        return False
    return True


@compiled
def _gather(offsets: np.ndarray, data: np.ndarray, rows: np.ndarray, gathered: np.ndarray) -> None:
    end = 0
    for row in rows:
        for position in range(offsets[row], offsets[row + 1]):
            gathered[end] = data[position]
            end += 1
