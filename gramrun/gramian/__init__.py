"""Gramian estimators (paper, Section 3).

To add one here: write its file, then list it in `make_estimator`. From outside: `gramrun.gramian.outside`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from gramrun.gramian.control_variate import ControlVariate
from gramrun.gramian.estimator import GramianEstimator, NoGramian
from gramrun.gramian.exact import ExactGramian
from gramrun.gramian.outside import make_outside
from gramrun.gramian.population import Population
from gramrun.gramian.sagram import Beta, CacheEntry, SAGram
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.gramian.sogram import SOGram

ESTIMATOR_NAMES = ("sampling", "sogram", "sagram", "control-variate", "exact", "none")


@dataclass(frozen=True)
class CacheOptions:
    """Where SAGram keeps its embeddings.

    Attributes:
        entry: what has an entry of its own: each item, or each training pair (the paper).
        dtype: float32 or bfloat16.
        folder: where the caches are memory-mapped, or None for memory.
        rebuild_every: steps between two sums of Ŝ from its caches; 0 for never.
    """

    entry: CacheEntry = "item"
    dtype: torch.dtype = torch.float32
    folder: Path | None = None
    rebuild_every: int = 0


def make_estimator(
    name: str,
    *,
    embedding_dim: int,
    population: Population,
    companion_dim: int = 0,
    schedule: AlphaSchedule | None = None,
    debias: bool = False,
    exact_start: bool = False,
    beta: Beta = "1",
    project: bool = True,
    cache: CacheOptions | None = None,
) -> GramianEstimator:
    """Make the estimator of one side's Gramian.

    Args:
        name: one of `ESTIMATOR_NAMES`, or ``module:name`` of one from outside, which is given the sizes, the
            population and the schedule.
        embedding_dim: k.
        population: what the Gramian is the mean over.
        companion_dim: r, how many companions an item has (`gramrun.gramian.batch`).
        schedule: for ``sogram`` and ``control-variate``: the Gramian learning rate α_t; 0.01 without it.
        debias: for ``sogram``: whether the estimate is divided by the sum of its weights.
        exact_start: for ``sogram``: whether Ĝ(0) is the exact Gramian instead of 0.
        beta: for ``sagram``: ``"1/n"`` (SAG) or ``"1"`` (SAGA).
        project: whether to project onto the PSD cone, for the methods that can leave it: ``sagram`` with
            β = 1, ``control-variate``, and ``sogram`` with a cache.
        cache: for ``sagram``; for ``sogram`` and ``control-variate`` its presence makes F_t, the unbiased
            estimate that they average, a SAGA estimate instead of the batch's mean.

    Raises:
        ValueError: for an unknown name, or options that do not go together.
        ConfigError: for an estimator from outside that cannot be imported or made.

    Example:
        Two items of equal weight on one axis each: G is half the identity, which a batch of both sees.

        >>> from gramrun.gramian.batch import GramianBatch
        >>> from gramrun.gramian.population import make_population
        >>> population = make_population(torch.tensor([0, 1]), items=2, gamma=0.0)
        >>> estimator = make_estimator("sogram", embedding_dim=2, population=population, debias=True)
        >>> estimator.observe(GramianBatch(torch.tensor([0, 1]), torch.eye(2)))
        >>> estimator.gramian
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    schedule = schedule or AlphaSchedule(0.01)
    if ":" in name:
        return make_outside(name, embedding_dim, population, schedule, companion_dim)

    def sagram(beta: Beta, project: bool) -> SAGram:
        options = cache or CacheOptions()
        return SAGram(
            embedding_dim,
            population,
            beta,
            project=project,
            entry=options.entry,
            dtype=options.dtype,
            folder=options.folder,
            rebuild_every=options.rebuild_every,
            companion_dim=companion_dim,
        )

    def fresh() -> GramianEstimator:
        return Sampling(embedding_dim, companion_dim) if cache is None else sagram("1", project=False)

    match name:
        case "sampling":
            return Sampling(embedding_dim, companion_dim)
        case "sogram":
            return SOGram(
                embedding_dim,
                population,
                schedule,
                fresh(),
                project=project,
                debias=debias,
                exact_start=exact_start,
                companion_dim=companion_dim,
            )
        case "sagram":
            return sagram(beta, project)
        case "control-variate":
            return ControlVariate(
                embedding_dim, schedule, fresh(), project=project, companion_dim=companion_dim
            )
        case "exact":
            return ExactGramian(embedding_dim, population, companion_dim)
        case "none":
            return NoGramian(embedding_dim, companion_dim)
    raise ValueError(f"no estimator is called {name!r}; there are {', '.join(ESTIMATOR_NAMES)}")
