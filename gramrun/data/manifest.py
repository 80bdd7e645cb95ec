"""What the manifest and the arrays of a prepared corpus must be, checked before compiled code reads them.

Checksums say that a folder is as it was written; they do not say that what was written is a corpus. A
manifest that was edited, or made by other means, could name files elsewhere and arrays whose indices point
outside of others, and compiled loops do not look.
"""

from __future__ import annotations

import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Protocol

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gramrun.base.errors import InputError
from gramrun.data.corpus import Side

REMEDY = "prepare the corpus again with --force"
# What numpy raises for a file that is no array, whatever its header says.
UNREADABLE = (
    ValueError, OSError, EOFError, TypeError, LookupError, OverflowError, RecursionError, MemoryError,
    SyntaxError, tokenize.TokenError, FloatingPointError,
)  # fmt: skip


def _inside(name: str) -> str:
    """A file's name that cannot lead out of its folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise ValueError("is no name of a file in this folder")
    return name


def _plain(name: str) -> str:
    if "/" in name:
        raise ValueError("is no plain name")
    return _inside(name)


_File = Annotated[str, AfterValidator(_inside)]
_Name = Annotated[str, AfterValidator(_plain)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True)  # "5" is no number; further keys are those of later versions


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


class _Manifest(_Model):
    name: str
    corpus: dict[str, int]
    counts: dict[str, int] = {}
    sides: _Sides
    vocabularies: dict[_Name, _Count]
    content_hash: str
    origin: dict[str, Any]
    files: dict[_File, _FileEntry]


class _Pairs(Protocol):
    @property
    def left(self) -> np.ndarray: ...
    @property
    def right(self) -> np.ndarray: ...
    @property
    def target(self) -> np.ndarray | None: ...


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Check that a manifest has all that is read of it, and names files of its own folder only.

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
            raise InputError(f"{path}: damaged ({side.item}: as many items as keys are needed); {REMEDY}")


def load_array(path: Path) -> np.ndarray:
    """Memory-map one array copy-on-write, so that torch can share the memory without a copy.

    Raises:
        InputError: the file holds no list of plain numbers.
    """
    try:
        with np.errstate(over="raise"):  # a shape whose size in bytes is beyond all numbers
            mapped = np.load(path, mmap_mode="c", allow_pickle=False)
    except UNREADABLE:
        raise InputError(f"{path}: holds no array of numbers; {REMEDY}") from None
    if not isinstance(mapped, np.ndarray):
        raise InputError(f"{path}: holds no single array; {REMEDY}")
    if mapped.ndim != 1:  # a single number has no length
        raise InputError(f"{path}: holds {mapped.dtype} of shape {mapped.shape}, not a list; {REMEDY}")
    return mapped


def check_sides(folder: Path, sides: Mapping[str, Side], vocabulary_sizes: Mapping[str, int]) -> None:
    """Check that each feature has a bag for each item, and no value outside of its vocabulary.

    Args:
        folder: of the corpus, for messages.
        sides: ``left`` and ``right``.
        vocabulary_sizes: rows of each vocabulary.

    Raises:
        InputError: names the first array that is wrong.
    """
    for name, side in sides.items():
        for feature in side.features:
            file = folder / name / f"{feature.name}.offsets.npy"
            _check(file, feature.offsets, np.int64, side.items + 1)
            steps = feature.offsets[1:] >= feature.offsets[:-1]
            if feature.offsets[0] != 0 or not steps.all() or feature.offsets[-1] != len(feature.indices):
                raise InputError(f"{file}: does not divide its indices into bags; {REMEDY}")
            file = folder / name / f"{feature.name}.indices.npy"
            _check(file, feature.indices, np.int32, len(feature.indices))
            _check_range(file, feature.indices, vocabulary_sizes[feature.vocabulary])


def check_pairs(
    folder: Path, splits: Mapping[str, _Pairs], frequencies: Sequence[np.ndarray], items: tuple[int, int]
) -> None:
    """Check that all pairs are of items there are, and that frequencies count those of training.

    Args:
        folder: of the corpus, for messages.
        splits: ``train`` and ``validation``.
        frequencies: of the left and of the right items.
        items: how many left and right items there are.

    Raises:
        InputError: names the first array that is wrong.
    """
    for split, pairs in splits.items():
        for side, values, count in (("left", pairs.left, items[0]), ("right", pairs.right, items[1])):
            file = folder / "pairs" / f"{split}_{side}.npy"
            _check(file, values, np.int32, len(pairs.left))
            _check_range(file, values, count)
        if not len(pairs.left):
            raise InputError(f"{folder}: holds no {split} pairs; {REMEDY}")
        if pairs.target is not None:
            file = folder / "pairs" / f"{split}_target.npy"
            _check(file, pairs.target, np.float32, len(pairs.left))
            if not np.isfinite(pairs.target).all():
                raise InputError(f"{file}: holds what is no finite number; {REMEDY}")
    for side, frequency, count in zip(("left", "right"), frequencies, items, strict=True):
        file = folder / side / "frequency.npy"
        _check(file, frequency, np.int32, count)
        if frequency.min(initial=0) < 0 or frequency.sum(dtype=np.int64) != len(splits["train"].left):
            raise InputError(f"{file}: does not count the training pairs; {REMEDY}")


def _check(file: Path, values: np.ndarray, dtype: type, length: int) -> None:
    if values.dtype != dtype or values.shape != (length,):
        found = f"{values.dtype} of shape {values.shape}"
        raise InputError(f"{file}: holds {found}, not {np.dtype(dtype)} of shape ({length},); {REMEDY}")


def _check_range(file: Path, values: np.ndarray, size: int) -> None:
    if len(values) and not (values.min() >= 0 and values.max() < size):
        raise InputError(f"{file}: points outside of its {size:,} rows; {REMEDY}")
