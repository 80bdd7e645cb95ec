"""SAGram equals its literal twin; Proposition 2; caches per item and per pair compared."""

import contracts
import enumeration as corpus
import pytest
import reference
import torch
from enumeration import GAMMAS, Draw, advance, embeddings, observing

from gramrun.gramian import CacheOptions, make_estimator
from gramrun.gramian.batch import GramianBatch
from gramrun.gramian.population import make_population
from gramrun.gramian.sagram import project_to_psd

PAIRS = torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6])  # item 3 has no pair
ENTRIES = [("item", gamma) for gamma in GAMMAS] + [("pair", 1.0)]


@pytest.mark.parametrize("companion_dim", [0, 2])
@pytest.mark.parametrize(("beta", "project"), [("1/n", False), ("1", True), ("1", False)])
@pytest.mark.parametrize(("entry", "gamma"), ENTRIES)
@pytest.mark.parametrize("rebuild_every", [0, 4])
def test_sagram_equals_its_literal_twin(entry, gamma, beta, project, companion_dim, rebuild_every):
    """On batches of pairs with importance (where γ < 1) and duplicates, over a wild trajectory."""
    population = make_population(PAIRS, 7, gamma)
    trajectory = contracts.Trajectory(make_population(PAIRS, 7, 1.0), companion_dim, 12, 8, seed=11)
    thetas = [theta.double() for theta in trajectory.theta]
    companions = torch.zeros(7, 0) if trajectory.companions is None else trajectory.companions
    # Companions move too, so that a stale ĉ is noticed.
    moving = [companions.double() * (1 + t) for t in trajectory.steps]
    fast = make_estimator(
        "sagram",
        embedding_dim=contracts.DIM,
        population=population,
        companion_dim=companion_dim,
        beta=beta,
        project=project,
        cache=CacheOptions(entry, rebuild_every=rebuild_every),
    ).double()
    whole = torch.arange(7)
    fast.start([GramianBatch(whole, thetas[0], moving[0] if companion_dim else None)])
    items_of = range(7) if entry == "item" else PAIRS.tolist()
    p = population.item_weights.double().tolist() if entry == "item" else [1 / len(PAIRS)] * len(PAIRS)
    slow = reference.SAGram(p, [(thetas[0][x], moving[0][x]) for x in items_of], beta, project)
    repeated = False
    for t in trajectory.steps:
        drawn = trajectory.drawn(t, t)
        items, pairs = drawn.items, drawn.pairs
        members = items if entry == "item" else pairs
        r = None if population.importance is None else population.importance.double()[items]
        fast.observe(
            GramianBatch(items, thetas[t][items], moving[t][items] if companion_dim else None, pairs, r)
        )
        fresh = [(thetas[t][x], moving[t][x]) for x in items.tolist()]
        expected = slow.observe(members.tolist(), fresh, [1.0] * 8 if r is None else r.tolist())
        torch.testing.assert_close(fast.moments, expected, atol=1e-6, rtol=1e-6)
        repeated |= len(members.unique()) < len(members)
    assert repeated


@pytest.mark.parametrize(("entry", "gamma"), ENTRIES)
def test_proposition_2_sag_stays_positive_semidefinite(entry, gamma):
    """β = 1/n: over every sequence of two batches, from stale caches, Ĝ = sum_j p_j (vector_j ⊗ vector_j).

    Those vectors are the proof's own: the cached ones, with the batch's replaced. SAGA fails on the same draws.
    """
    theta, stale = embeddings(1), 2 * embeddings(2)
    population = corpus.population(gamma)
    items_of = torch.arange(corpus.ITEMS) if entry == "item" else corpus.PAIR_ITEMS
    p = population.item_weights.double() if entry == "item" else torch.full((4,), 0.25).double()
    worst = {"1/n": 0.0, "1": 0.0}
    for beta in worst:
        start = corpus.make("sagram", gamma, beta=beta, project=False, cache=CacheOptions(entry))
        states = [(1.0, corpus.started(start, stale))]
        vectors = [stale[items_of]]
        for parameters in (theta, 0.1 * theta):
            listed = corpus.draws(gamma, 2)
            states = advance(states, listed, observing(parameters))
            replaced = []
            for before in vectors:
                for draw in listed:
                    after = before.clone()
                    after[draw.items if entry == "item" else draw.pairs] = parameters[draw.items]
                    replaced.append(after)
            vectors = replaced
            for (_, estimator), rows in zip(states, vectors, strict=True):
                if beta == "1/n":
                    expected = (rows * p[:, None]).T @ rows
                    torch.testing.assert_close(estimator.gramian, expected, atol=1e-12, rtol=0)
                worst[beta] = min(worst[beta], float(torch.linalg.eigvalsh(estimator.gramian)[0]))
    assert worst["1/n"] > -1e-12
    assert worst["1"] < -0.1


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("beta", ["1/n", "1"])
def test_a_batch_of_everything_is_exact(beta, gamma):
    """One batch that holds every pair once: both forms, both caches, whatever was cached before."""
    theta, stale = embeddings(3), embeddings(4)
    everything = Draw(1.0, corpus.PAIR_ITEMS, torch.arange(corpus.PAIRS))
    importance = corpus.population(gamma).importance
    for entry in ("item", "pair") if gamma == 1 else ("item",):
        estimator = corpus.make("sagram", gamma, beta=beta, cache=CacheOptions(entry))
        corpus.started(estimator, stale)
        estimator.observe(
            everything.batch(theta, importance=None if importance is None else importance.double())
        )
        expected = corpus.definition(theta, gamma)
        torch.testing.assert_close(estimator.gramian, expected, atol=corpus.WEIGHT_ERROR, rtol=0)
        torch.testing.assert_close(estimator.cache_moments, expected, atol=corpus.WEIGHT_ERROR, rtol=0)


@pytest.mark.parametrize("beta", ["1/n", "1"])
def test_caches_per_item_and_per_pair_agree_where_each_item_has_one_pair(beta):
    """Eight items so that weights are exact: the same numbers, to the last bit."""
    column = torch.tensor([3, 0, 6, 1, 7, 2, 5, 4])
    population = make_population(column, 8, 1.0)
    trajectory = contracts.Trajectory(population, 2, steps=10, batch=4, seed=13)
    arguments = {"embedding_dim": contracts.DIM, "population": population, "companion_dim": 2, "beta": beta}
    item, pair = (make_estimator("sagram", **arguments, cache=CacheOptions(e)) for e in ("item", "pair"))
    trajectory.start(item)
    trajectory.start(pair)
    for t in trajectory.steps:
        torch.testing.assert_close(
            trajectory.observe(item, t), trajectory.observe(pair, t), atol=1e-6, rtol=1e-5
        )
        assert torch.equal(item.cache[column], pair.cache)


def test_an_item_s_cache_is_as_fresh_as_the_freshest_of_its_pairs():
    """Embeddings that hold the time they were made at: the item's entry is the maximum over its pairs'."""
    population = make_population(PAIRS, 7, 1.0)
    drawn = contracts.Trajectory(population, 0, steps=15, batch=2, seed=17)
    arguments = {"embedding_dim": 1, "population": population}
    item, pair = (make_estimator("sagram", **arguments, cache=CacheOptions(e)) for e in ("item", "pair"))
    for estimator in (item, pair):
        estimator.start([GramianBatch(torch.arange(7), torch.zeros(7, 1))])
    older = 0
    for t in drawn.steps:
        batch = drawn.drawn(t, t)
        for estimator in (item, pair):
            estimator.observe(GramianBatch(batch.items, torch.full((2, 1), t + 1.0), pairs=batch.pairs))
        for x in PAIRS.unique().tolist():
            of_pairs = pair.cache[torch.eq(PAIRS, x)]
            assert float(item.cache[x]) == float(of_pairs.max())
            older += int((of_pairs < item.cache[x]).sum())
    assert older > 0


def test_projection_is_the_nearest_psd_matrix():
    generator = torch.Generator().manual_seed(10)
    for _ in range(20):
        root = torch.randn(4, 4, generator=generator, dtype=torch.double)
        matrix = root + root.T
        projected = project_to_psd(matrix)
        assert torch.linalg.eigvalsh(projected)[0] > -1e-12
        # Moreau: the residual is in the polar cone and orthogonal to the projection.
        residual = matrix - projected
        assert torch.linalg.eigvalsh(residual)[-1] < 1e-12
        assert float((residual * projected).sum()) == pytest.approx(0, abs=1e-10)
        positive = root @ root.T
        assert torch.equal(project_to_psd(positive), positive)
    diverged = torch.full((4, 4), torch.nan)
    assert project_to_psd(diverged) is diverged
