"""Maps from page numbers, target numbers and titles to rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.data.wikipedia.byte_strings import byte_strings, parts_of

ABSENT = -1
LARGEST_NUMBER = 2**31 - 1  # English Wikipedia's are below 10^9
LARGEST_SIZE = 2**30  # of a title index: numbers are int32, and the graph needs one bit of them
# A plain array covers numbers up to this one, or up to so many per row: English page_ids have 1.3, articles
# alone 5. A row of a dump takes 25 bytes at least, so the array is at most twice the unpacked dump.
_ALWAYS_PLAIN = 1 << 24
_NUMBERS_PER_ROW = 16
_BLOCK = 256  # titles that are looked up together
_FIRST_SLOTS = 1 << 12
_SLOTS_PER_TITLE = 2  # at least


class NumberMap:
    """An int32 for each page_id or lt_id.

    The numbers of a wiki are dense, so that a plain array maps them with one access to memory. Where a stray
    number would make the array too large, the numbers are sorted and searched.

    Call `set` for all numbers, then `settle` once; then any thread may call `get`.

    Args:
        default: the value of all other numbers.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._numbers: np.ndarray | None = None
        self._values = np.zeros(0, dtype=np.int32)

    def set(self, numbers: np.ndarray, values: np.ndarray | int, column: str) -> None:
        """Give numbers (int64, shape (n,)) their values (int32); later values replace earlier ones.

        Raises:
            InputError: a number is negative or beyond `LARGEST_NUMBER`; the message names the column.
        """
        wrong = numbers[(numbers < 0) | (numbers > LARGEST_NUMBER)]
        if len(wrong):
            raise InputError(
                f"{column} {wrong[0]} is no number of a wiki (0 to {LARGEST_NUMBER:,}); check the file"
            )
        given = np.broadcast_to(np.asarray(values, dtype=np.int32), numbers.shape)
        self._parts.append((numbers.astype(np.int32), given))

    def settle(self) -> None:
        """Build the map of all numbers."""
        rows = sum(len(numbers) for numbers, _ in self._parts)
        highest = max((int(numbers.max(initial=-1)) for numbers, _ in self._parts), default=-1)
        if highest < max(_ALWAYS_PLAIN, _NUMBERS_PER_ROW * rows):
            self._values = np.full(highest + 1, self._default, dtype=np.int32)
            for numbers, values in self._parts:
                self._values[numbers] = values
        else:
            numbers = np.concatenate([numbers for numbers, _ in self._parts])
            values = np.concatenate([values for _, values in self._parts])
            order = np.argsort(numbers, kind="stable")
            last = np.append(np.diff(numbers[order]) != 0, True)  # the latest value of each number
            self._numbers, self._values = numbers[order][last], values[order][last]
        self._parts = []

    def get(self, numbers: np.ndarray) -> np.ndarray:
        """The values of numbers (int64, shape (n,)): int32, shape (n,)."""
        if self._numbers is None:
            return _look_up(self._values, numbers, self._default)
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        found: np.ndarray = np.where(self._numbers[places] == numbers, self._values[places], self._default)
        return found.astype(np.int32)


@compiled
def _look_up(values: np.ndarray, numbers: np.ndarray, default: int) -> np.ndarray:
    found = np.empty(len(numbers), dtype=np.int32)
    for position in range(len(numbers)):
        number = numbers[position]
        found[position] = values[number] if 0 <= number < len(values) else default
    return found


class TitleIndex:
    """Distinct titles, numbered 0, 1, … in the order in which they are added: an exact hash table that grows.

    Open addressing with linear probing. A slot holds 32 bits of the title's hash beside its number, so that
    titles are compared, byte by byte, only if they are almost certainly equal. It is as fast as a join by
    DuckDB or polars on 10^5 titles (``results/reference/bench/title_joins.md``), in a third of the memory,
    and looks up batches of a table of any size without hashing the titles again.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(_FIRST_SLOTS, dtype=np.uint64)
        self._offsets = np.zeros(1, dtype=np.int64)
        self._data = np.zeros(0, dtype=np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def titles(self) -> pa.Array:
        """The titles by number; a view, which later additions may leave behind."""
        return byte_strings(self._offsets[: self._count + 1], self._data[: self._offsets[self._count]])

    def find(self, titles: pa.Array, rows: np.ndarray) -> np.ndarray:
        """Look titles up.

        Args:
            titles: n titles.
            rows: bool, shape (n,). Which of them to look up.

        Returns:
            int32, shape (n,): numbers, and `ABSENT` for unknown titles and for other rows.
        """
        return self._search(titles, rows, grow=False)

    def add(self, titles: pa.Array, rows: np.ndarray) -> np.ndarray:
        """Look titles up as `find` does, and add those that are not in the index."""
        most = self._count + len(titles)
        assert most < LARGEST_SIZE
        self._offsets = _grown(self._offsets, most + 1)
        self._data = _grown(self._data, int(self._offsets[self._count]) + len(parts_of(titles)[1]))
        slots = len(self._slots)
        while slots < _SLOTS_PER_TITLE * most:
            slots *= 2
        if slots > len(self._slots):
            self._slots = np.zeros(slots, dtype=np.uint64)
            _fill(self._slots, self._offsets, self._data, self._count)
        return self._search(titles, rows, grow=True)

    def _search(self, titles: pa.Array, rows: np.ndarray, *, grow: bool) -> np.ndarray:
        numbers = np.empty(len(titles), dtype=np.int32)
        table = self._slots, self._offsets, self._data
        self._count = _search(*parts_of(titles), rows, *table, self._count, grow, numbers)
        return numbers


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, len(array) * 3 // 2), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def _hash(data: np.ndarray, start: int, end: int) -> np.uint64:
    """FNV-1a (Fowler, Noll and Vo), with a final mix for the low bits."""
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
    """Find the slot of the title ``data[start:end]``, whose hash is `value`, or the free slot for it."""
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
def _prefetch(
    starts: np.ndarray,
    data: np.ndarray,
    first: int,
    values: np.ndarray,
    slots: np.ndarray,
    offsets: np.ndarray,
    pool: np.ndarray,
    numbers: np.ndarray,
) -> None:
    """Hash a block of titles and prefetch the memory that their probes read.

    A probe reads a slot, an offset and a title one after the other, each at a random place. Reading all slots
    of the block, then all offsets, then all titles lets the processor overlap the accesses.
    """
    mask = np.uint64(len(slots) - 1)
    for i in range(len(values)):
        values[i] = _hash(data, starts[first + i], starts[first + i + 1])
    for i in range(len(values)):
        numbers[first + i] = np.int64(slots[values[i] & mask] & np.uint64(0xFFFFFFFF))
    for i in range(len(values)):
        numbers[first + i] = offsets[max(numbers[first + i] - 1, 0)] & 0x7FFFFFFF
    for i in range(len(values)):
        numbers[first + i] = pool[numbers[first + i]]  # overwritten by the result


@compiled
def _search(
    starts: np.ndarray,
    data: np.ndarray,
    rows: np.ndarray,
    slots: np.ndarray,
    offsets: np.ndarray,
    pool: np.ndarray,
    count: int,
    grow: bool,
    numbers: np.ndarray,
) -> int:
    """Write the number of each title, add unknown titles if `grow`, and return how many there are then."""
    values = np.empty(_BLOCK, dtype=np.uint64)
    for first in range(0, len(numbers), _BLOCK):
        block = values[: min(_BLOCK, len(numbers) - first)]
        _prefetch(starts, data, first, block, slots, offsets, pool, numbers)
        for i in range(len(block)):
            row = first + i
            numbers[row] = ABSENT
            if not rows[row]:
                continue
            start, end = starts[row], starts[row + 1]
            slot = _probe(data, start, end, slots, offsets, pool, block[i])
            if slots[slot] == np.uint64(0) and grow:
                begin = offsets[count]
                for distance in range(end - start):
                    pool[begin + distance] = data[start + distance]
                count += 1
                offsets[count] = begin + end - start
                slots[slot] = ((block[i] >> np.uint64(32)) << np.uint64(32)) | np.uint64(count)
            numbers[row] = np.int64(slots[slot] & np.uint64(0xFFFFFFFF)) - 1
    return count
