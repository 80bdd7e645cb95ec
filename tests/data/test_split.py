"""The train/validation split is a pure function of seed and pair."""

import numpy as np
import pytest

from gramrun.data import synthetic
from gramrun.data.split import SEEDS, tuning_seed, validation_mask


def grid():
    left, right = np.divmod(np.arange(40_000), 200)
    return left.astype(np.int32), right.astype(np.int32)


def test_split_has_its_share_within_the_binomial_spread():
    for fraction in (0.1, 0.2, 0.5):
        share = validation_mask(*grid(), fraction, seed=3).mean()
        assert abs(share - fraction) < 5 * (fraction * (1 - fraction) / 40_000) ** 0.5


def test_split_does_not_depend_on_row_order():
    left, right = grid()
    order = np.random.default_rng(0).permutation(len(left))
    mask = validation_mask(left, right, 0.2, 0)
    assert np.array_equal(validation_mask(left[order], right[order], 0.2, 0), mask[order])
    assert np.array_equal(validation_mask(left[:7], right[:7], 0.2, 0), mask[:7])


def test_split_seeds_are_independent_and_sides_are_not_symmetric():
    left, right = grid()
    first, second = (validation_mask(left, right, 0.5, seed) for seed in (0, 1))
    assert abs(np.mean(first == second) - 0.5) < 0.02
    assert abs(np.mean(first == validation_mask(right, left, 0.5, 0)) - 0.5) < 0.02


@pytest.mark.parametrize("seed", [0, 1, SEEDS - 1])
def test_the_tuning_split_is_independent_of_the_ordinary_ones(seed):
    """Else its share among the training pairs would be off, or some other seed would give the same split."""
    left, right = grid()
    tuning = validation_mask(left, right, 0.3, tuning_seed(seed))
    for other in {seed, 0, 1}:
        train = ~validation_mask(left, right, 0.3, other)
        assert abs(tuning[train].mean() - 0.3) < 5 * (0.3 * 0.7 / train.sum()) ** 0.5
    assert SEEDS <= tuning_seed(seed) < 2 * SEEDS


def test_split_is_the_same_on_every_machine():
    """Pinned: a split that moves would silently turn training pairs into validation pairs."""
    left, right = np.arange(16, dtype=np.int32), np.arange(16, dtype=np.int32)[::-1]
    assert np.flatnonzero(validation_mask(left, right, 0.3, 42)).tolist() == PINNED


PINNED = [1, 8, 10, 12, 14, 15]


def test_synthetic_corpus_has_the_structure_that_was_planted():
    arguments = {"left_items": 300, "right_items": 100, "pairs_per_left_item": 10, "rank": 6, "seed": 0}
    corpus = synthetic.generate(**arguments, popularity_exponent=1.0)
    again = synthetic.generate(**arguments, popularity_exponent=1.0)
    assert np.array_equal(corpus.pair_right, again.pair_right)
    assert len(corpus.pair_left) == 3000
    assert (np.bincount(corpus.pair_left) == 10).all()

    def top_share(exponent):
        skewed = synthetic.generate(**arguments, popularity_exponent=exponent)
        counts = np.bincount(skewed.pair_right, minlength=100)
        return np.sort(counts)[-10:].sum() / counts.sum()

    assert top_share(1.0) > 1.5 * top_share(0.0)
