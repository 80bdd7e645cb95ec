"""What a split corpus holds, as arrays and tables by name: its hash, its manifest entries, and its files.

Arrays are read in pieces, so that the pairs of one split, which are a masked column of the corpus, are never
copied as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramrun.base.files import recorded
from gramrun.data.corpus import Corpus, Side

_PIECE = 1 << 22  # values at once


@dataclass(frozen=True)
class Column:
    """A one-dimensional array, or the values that a mask selects, read piece by piece."""

    values: np.ndarray
    mask: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values) if self.mask is None else int(np.count_nonzero(self.mask))

    def array(self) -> np.ndarray:
        """The whole column."""
        return self.values if self.mask is None else self.values[self.mask]

    def pieces(self) -> Iterator[np.ndarray]:
        """Contiguous arrays whose concatenation is the column."""
        for start in range(0, len(self.values), _PIECE):
            piece = self.values[start : start + _PIECE]
            if self.mask is not None:
                piece = piece[self.mask[start : start + _PIECE]]
            yield np.ascontiguousarray(piece)


def columns_of(corpus: Corpus, in_validation: np.ndarray) -> dict[str, Column]:
    """Every array of a split corpus, by file name, in the order of names.

    Args:
        corpus: the corpus.
        in_validation: bool, shape (n,). True for validation pairs.
    """
    pairs = {"left": corpus.pair_left, "right": corpus.pair_right}
    if corpus.target is not None:
        pairs["target"] = corpus.target
    in_train = ~in_validation
    columns = {
        f"pairs/{split}_{name}.npy": Column(values, mask)
        for split, mask in (("train", in_train), ("validation", in_validation))
        for name, values in pairs.items()
    }
    for name, side in (("left", corpus.left), ("right", corpus.right)):
        columns[f"{name}/frequency.npy"] = Column(_frequency(columns[f"pairs/train_{name}.npy"], side.items))
        for feature in side.features:
            columns[f"{name}/{feature.name}.offsets.npy"] = Column(feature.offsets)
            columns[f"{name}/{feature.name}.indices.npy"] = Column(feature.indices)
    return dict(sorted(columns.items()))


def _frequency(column: Column, items: int) -> np.ndarray:
    """How often each of 0 … items − 1 occurs: int32, shape (items,)."""
    counts = np.zeros(items, dtype=np.int64)
    for piece in column.pieces():
        counts += np.bincount(piece, minlength=items)
    return counts.astype(np.int32)


def describe(corpus: Corpus, in_validation: np.ndarray) -> dict[str, Any]:
    """The manifest's entries about the corpus itself: name, sizes, counts, sides and vocabularies."""
    validation_pairs = int(np.count_nonzero(in_validation))
    return {
        "name": corpus.name,
        "corpus": {
            "left_items": corpus.left.items,
            "right_items": corpus.right.items,
            "pairs": len(corpus.pair_left),
            "train_pairs": len(in_validation) - validation_pairs,
            "validation_pairs": validation_pairs,
            **corpus.summary,
        },
        "counts": dict(corpus.counts),
        "sides": {"left": _describe_side(corpus.left), "right": _describe_side(corpus.right)},
        "vocabularies": {name: len(frame) for name, frame in corpus.vocabularies.items()},
    }


def _describe_side(side: Side) -> dict[str, Any]:
    features = [{"name": f.name, "vocabulary": f.vocabulary} for f in side.features]
    return {"item": side.item, "items": side.items, "features": features}


def content_hash(columns: Mapping[str, Column], vocabularies: Mapping[str, pd.DataFrame]) -> str:
    """The SHA-256 over names, dtypes, shapes and values, as 64 hex digits; no file format enters.

    Args:
        columns: as `columns_of` returns them.
        vocabularies: the frames by name.
    """
    content = hashlib.sha256()
    for name, column in columns.items():
        content.update(f"{name} {column.values.dtype.str} {(len(column),)}\n".encode())
        for piece in column.pieces():
            content.update(_bytes(piece))
    for name, frame in sorted(vocabularies.items()):
        content.update(f"{name}\n{frame.to_csv(index=False, lineterminator=chr(10))}".encode())
    return content.hexdigest()


def write_content(
    folder: Path, columns: Mapping[str, Column], vocabularies: Mapping[str, pd.DataFrame]
) -> dict[str, Any]:
    """Write arrays as ``.npy`` and vocabularies as Parquet.

    Args:
        folder: an empty folder.
        columns: as `columns_of` returns them.
        vocabularies: the frames by name.

    Returns:
        Of each file its size in ``bytes`` and its ``sha256``.
    """
    for name in ("left", "pairs", "right", "vocabularies"):
        (folder / name).mkdir()
    for name, column in columns.items():
        with (folder / name).open("wb") as file:
            descr = np.lib.format.dtype_to_descr(column.values.dtype)
            header = {"descr": descr, "fortran_order": False, "shape": (len(column),)}
            np.lib.format.write_array_header_1_0(file, header)
            for piece in column.pieces():
                file.write(_bytes(piece))
    names = list(columns)
    for name, frame in sorted(vocabularies.items()):
        names.append(f"vocabularies/{name}.parquet")
        frame.to_parquet(folder / names[-1], index=False)
    return {name: recorded(folder / name) for name in names}


def _bytes(piece: np.ndarray) -> memoryview:
    return memoryview(piece.view(np.uint8))  # type: ignore[arg-type]
