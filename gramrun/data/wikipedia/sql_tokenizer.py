"""Compiled readers of rows: ``(..),(..);`` into columns; and of statements that are passed over.

Source: MySQL 8.4 Reference Manual, section 15.2.7 "INSERT Statement".

An INSERT that begins like the one before it is read without leaving the compiled code, so that a dump with
one INSERT a row is not slow.
"""

from __future__ import annotations

import numpy as np

from gramrun.base.compiled import compiled, inlined
from gramrun.data.wikipedia.machine_words import byte_at, item_at, put_byte, put_item
from gramrun.data.wikipedia.sql_values import (
    after_blanks,
    after_rare,
    after_string,
    begins,
    copy_number,
    copy_rare,
    copy_string,
    integer,
    is_blank,
    is_cut_off,
)

# What becomes of a column's values.
SKIPPED, INTEGER, NUMBER, BYTES = 0, 1, 2, 3

# Where in the text the kernel stands.
BEFORE_ROW, AFTER_ROW, BEFORE_STATEMENT = 0, 1, 2

# Why the kernel stopped.
NEEDS_MORE = 0  # the text ends within a row or a statement's head
AT_STATEMENT = 1  # a statement begins that is not an INSERT like the one before
NO_ROW = 2
TOO_FEW_VALUES = 3
TOO_MANY_VALUES = 4
NO_VALUE = 5
NO_SEPARATOR = 6  # after a row

_NEWLINE, _SPACE, _DOUBLE_QUOTE, _HASH, _QUOTE, _OPEN, _CLOSE = 10, 32, 34, 35, 39, 40, 41
_STAR, _COMMA, _MINUS, _SLASH, _SEMICOLON, _BACKTICK = 42, 44, 45, 47, 59, 96


@inlined
def _stands_at(prefix: int, length: int, position: int, end: int) -> int:
    """Whether the prefix stands at an address: -1, or why the rows end here."""
    for step in range(length):
        if position + step >= end:
            return NEEDS_MORE
        if byte_at(position + step) != byte_at(prefix + step):
            return AT_STATEMENT
    return -1


@inlined
def _row(
    position: int,
    end: int,
    columns: int,
    kinds: int,
    slots: int,
    row: int,
    room: int,
    integers: int,
    offsets: int,
    strings: int,
    width: int,
    nulls: int,
) -> tuple[int, int, int]:
    """Read one row from behind its opening parenthesis; the arrays are addresses with room for `room` rows.

    Returns:
        0 for a whole row, or why there is none, less than 0 where the text ends first; the position behind
        it, or of what is wrong; and the column that is wrong.
    """
    for column in range(columns):
        kind, slot = item_at(kinds + 8 * column), item_at(slots + 8 * column)
        number = integers + 8 * (slot * room + row)
        offset = offsets + 8 * (slot * (room + 1) + row)
        if is_blank(byte_at(position)):
            position = after_blanks(position)
        quoted = byte_at(position) in (_QUOTE, _DOUBLE_QUOTE)
        if kind != SKIPPED:
            put_byte(nulls + slot * room + row, 0)
        if kind == INTEGER:
            stop, value = integer(position)
            put_item(number, value)
        elif kind == SKIPPED:
            stop = after_string(position, end) if quoted else after_rare(position, end)
        else:
            base = strings + slot * width
            write = base + item_at(offset)
            if kind == NUMBER:
                stop, write = copy_number(position, write)
            elif quoted:
                stop, write = copy_string(position, end, write)
            else:
                stop, write = copy_rare(position, end, write)
            put_item(offset + 8, write - base)
        if stop < 0:
            if position + 4 > end or not begins(position, end, b"null"):
                return (-1 if is_cut_off(position, end) else NO_VALUE), position, column
            stop = position + 4
            if kind != SKIPPED:
                put_byte(nulls + slot * room + row, 1)
            if kind == INTEGER:
                put_item(number, 0)
            elif kind != SKIPPED:
                put_item(offset + 8, item_at(offset))
        separator = byte_at(stop)
        if separator not in (_COMMA, _CLOSE):
            stop = after_blanks(stop)
            separator = byte_at(stop)
        if stop >= end:
            return -1, position, column
        if separator not in (_COMMA, _CLOSE):
            return NO_VALUE, position, column
        if (separator == _CLOSE) != (column + 1 == columns):
            return (TOO_FEW_VALUES if separator == _CLOSE else TOO_MANY_VALUES), stop, column
        position = stop + 1
    return 0, position, 0


@compiled
def read_rows(
    text: np.ndarray,
    position: int,
    end: int,
    place: int,
    prefix: np.ndarray,
    kinds: np.ndarray,
    slots: np.ndarray,
    rows: int,
    integers: np.ndarray,
    offsets: np.ndarray,
    strings: np.ndarray,
    nulls: np.ndarray,
) -> tuple[int, int, int, int, int]:
    """Read all whole rows of a text, also those of further INSERTs that begin with `prefix`.

    Args:
        text: uint8. ``text[position:end]`` is read; at least `GUARD_BYTES` bytes `GUARD` follow.
        position: where to begin.
        end: where the text ends.
        place: `BEFORE_ROW`, `AFTER_ROW` or `BEFORE_STATEMENT`: what stands at `position`.
        prefix: uint8. An INSERT up to and with its VALUES.
        kinds: int64, shape (c,). What becomes of each value of a row: `SKIPPED`, `INTEGER`, ...
        slots: int64, shape (c,). The row of the arrays below that takes them.
        rows: how many rows are in the arrays that follow, which have room for all rows of the text.
        integers: int64, shape (s, n).
        offsets: int64, shape (s, n + 1), as in `ByteStrings`, of columns that are no integers.
        strings: uint8, shape (s, bytes), with room for `GUARD_BYTES` more.
        nulls: bool, shape (s, n).

    Returns:
        Why it stopped: `NEEDS_MORE`, `AT_STATEMENT`, or what is wrong; where; before what; how many rows
        are in the arrays; and the column that is wrong.
    """
    # Addresses, as numba counts the references of an array at every call.
    kinds_at, slots_at, integers_at = kinds.ctypes.data, slots.ctypes.data, integers.ctypes.data
    offsets_at, strings_at, nulls_at = offsets.ctypes.data, strings.ctypes.data, nulls.ctypes.data
    address, prefix_at = text.ctypes.data, prefix.ctypes.data
    columns, length, room, width = len(kinds), len(prefix), nulls.shape[1], strings.shape[1]
    column = 0
    position += address
    end += address
    while True:
        position = after_blanks(position)
        if position >= end:
            why = NEEDS_MORE
            break
        byte = byte_at(position)
        if place == AFTER_ROW:
            why = NO_SEPARATOR
            if byte == _COMMA:
                place = BEFORE_ROW
            elif byte == _SEMICOLON:
                place = BEFORE_STATEMENT
            else:
                break
            position += 1
        elif place == BEFORE_ROW:
            why = NO_ROW
            if byte != _OPEN:
                break
            why, stop, column = _row(
                position + 1, end, columns, kinds_at, slots_at, rows,
                room, integers_at, offsets_at, strings_at, width, nulls_at,
            )  # fmt: skip
            if why < 0:
                why = NEEDS_MORE
                break
            position = stop
            if why > 0:
                break
            rows += 1
            place = AFTER_ROW
        else:
            why = _stands_at(prefix_at, length, position, end)
            if why >= 0:
                break
            position += length
            place = BEFORE_ROW
    return why, position - address, place, rows, column


@compiled
def _after_line(position: int, end: int) -> int:
    while position < end:
        position += 1
        if byte_at(position - 1) == _NEWLINE:
            return position
    return -1


@compiled
def _after_comment(position: int, end: int) -> int:
    position += 2
    while position + 1 < end:
        if byte_at(position) == _STAR and byte_at(position + 1) == _SLASH:
            return position + 2
        position += 1
    return -1


@compiled
def _after_name(position: int, end: int) -> int:
    position += 1
    while position < end:
        position += 1
        if byte_at(position - 1) == _BACKTICK:
            return position
    return -1


@compiled
def pass_statements(text: np.ndarray, position: int, end: int, prefix: np.ndarray) -> tuple[bool, int]:
    """Pass over a statement up to and with its semicolon, which is none in a string, name or comment.

    Further statements that begin with `prefix` are passed over too, if it is not empty.

    Args:
        text: uint8. ``text[position:end]`` is read; at least `GUARD_BYTES` bytes `GUARD` follow.
        position: where to begin or go on.
        end: where the text ends.
        prefix: uint8.

    Returns:
        Whether the last semicolon came, and where to go on with more text.
    """
    address, prefix_at, length = text.ctypes.data, prefix.ctypes.data, len(prefix)
    position += address
    end += address
    while position < end:
        byte = byte_at(position)
        stop = position + 1
        if byte == _SEMICOLON:
            following = after_blanks(stop)
            if length == 0 or _stands_at(prefix_at, length, following, end) >= 0:
                return True, stop - address
            stop = following + length
        if byte in (_QUOTE, _DOUBLE_QUOTE):
            stop = after_string(position, end)
        elif byte == _BACKTICK:
            stop = _after_name(position, end)
        elif byte == _HASH:
            stop = _after_line(position, end)
        elif byte in (_MINUS, _SLASH):
            if position + 2 >= end:
                break
            if byte == _SLASH and byte_at(position + 1) == _STAR:
                stop = _after_comment(position, end)
            elif byte == _MINUS and byte_at(position + 1) == _MINUS and byte_at(position + 2) <= _SPACE:
                stop = _after_line(position, end)
        if stop < 0:
            break
        position = stop
    return False, position - address
