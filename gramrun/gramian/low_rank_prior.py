"""Low-rank priors P = Q Rᵀ for the gravity term (paper, Appendix C): make and load Q and R.

    g^P(θ) = sum_x sum_y w_x w_y (⟨u_x, v_y⟩ − p_xy)²,    p_xy = ⟨q_x, r_y⟩

Gravity then pulls every inner product towards its prior instead of 0. q and r are vectors of items, so a
prior costs `rank` floats per item. Derivation: docs/mathematics.md#priors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from gramrun.base.errors import InputError, RunError

_LAYOUT = "a prior is an .npz with float arrays left (left items, rank) and right (right items, rank)"


@dataclass(frozen=True)
class LowRankPrior:
    """P = Q Rᵀ.

    Attributes:
        left: Q, float32, shape (left items, rank).
        right: R, float32, shape (right items, rank).
    """

    left: Tensor
    right: Tensor

    @property
    def rank(self) -> int:
        """The number of columns of Q and R."""
        return self.left.shape[1]


def popularity_prior(left_frequency: Tensor, right_frequency: Tensor) -> LowRankPrior:
    """The rank-1 prior of items that meet by chance.

        p_xy = f_x f_y / n,      q_x = f_x / √n,  r_y = f_y / √n

    p_xy is the expected number of pairs (x, y) when the left and right ends of the n pairs are joined at
    random. It exceeds 1 for two very popular items.

    Args:
        left_frequency: f_x, integers, shape (left items,).
        right_frequency: f_y, integers, shape (right items,), with the same sum n > 0.
    """
    pairs = int(left_frequency.sum())
    left, right = (f.double()[:, None] / pairs**0.5 for f in (left_frequency, right_frequency))
    return LowRankPrior(left.float(), right.float())


def svd_prior(
    pair_left: Tensor,
    pair_right: Tensor,
    left_items: int,
    right_items: int,
    rank: int,
    seed: int,
    values: Tensor | None = None,
) -> LowRankPrior:
    """The best approximation of rank `rank` of the observed matrix S, in Frobenius norm.

        S ≈ U Σ Vᵀ,      Q = U √Σ,  R = V √Σ

    S has `values` where a pair is observed and 0 elsewhere.

    Args:
        pair_left: left item of each training pair, integers, shape (n,); pairs are distinct.
        pair_right: right item of each training pair, integers, shape (n,).
        left_items: number of left items.
        right_items: number of right items.
        rank: in [1, min(left items, right items) − 1].
        seed: of the start vector of the iteration.
        values: real numbers, shape (n,); None for 1.

    Returns:
        Columns in descending order of singular value; the entry of largest absolute value in each column of
        Q is positive. Columns beyond the rank of S are 0.

    Raises:
        RunError: when the iteration does not converge.
    """
    entries = np.ones(len(pair_left)) if values is None else values.double().numpy()
    if not entries.any():  # ARPACK does not start on a zero matrix
        return LowRankPrior(torch.zeros(left_items, rank), torch.zeros(right_items, rank))
    observed = csr_array(
        (entries, (pair_left.numpy(), pair_right.numpy())), shape=(left_items, right_items), dtype=np.float64
    )
    u, sigma, v = _truncated_svd(observed, rank, seed)
    # A singular value below rounding error is 0, and its vectors are arbitrary.
    noise = sigma[0] * max(left_items, right_items) * np.finfo(np.float64).eps
    scale = np.where(sigma > noise, np.sqrt(sigma), 0.0)
    peaks = u[np.abs(u).argmax(axis=0), np.arange(rank)]
    signs = np.where(peaks < 0, -1.0, 1.0)
    left, right = (torch.from_numpy(factor * (signs * scale)).float() for factor in (u, v))
    return LowRankPrior(left, right)


def _truncated_svd(matrix: csr_array, rank: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, σ (descending) and V of the `rank` largest singular values.

    The method of `scipy.sparse.linalg.svds`: eigenvectors of the smaller of SᵀS and SSᵀ by ARPACK, then a
    dense SVD of their images. svds seeds ARPACK's restarts from the clock; here they follow from `seed`.
    """
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T.tocsr()
    size = tall.shape[1]
    gramian = LinearOperator((size, size), matvec=lambda x: tall.T @ (tall @ x), dtype=np.float64)
    random = np.random.default_rng(seed)
    try:
        _, vectors = eigsh(gramian, k=rank, v0=random.standard_normal(size), rng=random)
    except ArpackError as error:
        reason = " ".join(str(error).split())
        raise RunError(f"the SVD of rank {rank} did not converge ({reason}); lower the rank") from None
    vectors, _ = np.linalg.qr(vectors)  # ARPACK's are not orthogonal where eigenvalues cluster
    u, sigma, wt = np.linalg.svd(tall @ vectors, full_matrices=False)
    v = vectors @ wt.T
    return (u, sigma, v) if tall is matrix else (v, sigma, u)


def load_prior(path: Path, left_items: int, right_items: int) -> LowRankPrior:
    """Read a prior: an .npz file with the arrays ``left`` and ``right``, without pickles.

    Args:
        path: the file.
        left_items: number of rows of ``left``, in the order of the corpus's items.
        right_items: number of rows of ``right``.

    Raises:
        InputError: when the file is missing, damaged or no .npz, when an array is missing or no matrix of
            finite real numbers with one row per item, or when the ranks differ or are 0.
    """
    try:
        with path.open("rb") as file:  # np.load does not close a damaged file that it has opened itself
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in ("left", "right")}
    except Exception as error:  # numpy raises errors of many types on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as a prior ({reason}); {_LAYOUT}") from None
    left = _factor(path, "left", arrays["left"], left_items)
    right = _factor(path, "right", arrays["right"], right_items)
    if left.shape[1] != right.shape[1]:
        raise InputError(f"{path}: left has rank {left.shape[1]} and right {right.shape[1]}; make them equal")
    return LowRankPrior(left, right)


def _factor(path: Path, name: str, array: np.ndarray | bytes, items: int) -> Tensor:
    # numpy returns the bytes of a member that has lost its magic number
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu" or array.ndim != 2:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "no array"
        raise InputError(f"{path}: {name} is not a matrix of real numbers but {found}; {_LAYOUT}")
    if len(array) != items or not array.shape[1]:
        raise InputError(
            f"{path}: {name} has shape {array.shape}, but the corpus has {items:,} {name} items and the rank "
            "must be at least 1; make the prior from this corpus, or set train.prior.name: none"
        )
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite and is refused
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).any(axis=1).argmax())
        raise InputError(f"{path}: {name} is not finite as float32 in row {row}; make the prior anew")
    return torch.from_numpy(np.ascontiguousarray(values))
