"""The exact moments equal their definition, term by term; the other tests compare with them."""

import contracts
import enumeration as corpus
import pytest
import torch
from enumeration import Draw, definition, embeddings

from gramrun.gramian.batch import GramianBatch, batch_moments, weighted_moments
from gramrun.gramian.exact import effective_rank, relative_error


@pytest.mark.parametrize("companions", [None, embeddings(1, dim=2)], ids=["plain", "companions"])
@pytest.mark.parametrize("gamma", corpus.GAMMAS)
def test_exact_moments_are_the_definition(gamma, companions):
    """Also in chunks out of order, and also as an estimator that is shown all items."""
    theta, population = embeddings(0), corpus.population(gamma)
    chunks = [Draw(1, torch.tensor(ids), None).batch(theta, companions) for ids in ([3, 0], [2], [1])]
    expected = definition(theta, gamma, companions)
    summed = weighted_moments(chunks, population.item_weights)
    torch.testing.assert_close(summed, expected, atol=corpus.WEIGHT_ERROR, rtol=0)
    estimator = corpus.make("exact", gamma, companion_dim=0 if companions is None else 2)
    estimator.observe(Draw(1, population.weighted_items, None).batch(theta, companions))
    torch.testing.assert_close(estimator.moments, expected, atol=corpus.WEIGHT_ERROR, rtol=0)
    torch.testing.assert_close(estimator.gramian, expected[:, :3], atol=corpus.WEIGHT_ERROR, rtol=0)
    torch.testing.assert_close(estimator.cross, expected[:, 3:], atol=corpus.WEIGHT_ERROR, rtol=0)


def test_effective_rank_is_of_the_eigenvalues():
    """(sum λ)² / sum λ², for any scale of G."""
    theta = embeddings(0).double()
    gramian = theta.T @ theta
    values = torch.linalg.eigvalsh(gramian)
    assert effective_rank(gramian) == pytest.approx(float(values.sum() ** 2 / values.square().sum()))
    assert effective_rank(7 * gramian) == pytest.approx(effective_rank(gramian))


def test_equation_4_is_a_mean_over_pairs():
    """At γ = 1, by loops over pairs and entries."""
    theta = embeddings(0).tolist()
    literal = [
        [sum(theta[i][a] * theta[i][b] for i in corpus.PAIR_ITEMS.tolist()) / corpus.PAIRS for b in range(3)]
        for a in range(3)
    ]
    torch.testing.assert_close(
        definition(torch.tensor(theta).double(), 1.0), torch.tensor(literal).double(), atol=1e-6, rtol=0
    )


def test_batch_moments_by_hand():
    """(1/2)[3 · (1, 2)ᵀ(1, 2, 5) + 1 · (0, 1)ᵀ(0, 1, −1)]."""
    batch = GramianBatch(
        torch.tensor([4, 7]),
        torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
        companions=torch.tensor([[5.0], [-1.0]]),
        importance=torch.tensor([3.0, 1.0]),
    )
    assert batch_moments(batch).tolist() == [[1.5, 3.0, 7.5], [3.0, 6.5, 14.5]]
    assert batch_moments(batch.first(1)).tolist() == [[3.0, 6.0, 15.0], [6.0, 12.0, 30.0]]


def test_the_oracle_follows_the_trajectory_without_error():
    """Shown what it says that it observes, at every step."""
    population = corpus.population(0.5)
    trajectory = contracts.Trajectory(population, 2, steps=4, batch=2, seed=3)
    estimator = contracts.ESTIMATORS["exact"].make(population, 2)
    for t in trajectory.steps:
        companions = trajectory.companions.double()
        expected = definition(trajectory.theta[t].double(), 0.5, companions)
        torch.testing.assert_close(trajectory.observe(estimator, t).double(), expected, atol=1e-5, rtol=1e-5)


def test_no_gramian_is_zero_and_asks_for_nothing():
    estimator = corpus.make("none", 1.0, companion_dim=2)
    estimator.observe(corpus.pair_draws(1)[0].batch(embeddings(0), embeddings(1, dim=2)))
    assert estimator.observes == "nothing"
    assert not estimator.needs_start
    assert torch.equal(estimator.moments, torch.zeros(3, 5, dtype=torch.double))


def test_relative_error_by_hand():
    exact = torch.diag(torch.tensor([3.0, 4.0], dtype=torch.double))
    assert relative_error(torch.diag(torch.tensor([3.0, 9.0])), exact) == pytest.approx(1.0)
    assert relative_error(exact, exact) == 0
