"""A corpus: two sides of items with features, and the observed pairs between them.

Section 2.1 of the paper writes the pairs as T = {(x_i, y_i, s_i)}, i = 1..n: the left item, the right item
and the target similarity. Every reader (MovieLens, Wikipedia, atomic files, synthetic) returns a `Corpus`.
Training and evaluation take a `SplitCorpus`, from `gramrun.data.split.split_corpus` in memory or from
`gramrun.data.shards.open_corpus` on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramrun.base.compiled import compiled


@dataclass(frozen=True)
class Feature:
    """One bag of categorical values per item, in compressed sparse row (CSR) form.

    Attributes:
        name: the feature's name in the shards and in the towers, such as ``genres``.
        vocabulary: the name of the vocabulary that `indices` point into. Features with the same vocabulary
            share one embedding table, also across the two sides (paper, Section 4.1).
        offsets: int64, shape (items + 1,). Item j owns ``indices[offsets[j]:offsets[j + 1]]``.
        indices: int32, shape (offsets[-1],). Rows of the vocabulary. A missing value is an empty bag.
    """

    name: str
    vocabulary: str
    offsets: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True)
class Side:
    """The left or the right items.

    Attributes:
        item: the kind of item, such as ``user``; also the name of the vocabulary with its keys.
        items: the number of items.
        features: the features of these items, each with ``items + 1`` offsets.
    """

    item: str
    items: int
    features: tuple[Feature, ...]


@dataclass(frozen=True)
class Corpus:
    """Two sides, their vocabularies, and the distinct observed pairs in ascending order.

    Attributes:
        name: the corpus's name, such as ``movielens-1m``.
        left, right: the two sides.
        vocabularies: one frame per vocabulary; row r describes index r. The first column, ``key``, is
            the raw value (text); further columns are for display, such as ``title``.
        pair_left, pair_right: int32, shape (n,). Sorted by (left, right), without duplicates, so that
            nothing downstream depends on the order of rows in a file.
        target: float32, shape (n,), or None where every observed pair counts as 1.
        counts: the number of rows that the reader dropped or repaired, by reason; kept in the manifest.
        summary: further sizes for the manifest, such as those of the paper's table of corpora.
    """

    name: str
    left: Side
    right: Side
    vocabularies: Mapping[str, pd.DataFrame]
    pair_left: np.ndarray
    pair_right: np.ndarray
    target: np.ndarray | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    summary: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Assert the invariants. A failure is a bug in the reader, not bad input."""
        assert self.pair_left.dtype == np.int32 and self.pair_right.dtype == np.int32
        assert self.pair_left.shape == self.pair_right.shape and self.pair_left.ndim == 1
        assert self.target is None or (
            self.target.dtype == np.float32 and self.target.shape == self.pair_left.shape
        )
        for side, pairs in ((self.left, self.pair_left), (self.right, self.pair_right)):
            assert len(self.vocabularies[side.item]) == side.items
            assert not len(pairs) or (pairs.min() >= 0 and pairs.max() < side.items)
            for feature in side.features:
                size = len(self.vocabularies[feature.vocabulary])
                assert feature.offsets.dtype == np.int64 and feature.indices.dtype == np.int32
                assert len(feature.offsets) == side.items + 1
                assert feature.offsets[0] == 0 and feature.offsets[-1] == len(feature.indices)
                assert not len(feature.indices) or (
                    feature.indices.min() >= 0 and feature.indices.max() < size
                )
        assert _are_ascending(self.pair_left, self.pair_right), "pairs must be sorted and distinct"


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split.

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
class SplitCorpus:
    """A corpus with its training and validation pairs: in memory, or memory-mapped from shards.

    Attributes:
        left, right: the two sides.
        train, validation: the pairs of each split.
        left_frequency, right_frequency: int32, shape (items,). Training pairs of each item.
        vocabularies: as in `Corpus`; a corpus on disk reads a frame at each access.
        vocabulary_sizes: rows of each vocabulary.
        manifest: the content of ``manifest.json``; a corpus in memory has the same keys and no files.
        path: the folder of the shards; None for a corpus in memory.
    """

    left: Side
    right: Side
    train: Pairs
    validation: Pairs
    left_frequency: np.ndarray
    right_frequency: np.ndarray
    vocabularies: Mapping[str, pd.DataFrame]
    vocabulary_sizes: Mapping[str, int]
    manifest: Mapping[str, Any]
    path: Path | None = None

    @property
    def name(self) -> str:
        """The corpus's name, such as ``movielens-1m``."""
        return str(self.manifest["name"])

    @property
    def content_hash(self) -> str:
        """A SHA-256 over all names, dtypes, shapes and values: equal corpora have equal hashes."""
        return str(self.manifest["content_hash"])

    @property
    def place(self) -> str:
        """The folder, or the name of a corpus in memory; for messages."""
        return str(self.path or self.name)

    def pairs(self, split: str) -> Pairs:
        """The pairs of ``train`` or ``validation``."""
        return {"train": self.train, "validation": self.validation}[split]


@compiled
def _are_ascending(left: np.ndarray, right: np.ndarray) -> bool:
    for i in range(1, len(left)):
        if left[i] < left[i - 1] or (left[i] == left[i - 1] and right[i] <= right[i - 1]):
            return False
    return True


def one_hot(name: str, vocabulary: str, indices: np.ndarray) -> Feature:
    """Make a feature with exactly one value per item, such as its own id.

    Args:
        name: the feature's name.
        vocabulary: the vocabulary that the values index.
        indices: integers, shape (items,).
    """
    return Feature(name, vocabulary, np.arange(len(indices) + 1, dtype=np.int64), indices.astype(np.int32))


def bags(name: str, vocabulary: str, values: list[list[int]]) -> Feature:
    """Make a feature from one list of vocabulary indices per item; lists may be empty."""
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    indices = np.fromiter((i for v in values for i in v), dtype=np.int32, count=int(offsets[-1]))
    return Feature(name, vocabulary, offsets, indices)
