"""The contract of the Gramian estimators, as checks that any test suite can run.

Each of `CHECKS` takes an estimator (`Listed`), a population and r, and raises AssertionError where the
estimator breaks the contract. tests/contracts.py lists gramrun's own estimators; docs/how-to.md runs the
checks on a custom one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from gramrun.gramian import CacheOptions, make_estimator
from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population

DIM = 5


@dataclass(frozen=True)
class Listed:
    """One configuration of an estimator.

    Attributes:
        name: the name for `make_estimator`.
        options: its other arguments.
        always_psd: whether its Gramians never leave the PSD cone.
    """

    name: str
    options: dict[str, object] = field(default_factory=dict)
    always_psd: bool = True

    def make(self, population: Population, companion_dim: int = 0) -> GramianEstimator:
        """Make it, with k = `DIM`."""
        return make_estimator(
            self.name,
            embedding_dim=DIM,
            population=population,
            companion_dim=companion_dim,
            **self.options,  # type: ignore[arg-type]
        )

    def suits(self, gamma: float) -> bool:
        """Whether it can be made for γ: caches per pair need γ = 1."""
        cache = self.options.get("cache")
        return gamma == 1 or not isinstance(cache, CacheOptions) or cache.entry == "item"


class Trajectory:
    """A random trajectory: embeddings θ(t) of all items, companions, and one drawn batch per step.

    Args:
        population: of the items and draws.
        companion_dim: r.
        steps: number of steps; one more batch is drawn, for looking ahead.
        batch: |B|.
        seed: of everything.
        device: of the tensors.
    """

    def __init__(
        self,
        population: Population,
        companion_dim: int,
        steps: int,
        batch: int,
        seed: int,
        device: str | torch.device = "cpu",
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        items = len(population.item_weights)
        self.steps = range(steps)
        self.population = population
        self.companion_dim = companion_dim
        self.companions = (
            torch.randn(items, companion_dim, generator=generator).to(device) if companion_dim else None
        )
        self.theta: list[Tensor] = []
        theta = torch.randn(items, DIM, generator=generator)
        for _ in range(steps):
            theta = theta * 0.8 + torch.randn(items, DIM, generator=generator)
            self.theta.append(theta.to(device))
        self._drawn = [
            tuple(None if ids is None else ids.to(device) for ids in drawn)
            for drawn in (population.draw(np.random.default_rng((seed, t)), batch) for t in range(steps + 1))
        ]

    def rows(self, items: Tensor, t: int, pairs: Tensor | None = None) -> GramianBatch:
        """Any items under θ(t)."""
        companions = None if self.companions is None else self.companions[items]
        return GramianBatch(items, self.theta[t][items], companions, pairs)

    def drawn(self, step: int, t: int) -> GramianBatch:
        """The batch of `step` under θ(t)."""
        items, pairs = self._drawn[step]
        assert items is not None
        return self.rows(items, t, pairs)

    def chunks(self) -> list[GramianBatch]:
        """All items under θ(0), four at a time."""
        items = torch.arange(len(self.theta[0]), device=self.theta[0].device)
        return [self.rows(chunk, 0) for chunk in items.split(4)]

    def start(self, estimator: GramianEstimator) -> GramianEstimator:
        """Start the estimator under θ(0) where it needs that."""
        if estimator.needs_start:
            estimator.start(self.chunks())
        return estimator

    def started(self, listed: Listed) -> GramianEstimator:
        """Make and start an estimator."""
        return self.start(listed.make(self.population, self.companion_dim))

    def observe(self, estimator: GramianEstimator, t: int) -> Tensor:
        """Let the estimator observe step t and look ahead; return a copy of its moments."""
        if estimator.observes == "corpus":
            estimator.observe(self.rows(self.population.weighted_items.to(self.theta[t].device), t))
        else:
            estimator.observe(self.drawn(t, t))
        if estimator.looks_ahead:
            estimator.look_ahead(self.drawn(t + 1, t))
        return estimator.moments.clone()


def check_shape_and_symmetry(listed: Listed, population: Population, companion_dim: int) -> None:
    """Moments are finite float32 of shape (k, k + r), and Ĝ is symmetric."""
    trajectory = Trajectory(population, companion_dim, steps=12, batch=8, seed=1)
    estimator = trajectory.started(listed)
    for t in trajectory.steps:
        moments = trajectory.observe(estimator, t)
        assert moments.shape == (DIM, DIM + companion_dim)
        assert moments.dtype == torch.float32
        assert torch.isfinite(moments).all()
        assert torch.equal(torch.cat([estimator.gramian, estimator.cross], 1), moments)
        torch.testing.assert_close(estimator.gramian, estimator.gramian.T)


def check_psd(listed: Listed, population: Population, companion_dim: int) -> float:
    """Ĝ stays in the PSD cone where `always_psd`; returns its most negative relative eigenvalue."""
    trajectory = Trajectory(population, companion_dim, steps=60, batch=2, seed=2)
    estimator = trajectory.started(listed)
    worst = 0.0
    for t in trajectory.steps:
        trajectory.observe(estimator, t)
        eigenvalues = torch.linalg.eigvalsh(estimator.gramian.double())
        worst = min(worst, float(eigenvalues[0] / eigenvalues[-1].abs().clamp_min(1e-30)))
    if listed.always_psd:
        assert worst > -1e-5
    return worst


def check_state_round_trip(listed: Listed, population: Population, companion_dim: int) -> None:
    """A restored estimator continues bit for bit, without a start of its own."""
    trajectory = Trajectory(population, companion_dim, steps=8, batch=8, seed=3)
    original = trajectory.started(listed)
    for t in trajectory.steps[:4]:
        trajectory.observe(original, t)
    restored = listed.make(population, companion_dim)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    assert torch.equal(original.moments, restored.moments)
    for t in trajectory.steps[4:]:
        assert torch.equal(trajectory.observe(original, t), trajectory.observe(restored, t))


def check_determinism(listed: Listed, population: Population, companion_dim: int) -> None:
    """Two estimators with the same observations have the same moments, bit for bit."""
    trajectory = Trajectory(population, companion_dim, steps=8, batch=8, seed=4)
    first, second = trajectory.started(listed), trajectory.started(listed)
    for t in trajectory.steps:
        assert torch.equal(trajectory.observe(first, t), trajectory.observe(second, t))


def check_no_gradients(listed: Listed, population: Population, companion_dim: int) -> None:
    """Observed embeddings and companions stay unchanged, and no buffer belongs to their graph."""
    trajectory = Trajectory(population, companion_dim, steps=2, batch=8, seed=5)
    leaves = [leaf for leaf in (*trajectory.theta, trajectory.companions) if leaf is not None]
    before = [leaf.clone() for leaf in leaves]
    for leaf in leaves:
        leaf.requires_grad_()
    estimator = trajectory.started(listed)
    for t in trajectory.steps:
        trajectory.observe(estimator, t)
    assert all(not buffer.requires_grad for buffer in estimator.buffers())
    assert not list(estimator.parameters())
    assert all(torch.equal(a.detach(), b) for a, b in zip(leaves, before, strict=True))


def check_companions(listed: Listed, population: Population, companion_dim: int) -> None:
    """Companions do not change a bit of Ĝ."""
    without, with_companions = (Trajectory(population, 0, steps=8, batch=8, seed=7) for _ in range(2))
    items = len(population.item_weights)
    generator = torch.Generator().manual_seed(companion_dim)
    with_companions.companions, with_companions.companion_dim = torch.randn(items, 3, generator=generator), 3
    first, second = without.started(listed), with_companions.started(listed)
    for t in without.steps:
        without.observe(first, t)
        with_companions.observe(second, t)
        assert torch.equal(first.gramian, second.gramian)


def check_needs_rows(listed: Listed, population: Population, companion_dim: int) -> None:
    """Half of the rows with the moments of the whole batch suffice if and only if not `needs_rows`."""
    trajectory = Trajectory(population, companion_dim, steps=3, batch=8, seed=8)
    whole, half = trajectory.started(listed), trajectory.started(listed)
    for t in trajectory.steps:
        batch = trajectory.drawn(t, t)
        whole.observe(batch)
        half.observe(replace(batch.first(4), moments=batch_moments(batch)))
    assert whole.needs_rows is (not torch.equal(whole.moments, half.moments))


def check_needs_start(listed: Listed, population: Population, companion_dim: int) -> None:
    """`start` changes the moments if and only if `needs_start`."""
    trajectory = Trajectory(population, companion_dim, steps=1, batch=8, seed=9)
    started, other = (listed.make(population, companion_dim) for _ in range(2))
    started.start(trajectory.chunks())
    before = started.moments.clone(), other.moments.clone()
    after = trajectory.observe(started, 0), trajectory.observe(other, 0)
    assert started.needs_start is (not (torch.equal(*before) and torch.equal(*after)))


def check_looks_ahead(listed: Listed, population: Population, companion_dim: int) -> None:
    """`look_ahead` changes the moments if and only if `looks_ahead`."""
    trajectory = Trajectory(population, companion_dim, steps=2, batch=8, seed=10)
    ahead, blind = trajectory.started(listed), trajectory.started(listed)
    for t in trajectory.steps:
        for estimator in (ahead, blind):
            estimator.observe(trajectory.drawn(t, t))
        ahead.look_ahead(trajectory.drawn(t + 1, t))
    assert ahead.looks_ahead is (not torch.equal(ahead.moments, blind.moments))


CHECKS: dict[str, Callable[[Listed, Population, int], object]] = {
    "shape and symmetry": check_shape_and_symmetry,
    "positive semidefinite": check_psd,
    "state round trip": check_state_round_trip,
    "determinism": check_determinism,
    "no gradients": check_no_gradients,
    "companions": check_companions,
    "needs_rows": check_needs_rows,
    "needs_start": check_needs_start,
    "looks_ahead": check_looks_ahead,
}
