"""The objectives: a loss of the observed pairs, and a term over all pairs known by estimated Gramians.

    gravity          (1/n) sum_i ℓ(⟨u_i, v_i⟩, s_i) + λ g              (paper, equation 6; Appendix C's prior)
    taylor-softmax   (1/n) sum_i [−log h(⟨u_i, v_i⟩) + λ log Z(u_i)]   (`gramrun.gramian.taylor_softmax`)
    batch-softmax    the logQ-corrected softmax over the right items of the batch, a baseline

An objective prepares the batches that the two estimators observe (`statistics`), and computes the loss whose
gradient is the step (`terms`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from gramrun.base.errors import ConfigError
from gramrun.config import PriorSection, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.gramian import taylor_softmax
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.low_rank_prior import LowRankPrior, load_prior, popularity_prior, svd_prior
from gramrun.gramian.population import Population
from gramrun.gramian.surrogate import GravitySide, gravity, gravity_surrogate
from gramrun.training.batch_softmax import batch_softmax_loss


@dataclass(frozen=True)
class GradientBatch:
    """A process's part of the batch B' under the current parameters.

    Attributes:
        left_items: int64, shape (B',).
        right_items: int64, shape (B',).
        left: u, shape (B', k), requiring gradients.
        right: v, shape (B', k), requiring gradients.
        target: s, shape (B',), or 1 for all.
        left_importance: shape (B',), or None for 1 (`gramrun.gramian.population`).
        right_importance: the same for the right items.
    """

    left_items: Tensor
    right_items: Tensor
    left: Tensor
    right: Tensor
    target: Tensor | float
    left_importance: Tensor | None
    right_importance: Tensor | None


class Objective(ABC):
    """Base of the objectives.

    Attributes:
        companion_dim: r, how many companions the estimators track beside the embeddings.
    """

    companion_dim: int = 0

    def statistics(self, side: str, batch: GramianBatch, other: GramianEstimator | None) -> GramianBatch:
        """Return the batch that the estimator of `side` observes.

        Args:
            side: ``left`` or ``right``.
            batch: the embeddings of drawn items.
            other: the right side's estimator if `side` is left; None if it is right.
        """
        return batch

    @abstractmethod
    def terms(
        self, batch: GradientBatch, left: GramianEstimator, right: GramianEstimator
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of the observed pairs and the surrogate of the term over all pairs, two scalars."""

    def penalty(self, left_moments: Tensor, right_moments: Tensor) -> float | None:
        """Return the term over all pairs, from moments of shape (k, k + r); None if they do not give it."""
        return None


class Gravity(Objective):
    """The paper's objective, with a prior of rank 0 or more.

    Args:
        prior: the low-rank prior p_xy = ⟨q_x, r_y⟩, or None for 0.
        prior_gravity: ⟨G_q, G_r⟩, the constant term of g.
    """

    def __init__(self, prior: LowRankPrior | None, prior_gravity: float = 0.0) -> None:
        self.prior = prior
        self.prior_gravity = prior_gravity
        self.companion_dim = 0 if prior is None else prior.rank

    def statistics(self, side: str, batch: GramianBatch, other: GramianEstimator | None) -> GramianBatch:
        """Add the items' prior vectors as companions."""
        if self.prior is None:
            return batch
        vectors = self.prior.left if side == "left" else self.prior.right
        return replace(batch, companions=vectors[batch.items])

    def terms(
        self, batch: GradientBatch, left: GramianEstimator, right: GramianEstimator
    ) -> tuple[Tensor, Tensor]:
        """Return the squared error and ĝ."""
        prior = self.prior
        q = None if prior is None else prior.left[batch.left_items]
        r = None if prior is None else prior.right[batch.right_items]
        surrogate = gravity_surrogate(
            GravitySide(batch.left, batch.left_importance, q),
            GravitySide(batch.right, batch.right_importance, r),
            left.gramian,
            right.gramian,
            left.cross,
            right.cross,
        )
        return squared_error(batch.left, batch.right, batch.target), surrogate

    def penalty(self, left_moments: Tensor, right_moments: Tensor) -> float:
        """Return g = ⟨G_u, G_v⟩ − 2⟨H_u, H_v⟩ + ⟨G_q, G_r⟩."""
        k = len(left_moments)
        u, v = left_moments.double(), right_moments.double()
        cross = (u[:, k:] * v[:, k:]).sum()
        return float(gravity(u[:, :k], v[:, :k]) - 2 * cross) + self.prior_gravity


class TaylorSoftmax(Objective):
    """The Taylor softmax over all right items."""

    companion_dim = 1

    def statistics(self, side: str, batch: GramianBatch, other: GramianEstimator | None) -> GramianBatch:
        """Right: add a companion 1. Left: scale the rows by 1/√Z, and add that as the companion."""
        if side == "right":
            return replace(batch, companions=torch.ones_like(batch.embeddings[:, :1]))
        assert other is not None
        rows, scale = taylor_softmax.left_rows(batch.embeddings, other.cross[:, 0], other.gramian)
        return replace(batch, embeddings=rows, companions=scale)

    def terms(
        self, batch: GradientBatch, left: GramianEstimator, right: GramianEstimator
    ) -> tuple[Tensor, Tensor]:
        """Return −log h and the surrogate of log Z."""
        surrogate = taylor_softmax.partition_surrogate(
            GravitySide(batch.left),
            GravitySide(batch.right, batch.right_importance),
            left.gramian,
            right.gramian,
            left.cross[:, 0],
            right.cross[:, 0],
        )
        return taylor_softmax.observed_loss(batch.left, batch.right), surrogate


class BatchSoftmax(Objective):
    """The logQ-corrected in-batch softmax, a baseline.

    Args:
        right_log_probability: float32, shape (right items,). log(f_y / n), the frequency of y in batches.
        temperature: scores are ⟨u, v⟩ / temperature.
    """

    def __init__(self, right_log_probability: Tensor, temperature: float) -> None:
        self.right_log_probability = right_log_probability
        self.temperature = temperature

    def terms(
        self, batch: GradientBatch, left: GramianEstimator, right: GramianEstimator
    ) -> tuple[Tensor, Tensor]:
        """Return the softmax loss and 0."""
        items = batch.right_items
        log_probability = self.right_log_probability[items]
        loss = batch_softmax_loss(batch.left, batch.right, items, log_probability, self.temperature)
        return loss, loss.new_zeros(())


def companion_dim(config: RunConfig, corpus: SplitCorpus) -> int:
    """Return r, the number of companions of an item under the objective of `config`.

    Raises:
        InputError: when the prior's file does not fit the corpus.
        ConfigError: when its rank is too large.
    """
    if config.train.objective == "taylor-softmax":
        return TaylorSoftmax.companion_dim
    return prior_rank(config.train.prior, corpus)


def make_objective(config: RunConfig, corpus: SplitCorpus, left: Population, right: Population) -> Objective:
    """Make the objective that ``config.train`` names, over the two sides' populations.

    Raises:
        InputError: when the prior's file does not fit the corpus.
        ConfigError: when its rank or its values are too large.
    """
    device = left.item_weights.device
    match config.train.objective:
        case "taylor-softmax":
            return TaylorSoftmax()
        case "batch-softmax":
            frequency = torch.from_numpy(corpus.right_frequency).double()
            log_probability = (frequency / frequency.sum()).log().float().to(device)
            return BatchSoftmax(log_probability, config.train.temperature)
    prior = make_prior(config.train.prior, corpus, target=config.train.target, seed=config.train.seed)
    if prior is None:
        return Gravity(None)
    prior = LowRankPrior(prior.left.to(device), prior.right.to(device))
    q, r = (
        weighted_moments(
            [GramianBatch(torch.arange(len(rows), device=device), rows)], population.item_weights
        )
        for rows, population in ((prior.left, left), (prior.right, right))
    )
    prior_gravity = float((q * r).sum())
    if not math.isfinite(prior_gravity):
        raise ConfigError("train.prior is so large that its own gravity is not finite; scale it down")
    return Gravity(prior, prior_gravity)


def squared_error(left_embeddings: Tensor, right_embeddings: Tensor, target: Tensor | float) -> Tensor:
    """f = mean_i (⟨u_i, v_i⟩ − s_i)², a scalar (paper, equation 2).

    The paper leaves ℓ open. With squared error, λ and a zero prior, the objective is that of Hu, Koren and
    Volinsky (2008) for implicit feedback.

    Args:
        left_embeddings: u, shape (B', k).
        right_embeddings: v, shape (B', k).
        target: s, shape (B',), or one number for all pairs.
    """
    scores = (left_embeddings * right_embeddings).sum(1)
    return (scores - target).square().mean()


def make_prior(
    section: PriorSection, corpus: SplitCorpus, *, target: Literal["one", "value"], seed: int
) -> LowRankPrior | None:
    """Make the prior P of the gravity term from the training pairs.

    Args:
        section: the prior's configuration.
        corpus: the corpus.
        target: the value of an observed pair in ``svd``: 1 or its own; ``popularity`` counts pairs.
        seed: of the start of the SVD.

    Returns:
        The prior, or None for ``none``.

    Raises:
        ConfigError: when the rank is too large for the corpus.
        InputError: when ``path`` is no prior for this corpus.
        RunError: when the SVD does not converge.
    """
    left_items, right_items = corpus.left.items, corpus.right.items
    match section.name:
        case "none":
            return None
        case "popularity":
            return popularity_prior(
                torch.from_numpy(corpus.left_frequency), torch.from_numpy(corpus.right_frequency)
            )
        case "file":
            assert section.path is not None  # PriorSection sees to it, and to the rank
            return load_prior(section.path, left_items, right_items)
    rank = prior_rank(section, corpus)
    train = corpus.train
    assert target == "one" or train.target is not None  # checked by `gramrun.training.checks`
    values = torch.from_numpy(train.target) if target == "value" else None
    return svd_prior(
        torch.from_numpy(train.left),
        torch.from_numpy(train.right),
        left_items,
        right_items,
        rank,
        seed,
        values,
    )


def prior_rank(section: PriorSection, corpus: SplitCorpus) -> int:
    """Return the rank of the prior that `make_prior` makes, 0 for ``none``, without an SVD.

    Raises:
        ConfigError: when the rank is too large for the corpus.
        InputError: when ``path`` is no prior for this corpus.
    """
    left_items, right_items = corpus.left.items, corpus.right.items
    match section.name:
        case "none":
            return 0
        case "popularity":
            return 1
        case "file":
            assert section.path is not None
            return load_prior(section.path, left_items, right_items).rank
    assert section.rank is not None
    largest = min(left_items, right_items) - 1
    if section.rank > largest:
        remedy = f"set it to {largest} or less" if largest else "set train.prior.name: none"
        raise ConfigError(
            f"train.prior.rank is {section.rank}, but {corpus.place} has {left_items:,} × {right_items:,} "
            f"items, whose SVD gives at most {largest}; {remedy}"
        )
    return section.rank
