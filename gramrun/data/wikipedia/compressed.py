"""Chunks of the unpacked bytes of a gzip, bzip2, Zstandard or plain file, unpacked in a second thread.

The first bytes tell the format: RFC 1952, section 2.3.1 (gzip); RFC 8878, section 3.1.1 (Zstandard); the
magic numbers of a bzip2 stream and block. Files may have several members, streams or frames. isal unpacks
gzip several times as fast as zlib.
"""

from __future__ import annotations

import bz2
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import zstandard
from isal import igzip_lib

from gramrun.base.errors import InputError
from gramrun.data.threads import prefetch

CHUNK_BYTES = 1 << 20  # each MB more adds about 25 MB to the peak of `gramrun prepare`

_MAGIC = {
    re.compile(rb"\x1f\x8b\x08"): "gzip",
    re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"): "bzip2",  # pi, or for no blocks its square root
    re.compile(rb"\x28\xb5\x2f\xfd"): "zstd",
    re.compile(rb"[\x50-\x5f]\x2a\x4d\x18"): "zstd",  # a skippable frame, with which pzstd begins
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}
_BLOCK_BYTES = 1 << 18  # of packed bytes that are read at once
# zstandard returns everything its input unpacks to at once, up to 128 KB for a few bytes: feed it little.
_ZSTD_BLOCK_BYTES = 1 << 10
_ZSTD_WINDOW_BYTES = 1 << 27  # the default limit of the zstd command


class _Zstd:
    """Unpacks one Zstandard frame; ignores `max_length`."""

    needs_input = True

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._frame.decompress(data)


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {  # each has the interface of `bz2.BZ2Decompressor`
    "gzip": lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP),
    "bzip2": lambda: bz2.BZ2Decompressor(),
    "zstd": lambda: _Zstd(),
}
_DAMAGES: tuple[type[Exception], ...] = (
    cast(type[Exception], igzip_lib.error),
    OSError,
    zstandard.ZstdError,
    EOFError,
    ValueError,
)


def read_chunks(
    path: Path, chunk_bytes: int = CHUNK_BYTES, on_read: Callable[[int], object] | None = None
) -> Generator[bytes]:
    """Yield the unpacked bytes of a file; a second thread unpacks ahead.

    Closing the generator ends the thread.

    Args:
        path: the file.
        chunk_bytes: the largest size of a chunk, for Zstandard approximately; no chunk is empty.
        on_read: called in the caller's thread with the number of the file's bytes that a chunk has used.

    Raises:
        InputError: the file is missing, empty, cut off, damaged, or not what its name says.
    """
    with closing(prefetch(_unpack(path, chunk_bytes))) as chunks:
        for chunk, read in chunks:
            if on_read is not None and read:
                on_read(read)
            if chunk:
                yield chunk


def _unpack(path: Path, chunk_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield pairs of unpacked bytes and the number of the file's bytes read for them."""
    try:
        with path.open("rb") as file:
            packing = _packing(path, file)
            if packing is None:
                while chunk := file.read(chunk_bytes):
                    yield chunk, len(chunk)
            else:
                yield from _members(path, file, packing, chunk_bytes)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:  # a folder, or a failing disk
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _packing(path: Path, file: BufferedReader) -> str | None:
    """Find the format from the first bytes, and compare it with the suffix."""
    first = file.peek()[:512]
    if not first:
        raise InputError(f"{path}: is empty; download it again")
    packing = next((name for magic, name in _MAGIC.items() if magic.match(first)), None)
    promised = _SUFFIXES.get(path.suffix)
    if promised is not None and packing != promised:
        html = first.lstrip()[:1] == b"<"
        found = "an HTML or XML page" if html else f"{packing} data" if packing else "something else"
        raise InputError(f"{path}: holds {found}, not the {promised} data of its name; download it again")
    return packing


def _members(path: Path, file: BufferedReader, packing: str, chunk_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Unpack all members; zero bytes may pad the end, as gzip and tar allow."""
    block_bytes = _ZSTD_BLOCK_BYTES if packing == "zstd" else _BLOCK_BYTES
    pieces: list[bytes] = []
    free = chunk_bytes
    read = 0
    data = file.read(block_bytes)
    read += len(data)
    while data:
        member = _DECOMPRESSORS[packing]()
        while not member.eof:
            if member.needs_input and not data:
                data = file.read(block_bytes)
                read += len(data)
                if not data:
                    raise InputError(f"{path}: is cut off: its {packing} data has no end; download it again")
            try:
                pieces.append(member.decompress(data, free))
            except _DAMAGES as error:
                raise InputError(
                    f"{path}: its {packing} data is damaged ({error}); download it again"
                ) from error
            data = b""
            free -= len(pieces[-1])
            if free <= 0:
                yield b"".join(pieces), read
                pieces, free, read = [], chunk_bytes, 0
        data = member.unused_data
        while not data.strip(b"\0") and (data := file.read(block_bytes)):
            read += len(data)
    yield b"".join(pieces), read
