import pytest
import torch

from gramrun.gramian.population import make_population

PAIRS = torch.tensor([2, 0, 0, 2, 2, 3], dtype=torch.int32)


def test_frequency_population_is_the_pairs():
    population = make_population(PAIRS, 5, "frequency")
    assert population.size == 6
    assert population.member_items.data_ptr() == PAIRS.data_ptr()
    torch.testing.assert_close(population.item_weights, torch.tensor([2, 0, 3, 1, 0]) / 6)
    assert population.importance is None


def test_uniform_population_is_the_items_with_pairs():
    population = make_population(PAIRS, 5, "uniform")
    assert population.member_items.tolist() == [0, 2, 3]
    torch.testing.assert_close(population.item_weights, torch.tensor([1, 0, 1, 1, 0]) / 3)


@pytest.mark.parametrize("weighting", ["frequency", "uniform"])
def test_drawing_members_reaches_items_by_their_weight(weighting):
    population = make_population(PAIRS, 5, weighting)
    counts = torch.bincount(population.member_items.long(), minlength=5)
    torch.testing.assert_close(counts / population.size, population.item_weights)


def test_importance_turns_pair_means_into_population_means():
    """Mean over pairs of importance(x) h(x) = mean over the population of h(x), for any h."""
    population = make_population(PAIRS, 5, "uniform")
    h = torch.tensor([1.0, 100.0, -3.0, 7.0, 50.0])
    over_pairs = (population.importance[PAIRS] * h[PAIRS]).mean()
    torch.testing.assert_close(over_pairs, h[population.member_items].mean())
    assert population.importance[1] == 0
