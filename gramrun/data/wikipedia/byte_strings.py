"""Byte strings as Arrow arrays (`large_binary`), and the offsets and bytes that compiled code reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class NotTextError(ValueError):
    """A byte string is not UTF-8; `row` says which."""

    def __init__(self, row: int, string: bytes) -> None:
        super().__init__(f"{string!r} is not UTF-8")
        self.row = row


def byte_strings(offsets: np.ndarray, data: np.ndarray) -> pa.LargeBinaryArray:
    """View n strings ``data[offsets[i]:offsets[i + 1]]`` (int64, shape (n + 1,); uint8) without a copy."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def parts_of(strings: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets and bytes of strings, as `byte_strings` takes them: read-only views."""
    offsets, data = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    if len(strings):  # else the buffers may be missing
        _, ends, joined = strings.buffers()
        offsets = np.frombuffer(ends, dtype=np.int64)[strings.offset : strings.offset + len(strings) + 1]
        data = np.frombuffer(joined or b"", dtype=np.uint8)
    offsets.flags.writeable = data.flags.writeable = False  # all alike: numba compiles for each kind
    return offsets, data


def text_of(strings: pa.LargeBinaryArray) -> pa.Array:
    """The strings as texts (`large_string`).

    Raises:
        NotTextError: a string is not UTF-8.
    """
    try:
        return strings.cast(pa.large_string())
    except pa.ArrowInvalid:
        row = int((~are_text(strings)).argmax())
        raise NotTextError(row, strings[row].as_py()) from None


def are_text(strings: pa.LargeBinaryArray) -> np.ndarray:
    """Whether each string is UTF-8: bool, shape (n,)."""
    try:
        strings.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.array([_is_text(string) for string in strings.to_pylist()])
    return np.ones(len(strings), dtype=bool)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """The cumulative sums of n lengths, from 0: int64, shape (n + 1,)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _is_text(string: bytes) -> bool:
    try:
        string.decode()
    except UnicodeDecodeError:
        return False
    return True
