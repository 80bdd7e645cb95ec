"""The weights f^γ, the ratio that turns draws of pairs into draws of items, and the draws themselves."""

import math

import enumeration
import numpy as np
import pytest
import torch

from gramrun.gramian.population import make_population

PAIRS = torch.tensor([2, 0, 0, 2, 2, 3, 2, 2], dtype=torch.int32)  # f = 2, 0, 5, 1, 0
ITEMS = 5
FREQUENCY = [2, 0, 5, 1, 0]
GAMMAS = [1.0, 0.75, 0.5, 0.0]


class Uniforms:
    """A generator that returns given uniforms."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=np.float64)

    def random(self, size):
        assert size == len(self.values)
        return self.values


@pytest.mark.parametrize("gamma", GAMMAS)
def test_weights_are_powers_of_the_frequency(gamma):
    powers = [f**gamma if f else 0.0 for f in FREQUENCY]
    expected = torch.tensor([power / sum(powers) for power in powers])
    population = make_population(PAIRS, ITEMS, gamma)
    torch.testing.assert_close(population.item_weights, expected, rtol=1e-6, atol=0)
    assert population.item_weights.dtype == torch.float32
    assert population.weighted_items.tolist() == [0, 2, 3]


@pytest.mark.parametrize("gamma", GAMMAS[1:])
def test_importance_turns_pair_means_into_population_means(gamma):
    """E_{x~p} (w_x/p_x) h(x) = E_{x~w} h(x), for any h: p from the list of pairs, w from its definition."""
    population = make_population(PAIRS, ITEMS, gamma)
    h = torch.tensor([1.0, 100.0, -3.0, 7.0, 50.0])
    over_pairs = (population.importance[PAIRS] * h[PAIRS]).mean()
    powers = [f**gamma if f else 0.0 for f in FREQUENCY]
    expected = sum(power * float(value) for power, value in zip(powers, h, strict=True)) / sum(powers)
    assert float(over_pairs) == pytest.approx(expected, rel=1e-6)
    assert population.importance[[1, 4]].tolist() == [0, 0]


@pytest.mark.parametrize("gamma", [0.75, 0.5, 0.0])
def test_drawing_reaches_each_item_exactly_by_its_weight(gamma):
    """The inverse of the distribution function, fed an even grid: the share of each item is w_x, to one cell."""
    population = make_population(PAIRS, ITEMS, gamma)
    cells = 10_000
    items, pairs = population.draw(Uniforms(np.arange(cells) / cells), cells)
    assert pairs is None
    assert items.dtype == torch.int64
    counts = torch.bincount(items, minlength=ITEMS).double()
    assert (counts - cells * population.item_weights.double()).abs().max() <= 1
    assert counts[[1, 4]].tolist() == [0, 0]


@pytest.mark.parametrize("gamma", [0.75, 0.5, 0.0])
def test_the_ends_of_the_distribution_are_items_with_pairs(gamma):
    """For the uniforms 0 and 1 − 2⁻⁵³, also where the first and last items have weight 0."""
    for column in (PAIRS, PAIRS + 1, torch.arange(1, 12), torch.tensor([3])):
        population = make_population(column, int(column.max()) + 4, gamma)
        first, last = population.draw(Uniforms([0.0, math.nextafter(1, 0)]), 2)[0].tolist()
        assert first == int(column.min())
        assert last == int(column.max())


def test_draws_at_each_step_of_the_distribution_belong_to_the_next_item():
    """Item x owns [F(x−1), F(x)): where a uniform meets a step exactly, the draw is the item above it."""
    population = make_population(torch.tensor([0, 1, 2, 3]), 4, 0.0)
    items, _ = population.draw(Uniforms([0.0, 0.25, 0.5, 0.75]), 4)
    assert items.tolist() == [0, 1, 2, 3]
    below = [math.nextafter(x, 0) for x in (0.25, 0.5, 0.75)]
    assert population.draw(Uniforms(below), 3)[0].tolist() == [0, 1, 2]


def test_at_gamma_one_items_are_drawn_through_pairs():
    """i ~ Uniform(n): the same numbers as the generator's own, and the items of those pairs."""
    items, pairs = make_population(PAIRS, ITEMS, 1.0).draw(np.random.default_rng(5), 100)
    expected = np.random.default_rng(5).integers(len(PAIRS), size=100)
    assert pairs.tolist() == expected.tolist()
    assert items.tolist() == [int(PAIRS[i]) for i in expected]
    assert items.dtype == torch.int64


@pytest.mark.parametrize("gamma", enumeration.GAMMAS)
def test_enumerated_draws_are_the_population(gamma):
    """The list of draws that the proofs enumerate has probability 1 and reaches each item by its weight."""
    reached = torch.zeros(enumeration.ITEMS, dtype=torch.double)
    for draw in enumeration.draws(gamma, 2):
        reached.index_add_(0, draw.items, torch.full((2,), draw.probability / 2, dtype=torch.double))
    torch.testing.assert_close(reached, torch.tensor(enumeration.weights(gamma), dtype=torch.double))
    weights = enumeration.population(gamma).item_weights
    torch.testing.assert_close(reached.float(), weights, rtol=1e-6, atol=0)


def test_on_another_device_the_tensors_move_and_draws_follow_them():
    meta = torch.device("meta")
    moved = [make_population(PAIRS, ITEMS, gamma).to(meta) for gamma in (0.5, 1.0)]
    tensors = [moved[0].importance, *(t for p in moved for t in (p.pair_items, p.item_weights))]
    tensors += moved[1].draw(np.random.default_rng(0), 2)
    assert {tensor.device for tensor in tensors} == {meta}
    assert moved[0].cumulative.tolist() == make_population(PAIRS, ITEMS, 0.5).cumulative.tolist()
