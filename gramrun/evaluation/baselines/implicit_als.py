"""Implicit ALS by the package `implicit`, on the same training pairs.

Its objective is that of Hu, Koren and Volinsky, with p = 1 on observed pairs and 0 on all others,

    min  sum_x sum_y c_xy (⟨u_x, v_y⟩ − p_xy)²  +  ρ (sum_x |u_x|² + sum_y |v_y|²),
    c = ``baseline.confidence`` on observed pairs, 1 on all others; ρ = ``baseline.regularization``.

Divided by c · n, its observed part is close to gramrun's f with target 1, and its all-pairs part to gravity
over distinct items with λ = (left items · right items) / (c · n). gramrun's objective has no ρ. Targets are
not used. Each item takes three conjugate gradient steps, in float32.

Reference: Hu, Koren and Volinsky (2008); Takács, Pilászy and Tikk (2011) for the conjugate gradients.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gramrun.base.errors import InputError, RunError
from gramrun.config import BaselineSection
from gramrun.data.corpus import SplitCorpus


def fit(section: BaselineSection, corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """Factorise the matrix of training pairs.

    Args:
        section: k, ρ, c, sweeps and seed.
        corpus: the corpus.

    Returns:
        float32, shapes (left items, k) and (right items, k), to be ranked by inner product.

    Raises:
        InputError: when the package is not installed.
        RunError: when the factorisation does not stay finite.
    """
    try:
        from implicit.cpu.als import AlternatingLeastSquares
        from implicit.recommender_base import ModelFitError
    except ImportError as error:
        raise InputError(
            f"the baseline implicit-als needs the package implicit ({error}); "
            "install it with: pip install 'gramrun[baselines]' (or pip install 'implicit>=0.7')"
        ) from None
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    pairs = corpus.train
    shape = (corpus.left.items, corpus.right.items)
    matrix = csr_matrix((np.ones(len(pairs), dtype=np.float32), (pairs.left, pairs.right)), shape=shape)
    # The package runs its own threads over items and warns if each of them starts BLAS threads.
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(
            factors=section.embedding_dim,
            regularization=section.regularization,
            alpha=section.confidence,
            iterations=section.sweeps,
            num_threads=torch.get_num_threads(),
            random_state=section.seed,
        )
        try:
            model.fit(matrix, show_progress=False)
        except ModelFitError as error:
            raise RunError(f"implicit ALS broke down ({error}); raise baseline.regularization") from error
    return torch.from_numpy(model.user_factors), torch.from_numpy(model.item_factors)
