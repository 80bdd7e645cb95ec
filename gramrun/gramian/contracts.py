"""What every Gramian estimator promises, as checks that any test suite can run.

Each of `CHECKS` takes an estimator (`Listed`), a population and r, and raises AssertionError where a promise
is broken. gramrun's own estimators are listed in tests/contracts.py; docs/how-to.md runs the checks on one
from outside.
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
        name: as `make_estimator` knows it.
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
        """Whether it can be made for γ: caches per pair need pairs to be drawn."""
        cache = self.options.get("cache")
        return gamma == 1 or not isinstance(cache, CacheOptions) or cache.entry == "item"


class Trajectory:
    """A wild trajectory: embeddings θ(t) of all items, companions, and a drawn batch a step.

    Args:
        population: of the items and draws.
        companion_dim: r.
        steps: how many steps there are; one more batch is drawn, for looking ahead.
        batch: |B|.
        seed: of everything.
        device: where the tensors lie.
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

    def start(self, estimator: GramianEstimator) -> GramianEstimator:
        """Start the estimator under θ(0), in two chunks, where it needs that."""
        if estimator.needs_start:
            items = torch.arange(len(self.theta[0]), device=self.theta[0].device)
            estimator.start(self.rows(chunk, 0) for chunk in items.split(4))
        return estimator

    def show(self, estimator: GramianEstimator, t: int) -> Tensor:
        """Let the estimator observe step t, and look ahead; return a copy of its moments."""
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
    estimator = trajectory.start(listed.make(population, companion_dim))
    for t in trajectory.steps:
        moments = trajectory.show(estimator, t)
        assert moments.shape == (DIM, DIM + companion_dim)
        assert moments.dtype == torch.float32
        assert torch.isfinite(moments).all()
        assert torch.equal(torch.cat([estimator.gramian, estimator.cross], 1), moments)
        torch.testing.assert_close(estimator.gramian, estimator.gramian.T)


def check_psd(listed: Listed, population: Population, companion_dim: int) -> float:
    """The most negative eigenvalue over a trajectory, relative to the largest one."""
    trajectory = Trajectory(population, companion_dim, steps=60, batch=2, seed=2)
    estimator = trajectory.start(listed.make(population, companion_dim))
    worst = 0.0
    for t in trajectory.steps:
        trajectory.show(estimator, t)
        eigenvalues = torch.linalg.eigvalsh(estimator.gramian.double())
        worst = min(worst, float(eigenvalues[0] / eigenvalues[-1].abs().clamp_min(1e-30)))
    if listed.always_psd:
        assert worst > -1e-5
    return worst


def check_state_round_trip(listed: Listed, population: Population, companion_dim: int) -> None:
    """A restored estimator goes on bit for bit, also when it was never started itself."""
    trajectory = Trajectory(population, companion_dim, steps=8, batch=8, seed=3)
    original = trajectory.start(listed.make(population, companion_dim))
    for t in trajectory.steps[:4]:
        trajectory.show(original, t)
    restored = listed.make(population, companion_dim)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    assert torch.equal(original.moments, restored.moments)
    for t in trajectory.steps[4:]:
        assert torch.equal(trajectory.show(original, t), trajectory.show(restored, t))


def check_determinism(listed: Listed, population: Population, companion_dim: int) -> None:
    """Two estimators that see the same have the same moments, bit for bit."""
    trajectory = Trajectory(population, companion_dim, steps=8, batch=8, seed=4)
    first, second = (trajectory.start(listed.make(population, companion_dim)) for _ in range(2))
    for t in trajectory.steps:
        assert torch.equal(trajectory.show(first, t), trajectory.show(second, t))


def check_no_gradient_leaks(listed: Listed, population: Population, companion_dim: int) -> None:
    """Observed embeddings and companions stay as they were, and no buffer belongs to their graph."""
    trajectory = Trajectory(population, companion_dim, steps=2, batch=8, seed=5)
    kept = [leaf for leaf in (*trajectory.theta, trajectory.companions) if leaf is not None]
    before = [leaf.clone() for leaf in kept]
    for leaf in kept:
        leaf.requires_grad_()
    estimator = trajectory.start(listed.make(population, companion_dim))
    for t in trajectory.steps:
        trajectory.show(estimator, t)
    assert all(not buffer.requires_grad for buffer in estimator.buffers())
    assert not list(estimator.parameters())
    assert all(torch.equal(a.detach(), b) for a, b in zip(kept, before, strict=True))


def check_companions_leave_the_gramian(listed: Listed, population: Population, companion_dim: int) -> None:
    """Whatever the companions are, Ĝ is the same to the last bit: they ride along."""
    plain = Trajectory(population, 0, steps=8, batch=8, seed=7)
    beside = Trajectory(population, 0, steps=8, batch=8, seed=7)
    beside.companions = torch.randn(
        len(plain.theta[0]), 3, generator=torch.Generator().manual_seed(companion_dim)
    )
    first, second = plain.start(listed.make(population)), beside.start(listed.make(population, 3))
    for t in plain.steps:
        plain.show(first, t)
        beside.show(second, t)
        assert torch.equal(first.gramian, second.gramian)


def check_rows_are_needed_where_it_says_so(
    listed: Listed, population: Population, companion_dim: int
) -> None:
    """Half of a batch's rows with the moments of them all are as good as all rows, unless `needs_rows`."""
    trajectory = Trajectory(population, companion_dim, steps=3, batch=8, seed=8)
    whole, half = (trajectory.start(listed.make(population, companion_dim)) for _ in range(2))
    for t in trajectory.steps:
        batch = trajectory.drawn(t, t)
        whole.observe(batch)
        half.observe(replace(batch.first(4), moments=batch_moments(batch)))
    assert whole.needs_rows is (not torch.equal(whole.moments, half.moments))


def check_the_start_matters_where_it_says_so(
    listed: Listed, population: Population, companion_dim: int
) -> None:
    """One that was started is another one from then on if it has `needs_start`, and the same one if not."""
    trajectory = Trajectory(population, companion_dim, steps=1, batch=8, seed=9)
    started, other = (listed.make(population, companion_dim) for _ in range(2))
    started.start(trajectory.rows(items, 0) for items in torch.arange(len(trajectory.theta[0])).split(4))
    before = started.moments.clone(), other.moments.clone()
    after = trajectory.show(started, 0), trajectory.show(other, 0)
    assert started.needs_start is (not (torch.equal(*before) and torch.equal(*after)))


def check_looking_ahead_matters_where_it_says_so(
    listed: Listed, population: Population, companion_dim: int
) -> None:
    """One that looks ahead has other moments than one that does not, if it has `looks_ahead`."""
    trajectory = Trajectory(population, companion_dim, steps=2, batch=8, seed=10)
    ahead, blind = (trajectory.start(listed.make(population, companion_dim)) for _ in range(2))
    for t in trajectory.steps:
        for estimator in (ahead, blind):
            estimator.observe(trajectory.drawn(t, t))
        ahead.look_ahead(trajectory.drawn(t + 1, t))
    assert ahead.looks_ahead is (not torch.equal(ahead.moments, blind.moments))


def check_device_moves(
    listed: Listed, population: Population, companion_dim: int, device: torch.device
) -> None:
    """On another device the estimator gives the same moments to float tolerance."""
    here = Trajectory(population, companion_dim, steps=8, batch=8, seed=6)
    there = Trajectory(population, companion_dim, steps=8, batch=8, seed=6, device=device)
    first = here.start(listed.make(population, companion_dim))
    second = there.start(listed.make(population, companion_dim).to(device))
    for t in here.steps:
        expected = here.show(first, t)
        torch.testing.assert_close(there.show(second, t).cpu(), expected, rtol=1e-4, atol=1e-5)


CHECKS: dict[str, Callable[[Listed, Population, int], object]] = {
    "shape and symmetry": check_shape_and_symmetry,
    "positive semidefinite where promised": check_psd,
    "state round trip": check_state_round_trip,
    "determinism": check_determinism,
    "no gradient leaks": check_no_gradient_leaks,
    "companions leave the Gramian": check_companions_leave_the_gramian,
    "rows are needed where it says so": check_rows_are_needed_where_it_says_so,
    "the start matters where it says so": check_the_start_matters_where_it_says_so,
    "looking ahead matters where it says so": check_looking_ahead_matters_where_it_says_so,
}
