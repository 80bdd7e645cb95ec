r"""Ranking metrics: numpy functions of the ranks of the relevant items.

The input is the 1-based ranks of each left item's relevant items in CSR form: left item ``i`` has
``ranks[offsets[i]:offsets[i + 1]]``, ascending, and at least one. A rank beyond ``k`` may be any number
greater than ``k``. Every metric returns one value in [0, 1] for each left item, float64 (left items,), and
raises ValueError if the input has another form or ``k < 1``.

With :math:`R` relevant items at ranks :math:`r_1 < … < r_R`:

==============================  ==================================================================
name in ``evaluation.json``     function
==============================  ==================================================================
``map@10``                      :func:`average_precision` (denominator :math:`\min(k, R)`)
``map@10_relevant``             :func:`average_precision_relevant` (denominator :math:`R`)
``recall@10``, ``recall@100``   :func:`recall`
``ndcg@10``                     :func:`ndcg`
``ci95``                        :func:`bootstrap_interval`
==============================  ==================================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def average_precision(ranks: Ints, offsets: Ints, k: int) -> Floats:
    r"""Average precision at ``k``; a perfect ranking has 1.

    .. math:: \mathrm{AP@}k = \frac{1}{\min(k, R)} \sum_{j:\, r_j \le k} \frac{j}{r_j}

    Example:
        Two left items: relevant items at ranks 1 and 3, and at rank 4.

        >>> ranks, offsets = np.array([1, 3, 4]), np.array([0, 2, 3])
        >>> average_precision(ranks, offsets, k=3).round(4).tolist()  # (1/1 + 2/3) / 2, and 0
        [0.8333, 0.0]
    """
    relevant = _relevant_counts(ranks, offsets, k)
    return _precision_sum(ranks, offsets, k) / np.minimum(k, relevant)


def average_precision_relevant(ranks: Ints, offsets: Ints, k: int) -> Floats:
    r"""Average precision at ``k`` over all relevant items, trec_eval's ``map_cut``.

    .. math:: \frac{1}{R} \sum_{j:\, r_j \le k} \frac{j}{r_j}

    It cannot reach 1 if there are more than ``k`` relevant items.

    Reference:
        trec_eval, https://github.com/usnistgov/trec_eval (``m_map_cut.c``).

    Example:
        >>> average_precision_relevant(np.array([1, 2, 3]), np.array([0, 3]), k=1).round(4).tolist()
        [0.3333]
    """
    relevant = _relevant_counts(ranks, offsets, k)
    return _precision_sum(ranks, offsets, k) / relevant


def recall(ranks: Ints, offsets: Ints, k: int) -> Floats:
    r"""Fraction of the relevant items among the first ``k``.

    .. math:: \mathrm{R@}k = \frac{1}{R}\, |\{j : r_j \le k\}|

    Example:
        >>> recall(np.array([1, 3, 4]), np.array([0, 2, 3]), k=3).tolist()
        [1.0, 0.0]
    """
    relevant = _relevant_counts(ranks, offsets, k)
    return _sum_by_left(ranks <= k, offsets) / relevant


def ndcg(ranks: Ints, offsets: Ints, k: int) -> Floats:
    r"""Normalised discounted cumulative gain at ``k``, with binary gains.

    .. math::
        \mathrm{nDCG@}k = \sum_{j:\, r_j \le k} \frac{1}{\log_2(1 + r_j)}
        \Big/ \sum_{r=1}^{\min(k, R)} \frac{1}{\log_2(1 + r)}

    Reference:
        Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002.

    Example:
        >>> ranks, offsets = np.array([1, 3, 4]), np.array([0, 2, 3])
        >>> ndcg(ranks, offsets, k=3).round(4).tolist()  # (1 + 1/2) / (1 + 1/log2(3)), and 0
        [0.9197, 0.0]
    """
    relevant = _relevant_counts(ranks, offsets, k)
    gains = np.where(ranks <= k, 1 / np.log2(1.0 + ranks), 0)
    ideal = np.cumsum(1 / np.log2(np.arange(2.0, k + 2)))  # ideal[m - 1]: m relevant items at the top
    best: Floats = ideal[np.minimum(k, relevant) - 1]
    return _sum_by_left(gains, offsets) / best


def bootstrap_interval(
    values: Floats, seed: int, resamples: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    r"""Percentile bootstrap interval of the mean over left items.

    A resample with replacement is a multinomial draw of the count of each *distinct* value. Metrics at a
    small cut-off have few distinct values, so a resample costs O(distinct values) for any number of left
    items.

    Args:
        values: float64 (left items,), a metric of each left item.
        seed: of the resampling.
        resamples: the number of resamples, >= 1.
        level: the nominal coverage, in (0, 1).

    Returns:
        The lower and the upper end of the interval.

    Raises:
        ValueError: if there are no values, or ``resamples`` or ``level`` is out of range.

    Reference:
        Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.

    Example:
        >>> low, high = bootstrap_interval(np.array([0.0, 0.5, 1.0]), seed=0)
        >>> 0 <= low < 0.5 < high <= 1
        True
    """
    if len(values) == 0 or resamples < 1 or not 0 < level < 1:
        raise ValueError("a bootstrap needs at least one value, one resample and a level between 0 and 1")
    distinct, counts = np.unique(values, return_counts=True)
    generator = np.random.default_rng(seed)
    size, probabilities = len(values), counts / len(values)
    means = [generator.multinomial(size, probabilities) @ distinct / size for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _relevant_counts(ranks: Ints, offsets: Ints, k: int) -> Ints:
    """R of each left item; checks the input."""
    if k < 1:
        raise ValueError(f"the cut-off k must be at least 1, not {k}")
    if offsets[0] != 0 or offsets[-1] != len(ranks):
        raise ValueError(f"offsets run from {offsets[0]} to {offsets[-1]}, not from 0 to {len(ranks)} ranks")
    relevant = np.diff(offsets)
    if np.any(relevant < 1):
        raise ValueError(f"left item {np.argmin(relevant)} has no relevant item; leave it out of the ranking")
    return relevant


def _precision_sum(ranks: Ints, offsets: Ints, k: int) -> Floats:
    """Sum of the precisions j / r_j at the relevant items within the first k."""
    positions = np.arange(1, len(ranks) + 1) - np.repeat(offsets[:-1], np.diff(offsets))
    return _sum_by_left(np.where(ranks <= k, positions / ranks, 0), offsets)


def _sum_by_left(terms: NDArray[np.float64] | NDArray[np.bool_], offsets: Ints) -> Floats:
    """Sum of each left item's terms. ``reduceat`` needs every left item to have one."""
    return np.add.reduceat(terms, offsets[:-1], dtype=np.float64)
