"""Compiled reader of the rows of an INSERT statement: ``(1,'a',NULL),(2,'b',3);`` into columns.

Source: MySQL 8.4 Reference Manual, sections 11.1 "Literal Values" and 15.2.7 "INSERT Statement".

Guard bytes (backslashes) follow the text. No loop over blanks, digits or characters passes them, so that the
loops need not compare each position with the end.
"""

from __future__ import annotations

import numpy as np

from gramrun.base.compiled import kernel

GUARD = ord("\\")
GUARD_BYTES = 16  # more than the longest word that is compared

# The kinds of columns.
BYTES, INTEGER = 0, 1

# The states between two values.
BEFORE_ROW, AFTER_ROW = 0, 1

# Reasons to stop.
NEEDS_TEXT = 0  # the text ends within the statement
IS_FULL = 1  # the columns have no room for another row
END_OF_STATEMENT = 2
NO_ROW = 3
TOO_FEW_VALUES = 4
TOO_MANY_VALUES = 5
NO_VALUE = 6
NO_SEPARATOR = 7  # after a row

# In place of a position.
_BROKEN, _CUT_OFF = -1, -2

_TAB, _RETURN, _SPACE, _DOUBLE_QUOTE, _QUOTE, _OPEN, _CLOSE = 9, 13, 32, 34, 39, 40, 41
_PERCENT, _PLUS, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _SEMICOLON = 37, 43, 44, 45, 46, 48, 57, 59
_UNDERSCORE, _LOWER_A, _LOWER_E, _LOWER_X = 95, 97, 101, 120

_ONE = np.uintp(1)
_ESCAPES = np.arange(256, dtype=np.uint8)
for _escape, _meaning in zip(b"0bnrtZ", b"\0\b\n\r\t\x1a", strict=True):
    _ESCAPES[_escape] = _meaning


@kernel
def _is_blank(byte: int) -> bool:
    return byte == _SPACE or _TAB <= byte <= _RETURN


@kernel
def _after_blanks(text: np.ndarray, position: int) -> int:
    while _is_blank(text[position]):
        position += 1
    return position


@kernel
def _after_digits(text: np.ndarray, position: int) -> int:
    while _ZERO <= text[position] <= _NINE:
        position += 1
    return position


@kernel
def _begins(text: np.ndarray, position: int, word: bytes) -> bool:
    """Whether `word` (lower case) stands at `position`, in any case."""
    for step in range(len(word)):
        byte = text[position + step]
        if (byte | 32 if 65 <= byte <= 90 else byte) != word[step]:
            return False
    return True


@kernel
def _hex_digit(byte: int) -> int:
    if _ZERO <= byte <= _NINE:
        return byte - _ZERO
    letter = (byte | 32) - _LOWER_A
    return letter + 10 if 0 <= letter < 6 else -1


@kernel
def _read_integer(text: np.ndarray, position: int) -> tuple[int, np.int64]:
    """Read a 64-bit integer; return the position after it, or `_BROKEN`, and its value."""
    negative = text[position] == _MINUS
    position += negative
    first = position
    value = np.int64(0)  # accumulates negative numbers: their range is larger by one
    while _ZERO <= text[position] <= _NINE:
        digit = np.int64(text[position]) - _ZERO
        if value <= -922337203685477580 and (value < -922337203685477580 or digit > 7 + negative):
            return _BROKEN, value
        value = 10 * value - digit
        position += 1
    return (position if position > first else _BROKEN), (value if negative else -value)


@kernel
def _copy_string(text: np.ndarray, position: int, end: int, out: np.ndarray, write: int) -> tuple[int, int]:
    """Copy the string whose opening quote is at `position`, without its escapes.

    Returns the position after the closing quote, or `_CUT_OFF`, and where the copy ends.
    """
    quote = text[position]
    position += 1
    while True:
        # Indices are unsigned, as numba tests signed ones for being negative.
        step, source, target = np.uintp(0), np.uintp(position), np.uintp(write)
        while text[source + step] != quote and text[source + step] != GUARD:
            out[target + step] = text[source + step]
            step += _ONE
        position += np.int64(step)  # type: ignore[assignment]
        write += np.int64(step)  # type: ignore[assignment]
        if position + 1 >= end:
            return _CUT_OFF, write
        ends, following = text[position] == quote, text[position + 1]
        if ends and following != quote:
            return position + 1, write
        if not ends and following in (_PERCENT, _UNDERSCORE):  # only patterns unescape these two
            out[write] = GUARD
            write += 1
        out[write] = following if ends else _ESCAPES[following]
        write += 1
        position += 2


@kernel
def _copy_hex(text: np.ndarray, position: int, out: np.ndarray, write: int) -> tuple[int, int]:
    first = position
    while True:
        high, low = _hex_digit(text[position]), _hex_digit(text[position + 1])
        if high < 0:
            return (position if position > first else _BROKEN), write
        if low < 0:
            return _BROKEN, write
        out[write] = 16 * high + low
        write += 1
        position += 2


@kernel
def _after_number(text: np.ndarray, position: int) -> int:
    """Return the position after a number such as ``-12.5e-3``, or `_BROKEN`."""
    position += text[position] == _MINUS
    first = position
    position = _after_digits(text, position)
    digits = position - first
    if text[position] == _POINT:
        first = position + 1
        position = _after_digits(text, first)
        digits += position - first
    if digits == 0:
        return _BROKEN
    if text[position] | 32 == _LOWER_E:
        position += 1
        position += text[position] in (_MINUS, _PLUS)
        first = position
        position = _after_digits(text, position)
        if position == first:
            return _BROKEN
    return position


@kernel
def _copy_bare(text: np.ndarray, position: int, end: int, out: np.ndarray, write: int) -> tuple[int, int]:
    """Copy what does not begin with a quote: ``_binary 'a'``, ``0x61`` or the digits of a number."""
    if text[position] == _UNDERSCORE and _begins(text, position, b"_binary"):
        position = _after_blanks(text, position + 7)
        if position >= end:
            return _CUT_OFF, write
        if text[position] != _QUOTE:
            return _BROKEN, write
        return _copy_string(text, position, end, out, write)
    return _copy_hex(text, position + 2, out, write)


@kernel
def _is_cut_off(text: np.ndarray, position: int, end: int) -> bool:
    """Whether the text ends before the broken value at `position` does."""
    while position < end:
        if _is_blank(text[position]) or text[position] in (_COMMA, _CLOSE, _SEMICOLON):
            return False
        position += 1
    return True


@kernel
def _read_row(
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
    """Read one row from after its opening parenthesis.

    Returns `END_OF_STATEMENT` for a whole row, or the reason why there is none; the position after the row
    or of the fault; and the column of the fault.
    """
    width = len(strings) // len(offsets)
    unused = len(offsets) - 1
    for column in range(len(kinds)):
        slot = slots[column]
        position = _after_blanks(text, position)
        nulls[slot, row] = False
        if kinds[column] == INTEGER:
            stop, value = _read_integer(text, position)
            integers[slot, row] = value
        else:
            base = slot * width
            write = base if slot == unused else base + offsets[slot, row]
            if text[position] == _QUOTE or text[position] == _DOUBLE_QUOTE:
                stop, write = _copy_string(text, position, end, strings, write)
            elif text[position] == _UNDERSCORE or text[position + 1] == _LOWER_X:
                stop, write = _copy_bare(text, position, end, strings, write)
            else:
                stop = _after_number(text, position)
                for place in range(position, stop):
                    strings[write] = text[place]
                    write += 1
            offsets[slot, row + 1] = write - base
        if stop == _BROKEN and _begins(text, position, b"null"):
            stop = position + 4
            nulls[slot, row] = True
            integers[slot, row] = 0
            offsets[slot, row + 1] = offsets[slot, row]
        if stop == _CUT_OFF or (stop == _BROKEN and _is_cut_off(text, position, end)):
            return NEEDS_TEXT, position, column
        if stop == _BROKEN:
            return NO_VALUE, position, column
        stop = _after_blanks(text, stop)
        if stop >= end:
            return NEEDS_TEXT, position, column
        separator = text[stop]
        if separator != _COMMA and separator != _CLOSE:
            return NO_VALUE, position, column
        if (separator == _CLOSE) != (column + 1 == len(kinds)):
            return (TOO_FEW_VALUES if separator == _CLOSE else TOO_MANY_VALUES), stop, column
        position = stop + 1
    return END_OF_STATEMENT, position, 0


@kernel
def read_rows(
    text: np.ndarray,
    position: int,
    end: int,
    state: int,
    kinds: np.ndarray,
    slots: np.ndarray,
    rows: int,
    integers: np.ndarray,
    offsets: np.ndarray,
    strings: np.ndarray,
    nulls: np.ndarray,
) -> tuple[int, int, int, int, int]:
    """Read the whole rows of an INSERT that a text holds.

    Args:
        text: uint8. ``text[position:end]`` is read; `GUARD_BYTES` bytes `GUARD` follow.
        position: where to begin.
        end: where the text ends.
        state: `BEFORE_ROW` or `AFTER_ROW`.
        kinds: int64, shape (c,). `BYTES` or `INTEGER` for each value of a row.
        slots: int64, shape (c,). The row of the arrays below that stores the value; the last one stores
            only the latest value, and stands for all columns that nobody asked for.
        rows: how many rows the arrays hold already, at most n.
        integers: int64, shape (s, n).
        offsets: int64, shape (s, n + 1). Where the strings of a column begin and end.
        strings: uint8, shape (s * w,), with w no less than the length of the text that the strings are from.
        nulls: bool, shape (s, n).

    Returns:
        The reason to stop, the position, the state, how many rows the arrays hold, and the column at fault.
    """
    while rows < nulls.shape[1]:
        position = _after_blanks(text, position)
        if position >= end:
            return NEEDS_TEXT, position, state, rows, 0
        byte = text[position]
        if state == AFTER_ROW:
            if byte == _SEMICOLON:
                return END_OF_STATEMENT, position + 1, state, rows, 0
            if byte != _COMMA:
                return NO_SEPARATOR, position, state, rows, 0
            position += 1
            state = BEFORE_ROW
        else:
            if byte != _OPEN:
                return NO_ROW, position, state, rows, 0
            why, stop, column = _read_row(
                text, position + 1, end, kinds, slots, rows, integers, offsets, strings, nulls
            )
            if why != END_OF_STATEMENT:
                return why, (position if why == NEEDS_TEXT else stop), state, rows, column
            position = stop
            rows += 1
            state = AFTER_ROW
    return IS_FULL, position, state, rows, 0
