"""Proposition 3 and its relatives: the mean of the moments over every possible batch, weighted by its probability.

All have companions, so Ĥ is tested with Ĝ.
"""

import itertools

import enumeration as corpus
import numpy as np
import pytest
import torch
from enumeration import GAMMAS, WEIGHT_ERROR, Draw, advance, definition, embeddings, mean, observing

from gramrun.data.batches import ShuffledPairs
from gramrun.gramian import CacheOptions

COMPANIONS = embeddings(90, dim=2)
THETA, STALE = embeddings(1), embeddings(2)


def make(name, gamma, entry="item", **options):
    """An estimator with companions; caches are started and then made unevenly stale."""
    if name == "sagram":
        options = {"cache": CacheOptions(entry), "project": False} | options
    estimator = corpus.make(name, gamma, companion_dim=2, **options)
    if estimator.needs_start:
        corpus.started(estimator, STALE, COMPANIONS + 1)
        uneven = Draw(1.0, corpus.PAIR_ITEMS[[0, 2]], torch.tensor([0, 2]))
        estimator.observe(uneven.batch(STALE + 1, COMPANIONS - 1))
    return estimator


def close(got, expected):
    torch.testing.assert_close(got, expected, atol=WEIGHT_ERROR, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "entry", "gamma"),
    [(name, "item", gamma) for name in ("sampling", "sagram") for gamma in GAMMAS]
    + [("sagram", "pair", 1.0)],
)
def test_proposition_3_drawn_batches_are_unbiased(name, entry, gamma, size):
    states = advance(
        [(1.0, make(name, gamma, entry))], corpus.draws(gamma, size), observing(THETA, COMPANIONS)
    )
    close(mean(states), definition(THETA, gamma, COMPANIONS))


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("name", ["sampling", "sagram"])
@pytest.mark.parametrize("replacement", [True, False])
def test_batches_of_pairs_with_importance_are_unbiased(name, gamma, replacement):
    """A gradient batch draws x with p_x = f_x/n; w_x/p_x makes it a Gramian batch under every γ."""
    listed = corpus.pair_draws(2, replacement=replacement)
    importance = corpus.population(gamma).importance
    act = observing(THETA, COMPANIONS, None if importance is None else importance.double())
    close(mean(advance([(1.0, make(name, gamma))], listed, act)), definition(THETA, gamma, COMPANIONS))


def test_batches_of_pairs_without_importance_are_biased_under_another_gamma():
    """Shows that the test above can fail."""
    states = advance([(1.0, make("sampling", 0.0))], corpus.pair_draws(2), observing(THETA, COMPANIONS))
    assert (mean(states) - definition(THETA, 0.0, COMPANIONS)).abs().max() > 0.05


def test_sag_is_biased_by_the_age_of_its_caches():
    """β = 1/n, one draw: E Ĝ = Ŝ + (G − Ŝ)/n with caches per pair. Only 1/n of the gap is closed."""
    before = make("sagram", 1.0, "pair", beta="1/n")
    gap = definition(THETA, 1.0, COMPANIONS) - before.cache_moments
    states = advance([(1.0, before)], corpus.pair_draws(1), observing(THETA, COMPANIONS))
    close(mean(states), before.cache_moments + gap / corpus.PAIRS)


class Listed(ShuffledPairs):
    """The gradient batches' stream, with the order of each epoch prescribed."""

    def __init__(self, batch_size, orders):
        super().__init__(corpus.PAIRS, batch_size, seed=0)
        self.orders = orders

    def _order(self, epoch, start, stop):
        return np.array(self.orders[epoch])[start:stop]


def terms(gamma):
    """r_i u_i ⊗ u_i of each pair: their mean is G."""
    importance = corpus.population(gamma).importance
    r = torch.ones(corpus.ITEMS) if importance is None else importance
    return [r[x].double() * torch.outer(THETA[x], THETA[x]) for x in corpus.PAIR_ITEMS.tolist()]


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_previous_batch_lacks_the_current_pairs(gamma):
    """Within an epoch E[Ĝ | i in the current batch] = (n G − term_i)/(n − 1) = G + (G − term_i)/(n − 1).

    The previous batch is a uniform choice among the n − 1 other pairs, so the dependence is of order 1/n.
    """
    exact, term = definition(THETA, gamma), terms(gamma)
    held = {i: [] for i in range(corpus.PAIRS)}
    for order in itertools.permutations(range(corpus.PAIRS)):
        stream = Listed(2, [order])
        previous = sum(term[j] for j in stream.batch(0)) / 2
        for i in stream.batch(1):
            held[int(i)].append(previous)
    for i, estimates in held.items():
        close(torch.stack(estimates).mean(0), (corpus.PAIRS * exact - term[i]) / (corpus.PAIRS - 1))


def test_the_previous_batch_is_independent_across_epochs():
    """A batch of 3 of 4 pairs: step 1 holds the epoch's last pair and two of the next epoch's."""
    exact, term = definition(THETA, 1.0), terms(1.0)
    last, of_next = {i: [] for i in range(4)}, {i: [] for i in range(4)}
    for orders in itertools.product(itertools.permutations(range(4)), repeat=2):
        stream = Listed(3, orders)
        previous = sum(term[j] for j in stream.batch(0)) / 3
        first, second, third = (int(i) for i in stream.batch(1))
        last[first].append(previous)
        of_next[second].append(previous)
        of_next[third].append(previous)
    for i in range(4):
        close(torch.stack(last[i]).mean(0), (4 * exact - term[i]) / 3)
        close(torch.stack(of_next[i]).mean(0), exact)


@pytest.mark.parametrize(("size", "steps"), [(1, 4), (2, 2)])
def test_saga_overshoots_on_batches_without_replacement(size, steps):
    """Fed an epoch's permutation, SAGA's mean is G + (s/n)(G − Ŝ(0)) after s pairs: not unbiased.

    Its batch is never one of the s pairs refreshed in this epoch, so it meets the stalest caches only and takes
    them for all: at the epoch's end nearly the whole gap is counted twice. Algorithm 1 draws with replacement.
    """
    exact = definition(THETA, 1.0)
    estimates = [[] for _ in range(steps)]
    for order in itertools.permutations(range(corpus.PAIRS)):
        estimator = corpus.make("sagram", 1.0, project=False, cache=CacheOptions("pair"))
        corpus.started(estimator, STALE)
        stream = Listed(size, [order])
        for step in range(steps):
            pairs = torch.from_numpy(stream.batch(step))
            estimator.observe(Draw(1.0, corpus.PAIR_ITEMS[pairs], pairs).batch(THETA))
            estimates[step].append(estimator.gramian.clone())
    gap = exact - definition(STALE, 1.0)
    for step, listed in enumerate(estimates):
        close(torch.stack(listed).mean(0), exact + step * size / corpus.PAIRS * gap)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_sampling_variance_falls_with_the_batch(size, gamma):
    """E‖Ĝ − G‖² = σ²/|B|."""
    states = advance([(1.0, corpus.make("sampling", gamma))], corpus.draws(gamma, size), observing(THETA))
    expected = corpus.variance_of_one(THETA, gamma) / size
    assert corpus.mean_square_error(states, definition(THETA, gamma)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("size", [1, 2])
def test_saga_variance_is_that_of_the_changes(size, gamma):
    """E‖Ĝ − G‖² = (1/|B|) E‖u⊗u − û⊗û − (G − Ŝ)‖², per item."""
    estimator = corpus.started(corpus.make("sagram", gamma, project=False), STALE)
    states = advance([(1.0, estimator)], corpus.draws(gamma, size), observing(THETA))
    gap = definition(THETA, gamma) - definition(STALE, gamma)
    spread = sum(
        w * float((torch.outer(u, u) - torch.outer(c, c) - gap).square().sum())
        for w, u, c in zip(corpus.weights(gamma), THETA, STALE, strict=True)
    )
    got = corpus.mean_square_error(states, definition(THETA, gamma))
    assert got == pytest.approx(spread / size, rel=1e-5)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_variance_of_a_reused_batch(gamma, size):
    """E‖Ĝ − G‖² = (σ_r²/|B|) (n − |B|)/(n − 1) over shuffled batches, σ_r² that of one pair's r u⊗u."""
    theta, importance = embeddings(8), corpus.population(gamma).importance
    importance = None if importance is None else importance.double()
    exact = definition(theta, gamma)
    terms = [
        torch.outer(theta[x], theta[x]) * (1 if importance is None else importance[x])
        for x in corpus.PAIR_ITEMS
    ]
    variance = sum(float((term - exact).square().sum()) for term in terms) / corpus.PAIRS
    states = corpus.advance(
        [(1.0, corpus.make("sampling", gamma))],
        corpus.pair_draws(size, replacement=False),
        corpus.observing(theta, importance=importance),
    )
    expected = variance / size * (corpus.PAIRS - size) / (corpus.PAIRS - 1)
    assert corpus.mean_square_error(states, exact) == pytest.approx(expected, rel=1e-5)
