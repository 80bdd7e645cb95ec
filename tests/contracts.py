"""What every Gramian estimator promises. A new estimator passes by being listed in `ESTIMATORS`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gramrun.gramian import make_estimator
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population

DIM = 5


@dataclass(frozen=True)
class Listed:
    """One configuration of an estimator, and whether its Gramians never leave the PSD cone."""

    arguments: dict[str, object]
    always_psd: bool = True

    def make(self, population: Population, dim: int = DIM) -> GramianEstimator:
        return make_estimator(embedding_dim=dim, population=population, **self.arguments)  # type: ignore[arg-type]


ESTIMATORS = {
    "sampling": Listed({"name": "sampling"}),
    "sogram": Listed({"name": "sogram", "alpha": 0.1}),
    "sagram-sag": Listed({"name": "sagram", "beta": "1/n"}),
    "sagram-saga": Listed({"name": "sagram", "beta": "1"}),
    "sagram-saga-unprojected": Listed({"name": "sagram", "beta": "1", "project": False}, always_psd=False),
    "exact": Listed({"name": "exact"}),
}


def trajectory(
    population: Population, steps: int, batch: int, seed: int
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """A wild trajectory: (embeddings of all items, drawn members, drawn embeddings) a step."""
    generator = torch.Generator().manual_seed(seed)
    items = len(population.item_weights)
    theta = torch.randn(items, DIM, generator=generator)
    result = []
    for _ in range(steps):
        theta = theta * 0.8 + torch.randn(items, DIM, generator=generator)
        members = torch.randint(population.size, (batch,), generator=generator)
        result.append((theta.clone(), members, theta[population.member_items[members]]))
    return result


def show(estimator: GramianEstimator, step: tuple[Tensor, Tensor, Tensor], population: Population) -> Tensor:
    """Let an estimator observe one step of a trajectory; return a copy of its Gramian."""
    theta, members, embeddings = step
    if estimator.observes_corpus:
        items = population.item_weights.nonzero().squeeze(1)
        estimator.observe(items, theta[items])
    else:
        estimator.observe(members, embeddings)
    return estimator.gramian.clone()


def started(listed: Listed, population: Population, item_embeddings: Tensor) -> GramianEstimator:
    estimator = listed.make(population)
    if estimator.needs_start:
        estimator.start(item_embeddings)
    return estimator


def check_shape_and_symmetry(listed: Listed, population: Population) -> None:
    steps = trajectory(population, 20, 8, seed=1)
    estimator = started(listed, population, steps[0][0])
    for step in steps:
        gramian = show(estimator, step, population)
        assert gramian.shape == (DIM, DIM)
        assert gramian.dtype == torch.float32
        assert torch.isfinite(gramian).all()
        torch.testing.assert_close(gramian, gramian.T)


def check_psd(listed: Listed, population: Population) -> float:
    """The most negative eigenvalue over a trajectory, relative to the largest one."""
    steps = trajectory(population, 200, 2, seed=2)
    estimator = started(listed, population, steps[0][0])
    worst = 0.0
    for step in steps:
        eigenvalues = torch.linalg.eigvalsh(show(estimator, step, population).double())
        worst = min(worst, float(eigenvalues[0] / eigenvalues[-1].abs()))
    if listed.always_psd:
        assert worst > -1e-5
    return worst


def check_state_round_trip(listed: Listed, population: Population) -> None:
    """A restored estimator goes on bit for bit, also when it was never started itself."""
    steps = trajectory(population, 10, 8, seed=3)
    original = started(listed, population, steps[0][0])
    for step in steps[:5]:
        show(original, step, population)
    restored = listed.make(population)
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    assert torch.equal(original.gramian, restored.gramian)
    for step in steps[5:]:
        assert torch.equal(show(original, step, population), show(restored, step, population))


def check_determinism(listed: Listed, population: Population) -> None:
    steps = trajectory(population, 10, 8, seed=4)
    first, second = (started(listed, population, steps[0][0]) for _ in range(2))
    for step in steps:
        assert torch.equal(show(first, step, population), show(second, step, population))


def check_no_gradient_leaks(listed: Listed, population: Population) -> None:
    """Observed embeddings stay as they were, and no Gramian or cache belongs to their graph."""
    theta, members, embeddings = trajectory(population, 1, 8, seed=5)[0]
    leaf_theta, leaf = theta.clone().requires_grad_(), embeddings.clone().requires_grad_()
    estimator = started(listed, population, leaf_theta)
    show(estimator, (leaf_theta, members, leaf), population)
    assert all(not buffer.requires_grad for buffer in estimator.buffers())
    assert not list(estimator.parameters())
    assert torch.equal(leaf.detach(), embeddings)
    assert torch.equal(leaf_theta.detach(), theta)


def check_device_moves(listed: Listed, population: Population, device: torch.device) -> None:
    """On another device the estimator gives the same Gramians to float tolerance."""
    steps = trajectory(population, 10, 8, seed=6)
    here = started(listed, population, steps[0][0])
    there = listed.make(population).to(device)
    if there.needs_start:
        there.start(steps[0][0].to(device))
    for theta, members, embeddings in steps:
        expected = show(here, (theta, members, embeddings), population)
        moved = (theta.to(device), members.to(device), embeddings.to(device))
        moved_population = Population(
            population.member_items.to(device), population.item_weights.to(device), population.importance
        )
        torch.testing.assert_close(show(there, moved, moved_population).cpu(), expected, rtol=1e-4, atol=1e-5)


CHECKS: dict[str, Callable[[Listed, Population], object]] = {
    "shape and symmetry": check_shape_and_symmetry,
    "positive semidefinite where promised": check_psd,
    "state round trip": check_state_round_trip,
    "determinism": check_determinism,
    "no gradient leaks": check_no_gradient_leaks,
}
