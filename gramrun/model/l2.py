"""L2 regularisation: rows of the feature tables by their frequency, and the dense layers.

With μ = ``train.l2``, ν = ``train.l2_exponent``, μ' = ``train.dense_l2``, and f_r the occurrences of row r in
the bags of the n training pairs (both sides, F = sum_r f_r; ids that are dropped with probability p count
1 − p times),

    R(θ) = μ sum_r w_r ‖E_r‖² + μ' ‖W‖²,      w_r = (F/n) f_r^ν / sum_s f_s^ν      over the rows with f_r > 0

ν is the exponent of iALS (Rendle et al. 2022, arXiv 2110.14037, Section 3.2), over all tables at once. A
gradient batch B' meets row r in o_r bags, E o_r = |B'| f_r / n, and the step adds

    2 μ (o_r / |B'|) a_r E_r      to the gradient of row r,      a_r = n w_r / f_r = F f_r^(ν−1) / sum_s f_s^ν

whose mean over batches is ∇R (docs/mathematics.md#l2-regularisation). The optimizer sees the sum of both
gradients: this is L2, not decoupled weight decay.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gramrun.config import RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.model.bags import add_frequencies
from gramrun.model.towers import table_name


def row_decays(config: RunConfig, corpus: SplitCorpus) -> dict[str, Tensor]:
    """Return what one occurrence of a row in a gradient batch multiplies the row by in its gradient.

    Returns:
        2 μ a_r / |B'| by `table_name`: float32, shape (rows,), 0 where no training pair meets the row; times
        |B'| for ``train.reduction: sum``. Empty for μ = 0.
    """
    train = config.train
    if not train.l2:
        return {}
    found = row_frequencies(corpus, train.id_dropout_left, train.id_dropout_right)
    powers = importances(found, train.l2_exponent)
    scale = 2 * train.l2 * _batch_scale(config) / train.batch_size
    return {table_name(name): torch.from_numpy((scale * a).astype(np.float32)) for name, a in powers.items()}


def dense_decay(config: RunConfig) -> float:
    """Return the weight decay of the dense layers' optimizer: 2 μ', times |B'| for ``reduction: sum``."""
    return 2 * config.train.dense_l2 * _batch_scale(config)


def _batch_scale(config: RunConfig) -> int:
    return config.train.batch_size if config.train.reduction == "sum" else 1


def row_frequencies(
    corpus: SplitCorpus, id_dropout_left: float = 0.0, id_dropout_right: float = 0.0
) -> dict[str, np.ndarray]:
    """Count f_r, the expected occurrences of each row in the bags of the training pairs.

    Args:
        corpus: the corpus.
        id_dropout_left: the probability with which a left item's id is dropped.
        id_dropout_right: the same for right items.

    Returns:
        By vocabulary: float64, shape (rows,), whole numbers without dropout. A row that a bag holds twice
        counts twice.
    """
    found: dict[str, np.ndarray] = {}
    sides = (
        (corpus.left, corpus.left_frequency, id_dropout_left),
        (corpus.right, corpus.right_frequency, id_dropout_right),
    )
    for side, frequency, dropout in sides:
        for f in side.features:
            counts = np.zeros(corpus.vocabulary_sizes[f.vocabulary])
            add_frequencies(f.offsets, f.indices, frequency, counts)
            kept = 1 - dropout if f.vocabulary == side.item else 1.0
            found[f.vocabulary] = found.get(f.vocabulary, 0.0) + kept * counts
    return found


def importances(frequencies: Mapping[str, np.ndarray], exponent: float) -> dict[str, np.ndarray]:
    """Return a_r = F f_r^(ν−1) / sum_s f_s^ν, and 0 where f_r = 0. Its mean over all occurrences is 1.

    Args:
        frequencies: f_r by vocabulary, from `row_frequencies`.
        exponent: ν.
    """
    total = sum(float(f.sum()) for f in frequencies.values())
    norm = sum(float((f[f > 0] ** exponent).sum()) for f in frequencies.values())
    return {
        name: total / norm * np.power(f, exponent - 1, out=np.zeros_like(f), where=f > 0)
        for name, f in frequencies.items()
    }
