"""A corpus in memory: two sides of items with features, and the observed pairs between them.

This is what every reader (MovieLens, atomic files, synthetic) returns and what `shards.write`
stores. In the paper's notation (Section 2.1) the pairs are T = {(x_i, y_i, s_i)}, i = 1..n: the left
item, the right item and the target similarity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gramrun.base.compiled import compiled


@dataclass(frozen=True)
class Feature:
    """One bag of categorical values per item, in compressed sparse row (CSR) form.

    Attributes:
        name: what it is called in the shards and in the towers, such as ``genres``.
        vocabulary: the name of the vocabulary that `indices` point into. Two features that name the
            same vocabulary share one embedding table, also across the two sides (paper, Section 4.1).
        offsets: int64, shape (items + 1,). Item j owns ``indices[offsets[j]:offsets[j + 1]]``.
        indices: int32, shape (offsets[-1],). Rows of the vocabulary. An item with a missing value
            owns an empty bag.
    """

    name: str
    vocabulary: str
    offsets: np.ndarray
    indices: np.ndarray


@dataclass(frozen=True)
class Side:
    """The left or the right items.

    Attributes:
        item: what one item is, such as ``user``; also the name of the vocabulary with its keys.
        items: how many there are.
        features: every feature of these items, each with ``items + 1`` offsets.
    """

    item: str
    items: int
    features: tuple[Feature, ...]


@dataclass(frozen=True)
class Corpus:
    """Two sides, their vocabularies, and the distinct observed pairs in ascending order.

    Attributes:
        name: the corpus, such as ``movielens-1m``.
        left, right: the two sides.
        vocabularies: one frame per vocabulary; row r describes index r. The first column, ``key``, is
            the raw value (text); further columns are for human eyes, such as ``title``.
        pair_left, pair_right: int32, shape (n,). Sorted by (left, right), without duplicates, so that
            nothing downstream depends on the order of rows in a file.
        target: float32, shape (n,), or None where every observed pair counts as 1.
        counts: what the reader dropped or mended, by name; reported and kept in the manifest.
        summary: sizes that the manifest has beside items and pairs, such as the paper's table of corpora.
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
        """Assert what every reader promises. A failure here is a bug in the reader, not bad input."""
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


@compiled
def _are_ascending(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether each pair is greater than the one before it."""
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
    """Make a feature from one list of vocabulary indices per item; empty lists are allowed."""
    lengths = np.fromiter((len(v) for v in values), dtype=np.int64, count=len(values))
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    indices = np.fromiter((i for v in values for i in v), dtype=np.int32, count=int(offsets[-1]))
    return Feature(name, vocabulary, offsets, indices)
