"""The permutation that is computed point by point: that it is one, and that it looks like any other.

Statistics have fixed seeds, so they pass always or never. What they would miss is shown by fewer rounds.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gramrun.data.permutation import LARGEST, permuted, round_keys

WORD = 2**64
SURELY, HARDLY = 1e-12, 1e-3  # p-values: below the first a defect is found, above the second there is none


def order(size, *seed, rounds=None):
    return permuted(np.arange(size), size, round_keys(seed or (0,), size)[:rounds])


def literal_side(size):
    return next(a for a in itertools.count(max(2, math.isqrt(size) - 2)) if a * (a + 1) >= size)


def literal_place(position, size, keys):
    """The docstring of the module, one position at a time, in Python's integers."""
    a = literal_side(size)
    b = a + 1

    def scaled_hash(value, key, bound):
        value ^= key
        for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            value = (value ^ (value >> 33)) * multiplier % WORD
        value ^= value >> 33
        return value // 2**32 * bound // 2**32

    while True:
        l, r = divmod(position, b)
        for j, key in enumerate(keys):
            if j % 2 == 0:
                l = (l + scaled_hash(r, key, a)) % a
            else:
                r = (r + scaled_hash(l, key, b)) % b
        position = l * b + r
        if position < size:
            return position


sizes = st.one_of(st.integers(1, 50), st.integers(1, LARGEST), st.integers(1, 2**31).map(lambda a: a * a))


@given(st.data(), sizes, st.integers(0, 2**40))
def test_places_are_those_of_the_literal_twin(data, size, seed):
    positions = data.draw(st.lists(st.integers(0, size - 1), max_size=20))
    keys = round_keys((seed, 3), size)
    places = permuted(np.array(positions, dtype=np.int64), size, keys)
    assert places.tolist() == [literal_place(position, size, keys.tolist()) for position in positions]


def test_every_size_is_permuted():
    for size in [*range(1, 301), 65_535, 2**20 + 7]:
        assert np.array_equal(np.sort(order(size, size % 3)), np.arange(size))


def test_no_two_of_half_a_billion_positions_share_a_place():
    size = 490_000_000
    positions = np.unique(np.random.default_rng(0).integers(size, size=300_000))
    positions = np.union1d(positions, [0, size - 1])
    places = permuted(positions, size, round_keys((0,), size))
    assert places.min() >= 0 and places.max() < size
    assert len(np.unique(places)) == len(positions)
    assert stats.kstest(places / size, "uniform").pvalue > HARDLY


def test_the_order_is_the_same_on_every_machine():
    """Pinned: a run that is resumed elsewhere must go on with the pairs that are left."""
    assert order(10, 42).tolist() == PINNED
    assert permuted(np.arange(3), 490_000_000, round_keys((42,), 490_000_000)).tolist() == PINNED_LARGE


PINNED = [2, 4, 8, 9, 3, 6, 5, 0, 1, 7]
PINNED_LARGE = [460132870, 224928158, 455324343]


@pytest.mark.parametrize("size", [0, LARGEST + 1])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(ValueError, match="from 1 to 2\\^62 elements"):
        round_keys((0,), size)


# What it looks like. `rounds` cuts the rounds short, to show what a statistic finds.


def fit(counts, probabilities):
    """The p-value of a chi-square test of counts."""
    return stats.chisquare(counts, np.asarray(probabilities) * np.sum(counts)).pvalue


def fit_of_orders(size, rounds=None):
    """Each of the size! orders is as likely as another."""
    number = {places: i for i, places in enumerate(itertools.permutations(range(size)))}
    seeds = max(3000, 20 * len(number))
    drawn = [number[tuple(order(size, 1, seed, rounds=rounds).tolist())] for seed in range(seeds)]
    return fit(np.bincount(drawn, minlength=len(number)), [1 / len(number)] * len(number))


def fit_of_places(size, rounds=None):
    """Each position goes to each place, and each two positions to each two places, equally often: the worst."""
    drawn = np.stack([order(size, 2, seed, rounds=rounds) for seed in range(3000)])
    two = {
        first * size + second: i for i, (first, second) in enumerate(itertools.permutations(range(size), 2))
    }
    number = np.array([two.get(i, -1) for i in range(size * size)])
    ones = [fit(np.bincount(drawn[:, i], minlength=size), [1 / size] * size) for i in range(size)]
    twos = [
        fit(
            np.bincount(number[drawn[:, i] * size + drawn[:, j]], minlength=len(two)),
            [1 / len(two)] * len(two),
        )
        for i, j in itertools.combinations(range(size), 2)
    ]
    return min(min(ones) * len(ones), min(twos) * len(twos))  # Bonferroni's correction


def fit_of_poisson(numbers):
    """Numbers are Poisson(1), as those of fixed points are but for 1/size!."""
    probabilities = stats.poisson.pmf(np.arange(4), 1)
    return fit(np.bincount(np.minimum(numbers, 4), minlength=5), [*probabilities, 1 - probabilities.sum()])


def fit_of_successive_epochs(size, rounds=None):
    """How many positions keep their place from one epoch to the next: as many as are fixed by any order."""
    orders = [order(size, 4, epoch, rounds=rounds) for epoch in range(4001)]
    return fit_of_poisson([np.count_nonzero(a == b) for a, b in itertools.pairwise(orders)])


def fit_of_serial_correlation(size, rounds=None):
    """Places of positions at some distance are uncorrelated: successive ones, and those with a digit in common."""
    places = order(size, 5, rounds=rounds)
    lags = [1, 2, literal_side(size), literal_side(size) + 1]
    deviations = [stats.pearsonr(places[:-lag], places[lag:]).statistic * math.sqrt(size) for lag in lags]
    return min(2 * stats.norm.sf(np.abs(deviations))) * len(lags)


def fit_of_rectangles(size, rounds=None):
    """Left digits of the places of four positions that form a rectangle: their alternating sum is any."""
    a, random = literal_side(size), np.random.default_rng(6)
    l, r = random.integers(a - 1, size=100_000), random.integers(a, size=100_000)
    keys = round_keys((6,), size)[:rounds]
    corners = [permuted((l + i) * (a + 1) + r + j, size, keys) // (a + 1) for i in (0, 1) for j in (0, 1)]
    zeros = np.count_nonzero((corners[0] - corners[1] - corners[2] + corners[3]) % a == 0)
    return stats.binomtest(zeros, len(l), 1 / a).pvalue


@pytest.mark.parametrize(
    ("p_value", "size", "too_few"),
    [
        (fit_of_orders, 2, 0),
        (fit_of_orders, 3, 4),
        (fit_of_orders, 5, 6),
        (fit_of_places, 6, 6),
        (fit_of_places, 11, 4),
        (fit_of_successive_epochs, 992, 2),
        (fit_of_serial_correlation, 2**20 + 7, 2),
        (fit_of_rectangles, 2025 * 2026, 2),
    ],
)
def test_it_is_like_any_permutation(p_value, size, too_few):
    assert p_value(size) > HARDLY
    assert p_value(size, rounds=too_few) < SURELY  # or else the statistic would be blind


# Theory: how far pairs of places are from uniform, where the round functions are ideal.


def left_round(p):
    """Average over all F: p[l1, r1, l2, r2] is how likely two positions are at (l1, r1) and (l2, r2)."""
    after = np.broadcast_to(p.mean(axis=(0, 2), keepdims=True), p.shape).copy()  # two digits move apart
    for r in range(p.shape[1]):  # or together
        together = [np.roll(p[:, r, :, r], (shift, shift), (0, 1)) for shift in range(len(p))]
        after[:, r, :, r] = np.mean(together, axis=0)
    return after


def right_round(p):
    return left_round(p.transpose(1, 0, 3, 2)).transpose(1, 0, 3, 2)


@pytest.mark.parametrize("a", range(2, 9))
@pytest.mark.parametrize("second", [(0, 1), (1, 0), (1, 1)])
def test_rounds_suffice_in_theory(a, second):
    size = a * (a + 1)
    p = np.zeros((a, a + 1, a, a + 1))
    p[(0, 0, *second)] = 1
    uniform = (1 - np.eye(size)).reshape(p.shape) / (size * (size - 1))
    for rounds in range(2, len(round_keys((0,), size)) + 2, 2):
        p = right_round(left_round(p))
        distance = np.abs(p - uniform).sum() / 2
        assert distance <= a ** (1 - rounds / 2)
    assert distance < 2**-32
