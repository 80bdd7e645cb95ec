"""Feature bags, compiled: gather them, sum their gradients row by row, update the rows that a batch touched.

With item b's bag of rows R(b) = indices[offsets[b] : offsets[b + 1]] of a table E,

    gather       z_b = scale_b sum_{r in R(b)} E_r              scale_b = 1, or 1/|R(b)| for means; empty: 0
    gradient     g_r = sum_{b: r in R(b)} scale_b dz_b          over the batch, each distinct r once
    Adagrad      s_r ← s_r + g_r²,  E_r ← E_r − η g_r / (√s_r + 10⁻¹⁰)      Duchi et al. 2011, as torch has it
    SGD          E_r ← E_r − η g_r

A batch touches few rows, some of them many times. Their gradients are summed in a small dense buffer, whose
place for each row is in ``slots`` (4 bytes a row of the table, −1 between batches), so that neither sorting
nor a sparse tensor is needed and a step costs the same whatever the size of the table. The order of summation
is that of the batch: equal inputs, equal bits.

Rows lie all over a table that fits no cache, and a loop that sums them waits for each. So the loops first
read one number of every cache line that the next rows lie in, which the processor does for many rows at once;
then they work on them. The functions return what they read, only so that the compiler keeps it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gramrun.base.compiled import compiled, inlined

_EPSILON = np.float32(1e-10)
_AHEAD = 512  # rows read ahead at a time: 100 KB of a table 50 wide, a part of a second-level cache
_LINE = 16  # float32 in a cache line
_unsigned: Any = numba.uintp


@compiled
def count_rows(offsets: np.ndarray, indices: np.ndarray, items: np.ndarray) -> tuple[int, int]:
    """How many rows the bags of `items` hold together; reads ahead for `list_rows`.

    Args:
        offsets: int64, shape (all items + 1,).
        indices: int32, rows of the table.
        items: int64, shape (B,).

    Returns:
        The number, and what it read.
    """
    total, read = 0, 0
    for b in range(_unsigned(items.shape[0])):
        item = _unsigned(items[b])
        begin, end = offsets[item], offsets[item + _unsigned(1)]
        total += end - begin
        if end > begin:
            read += indices[_unsigned(begin)]
    return total, read


@compiled
def list_rows(
    offsets: np.ndarray, indices: np.ndarray, items: np.ndarray, rows: np.ndarray, ends: np.ndarray
) -> None:
    """Write the bags of `items` one after the other.

    Args:
        offsets: int64, shape (all items + 1,).
        indices: int32, rows of the table.
        items: int64, shape (B,).
        rows: int32, shape (`count_rows` of them,), to be written.
        ends: int64, shape (B,), to be written: bag b is ``rows[ends[b − 1] : ends[b]]``.
    """
    count = _unsigned(0)
    for b in range(_unsigned(items.shape[0])):
        item = _unsigned(items[b])
        for p in range(_unsigned(offsets[item]), _unsigned(offsets[item + _unsigned(1)])):
            rows[count] = indices[p]
            count += _unsigned(1)
        ends[b] = count


@inlined
def _read_ahead(table: np.ndarray, rows: np.ndarray, start: int, count: int) -> np.float32:
    """Read from each cache line of the rows ``rows[start : start + _AHEAD]`` of a table."""
    read = np.float32(0)
    width = _unsigned(table.shape[1])
    for p in range(_unsigned(start), min(_unsigned(start + _AHEAD), _unsigned(count))):
        row = _unsigned(rows[p])
        for d in range(_unsigned(0), width, _unsigned(_LINE)):
            read += table[row, d]
        read += table[row, width - _unsigned(1)]
    return read


@compiled
def gather_bags(
    rows: np.ndarray, ends: np.ndarray, table: np.ndarray, mean: bool, inputs: np.ndarray, start: int
) -> np.float32:
    """Add bags to columns ``start : start + width`` of `inputs`.

    Args:
        rows: int32, from `list_rows`.
        ends: int64, shape (B,), likewise.
        table: float32, shape (all rows, width).
        mean: whether a bag is the mean of its rows instead of their sum.
        inputs: float32, shape (B, at least start + width).
        start: the first of the columns.
    """
    width, first = _unsigned(table.shape[1]), _unsigned(start)
    p, ahead, read = _unsigned(0), 0, np.float32(0)
    for b in range(_unsigned(ends.shape[0])):
        end = _unsigned(ends[b])
        while ahead < end:
            read += _read_ahead(table, rows, ahead, len(rows))
            ahead += _AHEAD
        scale = np.float32(1)
        if mean and end > p:
            scale /= np.float32(end - p)
        while p < end:
            row = _unsigned(rows[p])
            p += _unsigned(1)
            for d in range(width):
                inputs[b, first + d] += scale * table[row, d]
    return read


@compiled
def sum_gradients(
    rows: np.ndarray,
    ends: np.ndarray,
    gradient: np.ndarray,
    start: int,
    mean: bool,
    slots: np.ndarray,
    met: np.ndarray,
    sums: np.ndarray,
    count: int,
) -> tuple[int, int]:
    """Add a batch's input gradients to the sums of the rows that its bags hold.

    Args:
        rows: int32, from `list_rows`.
        ends: int64, shape (B,), likewise.
        gradient: float32, shape (B, at least start + width), of what `gather_bags` made.
        start: the table's first column in it.
        mean: as in `gather_bags`.
        slots: int32, shape (all rows,). Where a row's sum lies, −1 for a row not met yet.
        met: int64, the rows met so far; has room for the batch's.
        sums: float32, shape (len(met), width), their sums.
        count: how many rows have been met.

    Returns:
        How many have been met now, and what it read ahead.
    """
    width, first = _unsigned(sums.shape[1]), _unsigned(start)
    p, n, ahead, read = _unsigned(0), _unsigned(count), _unsigned(0), 0
    for b in range(_unsigned(ends.shape[0])):
        end = _unsigned(ends[b])
        while ahead < end:
            for q in range(ahead, min(ahead + _unsigned(_AHEAD), _unsigned(len(rows)))):
                read += slots[_unsigned(rows[q])]
            ahead += _unsigned(_AHEAD)
        scale = np.float32(1)
        if mean and end > p:
            scale /= np.float32(end - p)
        while p < end:
            row = _unsigned(rows[p])
            p += _unsigned(1)
            if slots[row] < 0:
                slots[row] = n
                met[n] = row
                for d in range(width):
                    sums[n, d] = scale * gradient[b, first + d]
                n += _unsigned(1)
            else:
                slot = _unsigned(slots[row])
                for d in range(width):
                    sums[slot, d] += scale * gradient[b, first + d]
    return int(n), read


@compiled
def update_adagrad(
    table: np.ndarray,
    accumulated: np.ndarray,
    slots: np.ndarray,
    met: np.ndarray,
    sums: np.ndarray,
    count: int,
    learning_rate: float,
) -> np.float32:
    """Adagrad on the rows that `sum_gradients` met; clears their slots.

    Args:
        table: float32, shape (all rows, width).
        accumulated: float32, of the same shape: s.
        slots: as `sum_gradients` left them.
        met: likewise.
        sums: likewise: g.
        count: what it returned.
        learning_rate: η.
    """
    width, rate, read = _unsigned(table.shape[1]), np.float32(learning_rate), np.float32(0)
    for j in range(_unsigned(count)):
        if j % _unsigned(_AHEAD) == _unsigned(0):
            read += _read_ahead(table, met, j, count) + _read_ahead(accumulated, met, j, count)
        row = _unsigned(met[j])
        slots[row] = -1
        for d in range(width):
            g = sums[j, d]
            s = accumulated[row, d] + g * g
            accumulated[row, d] = s
            table[row, d] -= rate * g / (np.sqrt(s) + _EPSILON)
    return read


@compiled
def update_sgd(
    table: np.ndarray,
    slots: np.ndarray,
    met: np.ndarray,
    sums: np.ndarray,
    count: int,
    learning_rate: float,
) -> np.float32:
    """Gradient descent on the rows that `sum_gradients` met; clears their slots. Args as `update_adagrad`."""
    width, rate, read = _unsigned(table.shape[1]), np.float32(learning_rate), np.float32(0)
    for j in range(_unsigned(count)):
        if j % _unsigned(_AHEAD) == _unsigned(0):
            read += _read_ahead(table, met, j, count)
        row = _unsigned(met[j])
        slots[row] = -1
        for d in range(width):
            table[row, d] -= rate * sums[j, d]
    return read
