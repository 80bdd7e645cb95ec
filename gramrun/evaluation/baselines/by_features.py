"""Baselines that can rank items never seen: popularity of features, and TF-IDF neighbours.

    feature-popularity   score(x, y) = mean of p_t over y's values t,  p_t = mean of f_j over items j with t
    tfidf                score(x, y) = cos(Σ_{j ∈ train(x)} t_j, t_y)

f_j is the number of training pairs of right item j, and only items with at least one enter p_t; t_y is the
TF-IDF vector of y's values, of length 1. Both see only features of right items, never their ids, so a new
item competes with the known ones on equal terms. An item without any value scores 0.

TF-IDF is scikit-learn's `TfidfTransformer` (raw counts, ln((1 + n)/(1 + n_t)) + 1, rows of length 1), fitted
on the right items with training pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gramrun.base.capacity import check_capacity
from gramrun.base.errors import ConfigError, InputError
from gramrun.data.corpus import SplitCorpus

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def right_values(corpus: SplitCorpus) -> csr_array:
    """How often each right item has each value of its features, its id excepted.

    Returns:
        float32, shape (right items, values of all features), compressed rows.

    Raises:
        ConfigError: when right items have no features besides their ids.
    """
    from scipy.sparse import csr_array, hstack

    side = corpus.right
    parts = [
        csr_array(
            (np.ones(len(f.indices), dtype=np.float32), f.indices, f.offsets),
            shape=(side.items, corpus.vocabulary_sizes[f.vocabulary]),
        )
        for f in side.features
        if f.vocabulary != side.item
    ]
    if not parts:
        raise ConfigError(
            f"baseline.name needs features, but a {side.item} of {corpus.place} has none besides its id; "
            "set baseline.name: popularity"
        )
    counts = csr_array(hstack(parts, format="csr"))
    counts.sum_duplicates()
    return counts


def feature_popularity(corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """Score right items by the popularity of their features' values.

    Returns:
        float32, shapes (left items, 1), all ones, and (right items, 1).

    Raises:
        ConfigError: when right items have no features besides their ids.
    """
    has = right_values(corpus)
    has.data[:] = 1
    frequency = corpus.right_frequency.astype(np.float64)
    holders = has.T @ (frequency > 0)
    popularity = (has.T @ frequency) / np.maximum(holders, 1)
    scores = (has @ popularity) / np.maximum(has.sum(axis=1), 1)
    return torch.ones(corpus.left.items, 1), torch.from_numpy(scores.astype(np.float32))[:, None]


def tfidf(corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """Profiles of left items and TF-IDF vectors of right items, both of length 1 or 0.

    Returns:
        float32, shapes (left items, values) and (right items, values), dense.

    Raises:
        InputError: when scikit-learn is not installed.
        ConfigError: when right items have no features besides their ids, or memory is too small.
    """
    try:
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.preprocessing import normalize
    except ImportError as error:
        raise InputError(
            f"the baseline tfidf needs the package scikit-learn ({error}); "
            "install it with: pip install 'gramrun[baselines]' (or pip install scikit-learn)"
        ) from None
    from scipy.sparse import csr_array

    counts = right_values(corpus)
    if not counts.shape[1]:
        raise ConfigError("the baseline tfidf needs features of the right items, and theirs have no values")
    items = corpus.left.items + corpus.right.items
    check_capacity(
        2 * 4 * items * counts.shape[1],  # as vectors, and a copy while they are ranked
        "memory",
        what=f"TF-IDF vectors of {counts.shape[1]:,} values",
        remedy="prepare a corpus of fewer values (wikipedia.min_ngram_count, min_category_count)",
    )
    weights = TfidfTransformer().fit(counts[corpus.right_frequency > 0]).transform(counts)
    pairs = corpus.train
    seen = csr_array(
        (np.ones(len(pairs), dtype=np.float32), (pairs.left, pairs.right)),
        shape=(corpus.left.items, corpus.right.items),
    )
    profiles = normalize(seen @ weights)
    left, right = (torch.from_numpy(m.toarray().astype(np.float32, copy=False)) for m in (profiles, weights))
    return left, right
