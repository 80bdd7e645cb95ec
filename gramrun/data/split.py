"""The train/validation split: a hash of each pair decides.

A pair goes to validation if hash(seed, left, right) < fraction · 2^64. The decision of one pair depends on
no other pair, on no row order and on no thread, and needs no sort. The validation share is binomial around
`fraction` (for a million pairs, ± 0.04 percentage points) instead of exact.

Hyper-parameters that were chosen on validation pairs fit these pairs. A *tuning corpus* avoids this: the
validation pairs are dropped (`without_validation`), and the training pairs are split once more under another
seed (`tuning_seed`), with the same items under the same numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.data.content import columns_of, content_hash, describe
from gramrun.data.corpus import Corpus, Pairs, SplitCorpus

SEEDS = 2**32  # seeds in configurations are below this


def split_corpus(corpus: Corpus, fraction: float, seed: int = 0) -> SplitCorpus:
    """Split a corpus in memory; equal to what `shards.write_corpus` and `shards.open_corpus` give.

    Args:
        corpus: the corpus.
        fraction: the expected share of validation pairs, in (0, 1); or 0 for none.
        seed: of the split, below 2^64.

    Raises:
        InputError: when a split would be empty.
    """
    none = np.zeros(len(corpus.pair_left), dtype=np.bool_)
    in_validation = split_mask(corpus, fraction, seed) if fraction else none
    columns = columns_of(corpus, in_validation)

    def pairs(split: str) -> Pairs:
        left, right, target = (columns.get(f"pairs/{split}_{n}.npy") for n in ("left", "right", "target"))
        assert left is not None and right is not None
        return Pairs(left.array(), right.array(), target.array() if target else None)

    described = describe(corpus, in_validation)
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
        manifest={**described, "content_hash": hashed, "origin": {}, "files": {}},
    )


def joined(split: SplitCorpus) -> Corpus:
    """The corpus before the split: training and validation pairs together; the inverse of `split_corpus`."""
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


def split_mask(corpus: Corpus, fraction: float, seed: int) -> np.ndarray:
    """`validation_mask` of a corpus's pairs: bool, shape (n,).

    Raises:
        InputError: when a split would be empty.
    """
    in_validation = validation_mask(corpus.pair_left, corpus.pair_right, fraction, seed)
    if in_validation.all() or not in_validation.any():
        raise InputError(
            f"{corpus.name}: {len(in_validation)} pairs are too few for a validation share of "
            f"{fraction:g}; both splits need at least one pair"
        )
    return in_validation


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


def without_validation(corpus: Corpus, fraction: float, seed: int) -> Corpus:
    """Drop the pairs that the split sends to validation; items and features stay as they are.

    Args:
        corpus: the whole corpus.
        fraction: the expected share of validation pairs, in (0, 1).
        seed: of that split.

    Returns:
        The corpus of the other pairs, called NAME-tuning, with ``held_out_pairs_dropped`` among its counts.

    Raises:
        InputError: when a split would be empty.
    """
    held_out = split_mask(corpus, fraction, seed)
    dropped = int(np.count_nonzero(held_out))
    kept = len(held_out) - dropped
    return replace(
        corpus,
        summary={name: kept if name == "links" else size for name, size in corpus.summary.items()},
        name=f"{corpus.name}-tuning",
        pair_left=corpus.pair_left[~held_out],
        pair_right=corpus.pair_right[~held_out],
        target=None if corpus.target is None else corpus.target[~held_out],
        counts={**corpus.counts, "held_out_pairs_dropped": dropped},
    )


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
