"""`ByteStrings` against lists of Python's bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramrun.data.wikipedia.byte_strings import ByteStrings, NotTextError

LISTS = st.lists(st.binary(max_size=5), max_size=8)


@given(LISTS, st.data())
def test_take_is_indexing(strings, data):
    rows = data.draw(st.lists(st.integers(0, len(strings) - 1), max_size=8)) if strings else []
    taken = ByteStrings.of(strings).take(np.array(rows, dtype=np.int64))
    assert list(taken) == [strings[row] for row in rows]
    assert len(taken) == len(rows)
    mask = np.array([row in rows for row in range(len(strings))], dtype=bool)
    assert list(ByteStrings.of(strings).take(mask)) == [
        s for s, kept in zip(strings, mask, strict=True) if kept
    ]


@given(st.lists(LISTS, max_size=4))
def test_concatenate_is_addition(lists):
    joined = ByteStrings.concatenate([ByteStrings.of(strings) for strings in lists])
    assert list(joined) == [string for strings in lists for string in strings]


def test_text_is_utf8_or_names_the_row():
    assert ByteStrings.of([b"a", "é".encode(), b""]).text().to_pylist() == ["a", "é", ""]
    with pytest.raises(NotTextError, match=r"b'\\xc3' is not UTF-8") as caught:
        ByteStrings.of([b"a", b"\xc3", b"\xa9"]).text()  # together they would be
    assert caught.value.row == 1
