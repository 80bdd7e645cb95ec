"""Implicit ALS as most people run it: the package `implicit`, on the same training pairs.

Its objective is Hu, Koren and Volinsky's, with p = 1 on observed pairs and 0 on all others,

    min  sum_x sum_y c_xy (⟨u_x, v_y⟩ − p_xy)²  +  ρ (sum_x |u_x|² + sum_y |v_y|²),
    c = `confidence` on observed pairs, 1 on all others.

Divided by `confidence` · n its observed part is close to gramrun's f at target 1, and its all-pairs part to
gravity over distinct items with λ = (left items · right items) / (`confidence` · n); what gramrun's objective
does not have is ρ. Targets (ratings) are not used. Three conjugate gradient steps an item, in float32.

Reference: Hu, Koren and Volinsky (2008); Takács, Pilászy and Tikk (2011) for the conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gramrun.base.errors import InputError, RunError


def check_installed() -> None:
    """Check that the package is there, before anything is computed.

    Raises:
        InputError: when it is not, with the command that installs it.
    """
    try:
        import implicit.cpu.als  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"the baseline implicit-als needs the package implicit ({error}); "
            "install it with: pip install 'gramrun[baselines]' (or pip install 'implicit>=0.7')"
        ) from None


def fit_implicit_als(
    pair_left: np.ndarray,
    pair_right: np.ndarray,
    left_items: int,
    right_items: int,
    *,
    factors: int,
    regularization: float,
    confidence: float,
    iterations: int,
    seed: int,
    after_sweep: Callable[[Tensor, Tensor], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """Factorise the matrix of training pairs.

    Args:
        pair_left: integers, shape (n,). The left item of each pair; no pair occurs twice.
        pair_right: the same for right items.
        left_items: how many left items there are.
        right_items: how many right items.
        factors: k.
        regularization: ρ.
        confidence: c of the observed pairs; the package calls it alpha.
        iterations: each solves all left, then all right items.
        seed: of the random start.
        after_sweep: called with both factors after each iteration; they change in the next.

    Returns:
        float32, shapes (left items, k) and (right items, k), to be ranked by inner product.

    Raises:
        InputError: when the package is not installed.
        RunError: when the factorisation does not stay finite.
    """
    check_installed()
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.recommender_base import ModelFitError
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    ones = np.ones(len(pair_left), dtype=np.float32)
    matrix = csr_matrix((ones, (pair_left, pair_right)), shape=(left_items, right_items))
    # The package runs its own threads over items and warns of a BLAS that runs more beneath each.
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(
            factors=factors,
            regularization=regularization,
            alpha=confidence,
            iterations=iterations,
            num_threads=torch.get_num_threads(),
            random_state=seed,
        )

        def report(*_: object) -> None:
            if after_sweep is not None:
                after_sweep(torch.from_numpy(model.user_factors), torch.from_numpy(model.item_factors))

        try:
            model.fit(matrix, show_progress=False, callback=report)
        except ModelFitError as error:
            raise RunError(f"implicit ALS broke down ({error}); raise baseline.regularization") from error
    return torch.from_numpy(model.user_factors), torch.from_numpy(model.item_factors)
