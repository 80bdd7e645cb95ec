"""Damage to a file, structure known or not: bytes flipped, cut, doubled, moved; tokens and numbers replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

Change = Callable[[bytes], bytes]

JSON_TOKENS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"-1", b"1e999", b"NaN"]
_PLACES = st.integers(0, 1 << 20)
_NUMBERS = [b"0", b"-1", b"1", b"7", b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807"]
_NUMBERS += [
    b"9223372036854775808",
    b"9" * 40,
    b"1.5",
    b"1e5",
    b"1e400",
    b"nan",
    b"inf",
    b"NULL",
    b"0x41",
    b"''",
    b"",
]
_BYTES = [
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\r\n",
    b"\t",
    b"\x1a",
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def _flip(place: int, token: bytes) -> Change:
    def change(data: bytes) -> bytes:
        at = place % max(1, len(data))
        return data[:at] + token[:1] + data[at + 1 :]

    return change


def _insert(place: int, token: bytes) -> Change:
    return lambda data: data[: place % (len(data) + 1)] + token + data[place % (len(data) + 1) :]


def _cut(place: int, length: int) -> Change:
    return lambda data: data[: place % (len(data) + 1)] + data[place % (len(data) + 1) + length :]


def _truncate(place: int) -> Change:
    return lambda data: data[: place % (len(data) + 1)]


def _double(place: int, length: int, times: int) -> Change:
    def change(data: bytes) -> bytes:
        at = place % (len(data) + 1)
        return data[:at] + data[at : at + length] * times + data[at:]

    return change


def _lines(first: int, second: int, what: str) -> Change:
    """Swap two lines, or drop or double the first."""

    def change(data: bytes) -> bytes:
        lines = data.split(b"\n")
        a, b = first % len(lines), second % len(lines)
        if what == "swap":
            lines[a], lines[b] = lines[b], lines[a]
        elif what == "drop":
            del lines[a]
        else:
            lines.insert(b, lines[a])
        return b"\n".join(lines)

    return change


def _number(place: int, token: bytes) -> Change:
    """Replace one number."""

    def change(data: bytes) -> bytes:
        found = list(_NUMBER.finditer(data))
        if not found:
            return data
        at = found[place % len(found)]
        return data[: at.start()] + token + data[at.end() :]

    return change


def changes(tokens: Sequence[bytes], most: int = 3) -> st.SearchStrategy[list[Change]]:
    """Up to `most` changes; `tokens` are what the format is made of."""
    token = st.sampled_from([*tokens, *_BYTES])
    one = st.one_of(
        st.builds(_flip, _PLACES, st.one_of(st.binary(min_size=1, max_size=1), token.filter(len))),
        st.builds(_insert, _PLACES, token),
        st.builds(_cut, _PLACES, st.integers(1, 40)),
        st.builds(_truncate, _PLACES),
        st.builds(_double, _PLACES, st.integers(1, 200), st.integers(1, 3)),
        st.builds(_lines, _PLACES, _PLACES, st.sampled_from(["swap", "drop", "double"])),
        st.builds(_number, _PLACES, st.sampled_from(_NUMBERS)),
        st.builds(_number, _PLACES, st.sampled_from(_NUMBERS)),
    )
    return st.lists(one, min_size=1, max_size=most)


def changed(data: bytes, made: Sequence[Change]) -> bytes:
    """`data` with all changes made."""
    for change in made:
        data = change(data)
    return data
