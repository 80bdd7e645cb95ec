"""The low-rank prior that a config asks for (paper, Appendix C), made of a corpus's training pairs."""

from __future__ import annotations

from typing import Literal

import torch

from gramrun.base.errors import ConfigError
from gramrun.config import PriorSection
from gramrun.data.corpus import SplitCorpus
from gramrun.gramian.low_rank_prior import LowRankPrior, load_prior, popularity_prior, svd_prior


def make_prior(
    section: PriorSection, corpus: SplitCorpus, *, target: Literal["one", "value"], seed: int
) -> LowRankPrior | None:
    """Make the prior P of the gravity term; validation pairs have no part in it.

    Args:
        section: which prior.
        corpus: whose items it is about, and whose training pairs it is made of.
        target: what an observed pair stands for in ``svd``: 1 or its own value; ``popularity`` counts pairs.
        seed: of the SVD's start.

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
    assert target == "one" or train.target is not None  # `gramrun.model.build.check_fits` refuses it
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
    """The rank of the prior that `make_prior` gives, 0 for ``none``, without an SVD.

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
        raise ConfigError(
            f"train.prior.rank is {section.rank}, but {corpus.place} has {left_items:,} × {right_items:,} "
            f"items, whose SVD gives at most {largest}; set it to {largest} or less"
        )
    return section.rank
