"""Sparse rows of sorted, distinct column numbers: links and memberships.

Pairs arrive in batches, in any order. They are counted by row, scattered to their rows and sorted within each
row. This takes 4 bytes per pair in addition to the batches.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gramrun.base.compiled import compiled
from gramrun.data.wikipedia.byte_strings import offsets_of

_BLOCK = 1 << 24  # pairs, at least, in a block that waits to be sorted
_KEYS_AT_ONCE = 1 << 18  # 2 MB: they fit in a core's cache
_THREADS = min(4, os.cpu_count() or 1)

_Runs = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows and lengths of runs (int32), columns (int32)


@dataclass(frozen=True)
class SparseRows:
    """Row r holds ``columns[offsets[r]:offsets[r + 1]]``, ascending and distinct.

    Attributes:
        offsets: int64, shape (rows + 1,).
        columns: int32, shape (offsets[-1],).
    """

    offsets: np.ndarray
    columns: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """The number of columns of each row: int64, shape (rows,)."""
        return np.diff(self.offsets)

    def rows(self) -> np.ndarray:
        """The row of each column: int32, shape (offsets[-1],)."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    def column_counts(self, columns: int) -> np.ndarray:
        """The number of rows that hold each of the columns 0, …, `columns` - 1: int64, shape (columns,)."""
        counts = np.zeros(columns, dtype=np.int64)
        _count(self.columns, counts)  # unlike numpy.bincount, without an int64 copy
        return counts

    def take(self, rows: np.ndarray) -> SparseRows:
        """The rows at these places: integers in any order, repeats allowed."""
        taken = pa.LargeListArray.from_arrays(self.offsets, self.columns).take(pa.array(rows))
        return SparseRows(taken.offsets.to_numpy().copy(), taken.flatten().to_numpy().copy())  # writable

    def select(
        self, kept_rows: np.ndarray, kept_columns: np.ndarray, *, in_place: bool = False
    ) -> SparseRows:
        """Drop rows and columns and renumber the others in the same order.

        Args:
            kept_rows: bool, shape (rows,).
            kept_columns: bool, one for each column number in use.
            in_place: reuse the memory of these rows, which become invalid.
        """
        if kept_rows.all() and kept_columns.all():
            return self
        numbers = np.where(kept_columns, np.cumsum(kept_columns) - 1, -1).astype(np.int32)
        lengths = np.zeros(len(self), dtype=np.int64)
        columns = self.columns if in_place else np.empty(len(self.columns), dtype=np.int32)
        kept = _copy_kept(self.offsets, self.columns, kept_rows, numbers, columns, lengths)
        return SparseRows(offsets_of(lengths[kept_rows]), columns[:kept])


class RowBuilder:
    """Gathers pairs (row, column) batch by batch.

    Args:
        rows: how many rows there are.
    """

    def __init__(self, rows: int) -> None:
        self._lengths = np.zeros(rows, dtype=np.int64)
        self._batches: list[_Runs] = []
        self._blocks: list[_Runs] = []
        self._waiting = 0
        self.pairs = 0

    def add(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Add pairs: both int32, of equal shape (n,), and copied.

        Tables are mostly sorted by row, so that the rows are stored as runs of equal ones.
        """
        run_rows, run_lengths = np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.int32)
        runs = _find_runs(rows, run_rows, run_lengths, self._lengths)
        self._batches.append((run_rows[:runs].copy(), run_lengths[:runs].copy(), columns.copy()))
        self.pairs += len(rows)
        self._waiting += len(columns)
        if self._waiting >= _BLOCK:
            self._close_block()

    def _close_block(self) -> None:
        """Join the batches: the system takes back large arrays one by one, but not many small ones."""
        rows, lengths, columns = zip(*self._batches, strict=True)
        self._blocks.append((np.concatenate(rows), np.concatenate(lengths), np.concatenate(columns)))
        self._batches, self._waiting = [], 0

    def build(self) -> SparseRows:
        """Sort the pairs and drop duplicates; the builder is empty afterwards."""
        self._blocks += self._batches
        self._batches, self._waiting = [], 0
        offsets = offsets_of(self._lengths)
        columns = np.empty(offsets[-1], dtype=np.int32)
        ends = offsets[:-1].copy()
        while self._blocks:  # the memory of a block is free before the next one is read
            _scatter(*self._blocks.pop(0), ends, columns)
        lengths = np.empty(len(self._lengths), dtype=np.int64)
        # Parts with equally many columns, each in a thread.
        ends = np.searchsorted(offsets, np.linspace(0, offsets[-1], _THREADS + 1)[1:-1])
        bounds = [0, *ends.tolist(), len(lengths)]
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = [pool.submit(_sort_rows, offsets, columns, lengths, a, b) for a, b in pairwise(bounds)]
            for part in parts:
                part.result()
        distinct = offsets_of(lengths)
        if distinct[-1] < offsets[-1]:
            _close_gaps(offsets, distinct, columns)
        return SparseRows(distinct, columns[: distinct[-1]])


@compiled
def _count(values: np.ndarray, counts: np.ndarray) -> None:
    for position in range(len(values)):
        counts[values[position]] += 1


@compiled
def _find_runs(rows: np.ndarray, run_rows: np.ndarray, run_lengths: np.ndarray, lengths: np.ndarray) -> int:
    """Write the row and length of each run of equal rows, add the length to its row's, and count runs."""
    runs, start = 0, 0
    for position in range(1, len(rows) + 1):
        if position == len(rows) or rows[position] != rows[start]:
            run_rows[runs] = rows[start]
            run_lengths[runs] = position - start
            lengths[rows[start]] += position - start
            runs += 1
            start = position
    return runs


@compiled
def _scatter(
    run_rows: np.ndarray, run_lengths: np.ndarray, block: np.ndarray, ends: np.ndarray, columns: np.ndarray
) -> None:
    """Append each run of the block to its row, which ends at ``ends[row]``."""
    position = 0
    for run in range(len(run_rows)):
        row, length = run_rows[run], run_lengths[run]
        for i in range(length):
            columns[ends[row] + i] = block[position + i]
        ends[row] += length
        position += length


def _sort_rows(offsets: np.ndarray, columns: np.ndarray, lengths: np.ndarray, first: int, last: int) -> None:
    """Sort rows first, …, last - 1, move their distinct columns to the front and write how many there are.

    Many rows are sorted at once as 64-bit keys of row and column: numpy sorts these by vector instructions,
    ten times as fast as row by row.
    """
    while first < last:
        end = int(np.searchsorted(offsets, offsets[first] + _KEYS_AT_ONCE, side="right")) - 1
        end = min(max(end, first + 1), last)
        keys = np.empty(offsets[end] - offsets[first], dtype=np.uint64)
        _make_keys(offsets, columns, first, end, keys)
        keys.sort()
        _take_distinct(offsets, columns, first, end, keys, lengths)
        first = end


@compiled
def _make_keys(offsets: np.ndarray, columns: np.ndarray, first: int, last: int, keys: np.ndarray) -> None:
    base = offsets[first]
    for row in range(first, last):
        high = np.uint64(row - first) << np.uint64(32)
        for position in range(offsets[row], offsets[row + 1]):
            keys[position - base] = high | np.uint64(columns[position])


@compiled
def _take_distinct(
    offsets: np.ndarray,
    columns: np.ndarray,
    first: int,
    last: int,
    keys: np.ndarray,
    lengths: np.ndarray,
) -> None:
    base = offsets[first]
    for row in range(first, last):
        start = offsets[row]
        kept = start
        for position in range(start, offsets[row + 1]):
            if position == start or keys[position - base] != keys[position - base - 1]:
                columns[kept] = np.int32(keys[position - base] & np.uint64(0xFFFFFFFF))
                kept += 1
        lengths[row] = kept - start


@compiled
def _close_gaps(offsets: np.ndarray, distinct: np.ndarray, columns: np.ndarray) -> None:
    """Move the distinct columns of each row to its new start, which is never behind the old one."""
    for row in range(len(distinct) - 1):
        shift = offsets[row] - distinct[row]
        for position in range(distinct[row], distinct[row + 1]):
            columns[position] = columns[position + shift]


@compiled
def _copy_kept(
    offsets: np.ndarray,
    columns: np.ndarray,
    kept_rows: np.ndarray,
    numbers: np.ndarray,
    copied: np.ndarray,
    lengths: np.ndarray,
) -> int:
    end = 0  # never behind the position that is read, so that `copied` may be `columns`
    for row in range(len(kept_rows)):
        if kept_rows[row]:
            start = end
            for position in range(offsets[row], offsets[row + 1]):
                number = numbers[columns[position]]
                if number >= 0:
                    copied[end] = number
                    end += 1
            lengths[row] = end - start
    return end
