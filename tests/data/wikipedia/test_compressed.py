"""Unpacking in the background: every format, every kind of damage, and no thread left behind."""

from __future__ import annotations

import bz2
import gzip
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gramrun.base.errors import InputError
from gramrun.data.threads import THREAD_NAME
from gramrun.data.wikipedia.compressed import read_chunks

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.compress, ".sql": bytes}
PACKED = [".gz", ".bz2", ".zst"]
NOISE = np.random.default_rng(0).integers(0, 256, 60_000, dtype=np.uint8).tobytes()
TEXT = b"".join(b"(%d,0,'Some_title')," % i for i in range(8_000)) + NOISE


def threads() -> int:
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("packed")


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("chunk_bytes", [1000, 4 << 20])
def test_all_bytes_come_in_order(folder, suffix, chunk_bytes):
    path = folder / f"a{suffix}"
    path.write_bytes(PACK[suffix](TEXT))
    read: list[int] = []
    chunks = list(read_chunks(path, chunk_bytes, read.append))
    assert b"".join(chunks) == TEXT
    assert all(chunks)
    if suffix != ".zst":
        assert max(map(len, chunks)) <= chunk_bytes
    assert sum(read) == path.stat().st_size
    assert threads() == 0


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(PACKED), st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.integers(1, 80))
def test_members_are_read_to_the_last(folder, suffix, members, chunk_bytes):
    path = folder / f"members{suffix}"
    path.write_bytes(b"".join(map(PACK[suffix], members)))
    assert b"".join(read_chunks(path, chunk_bytes)) == b"".join(members)


def test_the_format_is_told_by_the_bytes_of_a_plain_name(folder):
    for pack in (gzip.compress, bz2.compress, zstandard.compress):
        path = folder / "dump"
        path.write_bytes(pack(b"text"))
        assert list(read_chunks(path)) == [b"text"]


def test_zeros_may_pad_the_end(folder):
    path = folder / "padded.gz"
    path.write_bytes(gzip.compress(b"text") + bytes(1 << 20))
    assert b"".join(read_chunks(path)) == b"text"


def complaint(path: Path) -> str:
    with pytest.raises(InputError) as refusal:
        list(read_chunks(path, 1 << 16))
    assert threads() == 0
    assert str(refusal.value).startswith(f"{path}: ")
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("kept", [0.3, -1])
def test_a_cut_file_is_refused(folder, suffix, kept):
    path = folder / f"cut{suffix}"
    packed = PACK[suffix](TEXT)
    path.write_bytes(packed[: int(kept * len(packed)) if kept > 0 else kept])
    assert "is cut off" in complaint(path)


@pytest.mark.parametrize("suffix", PACKED)
def test_a_changed_byte_is_noticed(folder, suffix):
    path = folder / f"damaged{suffix}"
    packed = bytearray(
        zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
        if suffix == ".zst"
        else PACK[suffix](TEXT)
    )
    packed[len(packed) * 2 // 3] ^= 0x10
    path.write_bytes(packed)
    assert "data is damaged" in complaint(path)


@pytest.mark.parametrize("suffix", PACKED)
def test_bytes_behind_the_end_are_refused(folder, suffix):
    path = folder / f"tail{suffix}"
    path.write_bytes(PACK[suffix](b"text") + b"and something else")
    assert "data is damaged" in complaint(path)


def test_a_file_that_is_not_what_its_name_says(folder):
    path = folder / "page.sql.gz"
    path.write_bytes(b"\n<!DOCTYPE html><html>404</html>")
    assert "holds an HTML or XML page, not the gzip data of its name" in complaint(path)
    path.write_bytes(bz2.compress(b"text"))
    assert "holds bzip2 data, not the gzip data of its name" in complaint(path)
    path.write_bytes(b"-- MySQL dump")
    assert "holds something else, not the gzip data" in complaint(path)
    path.write_bytes(b"")
    assert "is empty" in complaint(path)


@pytest.mark.parametrize("suffix", PACK)
def test_leaving_early_ends_the_thread(folder, suffix):
    path = folder / f"long{suffix}"
    path.write_bytes(PACK[suffix](TEXT))
    chunks = read_chunks(path, 1000)
    next(chunks)
    assert threads() == 1
    started = time.monotonic()
    chunks.close()
    assert time.monotonic() - started < 5
    assert threads() == 0


def test_the_thread_does_not_run_ahead(folder):
    path = folder / "ahead.sql"
    path.write_bytes(bytes(8 << 20))
    tracemalloc.start()
    try:
        chunks = read_chunks(path, 1 << 16)
        next(chunks)
        time.sleep(0.1)  # a free thread would read all of it
        held = tracemalloc.get_traced_memory()[0]
        chunks.close()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


def test_a_skippable_frame_may_come_first(tmp_path):
    """As pzstd writes it."""
    path = tmp_path / "a.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"1234" + zstandard.compress(TEXT))
    assert b"".join(read_chunks(path)) == TEXT
