"""Start linear towers at a singular value decomposition of the training pairs (``train.start: svd``).

Over free vectors u_x and v_y, with the weights w of gravity, and with the observed pairs' ⟨u, v⟩² taken as if
they were drawn like gravity's pairs, the objective is a low-rank approximation:

    J(U, V) = −(2/n) Σᵢ sᵢ ⟨uᵢ, vᵢ⟩  +  c Σ_xy w_x w_y ⟨u_x, v_y⟩²  +  τ (Σ_x w_x |u_x|² + Σ_y w_y |v_y|²)

With c = 1 + λ, let X̂_xy = s_xy / (n √(w_x w_y)) on the training pairs and 0 elsewhere, with
X̂ ≈ A diag(σ) Bᵀ. J is minimal at

    u_x = w_x^(−1/2) A_x √d,      v_y = w_y^(−1/2) B_y √d,      d_j = max(0, σ_j − τ) / c,

the soft-thresholded singular values of penalised factorisation (Srebro, Rennie and Jaakkola 2004).
τ = σ_{k+1} is the smallest penalty at which k directions are enough; on MovieLens 1M it ranks .013 better
than 0 at k = 35, and .039 at k = 64. ``train.l2`` does not enter. The rows of the ids
are set to u and v, those of other features to 0. A direction without d_j > 0, where k is near the rank of X̂,
keeps its random start: from 0 it would have no gradient.

The decomposition is randomised (Halko, Martinsson and Tropp 2011, Algorithm 5.1 after one power iteration):
four products of a sparse matrix with k + `EXTRA` columns.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array

from gramrun.base.errors import ConfigError
from gramrun.config import RunConfig
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.model.towers import TwoTower, table_name

EXTRA = 10  # columns of the sketch beyond k
_POWERS = 1  # on MovieLens 1M the start ranks at .19 with 0 and .27 with 1 (k = 35)


def check_svd_start(config: RunConfig, corpus: SplitCorpus) -> None:
    """Check that the start of a run can be a decomposition.

    Raises:
        ConfigError: when the towers are not linear, tables are split, an item has no row of its own, or both
            sides share their ids.
    """
    if config.train.start != "svd":
        return
    if config.model.hidden or config.model.output != "linear":
        raise ConfigError("train.start: svd is for linear towers; set model.hidden: [], or drop it")
    if config.train.tables != "replicated":
        raise ConfigError("train.start: svd sets whole tables; set train.tables: replicated, or drop it")
    if corpus.left.item == corpus.right.item:
        raise ConfigError(
            f"train.start: svd needs ids of each side, but both sides of {corpus.place} are a "
            f"{corpus.left.item} with one row; drop it"
        )
    for side in (corpus.left, corpus.right):
        if not any(feature.vocabulary == side.item for feature in side.features):
            raise ConfigError(f"train.start: svd needs ids, but a {side.item} has none; drop it")


@torch.no_grad()
def svd_start(model: TwoTower, config: RunConfig, corpus: SplitCorpus) -> None:
    """Set the tables of `model` to the decomposition."""
    tables = model.named_tables()
    vectors = decompose(config, corpus)
    ids = [table_name(side.item) for side in (corpus.left, corpus.right)]
    for name in tables.keys() - set(ids):
        tables[name].zero_()
    for name, side, rows in zip(ids, (corpus.left, corpus.right), vectors, strict=True):
        found = torch.from_numpy(rows.any(axis=0))
        place = _rows(side)[:, None], found.nonzero()[:, 0]
        tables[name][place] = torch.from_numpy(rows)[:, found]


def _rows(side: Side) -> torch.Tensor:
    """The row of each item in the table of ids."""
    feature = next(f for f in side.features if f.vocabulary == side.item)
    return torch.from_numpy(np.asarray(feature.indices)).long()


def decompose(config: RunConfig, corpus: SplitCorpus) -> tuple[np.ndarray, np.ndarray]:
    """Return u and v: float32, shapes (left items, k) and (right items, k).

    Items without training pairs and directions with d_j = 0 have 0. Equal input and
    ``train.seed`` give equal bits.
    """
    train, pairs = config.train, corpus.train
    left_root = _root(corpus.left_frequency, train.gamma_left)
    right_root = _root(corpus.right_frequency, train.gamma_right)
    values = left_root[pairs.left] * right_root[pairs.right] / np.float32(len(pairs))
    if train.target == "value":
        values *= pairs.target
    shape = (corpus.left.items, corpus.right.items)
    matrix = csr_array((values, (pairs.left, pairs.right)), shape=shape, dtype=np.float32)
    k = config.model.embedding_dim
    a, sigma, b = _randomised_svd(matrix, min(k + EXTRA, *shape), train.seed)
    tau = sigma[k] if k < len(sigma) else 0
    root_d = np.sqrt(np.maximum(sigma[:k] - tau, 0) / np.float32(1 + train.gravity))
    missing = ((0, 0), (0, max(0, k - len(sigma))))
    left, right = left_root[:, None] * a[:, :k] * root_d, right_root[:, None] * b[:, :k] * root_d
    return np.pad(left, missing), np.pad(right, missing)


def _root(frequency: np.ndarray, gamma: float) -> np.ndarray:
    """w^(−1/2) for w ∝ f^γ over the items with training pairs, which sum to 1: float32."""
    f = np.asarray(frequency, dtype=np.float64)
    powers = np.power(f, gamma, out=np.zeros_like(f), where=f > 0)
    inverse = np.divide(powers.sum(), powers, out=np.zeros_like(f), where=f > 0)
    return np.asarray(np.sqrt(inverse), dtype=np.float32)


def _randomised_svd(matrix: csr_array, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, σ and B of the approximation of rank `columns`, σ descending."""
    transposed = matrix.T.tocsr()
    start = np.random.default_rng(seed).standard_normal((matrix.shape[1], columns), dtype=np.float32)
    basis = np.linalg.qr(matrix @ start)[0]
    for _ in range(_POWERS):
        basis = np.linalg.qr(matrix @ np.linalg.qr(transposed @ basis)[0])[0]
    b, sigma, a = np.linalg.svd(transposed @ basis, full_matrices=False)
    return basis @ a.T, sigma, b
