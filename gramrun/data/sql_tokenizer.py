"""The compiled inner loop of `sql_dump`: rows of ``VALUES (..),(..);`` into columns.

Source: MySQL 8.4 Reference Manual, section 11.1 "Literal Values" (strings and their escapes, numbers, hex
literals, NULL) and section 15.2.7 "INSERT Statement".

Three things make it fast: strings are searched and copied eight bytes at a time; guard bytes behind the
text, a backslash each, end every inner loop, so that none of them looks for the end of the text; and an
INSERT that begins like the one before never leaves the compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gramrun.data.compiled import compiled

GUARD = ord("\\")
GUARD_BYTES = 16  # that must follow the text, and be free behind each column's strings

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

_TAB, _RETURN, _SPACE, _DOUBLE_QUOTE, _QUOTE, _OPEN, _CLOSE = 9, 13, 32, 34, 39, 40, 41
_PLUS, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _SEMICOLON = 43, 44, 45, 46, 48, 57, 59
_NEWLINE, _HASH, _STAR, _SLASH, _BACKTICK = 10, 35, 42, 47, 96
_UPPER_E, _UPPER_Z, _LOWER_E, _LOWER_X, _PERCENT, _UNDERSCORE = 69, 90, 101, 120, 37, 95
_ESCAPES = np.arange(256, dtype=np.uint8)
for _escape, _meaning in zip(b"0bnrtZ", b"\0\b\n\r\t\x1a", strict=True):
    _ESCAPES[_escape] = _meaning

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_BACKSLASHES = np.uint64(GUARD * 0x0101010101010101)
_NONE = np.uint64(0)


def _word_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(64).as_pointer())


@intrinsic  # type: ignore[misc]
def _load(_typing: Any, array: Any, index: Any) -> Any:
    """Read eight bytes at any index of a byte array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments)
        return builder.load(pointer, align=1)

    return types.uint64(array, types.int64), generate


@intrinsic  # type: ignore[misc]
def _store(_typing: Any, array: Any, index: Any, word: Any) -> Any:
    """Write eight bytes at any index of a byte array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


@intrinsic  # type: ignore[misc]
def _trailing_zeros(_typing: Any, word: Any) -> Any:
    """Count the zero bits below a word's lowest one bit; the word is not zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@compiled
def _is_blank(byte: int) -> bool:
    return byte == _SPACE or _TAB <= byte <= _RETURN


@compiled
def _after_blanks(text: np.ndarray, position: int, end: int) -> int:
    while position < end and _is_blank(text[position]):
        position += 1
    return position


@compiled
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@compiled
def _hex_digit(byte: int) -> int:
    if _is_digit(byte):
        return byte - _ZERO
    letter = (byte | 32) - 97
    return letter + 10 if 0 <= letter < 6 else -1


@compiled
def _begins(text: np.ndarray, position: int, end: int, word: bytes) -> int:
    """Whether lower-case `word` stands at `position`, in any case: 1 yes, 0 no, -1 cut off by the end."""
    for step in range(len(word)):
        if position + step >= end:
            return -1
        byte = np.int64(text[position + step])
        if (byte | 32 if 65 <= byte <= _UPPER_Z else byte) != word[step]:
            return 0
    return 1


@compiled
def _copy_string(
    text: np.ndarray, position: int, end: int, copied: np.ndarray, write: int
) -> tuple[int, int]:
    """Copy the string whose opening quote is at `position`, without its escapes.

    Returns:
        The position behind the closing quote, or -1 where the text ends before; and where to write on.
    """
    quote = text[position]
    quotes = np.uint64(quote) * _ONES
    position += 1
    while True:
        # The lowest high bit of `found` marks the first quote or backslash: Mycroft's test for zero bytes.
        word = _load(text, position)
        _store(copied, write, word)
        quoted, escaped = word ^ quotes, word ^ _BACKSLASHES
        found = (((quoted - _ONES) & ~quoted) | ((escaped - _ONES) & ~escaped)) & _HIGHS
        if found == _NONE:
            position += 8
            write += 8
            continue
        step = _trailing_zeros(found) >> 3
        position += step
        write += step
        if position >= end or position + 1 >= end:
            return -1, write
        following = text[position + 1]
        if text[position] == quote and following != quote:
            return position + 1, write
        if text[position] != quote and (following == _PERCENT or following == _UNDERSCORE):
            copied[write] = GUARD  # only patterns unescape these two
            write += 1
        copied[write] = following if text[position] == quote else _ESCAPES[following]
        write += 1
        position += 2


@compiled
def _after_string(text: np.ndarray, position: int, end: int) -> int:
    """Pass over a string as `_copy_string` does, and give the position behind it, or -1."""
    quote = text[position]
    quotes = np.uint64(quote) * _ONES
    position += 1
    while True:
        word = _load(text, position)
        quoted, escaped = word ^ quotes, word ^ _BACKSLASHES
        found = (((quoted - _ONES) & ~quoted) | ((escaped - _ONES) & ~escaped)) & _HIGHS
        if found == _NONE:
            position += 8
            continue
        position += _trailing_zeros(found) >> 3
        if position >= end or position + 1 >= end:
            return -1
        if text[position] == quote and text[position + 1] != quote:
            return position + 1
        position += 2


@compiled
def _after_number(text: np.ndarray, position: int) -> int:
    """Pass over ``-12.5e-3`` and the like, and give the position behind it, or -1 where none stands."""
    if text[position] == _MINUS:
        position += 1
    first = position
    while _is_digit(text[position]):
        position += 1
    digits = position - first
    if text[position] == _POINT:
        position += 1
        first = position
        while _is_digit(text[position]):
            position += 1
        digits += position - first
    if digits == 0:
        return -1
    if text[position] == _LOWER_E or text[position] == _UPPER_E:
        position += 1
        if text[position] == _MINUS or text[position] == _PLUS:
            position += 1
        first = position
        while _is_digit(text[position]):
            position += 1
        if position == first:
            return -1
    return position


@compiled
def _copy_hex(text: np.ndarray, position: int, copied: np.ndarray, write: int) -> tuple[int, int]:
    """Copy the bytes of a hex literal whose digits begin at `position`; (-1, ...) for no whole bytes."""
    first = position
    while True:
        high, low = _hex_digit(text[position]), _hex_digit(text[position + 1])
        if high < 0:
            break
        if low < 0:
            return -1, write
        copied[write] = 16 * high + low
        write += 1
        position += 2
    return (position if position > first else -1), write


@compiled
def _integer(text: np.ndarray, position: int) -> tuple[int, int]:
    """Read an integer; the position is -1 where none stands, or one beyond 64 bits."""
    negative = text[position] == _MINUS
    if negative:
        position += 1
    first = position
    value = np.int64(0)  # negative throughout, as there is one more negative number
    while True:
        digit = np.int64(text[position]) - _ZERO
        if digit < 0 or digit > 9:
            break
        if position - first >= 18:
            if value < -922337203685477580 or (value == -922337203685477580 and digit > 7 + negative):
                return -1, value
        value = 10 * value - digit
        position += 1
    return (position if position > first else -1), (value if negative else -value)


@compiled
def _copy_number(text: np.ndarray, position: int, stop: int, copied: np.ndarray, write: int) -> int:
    for place in range(position, stop):
        copied[write] = text[place]
        write += 1
    return write


@compiled
def _bytes_value(
    text: np.ndarray, position: int, end: int, copied: np.ndarray, write: int
) -> tuple[int, int]:
    """Copy a string, a hex literal or a number's text, and give the position behind it, or -1."""
    if text[position] == _UNDERSCORE and _begins(text, position, end, b"_binary") == 1:
        position = _after_blanks(text, position + 7, end)
        if text[position] != _QUOTE:
            return -1, write
    if text[position] == _QUOTE or text[position] == _DOUBLE_QUOTE:
        return _copy_string(text, position, end, copied, write)
    if text[position] == _ZERO and text[position + 1] == _LOWER_X:
        return _copy_hex(text, position + 2, copied, write)
    stop = _after_number(text, position)
    return stop, _copy_number(text, position, stop, copied, write)


@compiled
def _skipped_value(text: np.ndarray, position: int, end: int) -> int:
    """Pass over a value of any type, without a look at its type, and give the position behind it, or -1."""
    if text[position] == _UNDERSCORE and _begins(text, position, end, b"_binary") == 1:
        position = _after_blanks(text, position + 7, end)
        if text[position] != _QUOTE:
            return -1
    if text[position] == _QUOTE or text[position] == _DOUBLE_QUOTE:
        return _after_string(text, position, end)
    if text[position] == _ZERO and text[position + 1] == _LOWER_X:
        position += 2
        first = position
        while _hex_digit(text[position]) >= 0:
            position += 1
        return position if position > first and (position - first) % 2 == 0 else -1
    return _after_number(text, position)


@compiled
def _is_cut_off(text: np.ndarray, position: int, end: int) -> bool:
    """Whether the text ends before the value at `position` does, as far as one can tell of a broken one."""
    byte = text[position]
    if byte == _UNDERSCORE and _begins(text, position, end, b"_binary") != 0:
        position = _after_blanks(text, min(position + 7, end), end)
        byte = text[position]
    if position < end and (byte == _QUOTE or byte == _DOUBLE_QUOTE):
        return _after_string(text, position, end) < 0
    while position < end:
        byte = text[position]
        if _is_blank(byte) or byte == _COMMA or byte == _CLOSE or byte == _SEMICOLON:
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
        if _is_blank(text[position]):
            position = _after_blanks(text, position, end)
        stop = -1
        if kind == INTEGER:
            stop, integers[slot, row] = _integer(text, position)
        elif kind == BYTES:
            stop, write = _bytes_value(text, position, end, strings[slot], offsets[slot, row])
            offsets[slot, row + 1] = write
        elif kind == NUMBER:
            stop = _after_number(text, position)
            write = _copy_number(text, position, stop, strings[slot], offsets[slot, row])
            offsets[slot, row + 1] = write
        else:
            stop = _skipped_value(text, position, end)
        if stop < 0:
            if _begins(text, position, end, b"null") != 1:
                return (-1 if _is_cut_off(text, position, end) else NO_VALUE), position, column
            stop = position + 4
            if kind != SKIPPED:
                nulls[slot, row] = True
            if kind == INTEGER:
                integers[slot, row] = 0
            elif kind != SKIPPED:
                offsets[slot, row + 1] = offsets[slot, row]
        if _is_blank(text[stop]):
            stop = _after_blanks(text, stop, end)
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
        position = _after_blanks(text, position, end)
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
        if byte == _QUOTE or byte == _DOUBLE_QUOTE:
            stop = _after_string(text, position, end)
        elif byte == _BACKTICK:
            stop = _after_name(text, position, end)
        elif byte == _HASH:
            stop = _after_line(text, position, end)
        elif byte == _MINUS or byte == _SLASH:
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
