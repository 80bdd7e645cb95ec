"""Gramian estimators (paper, Section 3), one file each, and the objectives that use them.

To add an estimator, write its file, and list it in `make_estimator`, in `gramrun.config.estimator` and in
tests/contracts.py. An estimator of your own package needs none of that: see `gramrun.gramian.custom`.
"""

from __future__ import annotations

from gramrun.gramian.cache import CacheOptions
from gramrun.gramian.control_variate import ControlVariate
from gramrun.gramian.custom import make_custom
from gramrun.gramian.estimator import GramianEstimator, NoGramian
from gramrun.gramian.exact import ExactGramian
from gramrun.gramian.population import Population
from gramrun.gramian.sagram import Beta, SAGram
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.gramian.sogram import SOGram

__all__ = ["ESTIMATOR_NAMES", "CacheOptions", "make_estimator"]

ESTIMATOR_NAMES = ("sampling", "sogram", "sagram", "control-variate", "exact", "none")


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
        name: one of `ESTIMATOR_NAMES`, or ``module:name`` of a custom estimator, which gets the sizes, the
            population and the schedule.
        embedding_dim: k.
        population: the distribution of which the Gramian is the mean.
        companion_dim: r, the number of companions of an item (`gramrun.gramian.batch`).
        schedule: for ``sogram``, ``control-variate`` and custom ones: α_t; constant 0.01 by default.
        debias: for ``sogram``: whether to divide the estimate by the sum of its weights.
        exact_start: for ``sogram``: whether Ĝ(0) is the exact Gramian instead of 0.
        beta: for ``sagram``: ``"1/n"`` (SAG) or ``"1"`` (SAGA).
        project: whether to project onto the PSD cone: for ``sagram`` with β = 1, ``control-variate``, and
            ``sogram`` with a cache.
        cache: for ``sagram``. For ``sogram`` and ``control-variate`` it makes F_t, the unbiased estimate that
            they average, a SAGA estimate instead of the mean of the batch.

    Raises:
        ValueError: for an unknown name, or options that exclude each other.
        ConfigError: for a custom estimator that cannot be imported or made.

    Example:
        Two items of equal weight, one on each axis, in one batch: G is half the identity.

        >>> import torch
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
        return make_custom(name, embedding_dim, population, schedule, companion_dim)

    def unbiased() -> GramianEstimator:
        if cache is None:
            return Sampling(embedding_dim, companion_dim)
        return SAGram(embedding_dim, population, cache=cache, project=False, companion_dim=companion_dim)

    match name:
        case "sampling":
            return Sampling(embedding_dim, companion_dim)
        case "sogram":
            return SOGram(
                embedding_dim,
                population,
                schedule,
                unbiased(),
                project=project,
                debias=debias,
                exact_start=exact_start,
                companion_dim=companion_dim,
            )
        case "sagram":
            return SAGram(
                embedding_dim,
                population,
                beta,
                cache=cache,
                project=project,
                companion_dim=companion_dim,
            )
        case "control-variate":
            return ControlVariate(
                embedding_dim, schedule, unbiased(), project=project, companion_dim=companion_dim
            )
        case "exact":
            return ExactGramian(embedding_dim, population, companion_dim)
        case "none":
            return NoGramian(embedding_dim, companion_dim)
    raise ValueError(f"no estimator is called {name!r}; there are {', '.join(ESTIMATOR_NAMES)}")
