"""Checks of a prepared corpus's manifest and arrays, before compiled code reads them.

Checksums only show that a folder is as it was written. A manifest that was edited could still name files
outside its folder, or arrays whose indices are out of range, and compiled loops do not check bounds.
"""

from __future__ import annotations

import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gramrun.base.errors import InputError
from gramrun.config.prepare import SplitBy
from gramrun.data.corpus import SplitCorpus

REMEDY = "prepare the corpus again with --force"
# What numpy raises for a file that is no array, whatever its header says.
UNREADABLE = (
    ValueError, OSError, EOFError, TypeError, LookupError, OverflowError, RecursionError, MemoryError,
    SyntaxError, tokenize.TokenError, FloatingPointError,
)  # fmt: skip


# No way out of the folder: a slash only after the name of one in it.
_File = Annotated[str, Field(pattern=r"^[a-z]+/[^/\\\x00]+$")]
_Name = Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True)  # "5" is no number; unknown keys may come from later versions


class _FileEntry(_Model):
    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: str


class _Feature(_Model):
    name: _Name
    vocabulary: _Name


class _Side(_Model):
    item: _Name
    items: _Count
    features: list[_Feature]


class _Sides(_Model):
    left: _Side
    right: _Side


class _Split(_Model):
    by: SplitBy
    fraction: float
    seed: int
    held_out_items: int | None = None


class _Manifest(_Model):
    name: str
    corpus: dict[str, int]
    counts: dict[str, int] = {}
    sides: _Sides
    vocabularies: dict[_Name, _Count]
    split: _Split | None = None  # older corpora do not say it; they are split by pairs
    content_hash: str
    origin: dict[str, Any]
    files: dict[_File, _FileEntry]


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Check that a manifest has all keys that are read, and names files of its own folder only.

    Raises:
        InputError: names the first key that is missing or wrong.
    """
    try:
        checked = _Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        problem = str(first["msg"]).removeprefix("Value error, ")
        raise InputError(f"{path}: damaged ({key}: {problem}); {REMEDY}") from None
    for side in (checked.sides.left, checked.sides.right):
        for name in (side.item, *(feature.vocabulary for feature in side.features)):
            if name not in checked.vocabularies:
                raise InputError(f"{path}: damaged (no vocabulary {name}); {REMEDY}")
        if checked.vocabularies[side.item] != side.items:
            raise InputError(f"{path}: damaged ({side.item}: items and vocabulary differ); {REMEDY}")


def load_array(path: Path) -> np.ndarray:
    """Memory-map one array copy-on-write, so that torch can share the memory without a copy.

    Raises:
        InputError: the file holds no one-dimensional array of numbers.
    """
    try:
        with np.errstate(over="raise"):  # a shape whose size in bytes overflows
            mapped = np.load(path, mmap_mode="c", allow_pickle=False)
    except UNREADABLE:
        mapped = None
    if not isinstance(mapped, np.ndarray) or mapped.ndim != 1:
        raise InputError(f"{path}: holds no array of numbers in one dimension; {REMEDY}")
    return mapped


def check_arrays(folder: Path, corpus: SplitCorpus) -> None:
    """Check the arrays of a prepared corpus against one another.

    Each feature has a bag for each item and only values of its vocabulary, pairs are of existing items, and
    frequencies count the training pairs.

    Raises:
        InputError: names the first array that is wrong.
    """
    splits = (("train", corpus.train), ("validation", corpus.validation))
    for split, pairs in splits:
        none_held_out = split == "validation" and corpus.manifest["corpus"].get("validation_pairs") == 0
        if not len(pairs) and not none_held_out:
            raise InputError(f"{folder}: holds no {split} pairs; {REMEDY}")
        if pairs.target is not None:
            file = folder / "pairs" / f"{split}_target.npy"
            _check(file, pairs.target, np.float32, len(pairs))
            if not np.isfinite(pairs.target).all():
                raise InputError(f"{file}: holds a number that is not finite; {REMEDY}")
    sides = (("left", corpus.left, corpus.left_frequency), ("right", corpus.right, corpus.right_frequency))
    for name, side, frequency in sides:
        for feature in side.features:
            file = folder / name / f"{feature.name}.offsets.npy"
            _check(file, feature.offsets, np.int64, side.items + 1)
            ascending = (feature.offsets[1:] >= feature.offsets[:-1]).all()
            if feature.offsets[0] != 0 or not ascending or feature.offsets[-1] != len(feature.indices):
                raise InputError(f"{file}: does not divide its indices into bags; {REMEDY}")
            file = folder / name / f"{feature.name}.indices.npy"
            _check(file, feature.indices, np.int32, len(feature.indices))
            _check_range(file, feature.indices, corpus.vocabulary_sizes[feature.vocabulary])
        for split, pairs in splits:
            file = folder / "pairs" / f"{split}_{name}.npy"
            values = getattr(pairs, name)
            _check(file, values, np.int32, len(pairs))
            _check_range(file, values, side.items)
        file = folder / name / "frequency.npy"
        _check(file, frequency, np.int32, side.items)
        if frequency.min(initial=0) < 0 or frequency.sum(dtype=np.int64) != len(corpus.train):
            raise InputError(f"{file}: does not count the training pairs; {REMEDY}")


def _check(file: Path, values: np.ndarray, dtype: type, length: int) -> None:
    if values.dtype != dtype or values.shape != (length,):
        found = f"{values.dtype} of shape {values.shape}"
        raise InputError(f"{file}: holds {found}, not {np.dtype(dtype)} of shape ({length},); {REMEDY}")


def _check_range(file: Path, values: np.ndarray, size: int) -> None:
    if len(values) and not (values.min() >= 0 and values.max() < size):
        raise InputError(f"{file}: holds an index outside of 0 … {size - 1:,}; {REMEDY}")
