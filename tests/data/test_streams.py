"""Splits and batches: pure functions of seeds, indifferent to order."""

import itertools
import tracemalloc

import numpy as np
import pytest

from gramrun.data import batches, synthetic
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


@pytest.mark.parametrize(("pairs", "size"), [(10, 3), (10, 10), (7, 5), (100, 1)])
def test_every_pair_once_an_epoch(pairs, size):
    stream = batches.ShuffledPairs(pairs, size, seed=0)
    drawn = np.concatenate([stream.batch(step) for step in range(3 * pairs)])
    assert all(len(stream.batch(step)) == size for step in range(5))
    epochs = drawn[: len(drawn) // pairs * pairs].reshape(-1, pairs)
    assert (np.sort(epochs, axis=1) == np.arange(pairs)).all()
    assert pairs < 5 or not (epochs[0] == epochs[1]).all()


def test_batches_are_functions_of_the_step():
    straight = batches.ShuffledPairs(50, 8, seed=1)
    expected = [straight.batch(step) for step in range(20)]
    jumping = batches.ShuffledPairs(50, 8, seed=1)
    for step in (13, 2, 19, 0, 6):
        assert np.array_equal(jumping.batch(step), expected[step])


def test_a_stream_takes_the_memory_of_its_batch():
    """Half a billion pairs, any step of any epoch: no order of them is made."""
    stream = batches.ShuffledPairs(490_000_000, 1024, seed=1)
    border = 490_000_000 // 1024  # its batch ends one epoch and starts the next
    stream.batch(0)  # compiles
    tracemalloc.start()
    drawn = [stream.batch(step) for step in (1, border, 1000 * border)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert all(len(np.unique(batch)) == 1024 and batch.max() < 490_000_000 for batch in drawn)


def test_seeds_and_epochs_have_orders_of_their_own():
    def order(seed, epoch):
        return batches.ShuffledPairs(5000, 5000, seed).batch(epoch)

    orders = [order(0, 0), order(0, 1), order(1, 0), order(2**32 - 1, 0)]
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 8  # Poisson(1) for independent orders


@pytest.mark.parametrize("size", [0, 11])
def test_impossible_batches_are_refused(size):
    with pytest.raises(ValueError, match="batch_size must lie in"):
        batches.ShuffledPairs(10, size, seed=0)


def test_step_generators_are_uniform_independent_and_repeatable():
    def drawn(seed, stream, step):
        return batches.step_generator(seed, stream, step).integers(10, size=1000)

    draws = np.stack([drawn(0, 1, step) for step in range(50)])
    counts = np.bincount(draws.ravel(), minlength=10)
    assert abs(counts - 5000).max() < 5 * (50_000 * 0.1 * 0.9) ** 0.5
    assert np.array_equal(draws[7], drawn(0, 1, 7))
    for other in (draws[8], drawn(0, 2, 7), drawn(1, 1, 7)):
        assert abs(np.mean(draws[7] == other) - 0.1) < 0.05


def test_no_two_streams_are_the_same():
    """Gramian batches, permutations and observers must be independent: each has a number of its own."""
    names = [name for name in vars(batches) if name.endswith("_STREAM")]
    assert len(names) == 7
    assert len({getattr(batches, name) for name in names}) == 7


def test_the_gramian_batch_is_never_the_gradient_batch():
    """Proposition 1's condition: knowing the pairs of B' tells nothing of those of B."""
    pairs, steps = 40, 400
    stream = batches.ShuffledPairs(pairs, 1, seed=3)
    gradient = np.array([stream.batch(step)[0] for step in range(steps)])
    for number in (batches.LEFT_GRAMIAN_STREAM, batches.RIGHT_GRAMIAN_STREAM):
        drawn = np.array([batches.step_generator(3, number, step).integers(pairs) for step in range(steps)])
        equal = np.mean(gradient == drawn)
        assert abs(equal - 1 / pairs) < 5 * (1 / pairs / steps) ** 0.5


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
