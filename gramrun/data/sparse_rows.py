"""Pairs of numbers as sorted rows without duplicates: what links and memberships become.

Pairs arrive in batches, in any order. They are counted by row, scattered to their rows and sorted within
each, with one int32 a pair beside the batches.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gramrun.data.byte_strings import offsets_of
from gramrun.data.compiled import compiled

_KEYS_AT_ONCE = 1 << 18  # 2 MB of them, as a core's cache holds
_THREADS = min(4, os.cpu_count() or 1)


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
        """How many columns each row holds: int64, shape (rows,)."""
        return np.diff(self.offsets)

    def rows(self) -> np.ndarray:
        """The row of each column: int32, shape (offsets[-1],)."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    def column_counts(self, columns: int) -> np.ndarray:
        """In how many rows each of `columns` columns stands: int64, shape (columns,)."""
        return count_values(self.columns, columns)

    def select(self, kept_rows: np.ndarray, kept_columns: np.ndarray) -> SparseRows:
        """Leave rows and columns out and number what stays anew, in the same order.

        Args:
            kept_rows: bool, shape (rows,).
            kept_columns: bool, one for each column number in use.
        """
        if kept_rows.all() and kept_columns.all():
            return self
        numbers = np.where(kept_columns, np.cumsum(kept_columns) - 1, -1).astype(np.int32)
        lengths = np.zeros(len(self), dtype=np.int64)
        columns = np.empty(len(self.columns), dtype=np.int32)
        kept = _copy_kept(self.offsets, self.columns, kept_rows, numbers, columns, lengths)
        return SparseRows(offsets_of(lengths[kept_rows]), columns[:kept])


class RowBuilder:
    """Gathers pairs (row, column) batch by batch.

    Args:
        rows: how many rows there are.
    """

    def __init__(self, rows: int) -> None:
        self._lengths = np.zeros(rows, dtype=np.int64)
        self._batches: list[tuple[np.ndarray, np.ndarray]] = []
        self.pairs = 0

    def add(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Take pairs: both int32, of equal shape (n,); the builder keeps the arrays."""
        _count(rows, self._lengths)
        self._batches.append((rows, columns))
        self.pairs += len(rows)

    def build(self) -> SparseRows:
        """Sort what was gathered and drop duplicates; the builder is empty afterwards."""
        offsets = offsets_of(self._lengths)
        columns = np.empty(offsets[-1], dtype=np.int32)
        ends = offsets[:-1].copy()
        while self._batches:  # popped, so that the memory of one is free before the next
            _scatter(*self._batches.pop(), ends, columns)
        lengths = np.empty(len(self._lengths), dtype=np.int64)
        # Parts of equally many columns, each in a thread.
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


def count_values(values: np.ndarray, size: int, chosen: np.ndarray | None = None) -> np.ndarray:
    """How often each of 0, …, size − 1 stands in `values` (int32): int64, shape (size,).

    Unlike `numpy.bincount` it makes no int64 copy of the values.

    Args:
        values: shape (n,).
        size: one more than the largest value.
        chosen: bool, shape (n,). Which values count; all by default.
    """
    counts = np.zeros(size, dtype=np.int64)
    if chosen is None:
        _count(values, counts)
    else:
        _count_chosen(values, chosen, counts)
    return counts


@compiled
def _count_chosen(values: np.ndarray, chosen: np.ndarray, counts: np.ndarray) -> None:
    for position in range(len(values)):
        counts[values[position]] += chosen[position]


@compiled
def _count(values: np.ndarray, counts: np.ndarray) -> None:
    for position in range(len(values)):
        counts[values[position]] += 1


@compiled
def _scatter(rows: np.ndarray, values: np.ndarray, ends: np.ndarray, columns: np.ndarray) -> None:
    for position in range(len(rows)):
        row = rows[position]
        columns[ends[row]] = values[position]
        ends[row] += 1


def _sort_rows(offsets: np.ndarray, columns: np.ndarray, lengths: np.ndarray, first: int, last: int) -> None:
    """Sort rows first … last − 1, each with its distinct columns in front, whose number is its length.

    Many rows at once, as 64-bit keys of row and column: numpy sorts these with vector instructions, ten
    times as fast as row by row.
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
    """Move what each row keeps from its old start to its new one, which does not lie behind."""
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
    end = 0
    for row in range(len(kept_rows)):
        if kept_rows[row]:
            start = end
            for position in range(offsets[row], offsets[row + 1]):
                number = numbers[columns[position]]
                copied[end] = number  # and written over where it is not kept
                end += number >= 0
            lengths[row] = end - start
    return end
