"""A corpus of four pairs and four items (item 2 has no pair), on which expectations are finite sums over all draws.

A state is (probability, estimator). `advance` follows every state by every draw, so after t steps the states are the
whole distribution, and `mean` and `mean_square_error` are exact.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gramrun.gramian import make_estimator
from gramrun.gramian.batch import GramianBatch
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population, make_population

DIM = 3
PAIR_ITEMS = torch.tensor([0, 0, 1, 3])
PAIRS = len(PAIR_ITEMS)
ITEMS = 4
GAMMAS = [1.0, 0.5, 0.0]
WEIGHT_ERROR = 1e-6  # item weights are float32; everything else is float64

State = tuple[float, GramianEstimator]


@dataclass(frozen=True)
class Draw:
    """A possible batch: its probability, its items, and its pairs if it was drawn as pairs."""

    probability: float
    items: Tensor
    pairs: Tensor | None

    def batch(
        self, theta: Tensor, companions: Tensor | None = None, importance: Tensor | None = None
    ) -> GramianBatch:
        """The batch with the given columns of all items."""
        return GramianBatch(
            self.items,
            theta[self.items],
            None if companions is None else companions[self.items],
            self.pairs,
            None if importance is None else importance[self.items],
        )


def population(gamma: float) -> Population:
    return make_population(PAIR_ITEMS, ITEMS, gamma)


def embeddings(seed: int, rows: int = ITEMS, dim: int = DIM) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def weights(gamma: float) -> list[float]:
    """w_x = f_x^γ / sum_y f_y^γ over items with pairs, in Python floats."""
    counts = [PAIR_ITEMS.tolist().count(item) for item in range(ITEMS)]
    powers = [count**gamma if count else 0.0 for count in counts]
    return [power / sum(powers) for power in powers]


def definition(theta: Tensor, gamma: float, companions: Tensor | None = None) -> Tensor:
    """sum_x w_x u(x) ⊗ [u(x), c(x)], item by item: at γ = 1 equation 4, the mean over all pairs."""
    total = torch.zeros(theta.shape[1], theta.shape[1] + (0 if companions is None else companions.shape[1]))
    total = total.double()
    for x, weight in enumerate(weights(gamma)):
        right = theta[x] if companions is None else torch.cat([theta[x], companions[x]])
        total += weight * torch.outer(theta[x], right)
    return total


def pair_draws(size: int, *, replacement: bool = True) -> list[Draw]:
    """Every batch of `size` pairs, equally likely, in every order."""
    listed = (
        itertools.product(range(PAIRS), repeat=size)
        if replacement
        else itertools.permutations(range(PAIRS), size)
    )
    batches = [torch.tensor(pairs) for pairs in listed]
    return [Draw(1 / len(batches), PAIR_ITEMS[pairs], pairs) for pairs in batches]


def draws(gamma: float, size: int) -> list[Draw]:
    """Every batch that `Population.draw` can return: pairs at γ = 1, else items, each with probability Π w_x."""
    if gamma == 1:
        return pair_draws(size)
    w = weights(gamma)
    result = []
    for items in itertools.product([x for x in range(ITEMS) if w[x]], repeat=size):
        probability = 1.0
        for x in items:
            probability *= w[x]
        result.append(Draw(probability, torch.tensor(items), None))
    return result


def make(name: str, gamma: float, *, dim: int = DIM, **options: object) -> GramianEstimator:
    """An estimator in double precision."""
    return make_estimator(name, embedding_dim=dim, population=population(gamma), **options).double()  # type: ignore[arg-type]


def started(estimator: GramianEstimator, theta: Tensor, companions: Tensor | None = None) -> GramianEstimator:
    """The estimator, started under `theta` in two chunks out of order."""
    everyone = Draw(1.0, torch.tensor([2, 0]), None), Draw(1.0, torch.tensor([3, 1]), None)
    estimator.start(draw.batch(theta, companions) for draw in everyone)
    return estimator


def advance(
    states: Sequence[State], listed: Sequence[Draw], act: Callable[[GramianEstimator, Draw], None]
) -> list[State]:
    """Every state followed by every draw."""
    result = []
    for probability, estimator in states:
        for draw in listed:
            after = copy.deepcopy(estimator)
            act(after, draw)
            result.append((probability * draw.probability, after))
    return result


def observing(
    theta: Tensor, companions: Tensor | None = None, importance: Tensor | None = None
) -> Callable[[GramianEstimator, Draw], None]:
    """An action for `advance`: observe a draw under `theta`."""

    def act(estimator: GramianEstimator, draw: Draw) -> None:
        estimator.observe(draw.batch(theta, companions, importance))

    return act


def mean(states: Sequence[State]) -> Tensor:
    """E of the moments."""
    return torch.stack([probability * estimator.moments for probability, estimator in states]).sum(0)


def mean_square_error(states: Sequence[State], centre: Tensor) -> float:
    """E‖moments − centre‖²_F."""
    return sum(p * float((estimator.moments - centre).square().sum()) for p, estimator in states)


def variance_of_one(theta: Tensor, gamma: float) -> float:
    """σ² = E‖u⊗u − G‖² of a single draw."""
    exact = definition(theta, gamma)
    return sum(
        w * float((torch.outer(u, u) - exact).square().sum())
        for w, u in zip(weights(gamma), theta, strict=True)
    )
