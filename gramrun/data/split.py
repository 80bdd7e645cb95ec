"""The train/validation split: a hash of each pair decides, or a hash of one of its items.

    by pairs        (x, y) goes to validation if hash(seed, x, y) < fraction · 2^64
    by right-items  if hash(seed, y) < fraction · 2^64, so that y has no training pair; by left-items likewise

The decision depends on no other pair, on no row order and on no thread, and needs no sort. The validation
share is binomial around `fraction` (for a million pairs, ± 0.04 percentage points) instead of exact.

A held-out item occurs in no training pair, on either side. Where both sides are the same items, as in a wiki,
a held-out page therefore loses the links of its other direction too. They are dropped: as training pairs they
would train the page's rows through the other tower, and as validation pairs they would ask another question,
since neither of their ends would have been seen.

Hyper-parameters that were chosen on validation pairs fit these pairs. A *tuning corpus* avoids this: the
validation pairs are dropped (`without_validation`), and the training pairs are split once more under another
seed (`tuning_seed`), with the same items under the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.config.prepare import SplitBy
from gramrun.data.content import columns_of, content_hash, describe
from gramrun.data.corpus import Corpus, Pairs, SplitCorpus

SEEDS = 2**32  # seeds in configurations are below this


@dataclass(frozen=True)
class Division:
    """What a split makes of a corpus.

    Attributes:
        corpus: the corpus, without the pairs that belong to neither split.
        in_validation: bool, shape (its pairs,). True for validation pairs.
        manifest: the manifest's entry ``split``: ``by``, ``fraction`` and ``seed``; of a split by items also
            ``held_out_items``, the number of items that have only validation pairs.
    """

    corpus: Corpus
    in_validation: np.ndarray
    manifest: dict[str, Any]


def divide(corpus: Corpus, fraction: float, seed: int, by: SplitBy = "pairs") -> Division:
    """Decide which pairs are validation pairs.

    Args:
        corpus: the corpus.
        fraction: the expected share of validation pairs, or of held-out items, in (0, 1); or 0 for none.
        seed: of the split, below 2^64.
        by: what is held out.

    Raises:
        InputError: when a split would be empty.
    """
    manifest: dict[str, Any] = {"by": by, "fraction": fraction, "seed": seed}
    if not fraction:
        return Division(corpus, np.zeros(len(corpus.pair_left), dtype=np.bool_), manifest)
    if by == "pairs":
        in_validation = validation_mask(corpus.pair_left, corpus.pair_right, fraction, seed)
    else:
        right = by == "right-items"
        side, other = (corpus.right, corpus.left) if right else (corpus.left, corpus.right)
        held_out = held_out_mask(side.items, fraction, seed)
        if side.item == other.item:
            corpus = _without_pairs(
                corpus,
                held_out[corpus.pair_left if right else corpus.pair_right],
                "pairs_of_held_out_items_dropped",
            )
        items = corpus.pair_right if right else corpus.pair_left
        in_validation = held_out[items]
        manifest["held_out_items"] = len(np.unique(items[in_validation]))
    if in_validation.all() or not in_validation.any():
        share = "pairs" if by == "pairs" else by.replace("-", " ")
        raise InputError(
            f"{corpus.name}: {len(in_validation)} pairs are too few for a validation share of "
            f"{fraction:g} of its {share}; both splits need at least one pair"
        )
    return Division(corpus, in_validation, manifest)


def _without_pairs(corpus: Corpus, dropped: np.ndarray, count: str) -> Corpus:
    """Drop pairs; `count` names their number among the corpus's counts."""
    kept = ~dropped
    links = int(np.count_nonzero(kept))
    return replace(
        corpus,
        summary={name: links if name == "links" else size for name, size in corpus.summary.items()},
        pair_left=corpus.pair_left[kept],
        pair_right=corpus.pair_right[kept],
        target=None if corpus.target is None else corpus.target[kept],
        counts={**corpus.counts, count: corpus.counts.get(count, 0) + len(kept) - links},
    )


def split_corpus(corpus: Corpus, fraction: float, seed: int = 0, by: SplitBy = "pairs") -> SplitCorpus:
    """Split a corpus in memory, as `divide`; equal to what `shards.write_corpus` and `open_corpus` give.

    Raises:
        InputError: when a split would be empty.
    """
    division = divide(corpus, fraction, seed, by)
    corpus = division.corpus
    columns = columns_of(corpus, division.in_validation)

    def pairs(split: str) -> Pairs:
        left, right, target = (columns.get(f"pairs/{split}_{n}.npy") for n in ("left", "right", "target"))
        assert left is not None and right is not None
        return Pairs(left.array(), right.array(), target.array() if target else None)

    described = describe(corpus, division.in_validation)
    hashed = content_hash(columns, corpus.vocabularies)
    return SplitCorpus(
        left=corpus.left,
        right=corpus.right,
        train=pairs("train"),
        validation=pairs("validation"),
        left_frequency=columns["left/frequency.npy"].array(),
        right_frequency=columns["right/frequency.npy"].array(),
        vocabularies=corpus.vocabularies,
        vocabulary_sizes=described["vocabularies"],
        manifest={**described, "split": division.manifest, "content_hash": hashed, "origin": {}, "files": {}},
    )


def joined(split: SplitCorpus) -> Corpus:
    """The corpus before the split: training and validation pairs together; the inverse of `split_corpus`.

    Pairs that the split dropped do not come back (`divide`).
    """
    parts = (split.train, split.validation)
    left, right = (np.concatenate([getattr(part, side) for part in parts]) for side in ("left", "right"))
    order = _order(split)
    targets = [part.target for part in parts if part.target is not None]
    described = {"left_items", "right_items", "pairs", "train_pairs", "validation_pairs"}
    return Corpus(
        name=split.name,
        left=split.left,
        right=split.right,
        vocabularies=dict(split.vocabularies),
        pair_left=left[order],
        pair_right=right[order],
        target=np.concatenate(targets)[order] if targets else None,
        counts=split.manifest["counts"],
        summary={key: size for key, size in split.manifest["corpus"].items() if key not in described},
    )


def joined_mask(split: SplitCorpus) -> np.ndarray:
    """Which pairs of `joined` are validation pairs: bool, shape (n,)."""
    return np.asarray(_order(split) >= len(split.train))


def _order(split: SplitCorpus) -> np.ndarray:
    """The order of training and then validation pairs that sorts them."""
    parts = (split.train, split.validation)
    return np.lexsort([np.concatenate([getattr(part, side) for part in parts]) for side in ("right", "left")])


def validation_mask(left: np.ndarray, right: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Decide for each pair whether it belongs to the validation split.

    Args:
        left: integers below 2^32, shape (n,). Left item ids.
        right: integers below 2^32, shape (n,). Right item ids.
        fraction: the expected validation share, in (0, 1).
        seed: below 2^64; another seed gives an independent split.

    Returns:
        bool, shape (n,).
    """
    mask = np.empty(len(left), dtype=np.bool_)
    mixed_seed = np.uint64(splitmix64(np.uint64(seed)))  # a compiled function returns a Python int
    _decide(left, right, mixed_seed, np.uint64(int(fraction * 2**64)), mask)
    return mask


def held_out_mask(items: int, fraction: float, seed: int) -> np.ndarray:
    """Decide for each item of a side whether it is held out.

    Args:
        items: the number of items, at most 2^31.
        fraction: the expected share, in (0, 1).
        seed: as in `validation_mask`.

    Returns:
        bool, shape (items,).
    """
    # No pair has this left item, so that the draws of items and those of pairs are independent.
    nobody = np.full(items, 2**32 - 1, dtype=np.int64)
    return validation_mask(nobody, np.arange(items), fraction, seed)


def without_validation(corpus: Corpus, fraction: float, seed: int, by: SplitBy = "pairs") -> Corpus:
    """Drop the pairs that the split sends to validation; items and features stay as they are.

    Args:
        corpus: the whole corpus.
        fraction: the expected share of validation pairs, or of held-out items, in (0, 1).
        seed: of that split.
        by: what it holds out.

    Returns:
        The corpus of the training pairs, called NAME-tuning, with ``held_out_pairs_dropped`` among its
        counts.

    Raises:
        InputError: when a split would be empty.
    """
    division = divide(corpus, fraction, seed, by)
    kept = _without_pairs(division.corpus, division.in_validation, "held_out_pairs_dropped")
    return replace(kept, name=f"{corpus.name}-tuning")


def tuning_seed(seed: int) -> int:
    """The seed of a tuning corpus's second split; no configuration can choose it for an ordinary split."""
    return SEEDS + seed


@compiled
def splitmix64(value: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijective mix of 64 bits."""
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _decide(
    left: np.ndarray, right: np.ndarray, mixed_seed: np.uint64, threshold: np.uint64, mask: np.ndarray
) -> None:
    for pair in range(len(mask)):
        key = (np.uint64(left[pair]) << np.uint64(32)) | np.uint64(right[pair])
        mask[pair] = splitmix64(key ^ mixed_seed) < threshold
