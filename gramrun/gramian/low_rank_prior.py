"""Low-rank priors P = Q Rᵀ for the gravity term (paper, Appendix C).

With the weights w that the Gramians use (`gramrun.gramian.population`), gravity pulls every inner product
towards its prior instead of towards 0:

    g^P(θ) = sum_x sum_y w_x w_y (⟨u_x, v_y⟩ − p_xy)²,    p_xy = ⟨q_x, r_y⟩
           = ⟨G_u, G_v⟩ − 2 ⟨H_u, H_v⟩ + c,    H_u = sum_x w_x u_x ⊗ q_x,    H_v = sum_y w_y v_y ⊗ r_y

(the appendix prints H_u = (1/n) U Q where Uᵀ Q is meant, and λ where its SAGram updates Ĥ by β). q and
r are vectors of *items*, so a prior costs rank floats an item, however many pairs there are. This file makes,
saves and loads Q and R.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import new_file

_LAYOUT = "a prior is an .npz with float arrays left (left items, rank) and right (right items, rank)"
# What numpy was seen to raise on files that are damaged or no .npz, and what a wrong size in one may do.
_UNREADABLE = (
    OSError, EOFError, ValueError, RuntimeError, TypeError, SyntaxError, tokenize.TokenError, OverflowError,
    MemoryError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class LowRankPrior:
    """P = Q Rᵀ, as one vector for each item.

    Attributes:
        left: Q, float32, shape (left items, rank).
        right: R, float32, shape (right items, rank).

    Raises:
        ValueError: when the dtypes, dimensions or ranks are others.
    """

    left: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        for factor in (self.left, self.right):
            if factor.dtype != torch.float32 or factor.dim() != 2:
                raise ValueError(f"a factor must be a float32 matrix, not {factor.dtype} {factor.dim()}-D")
        if self.left.shape[1] != self.right.shape[1] or not self.rank:
            raise ValueError(f"the ranks must agree: {self.left.shape[1]} and {self.right.shape[1]}")

    @property
    def rank(self) -> int:
        """How many numbers each item has."""
        return self.left.shape[1]


def popularity_prior(left_frequency: Tensor, right_frequency: Tensor) -> LowRankPrior:
    """The rank-1 prior of two items that meet by chance.

        p_xy = f_x f_y / n,      q_x = f_x / √n,  r_y = f_y / √n

    Cut the n pairs in two and join the n left ends with the n right ends at random: each of the f_x ends
    of x meets an end of y with probability f_y / n, so p_xy is the expected number of pairs (x, y), the
    expected entry of the 0/1 matrix of observed pairs as long as it is small. (For two items that are
    both so popular that f_x f_y > n it exceeds 1: pairs are distinct, their random joins need not be.)
    P keeps the margins, sum_y p_xy = f_x and sum_x p_xy = f_y, hence its sum is n; no other matrix of
    rank 1 does.

    Args:
        left_frequency: integers, shape (left items,). f_x, the training pairs of each left item.
        right_frequency: the same for the right items, with the same sum n.

    Raises:
        ValueError: when the sums differ or are 0.
    """
    pairs = int(left_frequency.sum())
    if pairs <= 0 or pairs != int(right_frequency.sum()):
        raise ValueError(f"both sides have the same pairs, not {pairs} and {int(right_frequency.sum())}")
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

    "First training a simple low-rank matrix approximation of the similarity matrix" is what the appendix
    proposes. S has `values` where a pair is observed and 0 elsewhere.

    Args:
        pair_left: integers, shape (n,). Left item of each training pair; pairs are distinct.
        pair_right: integers, shape (n,). Right item of each.
        left_items: how many left items.
        right_items: how many right items.
        rank: in [1, min(left items, right items) − 1].
        seed: of the vector that the iteration starts from; the result hardly depends on it.
        values: real numbers, shape (n,); None for 1.

    Returns:
        The prior, columns in descending order of singular value. Signs are fixed: in each column of Q the
        entry of largest absolute value is positive. Where S has a rank below `rank`, the last columns are 0.

    Raises:
        ValueError: when `rank` lies outside its range.
        RunError: when the iteration does not converge.
    """
    smaller = min(left_items, right_items)
    if not 1 <= rank < smaller:
        raise ValueError(f"rank must lie in [1, {smaller - 1}], not {rank}")
    entries = np.ones(len(pair_left)) if values is None else values.double().numpy()
    if not entries.any():  # ARPACK does not start on a zero matrix
        return LowRankPrior(torch.zeros(left_items, rank), torch.zeros(right_items, rank))
    observed = csr_array(
        (entries, (pair_left.numpy(), pair_right.numpy())), shape=(left_items, right_items), dtype=np.float64
    )
    u, sigma, v = _truncated_svd(observed, rank, seed)
    # Below rounding error a singular value is 0 and its vectors are arbitrary.
    noise = sigma[0] * max(left_items, right_items) * np.finfo(np.float64).eps
    scale = np.where(sigma > noise, np.sqrt(sigma), 0.0)
    peaks = u[np.abs(u).argmax(axis=0), np.arange(rank)]
    signs = np.where(peaks < 0, -1.0, 1.0)
    left, right = (torch.from_numpy(factor * (signs * scale)).float() for factor in (u, v))
    return LowRankPrior(left, right)


def _truncated_svd(matrix: csr_array, rank: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, σ (descending) and V of the `rank` largest singular values.

    As `scipy.sparse.linalg.svds` does it: eigenvectors of the smaller of SᵀS and SSᵀ by ARPACK, then a dense
    SVD of their images. Only, ARPACK draws new directions where the start has spanned an invariant subspace,
    as it does when S has few distinct singular values; svds seeds these from the clock, and here they follow
    from `seed`.
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
    vectors, _ = np.linalg.qr(vectors)  # ARPACK's are not exactly orthogonal where eigenvalues cluster
    u, sigma, wt = np.linalg.svd(tall @ vectors, full_matrices=False)
    v = vectors @ wt.T
    return (u, sigma, v) if tall is matrix else (v, sigma, u)


def save_prior(prior: LowRankPrior, path: Path) -> None:
    """Write a prior as `load_prior` reads it, whole or not at all.

    Raises:
        RunError: when the file cannot be written.
    """
    with new_file(path) as temporary, temporary.open("wb") as file:  # given a name, numpy may append .npz
        np.savez(file, left=prior.left.numpy(), right=prior.right.numpy())


def load_prior(path: Path, left_items: int, right_items: int) -> LowRankPrior:
    """Read a prior: an .npz file with the arrays ``left`` and ``right`` and nothing pickled.

    Args:
        path: the file.
        left_items: how many rows ``left`` must have, one for each left item in the corpus's numbering.
        right_items: the same for ``right``.

    Raises:
        InputError: when the file is missing, no .npz or damaged, when an array is missing, no matrix of
            finite real numbers or of another corpus's size, or when the ranks differ or are 0.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; {_LAYOUT}")
    arrays = {}
    try:
        with path.open("rb") as file:  # np.load leaves a damaged file open that it has opened itself
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: holds a single array; {_LAYOUT}")
            for name in ("left", "right"):
                if name not in archive.files:
                    raise InputError(f"{path}: has no array {name}; {_LAYOUT}")
                arrays[name] = archive[name]
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as .npz without pickles ({reason}); {_LAYOUT}") from None
    left = _factor(path, "left", arrays["left"], left_items)
    right = _factor(path, "right", arrays["right"], right_items)
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"{path}: left has rank {left.shape[1]} and right has rank {right.shape[1]}; they must agree"
        )
    return LowRankPrior(left, right)


def _factor(path: Path, name: str, array: np.ndarray | bytes, items: int) -> Tensor:
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of a member without its magic number
        raise InputError(f"{path}: {name} is no array; {_LAYOUT}")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{path}: {name} holds {array.dtype}, not real numbers; {_LAYOUT}")
    if array.ndim != 2:
        raise InputError(f"{path}: {name} has {array.ndim} dimensions instead of 2; {_LAYOUT}")
    if len(array) != items:
        raise InputError(
            f"{path}: {name} has {len(array):,} rows, but the corpus has {items:,} {name} items; "
            "make the prior from this corpus"
        )
    if not array.shape[1]:
        raise InputError(f"{path}: {name} has rank 0; for no prior set train.prior.name: none")
    with np.errstate(over="ignore"):  # a float64 beyond float32's range becomes infinite, and is refused
        values = array.astype(np.float32)
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).any(axis=1).argmax())
        raise InputError(f"{path}: {name} is not finite as float32 in row {row}; make the prior anew")
    return torch.from_numpy(np.ascontiguousarray(values))
