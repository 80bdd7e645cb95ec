"""Numbers for titles: a hash table over byte strings that grows, compiled, exact.

Open addressing with linear probing. A slot holds 32 bits of the title's hash beside its number, so that a
probe reads the title itself only where it is almost certainly equal; there it is compared byte for byte.

Compared with DuckDB and polars in ``results/reference/bench/title_joins.md``.
"""

from __future__ import annotations

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.data.byte_strings import ByteStrings

ABSENT = -1

LARGEST_SIZE = 2**30
_BLOCK = 256  # titles that are looked up at once
_FIRST_SLOTS = 1 << 12
_SLOTS_PER_TITLE = 2  # at least; more slots mean fewer probes and more memory


class TitleIndex:
    """Distinct titles, numbered 0, 1, … in the order in which they came.

    Args:
        titles: the first ones; equal titles share a number.
    """

    def __init__(self, titles: ByteStrings | None = None) -> None:
        self._slots = np.zeros(_FIRST_SLOTS, dtype=np.uint64)
        self._offsets = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._data = np.zeros(16 * _FIRST_SLOTS, dtype=np.uint8)
        self._count = 0
        if titles is not None:
            self.add(titles)

    def __len__(self) -> int:
        return self._count

    @property
    def titles(self) -> ByteStrings:
        """All titles by number; a view that later additions may leave behind."""
        return ByteStrings(self._offsets[: self._count + 1], self._data[: self._offsets[self._count]])

    def add(self, titles: ByteStrings, rows: np.ndarray | None = None) -> np.ndarray:
        """Number titles, new ones included.

        Args:
            titles: n titles.
            rows: bool, shape (n,). Which of them; all by default.

        Returns:
            int32, shape (n,): numbers, and `ABSENT` outside `rows`.
        """
        chosen = np.ones(len(titles), dtype=np.bool_) if rows is None else rows
        self._make_room(len(titles), len(titles.data))
        numbers = np.empty(len(titles), dtype=np.int32)
        self._count = _add(
            titles.offsets, titles.data, chosen, self._slots, self._offsets, self._data, self._count, numbers
        )
        return numbers

    def find(self, titles: ByteStrings, rows: np.ndarray | None = None) -> np.ndarray:
        """Look titles up.

        Args:
            titles: n titles.
            rows: bool, shape (n,). Which of them; all by default.

        Returns:
            int32, shape (n,): numbers, and `ABSENT` for unknown titles and outside `rows`.
        """
        chosen = np.ones(len(titles), dtype=np.bool_) if rows is None else rows
        numbers = np.empty(len(titles), dtype=np.int32)
        _find(titles.offsets, titles.data, chosen, self._slots, self._offsets, self._data, numbers)
        return numbers

    def _make_room(self, titles: int, data: int) -> None:
        """Have place for so many titles more, of so many bytes in all, even if each is new."""
        assert self._count + titles < LARGEST_SIZE, "numbers are int32, and graphs need a bit of them"
        self._offsets = _grown(self._offsets, self._count + titles + 1)
        self._data = _grown(self._data, int(self._offsets[self._count]) + data)
        slots = len(self._slots)
        while slots < _SLOTS_PER_TITLE * (self._count + titles):
            slots *= 2
        if slots > len(self._slots):
            self._slots = np.zeros(slots, dtype=np.uint64)
            _fill(self._slots, self._offsets, self._data, self._count)


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, len(array) * 3 // 2), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def _hash(data: np.ndarray, start: int, end: int) -> np.uint64:
    """FNV-1a (Fowler, Noll and Vo), and a last mix that spreads it over the low bits."""
    value = np.uint64(0xCBF29CE484222325)
    for position in range(start, end):
        value = (value ^ np.uint64(data[position])) * np.uint64(0x100000001B3)
    value ^= value >> np.uint64(32)
    value *= np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@compiled
def _probe(
    data: np.ndarray,
    start: int,
    end: int,
    slots: np.ndarray,
    offsets: np.ndarray,
    pool: np.ndarray,
    value: np.uint64,
) -> np.int64:
    """The slot of the title ``data[start:end]``, whose hash is `value`, or the empty one where it belongs."""
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    fragment = value >> np.uint64(32)
    while True:
        held = slots[slot]
        if held == np.uint64(0):
            return np.int64(slot)
        if held >> np.uint64(32) == fragment:
            number = np.int64(held & np.uint64(0xFFFFFFFF)) - 1
            begin = offsets[number]
            if offsets[number + 1] - begin == end - start:
                same = True
                for distance in range(end - start):
                    if pool[begin + distance] != data[start + distance]:
                        same = False
                        break
                if same:
                    return np.int64(slot)
        slot = (slot + np.uint64(1)) & mask


@compiled
def _fill(slots: np.ndarray, offsets: np.ndarray, pool: np.ndarray, count: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for number in range(count):
        value = _hash(pool, offsets[number], offsets[number + 1])
        slot = value & mask
        while slots[slot] != np.uint64(0):
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = ((value >> np.uint64(32)) << np.uint64(32)) | np.uint64(number + 1)


@compiled
def _touch(
    starts: np.ndarray,
    data: np.ndarray,
    first: int,
    values: np.ndarray,
    slots: np.ndarray,
    offsets: np.ndarray,
    pool: np.ndarray,
    numbers: np.ndarray,
) -> None:
    """Hash titles first, first + 1, … and bring what their probes will read near to the processor.

    A probe reads a slot, then an offset, then a title, each from anywhere in memory and each after the one
    before it. Here each is read for all titles of a block before the next: many accesses at once.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(values)):
        values[i] = _hash(data, starts[first + i], starts[first + i + 1])
    for i in range(len(values)):
        numbers[first + i] = np.int64(slots[values[i] & mask] & np.uint64(0xFFFFFFFF))
    for i in range(len(values)):
        numbers[first + i] = offsets[max(numbers[first + i] - 1, 0)] & 0x7FFFFFFF
    for i in range(len(values)):
        numbers[first + i] = pool[numbers[first + i]]  # overwritten by the probe's result


@compiled
def _add(
    starts: np.ndarray,
    data: np.ndarray,
    chosen: np.ndarray,
    slots: np.ndarray,
    offsets: np.ndarray,
    pool: np.ndarray,
    count: int,
    numbers: np.ndarray,
) -> int:
    values = np.empty(_BLOCK, dtype=np.uint64)
    for first in range(0, len(numbers), _BLOCK):
        block = values[: min(_BLOCK, len(numbers) - first)]
        _touch(starts, data, first, block, slots, offsets, pool, numbers)
        for i in range(len(block)):
            row = first + i
            if not chosen[row]:
                numbers[row] = ABSENT
                continue
            start, end = starts[row], starts[row + 1]
            slot = _probe(data, start, end, slots, offsets, pool, block[i])
            held = slots[slot]
            if held != np.uint64(0):
                numbers[row] = np.int64(held & np.uint64(0xFFFFFFFF)) - 1
                continue
            begin = offsets[count]
            for distance in range(end - start):
                pool[begin + distance] = data[start + distance]
            offsets[count + 1] = begin + end - start
            slots[slot] = ((block[i] >> np.uint64(32)) << np.uint64(32)) | np.uint64(count + 1)
            numbers[row] = count
            count += 1
    return count


@compiled
def _find(
    starts: np.ndarray,
    data: np.ndarray,
    chosen: np.ndarray,
    slots: np.ndarray,
    offsets: np.ndarray,
    pool: np.ndarray,
    numbers: np.ndarray,
) -> None:
    values = np.empty(_BLOCK, dtype=np.uint64)
    for first in range(0, len(numbers), _BLOCK):
        block = values[: min(_BLOCK, len(numbers) - first)]
        _touch(starts, data, first, block, slots, offsets, pool, numbers)
        for i in range(len(block)):
            row = first + i
            numbers[row] = ABSENT
            if chosen[row]:
                slot = _probe(data, starts[row], starts[row + 1], slots, offsets, pool, block[i])
                numbers[row] = np.int64(slots[slot] & np.uint64(0xFFFFFFFF)) - 1
