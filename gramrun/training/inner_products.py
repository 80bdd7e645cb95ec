r"""The distribution of inner products during training (paper, Appendix B and its figure).

At each evaluation, ``inner_products.csv`` gets a row for each of three kinds of N pairs:

    train        ⟨u_i, v_i⟩ of training pairs i (the paper's i = j)
    validation   ⟨u_i, v_i⟩ of validation pairs i
    random       ⟨u_i, v_j⟩ of training pairs i and j, drawn independently

The mean square over random pairs estimates the gravity g = (1/n²) sum_ij ⟨u_i, v_j⟩². The pairs are drawn
once, with replacement, from ``evaluation.seed``: all evaluations, and all runs with that seed, use the same
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gramrun.base.records import append_rows, keep_rows
from gramrun.data.corpus import SplitCorpus
from gramrun.model.towers import TwoTower, embed_in_chunks
from gramrun.runs.directory import INNER_PRODUCTS, Run
from gramrun.training.trainer import Trainer

KINDS = ("train", "validation", "random")
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
COLUMNS = ("step", "epoch", "pairs", "count", "mean", "sd", *(f"q{q:g}" for q in QUANTILES))

_STREAM = 2  # of evaluation.seed; its streams 0 and 1 choose candidates and left items

Items = NDArray[np.int64]


class InnerProducts:
    """Writes a run's ``inner_products.csv``; does nothing where ``evaluation.inner_products`` is 0.

    Args:
        run: the run.
        corpus: what it trains on.
        step: the step where the run starts or resumes; later rows are dropped.
    """

    def __init__(self, run: Run, corpus: SplitCorpus, step: int) -> None:
        self._path = run.path / INNER_PRODUCTS
        settings = run.config.evaluation
        self._pairs: dict[str, tuple[Items, Items]] = {}
        if settings.inner_products:
            self._pairs = draw_pairs(corpus, settings.inner_products, settings.seed)
            keep_rows(self._path, COLUMNS, step)

    def record(self, trainer: Trainer) -> None:
        """Append a row for each kind of pairs under the trainer's current parameters."""
        if not self._pairs:
            return
        place = {"step": trainer.step, "epoch": trainer.epoch}
        rows = [
            {**place, "pairs": kind, **describe(products)}
            for kind, products in inner_products(trainer.model, self._pairs).items()
        ]
        append_rows(self._path, COLUMNS, rows)


def draw_pairs(corpus: SplitCorpus, count: int, seed: int) -> dict[str, tuple[Items, Items]]:
    """Draw `count` pairs of each kind, with replacement.

    Args:
        corpus: the corpus.
        count: N.
        seed: of the draws.

    Returns:
        Left and right item ids by kind, int64, shape (N,); without ``validation`` if there are no such pairs.
    """
    random = np.random.default_rng((seed, _STREAM))
    train, validation = corpus.train, corpus.validation
    observed, left, right = (random.integers(len(train), size=count) for _ in range(3))
    drawn = {
        "train": (train.left[observed], train.right[observed]),
        "random": (train.left[left], train.right[right]),
    }
    if len(validation):
        held_out = random.integers(len(validation), size=count)
        drawn["validation"] = (validation.left[held_out], validation.right[held_out])
    return {
        kind: (drawn[kind][0].astype(np.int64), drawn[kind][1].astype(np.int64))
        for kind in KINDS
        if kind in drawn
    }


@torch.no_grad()
def inner_products(model: TwoTower, pairs: dict[str, tuple[Items, Items]]) -> dict[str, NDArray[np.float64]]:
    """Return ⟨u, v⟩ of every pair.

    Args:
        model: the towers.
        pairs: left and right item ids by kind, as `draw_pairs` gives them.

    Returns:
        ⟨u, v⟩ of every pair, float64, shape (N,), by kind.
    """

    def embedded(embed: Callable[[Tensor], Tensor], items: Items) -> Tensor:
        return embed_in_chunks(embed, torch.from_numpy(items).to(model.device)).double()

    return {
        kind: torch.linalg.vecdot(
            embedded(model.left_embeddings, left), embedded(model.right_embeddings, right)
        )
        .cpu()
        .numpy()
        for kind, (left, right) in pairs.items()
    }


def describe(products: NDArray[np.float64]) -> dict[str, Any]:
    """Return the count, mean, standard deviation and `QUANTILES` of inner products."""
    quantiles = np.quantile(products, QUANTILES)
    return {
        "count": len(products),
        "mean": float(products.mean()),
        "sd": float(products.std()),
        **{f"q{q:g}": float(value) for q, value in zip(QUANTILES, quantiles, strict=True)},
    }
