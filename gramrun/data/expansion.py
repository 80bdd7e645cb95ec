"""Large corpora from real ones: the randomized fractal expansion, a stochastic Kronecker product.

    R̃ = Ũ Σ Ṽᵀ,    R̂ = R̃ᵃ ⊗ … ⊗ R̃ᵃ,    P[((p, i), (q, j)) is a pair] = R̂_pq R_ij

R is the base's 0/1 matrix. Item (p, i) is copy p of item i and has the number p·N + i, where the base has N
items on that side. Σ has the largest singular values of R; Ũ and Ṽ are its singular vectors, averaged over
groups of consecutive items and made orthonormal. R̃ is rescaled to [0, 1] and raised elementwise to the
power a that gives the wanted number of pairs. The expected 0/1 matrix is the Kronecker product R̂ ⊗ R, whose
singular values are all products of one of each factor.

Reference: F. Belletti, K. Lakshmanan, W. Krichene, Y.-F. Chen and J. Anderson, "Scalable Realistic
Recommendation Datasets through Fractal Expansions", arXiv 1901.08910 (equation 2, algorithm 1), and "Scaling
Up Collaborative Filtering Data Sets through Randomized Fractal Expansions", arXiv 1905.09874. Departures: the
power a; several levels (the Kronecker powers), for many blocks from few singular vectors; blocks are not
shuffled; and where both sides are one set of items (pages), both directions of a link share one draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.base.mapped import mapped_array
from gramrun.data.corpus import Corpus, Feature, Side, one_hot
from gramrun.data.split import SEEDS, splitmix64

_BITS = 53  # of a draw: a probability of exactly 1 has the threshold 2^53, which no draw reaches


@dataclass(frozen=True)
class Expansion:
    """The size of an expansion; with the base it determines every pair.

    Attributes:
        left_blocks, right_blocks: the shape of R̃.
        levels: L, the number of Kronecker factors of R̂; there are left_blocks^L copies of each left item.
        pairs: the expected number of pairs.
        seed: of the draws, below 2^32.
    """

    left_blocks: int
    right_blocks: int
    levels: int
    pairs: int
    seed: int = 0

    @property
    def copies(self) -> tuple[int, int]:
        """The shape of R̂: the copies of each left and of each right item."""
        return self.left_blocks**self.levels, self.right_blocks**self.levels


# The base, by default, and the size: of simple, French and English Wikipedia (paper, Section 4.1), and of
# MovieLens 10M.
PRESETS = {
    "simple-scale": ("enwik8", Expansion(10, 10, 1, 4_600_000)),
    "fr-scale": ("enwik8", Expansion(6, 6, 3, 142_000_000)),
    "en-scale": ("enwik8", Expansion(25, 25, 2, 490_000_000)),
    "movielens-expanded": ("movielens-1m", Expansion(12, 3, 1, 10_000_000)),
}


def expand(
    name: str,
    base: Corpus,
    expansion: Expansion,
    on_pairs: Callable[[int], object] = lambda pairs: None,
    folder: Path | None = None,
) -> Corpus:
    """Expand a corpus.

    Args:
        name: of the new corpus.
        base: the corpus to expand. Features with its items' own vocabulary are their ids.
        expansion: the size.
        on_pairs: called after each left block with its number of pairs.
        folder: where to keep the pairs, in unnamed files (`mapped_array`); None for memory.

    Returns:
        The corpus. The id of item (p, i) is its own; a bag of every other feature has the values of i and one
        value for p, with the key ``ITEM block p``. Targets are the base's.

    Raises:
        InputError: the base has too few items or pairs for the expansion, or too many.
        RunError: the folder has no room for the pairs.
    """
    probabilities = block_probabilities(base, expansion)
    pair_left, pair_right, target = draw_pairs(base, probabilities, expansion.seed, on_pairs, folder)
    vocabularies = dict(base.vocabularies)
    left_copies, right_copies = expansion.copies
    left = right = _expanded_side(base.left, left_copies, vocabularies)
    if not _is_one_set(base):
        right = _expanded_side(base.right, right_copies, vocabularies)
    sizes = {"pages": left.items, "links": len(pair_left)}
    for size, vocabulary in (("ngrams", "ngram"), ("categories", "category")):
        if vocabulary in vocabularies:
            sizes[size] = len(vocabularies[vocabulary])
    return Corpus(
        name=name,
        left=left,
        right=right,
        vocabularies=vocabularies,
        pair_left=pair_left,
        pair_right=pair_right,
        target=target,
        counts={"base_pairs": len(base.pair_left), "blocks": left_copies * right_copies},
        summary={key: sizes.get(key, size) for key, size in base.summary.items()},
    )


def _is_one_set(corpus: Corpus) -> bool:
    return corpus.left.item == corpus.right.item


def block_probabilities(base: Corpus, expansion: Expansion) -> np.ndarray:
    """R̂, the probability that a pair of the base is kept in block (p, q): float64, one row per left copy.

    Raises:
        InputError: no such matrix exists.
    """
    blocks = m, n = expansion.left_blocks, expansion.right_blocks
    shape = base.left.items, base.right.items
    size = f"expansion of {base.name} to {m} × {n} blocks, level {expansion.levels}"
    remedy = "change one of them with --set expansion.KEY=VALUE"
    if _is_one_set(base) and m != n:
        raise InputError(f"{size}: its pages need left_blocks equal to right_blocks; {remedy}")
    if m > shape[0] or n > shape[1] or min(blocks) >= min(shape):
        raise InputError(f"{size}: it has {shape[0]:,} left and {shape[1]:,} right items only; {remedy}")
    if max(copies * items for copies, items in zip(expansion.copies, shape, strict=True)) >= 2**31:
        raise InputError(f"{size}: makes 2^31 items or more; {remedy}")
    reduced = reduced_matrix(base.pair_left, base.pair_right, shape, blocks)
    ones = np.count_nonzero(reduced == 1)
    least, candidates = (len(base.pair_left) * count**expansion.levels for count in (ones, m * n))
    if not least <= expansion.pairs <= candidates:
        raise InputError(
            f"{size}: can have {least:,} to {candidates:,} pairs, not {expansion.pairs:,}; {remedy}"
        )
    mean = max((expansion.pairs / candidates) ** (1 / expansion.levels), ones / (m * n))  # but for rounding
    return reduce(np.kron, [with_mean(reduced, mean)] * expansion.levels)


def reduced_matrix(
    left: np.ndarray, right: np.ndarray, shape: tuple[int, int], blocks: tuple[int, int]
) -> np.ndarray:
    """R̃, rescaled to [0, 1].

    No signs need fixing: the orthonormal factor of U D is that of U times D for every diagonal D of signs, so
    the signs of a pair of singular vectors cancel.

    Args:
        left: integers, shape (pairs,). The left items of the base's pairs.
        right: their right items.
        shape: the base's left and right items.
        blocks: m and n, below the number of items.

    Returns:
        float64, shape (m, n).
    """
    import scipy.sparse.linalg  # a quarter of a second, which no other corpus needs

    matrix = scipy.sparse.csr_array((np.ones(len(left)), (left, right)), shape=shape)
    start = np.random.default_rng(0).random(min(shape))
    u, singular_values, vt = scipy.sparse.linalg.svds(matrix, k=min(blocks), v0=start)
    reduced = _resized(u, blocks[0]) * singular_values @ _resized(vt.T, blocks[1]).T
    low, high = reduced.min(), reduced.max()
    scaled = (reduced - low) / (high - low) if high > low else np.ones(blocks)
    scaled[scaled > 1 - 1e-9] = 1  # where all links are mutual, the largest value has a twin but for rounding
    return scaled


def _resized(vectors: np.ndarray, groups: int) -> np.ndarray:
    """The orthonormal matrix nearest to the means of the rows over groups of consecutive items."""
    starts = np.arange(groups) * len(vectors) // groups
    sizes = np.diff([*starts, len(vectors)])
    means = np.add.reduceat(vectors, starts) / sizes[:, None]
    u, _, vt = np.linalg.svd(means, full_matrices=False)
    return np.asarray(u @ vt)


def with_mean(matrix: np.ndarray, mean: float) -> np.ndarray:
    """Raise a matrix of values in [0, 1] elementwise to the power that gives it this mean.

    Args:
        matrix: float64, with at least one 1.
        mean: from the share of ones in the matrix to 1.
    """
    highest = 1.0
    while np.mean(matrix**highest) > mean and highest < 2**40:
        highest *= 2
    import scipy.optimize  # as above

    power = scipy.optimize.brentq(lambda a: np.mean(matrix**a) - mean, 0, highest, xtol=1e-13)
    return np.asarray(matrix**power)


def draw_pairs(
    base: Corpus,
    probabilities: np.ndarray,
    seed: int,
    on_pairs: Callable[[int], object] = lambda pairs: None,
    folder: Path | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Draw the pairs of the expansion, in ascending order of (left, right).

    The draw of a pair is a hash of the seed and of its two items. Where both sides are one set of items, the
    hash takes these in ascending order, so that a link and its reverse share one draw.

    Args:
        base: the corpus to expand.
        probabilities: float64, shape (m, n). Of keeping a pair in each block.
        seed: below 2^32.
        on_pairs: called after each left block with its number of pairs.
        folder: where to keep the pairs, in unnamed files; None for memory.

    Returns:
        Left and right items, int32, and targets, float32 or None, each of shape (n,).
    """
    expected = probabilities.sum() * len(base.pair_left)
    capacity = int(expected + 20 * np.sqrt(expected) + 20)  # more than 14 standard deviations above

    def column(size: int, dtype: DTypeLike) -> np.ndarray:
        return np.empty(size, dtype) if folder is None or not size else mapped_array((size,), dtype, folder)

    left, right = column(capacity, np.int32), column(capacity, np.int32)
    targets = base.target if base.target is not None else np.empty(0, dtype=np.float32)
    target = column(capacity if len(targets) else 0, np.float32)
    offsets = np.searchsorted(base.pair_left, np.arange(base.left.items + 1))
    mixed_seed = np.uint64(splitmix64(np.uint64(2 * SEEDS + seed)))  # no split has such a seed
    kept = 0
    for block, row in enumerate(np.ldexp(probabilities, _BITS).astype(np.uint64)):
        before = kept
        kept = _draw_block(
            offsets, base.pair_right, targets, base.right.items, _is_one_set(base), block, row, mixed_seed,
            kept, left, right, target,
        )  # fmt: skip
        assert kept < capacity  # `_draw_block` drops what goes beyond
        on_pairs(kept - before)
    return left[:kept], right[:kept], target[:kept] if len(targets) else None


@compiled
def _draw_block(
    offsets: np.ndarray,
    columns: np.ndarray,
    targets: np.ndarray,
    right_items: int,
    same_items: bool,
    block: int,
    thresholds: np.ndarray,
    mixed_seed: np.uint64,
    kept: int,
    left: np.ndarray,
    right: np.ndarray,
    target: np.ndarray,
) -> int:
    """Append the pairs of one left block from position `kept`; return the position after them."""
    capacity = len(left)
    left_items = len(offsets) - 1
    for i in range(left_items):
        x = np.uint64(block * left_items + i)
        for q in range(len(thresholds)):
            threshold = thresholds[q]
            for pair in range(offsets[i], offsets[i + 1]):
                y = np.uint64(q * right_items + columns[pair])
                low, high = (min(x, y), max(x, y)) if same_items else (x, y)
                draw = splitmix64((low << np.uint64(32) | high) ^ mixed_seed) >> np.uint64(11)
                if draw < threshold and kept < capacity:
                    left[kept] = x
                    right[kept] = y
                    if len(targets):
                        target[kept] = targets[pair]
                    kept += 1
    return kept


def _expanded_side(side: Side, blocks: int, vocabularies: dict[str, pd.DataFrame]) -> Side:
    """The copies of a side's items; extends the vocabularies that it uses."""
    vocabularies[side.item] = _expanded_items(vocabularies[side.item], blocks)
    features = []
    first_rows: dict[str, int] = {}
    for feature in side.features:
        if feature.vocabulary == side.item:
            features.append(one_hot(feature.name, side.item, np.arange(blocks * side.items)))
            continue
        if feature.vocabulary not in first_rows:
            frame = vocabularies[feature.vocabulary]
            first_rows[feature.vocabulary] = len(frame)
            names = pd.DataFrame({"key": [f"{side.item} block {p}" for p in range(blocks)]})
            names["key"] = names["key"].astype(frame["key"].dtype)
            vocabularies[feature.vocabulary] = pd.concat([frame, names], ignore_index=True)
        features.append(_expanded_feature(feature, blocks, first_rows[feature.vocabulary]))
    return Side(side.item, blocks * side.items, tuple(features))


def _expanded_items(frame: pd.DataFrame, blocks: int) -> pd.DataFrame:
    """The frame of the items' copies: keys such as ``Anarchism (block 3)``, other columns repeated."""
    keys = pa.array(frame["key"].astype(str), pa.string())
    copies = [pc.binary_join_element_wise(keys, f"(block {p})", " ") for p in range(blocks)]
    expanded = frame.iloc[np.tile(np.arange(len(frame)), blocks)].reset_index(drop=True)
    expanded["key"] = pd.arrays.ArrowExtensionArray(pa.chunked_array(copies))
    return expanded


def _expanded_feature(feature: Feature, blocks: int, first_row: int) -> Feature:
    """The bags of item (p, i): the values of i, and the row ``first_row + p``."""
    items = len(feature.offsets) - 1
    ends = feature.offsets[1:] + np.arange(items)  # where the last value of each bag goes
    length = len(feature.indices) + items
    indices = np.empty((blocks, length), dtype=np.int32)
    of_item = np.ones(length, dtype=bool)
    of_item[ends] = False
    indices[:, of_item] = feature.indices
    indices[:, ends] = first_row + np.arange(blocks)[:, None]
    offsets = np.append(
        (np.arange(blocks)[:, None] * length + np.append(0, ends[:-1] + 1)).ravel(), blocks * length
    )
    return Feature(feature.name, feature.vocabulary, offsets.astype(np.int64), indices.ravel())
