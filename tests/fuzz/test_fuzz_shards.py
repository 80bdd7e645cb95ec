"""Prepared corpora with hostile manifests and arrays: opened consistent, or refused in one line.

The checksums agree with the damage, so that the checks of the contents are reached.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fuzzing import (
    JSON_TOKENS,
    Refused,
    budgets,
    changed,
    changes,
    command,
    inputs,
    leaves_of,
    outcome,
    replaced,
    unseal,
)
from helpers import CONFIG
from hypothesis import example, given
from hypothesis import strategies as st

from gramrun.data import shards
from gramrun.data.corpus import SplitCorpus

NAMES = ["../../x", "/etc/passwd", "a/b", "", ".", "..", "x\0y", "left", "user", "a" * 5_000, "..\\x"]
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 200),
        st.sampled_from([2**31, 2**63, 2**64, 10**400, -(2**63), *NAMES]),
        st.floats(),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
TOKENS = [*JSON_TOKENS, b"../", b'"files"', b"0"]


@pytest.fixture
def folder(corpus_path, tmp_path) -> Path:
    copy = Path(shutil.copytree(corpus_path, tmp_path / "corpus"))
    unseal(copy)
    return copy


def holds_together(corpus: SplitCorpus) -> None:
    """The invariants that compiled loops rely on, value by value."""
    for side in (corpus.left, corpus.right):
        for feature in side.features:
            bounds = feature.offsets.tolist()
            assert len(bounds) == side.items + 1 and bounds == sorted(bounds)
            assert bounds[0] == 0 and bounds[-1] == len(feature.indices)
            assert all(0 <= i < corpus.vocabulary_sizes[feature.vocabulary] for i in feature.indices.tolist())
    for pairs in (corpus.train, corpus.validation):
        assert len(pairs.left) == len(pairs.right) > 0
        assert all(0 <= i < corpus.left.items for i in pairs.left.tolist())
        assert all(0 <= i < corpus.right.items for i in pairs.right.tolist())
        assert pairs.target is None or len(pairs.target) == len(pairs.left)
    assert (
        sum(corpus.left_frequency.tolist()) == sum(corpus.right_frequency.tolist()) == len(corpus.train.left)
    )


def opens_or_is_refused(folder: Path) -> None:
    corpus = outcome(shards.open_corpus, folder)
    if not isinstance(corpus, Refused):
        holds_together(corpus)
        for name, size in corpus.vocabulary_sizes.items():
            frame = outcome(corpus.vocabularies.__getitem__, name)
            assert isinstance(frame, Refused) or len(frame) == size


@budgets(fast=30, slow=2_000)
def test_any_value_in_a_manifest_is_accepted_or_one_line(examples, folder):
    file = folder / shards.MANIFEST
    whole = file.read_text()

    @inputs(examples)
    @given(st.sampled_from(leaves_of(json.loads(whole))), st.one_of(st.just("remove"), json_values))
    def check(place, value):
        document = json.loads(whole)
        if place or value != "remove":
            document = replaced(document, place, value)
        file.write_text(json.dumps(document), encoding="utf-8")
        opens_or_is_refused(folder)

    check()


@budgets(fast=15, slow=2_000)
def test_any_bytes_as_a_manifest(examples, folder):
    file = folder / shards.MANIFEST
    whole = file.read_bytes()

    @inputs(examples)
    @given(st.one_of(st.binary(max_size=40), changes(TOKENS)))
    @example(b"[" * 100_000)
    @example(b'{"a":' * 100_000)
    @example(b'{"schema_version": ' + b"9" * 5_000 + b"}")
    def check(damage):
        file.write_bytes(damage if isinstance(damage, bytes) else changed(whole, damage))
        opens_or_is_refused(folder)

    check()


DTYPES = ["<i4", "<i8", ">i4", "<f4", "<f8", "<u4", "|b1", "<c8", "|S4", "<U4", "|O", "<M8[s]", "|V4"]
SHAPES = [(), (0,), (1,), (5,), (80,), (120,), (121,), (2, 60), (10**6,), (10**12,), (-1,), (2**63,), (True,)]


def header_bytes(descr: str, shape: tuple, fortran: bool, version: tuple[int, int]) -> bytes:
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    size = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + text


def sealed(folder: Path, name: str, data: bytes) -> None:
    """Write a file of a corpus, and its size and checksum into the manifest."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / shards.MANIFEST).read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / shards.MANIFEST).write_text(json.dumps(manifest))


def array_bytes(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@budgets(fast=30, slow=2_000)
def test_any_array_fits_the_others_or_is_refused(examples, folder):
    names = sorted(json.loads((folder / shards.MANIFEST).read_text())["files"])
    whole = {name: (folder / name).read_bytes() for name in names}

    @inputs(examples)
    @given(
        st.sampled_from(names),
        st.one_of(
            st.builds(
                lambda *header_and_data: header_bytes(*header_and_data[:4]) + header_and_data[4],
                st.sampled_from(DTYPES),
                st.sampled_from(SHAPES),
                st.booleans(),
                st.sampled_from([(1, 0), (2, 0), (3, 0), (9, 9)]),
                st.binary(max_size=64),
            ),
            st.tuples(st.integers(0, 10**6), st.integers(-(2**31), 2**31 - 1)),
            changes([b"\x93NUMPY", b"<i4", b"|O", b"(-1,)", b"(9,)", b"True", b"PK\x03\x04", b"PAR1"]),
            st.binary(max_size=40),
        ),
    )
    @example("left/frequency.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (\n     ")
    @example("left/frequency.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '''    ")
    @example("left/source.indices.npy", array_bytes(np.int32(0)))
    @example("pairs/train_left.npy", array_bytes(np.int32(0)))
    @example("left/frequency.npy", header_bytes("<i4", (2**63 - 1,), False, (1, 0)))
    def check(name, damage):
        if isinstance(damage, tuple):
            if not name.endswith(".npy"):
                return
            values = np.load(io.BytesIO(whole[name])).copy()
            values[damage[0] % len(values)] = damage[1]
            data = array_bytes(values)
        else:
            data = damage if isinstance(damage, bytes) else changed(whole[name], damage)
        sealed(folder, name, data)
        opens_or_is_refused(folder)
        sealed(folder, name, whole[name])

    check()


def test_a_corpus_reads_nothing_outside_its_folder(folder, tmp_path):
    """Neither by a name in its manifest nor by a symbolic link to other bytes."""
    manifest = json.loads((folder / shards.MANIFEST).read_text())
    shutil.copytree(folder / "left", tmp_path / "elsewhere")
    text = (folder / shards.MANIFEST).read_text()
    for name in ("../elsewhere/x", str(tmp_path / "elsewhere" / "x")):
        features = manifest["sides"]["left"]["features"]
        changed_text = text.replace(f'"name": "{features[0]["name"]}"', f'"name": "{name}"')
        assert changed_text != text
        (folder / shards.MANIFEST).write_text(changed_text)
        assert "should match pattern" in str(outcome(shards.open_corpus, folder))
    (folder / shards.MANIFEST).write_text(text)
    (folder / "left" / "frequency.npy").unlink()
    (folder / "left" / "frequency.npy").symlink_to("/etc/hostname")
    assert isinstance(outcome(shards.open_corpus, folder), Refused)
    (folder / "left" / "frequency.npy").unlink()
    (folder / "left" / "frequency.npy").symlink_to("/dev/zero")
    assert "missing" in str(outcome(shards.open_corpus, folder))


def test_an_array_cannot_run_code(folder, tmp_path):
    class Payload:
        def __reduce__(self):
            return Path.touch, (tmp_path / "pwned",)

    file = io.BytesIO()
    np.save(file, np.array([Payload()], dtype=object), allow_pickle=True)
    sealed(folder, "left/frequency.npy", file.getvalue())
    code, _, error = command("train", "--config", CONFIG, "--set", f"data.path={folder}", "--dry-run")
    assert code == 2 and "left/frequency.npy" in error
    assert not (tmp_path / "pwned").exists()
