"""Many byte strings in two arrays, as in Arrow: no Python object for each, and compiled code reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np


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
        """Make them of Python's own; for tests and small tables."""
        listed = list(strings)
        lengths = np.fromiter(map(len, listed), dtype=np.int64, count=len(listed))
        return cls(offsets_of(lengths), np.frombuffer(b"".join(listed), dtype=np.uint8))

    @classmethod
    def concatenate(cls, parts: Sequence[ByteStrings]) -> ByteStrings:
        """All strings of all parts, in order."""
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
        # Position p of the new data comes from its string's old start plus its distance from the new start.
        source = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        source += np.arange(offsets[-1])
        return ByteStrings(offsets, self.data[source])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[row] for row in range(len(self)))


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where strings of these lengths begin and end: int64, shape (n + 1,)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
