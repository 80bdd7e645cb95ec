"""Compiled readers of single SQL values: strings, numbers, hex literals; the lower half of `sql_tokenizer`.

Source: MySQL 8.4 Reference Manual, section 11.1 "Literal Values".

Strings are searched and copied eight bytes at a time. Guard bytes behind the text, a backslash each, end
every loop, so that none of them looks for the end of the text: where a reader gives -1, or has come to the
end, the caller finds out whether the value is broken or only cut off.
"""

from __future__ import annotations

import numpy as np

from gramrun.data.compiled import compiled
from gramrun.data.machine_words import load, store, trailing_zeros

GUARD = ord("\\")
GUARD_BYTES = 16  # that must follow the text, and be free behind each column's strings

_TAB, _RETURN, _SPACE, _DOUBLE_QUOTE, _QUOTE = 9, 13, 32, 34, 39
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _PERCENT, _UNDERSCORE = 43, 45, 46, 48, 57, 37, 95
_UPPER_E, _LOWER_E, _LOWER_X = 69, 101, 120

_ESCAPES = np.arange(256, dtype=np.uint8)
for _escape, _meaning in zip(b"0bnrtZ", b"\0\b\n\r\t\x1a", strict=True):
    _ESCAPES[_escape] = _meaning

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_BACKSLASHES = np.uint64(GUARD * 0x0101010101010101)
_NONE = np.uint64(0)


@compiled
def is_blank(byte: int) -> bool:
    """Whether it is a space, tab or line end."""
    return byte == _SPACE or _TAB <= byte <= _RETURN


@compiled
def after_blanks(text: np.ndarray, position: int, end: int) -> int:
    """Pass over blanks."""
    while position < end and is_blank(text[position]):
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
def begins(text: np.ndarray, position: int, end: int, word: bytes) -> int:
    """Whether lower-case `word` stands at `position`, in any case: 1 yes, 0 no, -1 cut off by the end."""
    for step in range(len(word)):
        if position + step >= end:
            return -1
        byte = np.int64(text[position + step])
        if (byte | 32 if 65 <= byte <= 90 else byte) != word[step]:
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
        word = load(text, position)
        store(copied, write, word)
        quoted, escaped = word ^ quotes, word ^ _BACKSLASHES
        found = (((quoted - _ONES) & ~quoted) | ((escaped - _ONES) & ~escaped)) & _HIGHS
        if found == _NONE:
            position += 8
            write += 8
            continue
        step = trailing_zeros(found) >> 3
        position += step
        write += step
        if position >= end or position + 1 >= end:
            return -1, write
        following = text[position + 1]
        if text[position] == quote and following != quote:
            return position + 1, write
        if text[position] != quote and following in (_PERCENT, _UNDERSCORE):
            copied[write] = GUARD  # only patterns unescape these two
            write += 1
        copied[write] = following if text[position] == quote else _ESCAPES[following]
        write += 1
        position += 2


@compiled
def after_string(text: np.ndarray, position: int, end: int) -> int:
    """Pass over a string as `_copy_string` does, and give the position behind it, or -1."""
    quote = text[position]
    quotes = np.uint64(quote) * _ONES
    position += 1
    while True:
        word = load(text, position)
        quoted, escaped = word ^ quotes, word ^ _BACKSLASHES
        found = (((quoted - _ONES) & ~quoted) | ((escaped - _ONES) & ~escaped)) & _HIGHS
        if found == _NONE:
            position += 8
            continue
        position += trailing_zeros(found) >> 3
        if position >= end or position + 1 >= end:
            return -1
        if text[position] == quote and text[position + 1] != quote:
            return position + 1
        position += 2


@compiled
def after_number(text: np.ndarray, position: int) -> int:
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
def integer(text: np.ndarray, position: int) -> tuple[int, np.int64]:
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
        # The bounds are -9223372036854775808 and 9223372036854775807.
        if value <= -922337203685477580 and (value < -922337203685477580 or digit > 7 + negative):
            return -1, value
        value = 10 * value - digit
        position += 1
    return (position if position > first else -1), (value if negative else -value)


@compiled
def copy_number(text: np.ndarray, position: int, stop: int, copied: np.ndarray, write: int) -> int:
    """Copy ``text[position:stop]``, and say where to write on."""
    for place in range(position, stop):
        copied[write] = text[place]
        write += 1
    return write


@compiled
def bytes_value(text: np.ndarray, position: int, end: int, copied: np.ndarray, write: int) -> tuple[int, int]:
    """Copy a string, a hex literal or a number's text, and give the position behind it, or -1."""
    if text[position] == _UNDERSCORE and begins(text, position, end, b"_binary") == 1:
        position = after_blanks(text, position + 7, end)
        if text[position] != _QUOTE:
            return -1, write
    if text[position] == _QUOTE or text[position] == _DOUBLE_QUOTE:
        return _copy_string(text, position, end, copied, write)
    if text[position] == _ZERO and text[position + 1] == _LOWER_X:
        return _copy_hex(text, position + 2, copied, write)
    stop = after_number(text, position)
    return stop, copy_number(text, position, stop, copied, write)


@compiled
def skipped_value(text: np.ndarray, position: int, end: int) -> int:
    """Pass over a value of any type, without a look at its type, and give the position behind it, or -1."""
    if text[position] == _UNDERSCORE and begins(text, position, end, b"_binary") == 1:
        position = after_blanks(text, position + 7, end)
        if text[position] != _QUOTE:
            return -1
    if text[position] == _QUOTE or text[position] == _DOUBLE_QUOTE:
        return after_string(text, position, end)
    if text[position] == _ZERO and text[position + 1] == _LOWER_X:
        position += 2
        first = position
        while _hex_digit(text[position]) >= 0:
            position += 1
        return position if position > first and (position - first) % 2 == 0 else -1
    return after_number(text, position)
