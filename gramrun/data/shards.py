"""Feature shards: a prepared corpus on disk, written once, memory-mapped, verified.

    manifest.json                       what, from what, how, the SHA-256 of every file, and its own checksum
    pairs/{train,validation}_{left,right,target}.npy    int32, int32, float32 (target optional)
    left/frequency.npy                  int32 (items,): training pairs of each left item; right/ likewise
    left/<feature>.offsets.npy          int64 (items + 1,), CSR per item, not per pair
    left/<feature>.indices.npy          int32
    vocabularies/<name>.parquet         row r describes index r; column ``key`` is the raw value

A folder appears whole or not at all. `open_corpus` verifies every checksum before it returns, so a damaged
or half-copied file is refused by name. This reads every byte once, which training does anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramrun.base.errors import InputError, quoted
from gramrun.base.files import check_recorded, check_schema, new_folder, read_json, write_json
from gramrun.config.prepare import SplitBy
from gramrun.data.content import columns_of, content_hash, describe, write_content
from gramrun.data.corpus import Corpus, Feature, Pairs, Side, SplitCorpus
from gramrun.data.manifest import REMEDY, UNREADABLE, check_arrays, check_manifest, load_array
from gramrun.data.split import divide, joined, joined_mask

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"

_THREADS = 4  # for checksums; hashlib releases Python's lock


@dataclass(frozen=True)
class _VocabularyFiles(Mapping[str, pd.DataFrame]):
    """The vocabularies of a prepared corpus; each access reads a Parquet file."""

    folder: Path
    sizes: Mapping[str, int]

    def __getitem__(self, name: str) -> pd.DataFrame:
        file = self.folder / "vocabularies" / f"{name}.parquet"
        rows = self.sizes[name]
        try:
            frame = pd.read_parquet(file)
        except UNREADABLE:
            frame = pd.DataFrame()
        if "key" not in frame or len(frame) != rows:
            raise InputError(f"{file}: does not hold the vocabulary; {REMEDY}")
        return frame

    def __iter__(self) -> Iterator[str]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)


def write_corpus(
    corpus: Corpus,
    folder: Path,
    *,
    validation_fraction: float,
    split_seed: int,
    split_by: SplitBy = "pairs",
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    """Split a corpus and write its shards, replacing `folder`.

    Args:
        corpus: the corpus.
        folder: the destination; it appears whole or not at all.
        validation_fraction: the expected share of validation pairs, or of held-out items.
        split_seed: of the split.
        split_by: what is held out.
        origin: provenance for the manifest (source, input checksums, config, parser version); its
            ``fingerprint`` changes when any of them does.

    Returns:
        The manifest.

    Raises:
        InputError: when a split would be empty.
        RunError: when the folder cannot be written.
    """
    division = divide(corpus, validation_fraction, split_seed, split_by)
    return _write(division.corpus, division.in_validation, division.manifest, folder, origin)


def write_split(split: SplitCorpus, folder: Path, *, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write the shards of a split corpus that is in memory, replacing `folder`; return the manifest.

    Raises:
        RunError: when the folder cannot be written.
    """
    return _write(joined(split), joined_mask(split), split.manifest["split"], folder, origin)


def _write(
    corpus: Corpus,
    in_validation: np.ndarray,
    split: Mapping[str, Any],
    folder: Path,
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    with new_folder(folder) as temporary:
        columns = columns_of(corpus, in_validation)
        files = write_content(temporary, columns, corpus.vocabularies)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            **describe(corpus, in_validation),
            "split": dict(split),
            "content_hash": content_hash(columns, corpus.vocabularies),
            "origin": dict(origin),
            "files": files,
        }
        write_json(temporary / MANIFEST, manifest)
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a prepared corpus's manifest.

    Raises:
        InputError: when there is none, it is damaged, or another schema version wrote it.
    """
    path = folder / MANIFEST
    if not path.is_file():
        remedy = "run `gramrun prepare CORPUS --output DIR` first"
        raise InputError(f"{folder}: no prepared corpus here (no {MANIFEST}); {remedy}")
    manifest = read_json(path, REMEDY)
    remedy = f"make it again with `{_command(folder, manifest)}`"
    check_schema(path, manifest.get("schema_version"), SCHEMA_VERSION, remedy)
    check_manifest(path, manifest)
    return manifest


def _command(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The command that makes a prepared corpus again: the one in its manifest, if a command made it."""
    origin = manifest.get("origin")
    made = str(origin.get("command")) if isinstance(origin, Mapping) else ""
    _, command, arguments = made.partition(" prepare ")
    if not command:
        arguments = f"{manifest.get('name', 'CORPUS')} --output {quoted(folder)}"
    return f"gramrun prepare {arguments} --force"


def verify(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check the size and SHA-256 of every file that the manifest lists.

    Raises:
        InputError: names the first file that is missing, cut short or changed.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        checks = [
            pool.submit(check_recorded, folder / name, expected, REMEDY)
            for name, expected in manifest["files"].items()
        ]
        for check in checks:
            check.result()


def open_corpus(folder: Path) -> SplitCorpus:
    """Verify and memory-map a prepared corpus.

    Raises:
        InputError: when the folder is no prepared corpus, a file in it is missing or damaged, or another
            process replaces the folder meanwhile.
    """
    manifest = read_manifest(folder)
    try:
        verify(folder, manifest)
        corpus = _mapped(folder, manifest)
        check_arrays(folder, corpus)
    except InputError:
        _check_unchanged(folder, manifest)
        raise
    _check_unchanged(folder, manifest)
    return corpus


def _check_unchanged(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Folders are replaced whole, so an unchanged manifest means that all files belong together."""
    try:
        unchanged = read_manifest(folder) == manifest
    except InputError:  # between the two renames of a replacement
        unchanged = False
    if not unchanged:
        raise InputError(f"{folder}: was replaced while it was read; give the command again") from None


def _mapped(folder: Path, manifest: Mapping[str, Any]) -> SplitCorpus:
    """Memory-map the arrays that the manifest lists."""

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

    return SplitCorpus(
        left=side("left"),
        right=side("right"),
        train=pairs("train"),
        validation=pairs("validation"),
        left_frequency=array("left/frequency.npy"),
        right_frequency=array("right/frequency.npy"),
        vocabularies=_VocabularyFiles(folder, manifest["vocabularies"]),
        vocabulary_sizes=manifest["vocabularies"],
        manifest=manifest,
        path=folder,
    )
