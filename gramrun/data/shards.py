"""Feature shards: a prepared corpus on disk, written once, memory-mapped, verified.

    manifest.json                       what, from what, how, the SHA-256 of every file, and its own checksum
    pairs/{train,validation}_{left,right,target}.npy    int32, int32, float32 (target optional)
    left/frequency.npy                  int32 (items,): training pairs of each left item; right/ likewise
    left/<feature>.offsets.npy          int64 (items + 1,), CSR per item, not per pair
    left/<feature>.indices.npy          int32
    vocabularies/<name>.parquet         row r describes index r; column ``key`` is the raw value

A folder appears whole or not at all. `open_corpus` verifies every checksum before anything is used, so a
damaged or half-copied shard is refused by name. That is a reading of every byte, which training does anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramrun.base.errors import InputError
from gramrun.base.files import check_recorded, new_folder, read_json, write_json
from gramrun.base.schema import check_schema
from gramrun.data.content import ContentWriter, Pieces
from gramrun.data.corpus import Corpus, Feature, Side
from gramrun.data.manifest import REMEDY, UNREADABLE, check_manifest, check_pairs, check_sides, load_array
from gramrun.data.sparse_rows import count_values
from gramrun.data.split import split_corpus

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"

_THREADS = 4  # that compute checksums; they do not hold Python's lock


@dataclass(frozen=True)
class Pairs:
    """One split's pairs.

    Attributes:
        left, right: int32, shape (n,). Sorted by (left, right).
        target: float32, shape (n,), or None where every pair counts as 1.
    """

    left: np.ndarray
    right: np.ndarray
    target: np.ndarray | None

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus opened from its shards; arrays are memory-mapped copy-on-write.

    Attributes:
        path: the folder.
        manifest: the parsed ``manifest.json``.
        left, right: the sides with their CSR features.
        vocabulary_sizes: rows of each vocabulary.
        train, validation: the pairs of each split.
        left_frequency, right_frequency: int32, shape (items,). Training pairs of each item.
    """

    path: Path
    manifest: Mapping[str, Any]
    left: Side
    right: Side
    vocabulary_sizes: Mapping[str, int]
    train: Pairs
    validation: Pairs
    left_frequency: np.ndarray
    right_frequency: np.ndarray

    @property
    def name(self) -> str:
        """The corpus's name, such as ``movielens-1m``."""
        return str(self.manifest["name"])

    @property
    def content_hash(self) -> str:
        """A hash of all shards' contents: equal corpora have equal hashes on every machine."""
        return str(self.manifest["content_hash"])

    def pairs(self, split: str) -> Pairs:
        """The pairs of ``train`` or ``validation``."""
        return {"train": self.train, "validation": self.validation}[split]

    def vocabulary(self, name: str) -> pd.DataFrame:
        """Read one vocabulary; its first column is ``key``.

        Raises:
            InputError: the file does not hold it.
        """
        file = self.path / "vocabularies" / f"{name}.parquet"
        try:
            frame = pd.read_parquet(file)
        except UNREADABLE:
            frame = pd.DataFrame()
        if "key" not in frame or len(frame) != self.vocabulary_sizes.get(name):
            raise InputError(f"{file}: does not hold the vocabulary; {REMEDY}")
        return frame


def write_corpus(
    corpus: Corpus,
    folder: Path,
    *,
    validation_fraction: float,
    split_seed: int,
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    """Split a corpus and write its shards, replacing `folder`.

    Args:
        corpus: what to write.
        folder: where; it appears whole or not at all.
        validation_fraction: the expected share of validation pairs.
        split_seed: of the split.
        origin: provenance for the manifest (source, input checksums, config, parser version); it must
            hold a ``fingerprint`` that changes when any of them does.

    Returns:
        The manifest.

    Raises:
        InputError: when a split would be empty.
        RunError: when the folder cannot be written.
    """
    in_validation = split_corpus(corpus, validation_fraction, split_seed)
    with new_folder(folder) as temporary:
        content, files = _write_files(corpus, in_validation, temporary)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "name": corpus.name,
            "corpus": {
                "left_items": corpus.left.items,
                "right_items": corpus.right.items,
                "pairs": len(corpus.pair_left),
                "train_pairs": int(len(in_validation) - np.count_nonzero(in_validation)),
                "validation_pairs": int(np.count_nonzero(in_validation)),
                **corpus.summary,
            },
            "counts": dict(corpus.counts),
            "sides": {"left": _describe_side(corpus.left), "right": _describe_side(corpus.right)},
            "vocabularies": {name: len(frame) for name, frame in corpus.vocabularies.items()},
            "content_hash": content,
            "origin": dict(origin),
            "files": files,
        }
        write_json(temporary / MANIFEST, manifest)
    return manifest


def _write_files(corpus: Corpus, in_validation: np.ndarray, folder: Path) -> tuple[str, dict[str, Any]]:
    """Write everything but the manifest; return the hash of the contents, and size and SHA-256 by file."""
    for name in ("left", "pairs", "right", "vocabularies"):
        (folder / name).mkdir()
    tables = sorted(corpus.vocabularies.items())
    with ContentWriter(folder) as writer, ThreadPoolExecutor(1) as pool:
        texts = [pool.submit(_csv, frame) for _, frame in tables]
        for name, array in sorted(_arrays(corpus, in_validation).items()):
            writer.array(name, array)
        for (name, frame), text in zip(tables, texts, strict=True):
            writer.table(name, frame, text.result())
        return writer.content_hash(), writer.files


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _arrays(corpus: Corpus, in_validation: np.ndarray) -> dict[str, Pieces]:
    """Each array, by file name."""
    arrays = {}
    columns = {"left": corpus.pair_left, "right": corpus.pair_right}
    if corpus.target is not None:
        columns["target"] = corpus.target
    in_train = ~in_validation
    for split, chosen in (("train", in_train), ("validation", in_validation)):
        for name, values in columns.items():
            arrays[f"pairs/{split}_{name}.npy"] = Pieces.of(values, chosen)
    for name, side in (("left", corpus.left), ("right", corpus.right)):
        frequency = count_values(columns[name], side.items, in_train)
        arrays[f"{name}/frequency.npy"] = Pieces.of(frequency.astype(np.int32))
        for feature in side.features:
            arrays[f"{name}/{feature.name}.offsets.npy"] = Pieces.of(feature.offsets)
            arrays[f"{name}/{feature.name}.indices.npy"] = Pieces.of(feature.indices)
    return arrays


def _describe_side(side: Side) -> dict[str, Any]:
    return {
        "item": side.item,
        "items": side.items,
        "features": [{"name": f.name, "vocabulary": f.vocabulary} for f in side.features],
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a prepared corpus's manifest.

    Raises:
        InputError: when there is none, it is damaged, or another schema version wrote it.
    """
    path = folder / MANIFEST
    remedy = "run `gramrun prepare CORPUS --output DIR` first"
    if not folder.is_dir():
        raise InputError(f"{folder}: no prepared corpus here; {remedy}")
    if not path.is_file():
        raise InputError(f"{folder}: not a prepared corpus (no {MANIFEST}); {remedy}")
    manifest = read_json(path, REMEDY)
    if "schema_version" not in manifest:
        raise InputError(f"{path}: damaged (no schema_version); {REMEDY}")
    remedy = f"make it again with `{_command(folder, manifest)}`"
    check_schema(path, manifest["schema_version"], SCHEMA_VERSION, remedy)
    check_manifest(path, manifest)
    return manifest


def _command(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The command that makes a prepared corpus again: the one that made it, if a command did."""
    origin = manifest.get("origin")
    made = str(origin.get("command")) if isinstance(origin, Mapping) else ""
    _, command, arguments = made.partition(" prepare ")
    if not command:
        arguments = f"{manifest.get('name', 'CORPUS')} --output {folder}"
    return f"gramrun prepare {arguments} --force"


def verify(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check the size and SHA-256 of every file that the manifest lists.

    Raises:
        InputError: naming the first file that is missing, cut short or changed.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        checks = [
            pool.submit(check_recorded, folder / name, expected, REMEDY)
            for name, expected in manifest["files"].items()
        ]
        for check in checks:
            check.result()


def open_corpus(folder: Path) -> PreparedCorpus:
    """Verify and memory-map a prepared corpus.

    Raises:
        InputError: when the folder is no prepared corpus, a file in it is missing or damaged, or the folder
            was replaced meanwhile.
    """
    manifest = read_manifest(folder)
    try:
        verify(folder, manifest)
        corpus = _mapped(folder, manifest)
    except InputError:
        _check_is_there_still(folder, manifest)
        raise
    _check_is_there_still(folder, manifest)
    return corpus


def _check_is_there_still(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Folders are replaced whole: with this manifest there still, no file was of another corpus."""
    try:
        unchanged = read_manifest(folder) == manifest
    except InputError:  # between two names
        unchanged = False
    if not unchanged:
        raise InputError(f"{folder}: was replaced while it was read; give the command again") from None


def _mapped(folder: Path, manifest: Mapping[str, Any]) -> PreparedCorpus:
    """A verified corpus, its arrays memory-mapped and checked against one another."""

    def array(name: str) -> np.ndarray:
        if name not in manifest["files"]:
            raise InputError(f"{folder / MANIFEST}: damaged (no {name}); {REMEDY}")
        return load_array(folder / name)

    def side(name: str) -> Side:
        description = manifest["sides"][name]
        features = tuple(
            Feature(
                feature["name"],
                feature["vocabulary"],
                array(f"{name}/{feature['name']}.offsets.npy"),
                array(f"{name}/{feature['name']}.indices.npy"),
            )
            for feature in description["features"]
        )
        return Side(description["item"], description["items"], features)

    def pairs(split: str) -> Pairs:
        target = f"pairs/{split}_target.npy"
        return Pairs(
            array(f"pairs/{split}_left.npy"),
            array(f"pairs/{split}_right.npy"),
            array(target) if target in manifest["files"] else None,
        )

    corpus = PreparedCorpus(
        path=folder,
        manifest=manifest,
        left=side("left"),
        right=side("right"),
        vocabulary_sizes=manifest["vocabularies"],
        train=pairs("train"),
        validation=pairs("validation"),
        left_frequency=array("left/frequency.npy"),
        right_frequency=array("right/frequency.npy"),
    )
    splits = {"train": corpus.train, "validation": corpus.validation}
    frequencies, items = (
        (corpus.left_frequency, corpus.right_frequency),
        (corpus.left.items, corpus.right.items),
    )
    check_sides(folder, {"left": corpus.left, "right": corpus.right}, corpus.vocabulary_sizes)
    check_pairs(folder, splits, frequencies, items)
    return corpus
