"""What a run has learnt: the embeddings of its items, some at a time, and what the items are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from gramrun import runs
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.evaluation.baseline_run import load_embeddings, sweeps_done
from gramrun.evaluation.protocol import trained_model
from gramrun.model.embedding import embed_in_chunks
from gramrun.runs.directory import BaselineRun, Run

SideName = Literal["left", "right"]
ITEMS_AT_ONCE = 65_536  # embedded at once; bounds memory, not a result


@dataclass(frozen=True)
class TrainedEmbeddings:
    """The embeddings of a run's newest checkpoint, or of a baseline.

    Attributes:
        run: the run directory.
        corpus: what it was trained on.
        method: what made them, such as ``SOGram α=0.01``.
        step: after how many steps (sweeps of a baseline).
        dim: k, their width.
        embed: gives those of ``left`` or ``right`` items: int64, shape (B,), to floating, shape (B, k).
    """

    run: Run | BaselineRun
    corpus: SplitCorpus
    method: str
    step: int
    dim: int
    embed: Callable[[SideName, Tensor], Tensor]

    def side(self, name: SideName) -> Side:
        """One side of the corpus."""
        return self.corpus.left if name == "left" else self.corpus.right

    def rows(self, name: SideName, items: Tensor) -> Tensor:
        """The embeddings of some items of a side.

        Args:
            name: of the side.
            items: int64, shape (B,).

        Returns:
            float32, shape (B, k), on the CPU.
        """
        with torch.no_grad():
            return self.embed(name, items).cpu().float()

    def chunks(self, name: SideName) -> Iterator[Tensor]:
        """Those of all items of a side in order, float32, shape (`ITEMS_AT_ONCE`, k) at most at once."""
        for items in torch.arange(self.side(name).items).split(ITEMS_AT_ONCE):
            yield self.rows(name, items)


def vocabulary_file(corpus: SplitCorpus, side: Side) -> Path:
    """The Parquet file whose row i is item i of a side."""
    assert corpus.path is not None, "runs keep the path of their corpus"
    return corpus.path / "vocabularies" / f"{side.item}.parquet"


def open_embeddings(path: Path, data: Path | None = None) -> TrainedEmbeddings:
    """Open what a run directory holds.

    Args:
        path: of `gramrun train` or `gramrun baseline`.
        data: where its corpus lies, if not where it was.

    Raises:
        InputError: when it is no such directory, has no checkpoint yet, or is damaged; or its corpus is
            missing, damaged or another than it was trained on.
    """
    run = runs.open_directory(path)
    if isinstance(run, BaselineRun):
        corpus = runs.corpus_of(run, data)
        left, right = load_embeddings(run, corpus)
        tables = {"left": left, "right": right}
        return TrainedEmbeddings(
            run,
            corpus,
            run.config.baseline.label,
            sweeps_done(run),
            left.shape[1],
            lambda side, items: tables[side][items],
        )
    corpus = runs.corpus_of(run, data)
    model, step = trained_model(run, corpus)
    towers = {"left": model.left_embeddings, "right": model.right_embeddings}
    return TrainedEmbeddings(
        run,
        corpus,
        run.config.estimator.label,
        step,
        model.embedding_dim,
        lambda side, items: embed_in_chunks(towers[side], items.to(model.device)),
    )
