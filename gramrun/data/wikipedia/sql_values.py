"""Compiled readers of single SQL values: strings, numbers, hex literals; the lower half of `sql_tokenizer`.

Source: MySQL 8.4 Reference Manual, section 11.1 "Literal Values".

All positions are addresses in memory. Strings and integers are read eight bytes at a time: tests on all
bytes of a word at once are those of H. S. Warren, Hacker's Delight, section 6-1, and of D. Lemire,
"Quickly parsing eight digits" (2022). Guard bytes behind the text, a backslash each, end every loop, so
that none of them looks for the end of the text: where a reader gives -1, or has come to the end, its
caller finds out whether the value is broken or only cut off.
"""

from __future__ import annotations

import numpy as np

from gramrun.base.compiled import compiled, inlined
from gramrun.data.wikipedia.machine_words import byte_at, put_byte, put_word, trailing_zeros, word_at

GUARD = ord("\\")
GUARD_BYTES = 16  # that must follow the text, and be free behind what is written

_TAB, _RETURN, _SPACE, _DOUBLE_QUOTE, _QUOTE = 9, 13, 32, 34, 39
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _PERCENT, _UNDERSCORE = 43, 45, 46, 48, 57, 37, 95
_LOWER_E, _LOWER_X = 101, 120
_ENDS = 41, 44, 59  # of a value, in rows as they should be

_ESCAPES = np.arange(256, dtype=np.int64)
for _escape, _meaning in zip(b"0bnrtZ", b"\0\b\n\r\t\x1a", strict=True):
    _ESCAPES[_escape] = _meaning

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_BACKSLASHES = np.uint64(GUARD * 0x0101010101010101)
_ZEROS = np.uint64(_ZERO * 0x0101010101010101)
_ABOVE_NINE = np.uint64(
    (0x80 - _NINE - 1) * 0x0101010101010101
)  # carries what is above "9" into the high bit
_LOW_OF_FOUR = np.uint64(0x000000FF000000FF)
_MILLIONS_AND_HUNDREDS = np.uint64((1_000_000 << 32) + 100)
_TEN_THOUSANDS_AND_ONES = np.uint64((10_000 << 32) + 1)
_EIGHT, _TEN, _SIXTEEN, _THIRTY_TWO = np.uint64(8), np.uint64(10), np.uint64(16), np.uint64(32)
_NONE = np.uint64(0)


@inlined
def is_blank(byte: int) -> bool:
    """Whether it is a space, tab or line end."""
    return byte == _SPACE or _TAB <= byte <= _RETURN


@inlined
def after_blanks(position: int) -> int:
    """Pass over blanks."""
    while is_blank(byte_at(position)):
        position += 1
    return position


@inlined
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@inlined
def _hex_digit(byte: int) -> int:
    if _is_digit(byte):
        return byte - _ZERO
    letter = (byte | 32) - 97
    return letter + 10 if 0 <= letter < 6 else -1


@compiled
def begins(position: int, end: int, word: bytes) -> bool:
    """Whether lower-case `word` stands at `position`, in any case, or its beginning before `end`."""
    for step in range(len(word)):
        if position + step >= end:
            return True
        byte = byte_at(position + step)
        if (byte | 32 if 65 <= byte <= 90 else byte) != word[step]:
            return False
    return True


@inlined
def _quotes_or_escapes(word: np.uint64, quotes: np.uint64) -> np.uint64:
    """Set the high bits of quotes and backslashes; only the lowest bit set is to be trusted."""
    quoted, escaped = word ^ quotes, word ^ _BACKSLASHES
    return (((quoted - _ONES) & ~quoted) | ((escaped - _ONES) & ~escaped)) & _HIGHS


@inlined
def copy_string(position: int, end: int, write: int) -> tuple[int, int]:
    """Copy the string whose opening quote is at `position` to `write`, without its escapes.

    Returns:
        The position behind the closing quote, or -1 where the text ends before; and where to write on.
    """
    quote = byte_at(position)
    quotes = np.uint64(quote) * _ONES
    position += 1
    while True:
        word = word_at(position)
        put_word(write, word)
        found = _quotes_or_escapes(word, quotes)
        if found == _NONE:
            position += 8
            write += 8
            continue
        step = trailing_zeros(found) >> 3
        position += step
        write += step
        if position + 1 >= end:
            return -1, write
        ends, following = byte_at(position) == quote, byte_at(position + 1)
        if ends and following != quote:
            return position + 1, write
        if not ends and following in (_PERCENT, _UNDERSCORE):
            put_byte(write, GUARD)  # only patterns unescape these two
            write += 1
        put_byte(write, following if ends else _ESCAPES[following])
        write += 1
        position += 2


@inlined
def after_string(position: int, end: int) -> int:
    """Pass over a string as `copy_string` does, and give the position behind it, or -1."""
    quote = byte_at(position)
    quotes = np.uint64(quote) * _ONES
    position += 1
    while True:
        found = _quotes_or_escapes(word_at(position), quotes)
        if found == _NONE:
            position += 8
            continue
        position += trailing_zeros(found) >> 3
        if position + 1 >= end:
            return -1
        if byte_at(position) == quote and byte_at(position + 1) != quote:
            return position + 1
        position += 2


@inlined
def after_number(position: int) -> int:
    """Pass over ``-12.5e-3`` and the like, and give the position behind it, or -1 where none stands."""
    position += byte_at(position) == _MINUS
    first = position
    while _is_digit(byte_at(position)):
        position += 1
    digits = position - first
    if byte_at(position) == _POINT:
        position += 1
        first = position
        while _is_digit(byte_at(position)):
            position += 1
        digits += position - first
    if digits == 0:
        return -1
    if byte_at(position) | 32 == _LOWER_E:
        position += 1
        position += byte_at(position) in (_MINUS, _PLUS)
        first = position
        while _is_digit(byte_at(position)):
            position += 1
        if position == first:
            return -1
    return position


@compiled
def copy_number(position: int, write: int) -> tuple[int, int]:
    """Copy a number's text; the position behind it, or -1, and where to write on."""
    stop = after_number(position)
    for place in range(position, stop):
        put_byte(write, byte_at(place))
        write += 1
    return stop, write


@compiled
def _copy_hex(position: int, write: int) -> tuple[int, int]:
    """Copy the bytes of a hex literal whose digits begin at `position`; -1 for no whole bytes."""
    first = position
    while True:
        high, low = _hex_digit(byte_at(position)), _hex_digit(byte_at(position + 1))
        if high < 0:
            return (position if position > first else -1), write
        if low < 0:
            return -1, write
        put_byte(write, 16 * high + low)
        write += 1
        position += 2


@inlined
def integer(position: int) -> tuple[int, np.int64]:
    """Read an integer; the position is -1 where none stands, or one beyond 64 bits."""
    negative = byte_at(position) == _MINUS
    position += negative
    digits = word_at(position) - _ZEROS
    others = ((word_at(position) + _ABOVE_NINE) | digits) & _HIGHS
    if others == _NONE:
        return _long_integer(position, negative)
    count = trailing_zeros(others) >> 3
    if count == 0:
        return -1, np.int64(0)
    # Eight digits, zeros first; then four numbers of two digits, and these into one by two products.
    digits <<= np.uint64(64 - 8 * count)
    pairs = digits * _TEN + (digits >> _EIGHT)
    upper = (pairs & _LOW_OF_FOUR) * _MILLIONS_AND_HUNDREDS
    lower = ((pairs >> _SIXTEEN) & _LOW_OF_FOUR) * _TEN_THOUSANDS_AND_ONES
    value = np.int64((upper + lower) >> _THIRTY_TWO)
    return position + count, (-value if negative else value)


@compiled
def _long_integer(position: int, negative: bool) -> tuple[int, np.int64]:
    """Read at least one digit, digit by digit."""
    value = np.int64(0)  # negative throughout, as there is one more negative number
    while _is_digit(byte_at(position)):
        digit = byte_at(position) - _ZERO
        # The bounds are -9223372036854775808 and 9223372036854775807.
        if value <= -922337203685477580 and (value < -922337203685477580 or digit > 7 + negative):
            return -1, value
        value = 10 * value - digit
        position += 1
    return position, (value if negative else -value)


@compiled
def copy_rare(position: int, end: int, write: int) -> tuple[int, int]:
    """Copy a value of a bytes column that does not begin with a quote.

    That is a string after ``_binary``, a hex literal, or a number's text: timestamps of old dumps.

    Returns:
        The position behind it, or -1; and where to write on.
    """
    if byte_at(position) == _UNDERSCORE and position + 7 < end and begins(position, end, b"_binary"):
        position = after_blanks(position + 7)
        if byte_at(position) != _QUOTE or position >= end:
            return -1, write
        return copy_string(position, end, write)
    if byte_at(position) == _ZERO and byte_at(position + 1) == _LOWER_X:
        return _copy_hex(position + 2, write)
    return copy_number(position, write)


@compiled
def after_rare(position: int, end: int) -> int:
    """Pass over a value of any type as `copy_rare` does, and give the position behind it, or -1."""
    if byte_at(position) == _UNDERSCORE and position + 7 < end and begins(position, end, b"_binary"):
        position = after_blanks(position + 7)
        if byte_at(position) != _QUOTE or position >= end:
            return -1
        return after_string(position, end)
    if byte_at(position) == _ZERO and byte_at(position + 1) == _LOWER_X:
        position += 2
        first = position
        while _hex_digit(byte_at(position)) >= 0:
            position += 1
        return position if position > first and (position - first) % 2 == 0 else -1
    return after_number(position)


@compiled
def is_cut_off(position: int, end: int) -> bool:
    """Whether the text ends before the broken value at `position` does."""
    if byte_at(position) == _UNDERSCORE and begins(position, end, b"_binary"):
        position = min(after_blanks(min(position + 7, end)), end)
    if position < end and byte_at(position) in (_QUOTE, _DOUBLE_QUOTE):
        return after_string(position, end) < 0
    while position < end and not is_blank(byte_at(position)) and byte_at(position) not in _ENDS:
        position += 1
    return position >= end
