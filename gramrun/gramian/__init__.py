"""Gramian estimators (paper, Section 3). To add one: write its file, then list it in `make_estimator`."""

from __future__ import annotations

from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.exact import ExactGramian
from gramrun.gramian.population import Population
from gramrun.gramian.sagram import Beta, SAGram
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.sogram import SOGram

ESTIMATOR_NAMES = ("sampling", "sogram", "sagram", "exact")


def make_estimator(
    name: str,
    *,
    embedding_dim: int,
    population: Population,
    alpha: float = 0.01,
    beta: Beta = "1",
    project: bool = True,
) -> GramianEstimator:
    """Make the estimator of one side's Gramian.

    Args:
        name: one of `ESTIMATOR_NAMES`.
        embedding_dim: k.
        population: what the Gramian is the mean over.
        alpha: for ``sogram``: the Gramian learning rate α, in (0, 1].
        beta: for ``sagram``: ``"1/n"`` (SAG) or ``"1"`` (SAGA).
        project: for ``sagram`` with β = 1: whether to project onto the PSD cone.

    Raises:
        ValueError: for an unknown name or an α outside its range.
    """
    match name:
        case "sampling":
            return Sampling(embedding_dim)
        case "sogram":
            return SOGram(embedding_dim, alpha)
        case "sagram":
            return SAGram(embedding_dim, population, beta, project)
        case "exact":
            return ExactGramian(embedding_dim, population)
    raise ValueError(f"no estimator is called {name!r}; there are {', '.join(ESTIMATOR_NAMES)}")
