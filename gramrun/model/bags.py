"""Compiled loops over feature bags: gather them, sum their gradients by row, update the touched rows.

With item b's bag of rows R(b) = indices[offsets[b] : offsets[b + 1]] of a table E,

    gather       z_b = scale_b sum_{r in R(b)} E_r              scale_b = 1, or 1/|R(b)| for means; empty: 0
    gradient     g_r = sum_{b: r in R(b)} scale_b dz_b          over the batch, each distinct r once
    L2           g_r ← g_r + o_r d_r E_r                        o_r: occurrences (`gramrun.model.l2`)
    Adagrad      s_r ← s_r + g_r²,  E_r ← E_r − η g_r / (√s_r + 10⁻¹⁰)      Duchi et al. 2011, as in PyTorch
    Adam         m_r ← β₁ m_r + (1 − β₁) g_r,  v_r ← β₂ v_r + (1 − β₂) g_r²
                 E_r ← E_r − η' m_r / (c √v_r + 10⁻⁸)         as in PyTorch (`gramrun.model.optimizers`)
    SGD          E_r ← E_r − η g_r

A batch touches few rows, some of them many times. Their gradients are summed in a small dense buffer;
``slots`` holds the position of each row in it (4 bytes a row of the table, −1 between batches). So a step
needs no sorting and no sparse tensor, and its cost does not depend on the size of the table. Summation
follows the order of the batch: equal inputs give equal bits.

A table fits no cache, and a loop that sums scattered rows waits for each. So the loops first read one number
of every cache line of the next rows, which the processor does for many rows at once. The functions return the
sum of what they read, only so that the compiler keeps the reads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gramrun.base.compiled import compiled, inlined

_EPSILON = np.float32(1e-10)  # of PyTorch's Adagrad
ADAM_EPSILON = np.float32(1e-8)  # of PyTorch's Adam
_AHEAD = 512  # rows read ahead: 100 KB of a table of width 50, a part of a second-level cache
_LINE = 16  # float32 in a cache line
_unsigned: Any = numba.uintp


@compiled
def count_rows(offsets: np.ndarray, indices: np.ndarray, items: np.ndarray) -> tuple[int, int]:
    """Count the rows of the bags of `items`; reads ahead for `list_rows`.

    Args:
        offsets: int64, shape (all items + 1,).
        indices: int32, rows of the table.
        items: int64, shape (B,).

    Returns:
        The number of rows, and the sum of what it read.
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
    """List the rows of the bags of `items`.

    Args:
        offsets: int64, shape (all items + 1,).
        indices: int32, rows of the table.
        items: int64, shape (B,).
        rows: int32, shape (`count_rows`,); written.
        ends: int64, shape (B,); written: bag b is ``rows[ends[b − 1] : ends[b]]``.
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
        ends: int64, shape (B,), from `list_rows`.
        table: float32, shape (all rows, width).
        mean: whether a bag is the mean of its rows instead of their sum.
        inputs: float32, shape (B, at least start + width); changed.
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
    """Add the gradients of a batch's inputs to the sums of the rows of its bags.

    Args:
        rows: int32, from `list_rows`.
        ends: int64, shape (B,), from `list_rows`.
        gradient: float32, shape (B, at least start + width), ∂L/∂z.
        start: the first column of the bags in it.
        mean: as in `gather_bags`.
        slots: int32, shape (all rows,). The position of a row's sum; −1 for a row not touched yet.
        met: int64, the rows touched so far, with space for those of the batch.
        sums: float32, shape (len(met), width), their sums.
        count: the number of rows touched so far.

    Returns:
        The number of rows touched now, and the sum of what it read ahead.
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
def add_frequencies(
    offsets: np.ndarray, indices: np.ndarray, frequency: np.ndarray, counts: np.ndarray
) -> None:
    """Add how often training pairs meet each row in one column.

    Args:
        offsets: int64, shape (all items + 1,).
        indices: int32, rows of the table.
        frequency: int32, shape (all items,), training pairs of each item.
        counts: float64, shape (all rows,); changed.
    """
    for item in range(len(frequency)):
        for p in range(offsets[item], offsets[item + 1]):
            counts[indices[p]] += frequency[item]


@compiled
def add_decays(rows: np.ndarray, decay: np.ndarray, slots: np.ndarray, shrink: np.ndarray) -> None:
    """Add up d over the occurrences of each row in one column, after `sum_gradients`.

    Args:
        rows: int32, from `list_rows`.
        decay: float32, shape (all rows,), d.
        slots: as `sum_gradients` left them.
        shrink: float32, shape (len(met),), o_r d_r by slot; changed.
    """
    for p in range(_unsigned(len(rows))):
        row = _unsigned(rows[p])
        shrink[_unsigned(slots[row])] += decay[row]


@compiled
def update_adagrad(
    table: np.ndarray,
    accumulated: np.ndarray,
    slots: np.ndarray,
    met: np.ndarray,
    sums: np.ndarray,
    shrink: np.ndarray,
    count: int,
    learning_rate: float,
) -> np.float32:
    """Apply Adagrad to the rows that `sum_gradients` touched, and clear their slots.

    Args:
        table: float32, shape (all rows, width).
        accumulated: float32, of the same shape: s.
        slots: as `sum_gradients` left them.
        met: as `sum_gradients` left it.
        sums: g without the penalty, as `sum_gradients` left it.
        shrink: o d, as `add_decays` left it, or zeros; cleared.
        count: the result of `sum_gradients`.
        learning_rate: η.
    """
    width, rate, read = _unsigned(table.shape[1]), np.float32(learning_rate), np.float32(0)
    for j in range(_unsigned(count)):
        if j % _unsigned(_AHEAD) == _unsigned(0):
            read += _read_ahead(table, met, j, count) + _read_ahead(accumulated, met, j, count)
        row = _unsigned(met[j])
        slots[row] = -1
        factor = shrink[j]
        shrink[j] = 0
        for d in range(width):
            g = sums[j, d] + factor * table[row, d]
            s = accumulated[row, d] + g * g
            accumulated[row, d] = s
            table[row, d] -= rate * g / (np.sqrt(s) + _EPSILON)
    return read


@compiled
def update_adam(
    table: np.ndarray,
    momentum: np.ndarray,
    accumulated: np.ndarray,
    slots: np.ndarray,
    met: np.ndarray,
    sums: np.ndarray,
    shrink: np.ndarray,
    count: int,
    rate: float,
    beta1: float,
    beta2: float,
    correction: float,
) -> np.float32:
    """Apply Adam to the rows that `sum_gradients` touched, and clear their slots.

    Args:
        table: float32, shape (all rows, width).
        momentum: float32, of the same shape: m.
        accumulated: float32, of the same shape: v.
        slots: as `sum_gradients` left them.
        met: as `sum_gradients` left it.
        sums: g without the penalty, as `sum_gradients` left it.
        shrink: o d, as `add_decays` left it, or zeros; cleared.
        count: the result of `sum_gradients`.
        rate: η', for sparse Adam η √(1 − β₂ᵗ) / (1 − β₁ᵗ), with t the steps done, this one included; for
            Adam η / (1 − β₁ᵗ).
        beta1: β₁.
        beta2: β₂.
        correction: c, for sparse Adam 1, for Adam 1 / √(1 − β₂ᵗ).
    """
    # The weights are rounded once, from float64: 1 − .999 in float32 is .00100005.
    width, read, step = _unsigned(table.shape[1]), np.float32(0), np.float32(rate)
    first, second, scale = np.float32(1 - beta1), np.float32(1 - beta2), np.float32(correction)
    for j in range(_unsigned(count)):
        if j % _unsigned(_AHEAD) == _unsigned(0):
            read += _read_ahead(table, met, j, count) + _read_ahead(momentum, met, j, count)
            read += _read_ahead(accumulated, met, j, count)
        row = _unsigned(met[j])
        slots[row] = -1
        factor = shrink[j]
        shrink[j] = 0
        for d in range(width):
            g = sums[j, d] + factor * table[row, d]
            m = momentum[row, d] + first * (g - momentum[row, d])
            v = accumulated[row, d] + second * (g * g - accumulated[row, d])
            momentum[row, d] = m
            accumulated[row, d] = v
            table[row, d] -= step * m / (scale * np.sqrt(v) + ADAM_EPSILON)
    return read


@compiled
def update_sgd(
    table: np.ndarray,
    slots: np.ndarray,
    met: np.ndarray,
    sums: np.ndarray,
    shrink: np.ndarray,
    count: int,
    learning_rate: float,
) -> np.float32:
    """Apply SGD to the rows that `sum_gradients` touched, and clear their slots. Args as `update_adagrad`."""
    width, rate, read = _unsigned(table.shape[1]), np.float32(learning_rate), np.float32(0)
    for j in range(_unsigned(count)):
        if j % _unsigned(_AHEAD) == _unsigned(0):
            read += _read_ahead(table, met, j, count)
        row = _unsigned(met[j])
        slots[row] = -1
        factor = shrink[j]
        shrink[j] = 0
        for d in range(width):
            table[row, d] -= rate * (sums[j, d] + factor * table[row, d])
    return read
