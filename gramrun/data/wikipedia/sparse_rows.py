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

from gramrun.base.compiled import compiled
from gramrun.data.wikipedia.byte_strings import ByteStrings, offsets_of

_BLOCK = 1 << 24  # columns that wait to be sorted, in pieces that the system takes back one by one
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
        rows = np.empty(len(self.columns), dtype=np.int32)
        _fill_rows(self.offsets, rows)
        return rows

    def column_counts(self, columns: int) -> np.ndarray:
        """In how many rows each of `columns` columns stands: int64, shape (columns,)."""
        return count_values(self.columns, columns)

    def take(self, rows: np.ndarray) -> SparseRows:
        """These rows (integers, in any order, also twice), with the same columns."""
        as_bytes = ByteStrings(4 * self.offsets, self.columns.view(np.uint8)).take(rows)
        return SparseRows(as_bytes.offsets // 4, as_bytes.data.view(np.int32))

    def select(
        self, kept_rows: np.ndarray, kept_columns: np.ndarray, *, in_place: bool = False
    ) -> SparseRows:
        """Leave rows and columns out and number what stays anew, in the same order.

        Args:
            kept_rows: bool, shape (rows,).
            kept_columns: bool, one for each column number in use.
            in_place: write into the memory of these rows, which are not to be used any more.
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
        self._batches: list[tuple[np.ndarray, np.ndarray]] = []
        self._blocks: list[np.ndarray] = []
        self._room = 0
        self.pairs = 0

    def add(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Take pairs: both int32, of equal shape (n,), and copied.

        Tables are sorted by row for the most part: what is kept of the rows is each run of equal ones.
        """
        run_rows, run_ends = np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.int32)
        runs = _find_runs(rows, run_rows, run_ends, self._lengths)
        self._batches.append((run_rows[:runs].copy(), run_ends[:runs].copy()))
        self.pairs += len(rows)
        while len(columns):
            if not self._room:
                self._blocks.append(np.empty(_BLOCK, dtype=np.int32))
                self._room = _BLOCK
            taken = columns[: self._room]
            start = _BLOCK - self._room
            self._blocks[-1][start : start + len(taken)] = taken
            self._room -= len(taken)
            columns = columns[len(taken) :]

    def build(self) -> SparseRows:
        """Sort what was gathered and drop duplicates; the builder is empty afterwards."""
        offsets = offsets_of(self._lengths)
        columns = np.empty(offsets[-1], dtype=np.int32)
        ends = offsets[:-1].copy()
        position, block = _BLOCK, np.zeros(0, dtype=np.int32)
        for run_rows, run_ends in self._batches:
            run = start = 0
            while run < len(run_rows):
                if position == _BLOCK:  # the memory of one is free before the next is read
                    block, position = self._blocks.pop(0), 0
                run, start, position = _scatter(
                    run_rows, run_ends, run, start, block, position, ends, columns
                )
        self._batches, self._blocks, self._room = [], [], 0
        del block
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
def _fill_rows(offsets: np.ndarray, rows: np.ndarray) -> None:
    for row in range(len(offsets) - 1):
        rows[offsets[row] : offsets[row + 1]] = row


@compiled
def _count(values: np.ndarray, counts: np.ndarray) -> None:
    for position in range(len(values)):
        counts[values[position]] += 1


@compiled
def _find_runs(rows: np.ndarray, run_rows: np.ndarray, run_ends: np.ndarray, lengths: np.ndarray) -> int:
    """Write the row and the end of each run of equal rows, add its length to its row's, and count runs."""
    runs, start = 0, 0
    for position in range(1, len(rows) + 1):
        if position == len(rows) or rows[position] != rows[start]:
            run_rows[runs] = rows[start]
            run_ends[runs] = position
            lengths[rows[start]] += position - start
            runs += 1
            start = position
    return runs


@compiled
def _scatter(
    run_rows: np.ndarray,
    run_ends: np.ndarray,
    run: int,
    start: int,
    block: np.ndarray,
    position: int,
    ends: np.ndarray,
    columns: np.ndarray,
) -> tuple[int, int, int]:
    """Put the values of runs, from `start` on in the batch, where their rows end; stop with the block.

    Returns:
        The next run, how far the batch has been read, and the position in the block.
    """
    while run < len(run_rows):
        row = run_rows[run]
        count = min(run_ends[run] - start, len(block) - position)
        place = ends[row]
        for i in range(count):
            columns[place + i] = block[position + i]
        ends[row] += count
        start += count
        position += count
        if start < run_ends[run]:
            break
        run += 1
    return run, start, position


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
