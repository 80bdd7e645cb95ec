"""Compiled readers of rows: ``(..),(..);`` into columns; and of statements that are passed over.

Source: MySQL 8.4 Reference Manual, section 15.2.7 "INSERT Statement".

An INSERT that begins like the one before it is read without leaving the compiled code, so that a dump with
one INSERT a row is not slow.
"""

from __future__ import annotations

import numpy as np

from gramrun.data.compiled import compiled
from gramrun.data.sql_values import (
    after_blanks,
    after_number,
    after_string,
    begins,
    bytes_value,
    copy_number,
    integer,
    is_blank,
    skipped_value,
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
_STAR, _COMMA, _MINUS, _SLASH, _SEMICOLON, _UNDERSCORE, _BACKTICK = 42, 44, 45, 47, 59, 95, 96


@compiled
def _is_cut_off(text: np.ndarray, position: int, end: int) -> bool:
    """Whether the text ends before the value at `position` does, as far as one can tell of a broken one."""
    byte = text[position]
    if byte == _UNDERSCORE and begins(text, position, end, b"_binary") != 0:
        position = after_blanks(text, min(position + 7, end), end)
        byte = text[position]
    if position < end and (byte in (_QUOTE, _DOUBLE_QUOTE)):
        return after_string(text, position, end) < 0
    while position < end:
        byte = text[position]
        if is_blank(byte) or byte in (_COMMA, _CLOSE, _SEMICOLON):
            return False
        position += 1
    return True


@compiled
def _row(
    text: np.ndarray,
    position: int,
    end: int,
    kinds: np.ndarray,
    slots: np.ndarray,
    row: int,
    integers: np.ndarray,
    offsets: np.ndarray,
    strings: np.ndarray,
    nulls: np.ndarray,
) -> tuple[int, int, int]:
    """Read one row from behind its opening parenthesis.

    Returns:
        0 for a whole row, or why there is none, less than 0 where the text ends first; the position behind
        it, or of what is wrong; and the column that is wrong.
    """
    columns = len(kinds)
    for column in range(columns):
        kind, slot = kinds[column], slots[column]
        if is_blank(text[position]):
            position = after_blanks(text, position, end)
        stop = -1
        if kind == INTEGER:
            stop, integers[slot, row] = integer(text, position)
        elif kind == BYTES:
            stop, write = bytes_value(text, position, end, strings[slot], offsets[slot, row])
            offsets[slot, row + 1] = write
        elif kind == NUMBER:
            stop = after_number(text, position)
            write = copy_number(text, position, stop, strings[slot], offsets[slot, row])
            offsets[slot, row + 1] = write
        else:
            stop = skipped_value(text, position, end)
        if stop < 0:
            if begins(text, position, end, b"null") != 1:
                return (-1 if _is_cut_off(text, position, end) else NO_VALUE), position, column
            stop = position + 4
            if kind != SKIPPED:
                nulls[slot, row] = True
            if kind == INTEGER:
                integers[slot, row] = 0
            elif kind != SKIPPED:
                offsets[slot, row + 1] = offsets[slot, row]
        if is_blank(text[stop]):
            stop = after_blanks(text, stop, end)
        if stop >= end:
            return -1, position, column
        separator = text[stop]
        if separator == _CLOSE and column + 1 < columns:
            return TOO_FEW_VALUES, stop, column
        if separator == _COMMA and column + 1 == columns:
            return TOO_MANY_VALUES, stop, column
        if separator != _CLOSE and separator != _COMMA:
            return NO_VALUE, position, column
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
        nulls: bool, shape (s, n), False.

    Returns:
        Why it stopped: `NEEDS_MORE`, `AT_STATEMENT`, or what is wrong; where; before what; how many rows
        are in the arrays; and the column that is wrong.
    """
    while True:
        position = after_blanks(text, position, end)
        if position >= end:
            return NEEDS_MORE, position, place, rows, 0
        byte = text[position]
        if place == AFTER_ROW:
            if byte == _COMMA:
                place = BEFORE_ROW
            elif byte == _SEMICOLON:
                place = BEFORE_STATEMENT
            else:
                return NO_SEPARATOR, position, place, rows, 0
            position += 1
        elif place == BEFORE_ROW:
            if byte != _OPEN:
                return NO_ROW, position, place, rows, 0
            why, stop, column = _row(
                text, position + 1, end, kinds, slots, rows, integers, offsets, strings, nulls
            )
            if why < 0:
                return NEEDS_MORE, position, place, rows, 0
            if why > 0:
                return why, stop, place, rows, column
            position = stop
            rows += 1
            place = AFTER_ROW
        else:
            length = len(prefix)
            for step in range(length):
                if position + step >= end:
                    return NEEDS_MORE, position, place, rows, 0
                if text[position + step] != prefix[step]:
                    return AT_STATEMENT, position, place, rows, 0
            position += length
            place = BEFORE_ROW


@compiled
def _after_line(text: np.ndarray, position: int, end: int) -> int:
    while position < end:
        position += 1
        if text[position - 1] == _NEWLINE:
            return position
    return -1


@compiled
def _after_comment(text: np.ndarray, position: int, end: int) -> int:
    position += 2
    while position + 1 < end:
        if text[position] == _STAR and text[position + 1] == _SLASH:
            return position + 2
        position += 1
    return -1


@compiled
def _after_name(text: np.ndarray, position: int, end: int) -> int:
    position += 1
    while position < end:
        position += 1
        if text[position - 1] == _BACKTICK:
            return position
    return -1


@compiled
def pass_statement(text: np.ndarray, position: int, end: int) -> tuple[bool, int]:
    """Pass over a statement up to and with its semicolon, which is none in a string, name or comment.

    Args:
        text: uint8. ``text[position:end]`` is read; at least `GUARD_BYTES` bytes `GUARD` follow.
        position: where to begin or go on.
        end: where the text ends.

    Returns:
        Whether the semicolon came, and where to go on with more text.
    """
    while position < end:
        byte = text[position]
        stop = position + 1
        if byte == _SEMICOLON:
            return True, stop
        if byte in (_QUOTE, _DOUBLE_QUOTE):
            stop = after_string(text, position, end)
        elif byte == _BACKTICK:
            stop = _after_name(text, position, end)
        elif byte == _HASH:
            stop = _after_line(text, position, end)
        elif byte in (_MINUS, _SLASH):
            if position + 2 >= end:
                return False, position
            if byte == _SLASH and text[position + 1] == _STAR:
                stop = _after_comment(text, position, end)
            elif byte == _MINUS and text[position + 1] == _MINUS and text[position + 2] <= _SPACE:
                stop = _after_line(text, position, end)
        if stop < 0:
            return False, position
        position = stop
    return False, position
