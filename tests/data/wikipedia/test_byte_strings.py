"""Arrow's strings as offsets and bytes, and as texts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiki_twin import binary

from gramrun.data.wikipedia.byte_strings import NotTextError, are_text, byte_strings, parts_of, text_of


@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(0, 8))
def test_the_parts_are_those_of_the_strings(strings, start):
    offsets, data = parts_of(binary(strings)[start:])
    assert [data[begin:end].tobytes() for begin, end in pairwise(offsets)] == strings[start:]
    assert byte_strings(offsets, data).to_pylist() == strings[start:]


def test_text_is_utf8_or_names_the_row():
    assert text_of(binary([b"a", "é".encode(), b""])).to_pylist() == ["a", "é", ""]
    halves = binary([b"a", b"\xc3", b"\xa9"])  # together they would be
    with pytest.raises(NotTextError, match=r"b'\\xc3' is not UTF-8") as caught:
        text_of(halves)
    assert caught.value.row == 1
    assert are_text(halves).tolist() == [True, False, False]
