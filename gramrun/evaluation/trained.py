"""Load what a run directory holds, a model or a baseline, and evaluate it."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gramrun import runs
from gramrun.base.capacity import check_capacity
from gramrun.base.errors import InputError
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.data.manifest import UNREADABLE
from gramrun.evaluation.baselines import ease
from gramrun.evaluation.protocol import (
    Among,
    evaluate_embeddings,
    evaluate_model,
    with_popularity,
)
from gramrun.model.build import choose_device, make_model, table_sizes
from gramrun.model.towers import TwoTower, embed_in_chunks
from gramrun.runs import checkpoints
from gramrun.runs.directory import EMBEDDINGS, ITEM_WEIGHTS, METRICS, BaselineRun, Run
from gramrun.runs.parts import read_parts

SideName = Literal["left", "right"]
ITEMS_AT_ONCE = 65_536  # embedded at once; bounds memory and does not change a result


def evaluate_run(
    run: Run | BaselineRun,
    corpus: SplitCorpus,
    split: str,
    *,
    candidates: int | None = None,
    among: Among = "all",
) -> dict[str, Any]:
    """Evaluate a run's newest checkpoint, or a baseline, and popularity on the same candidates.

    Args:
        run: the run directory.
        corpus: its corpus.
        split: ``validation`` or ``train``.
        candidates: the number of right items to draw; by default the run's ``evaluation.candidates``.
        among: the right items to draw from: all, or those without a training pair.

    Returns:
        The record of `with_popularity`, with ``step`` and ``method``.

    Raises:
        InputError: when the run holds no trained model or is damaged, `corpus` is not the run's, or it
            holds out no right items to rank among.
    """
    settings = run.config.evaluation
    if candidates is not None:
        settings = settings.model_copy(update={"candidates": candidates})
    if isinstance(run, BaselineRun):
        if run.config.baseline.name == "ease":
            result = ease.evaluate(load_item_weights(run, corpus), corpus, split, settings, among)
        else:
            result = evaluate_embeddings(*load_embeddings(run, corpus), corpus, split, settings, among)
        step = sweeps_done(run)
    else:
        model, step = load_model(run, corpus)
        result = evaluate_model(model, corpus, [split], settings, among)[split]
    return {**with_popularity(result, corpus, settings), "step": step, "method": run.method}


def load_model(run: Run, corpus: SplitCorpus) -> tuple[TwoTower, int]:
    """The model of a run's newest checkpoint, and its step; on the CPU where the run's GPU is not here.

    Raises:
        InputError: when there is no checkpoint, it does not fit the configuration, or `corpus` is not the
        run's.
        ConfigError: when the tables of several processes do not fit into this one's memory.
    """
    runs.check_same_data(run, corpus.content_hash)
    state = checkpoints.load_newest(run)
    if state is None:
        measures = run.manifest["kind"] == "gram-error" and run.manifest["status"] == "finished"
        raise InputError(
            f"{run.path}: a gram-error run keeps no checkpoint; see `gramrun plot gram-error`"
            if measures
            else f"{run.path}: has no checkpoint yet; train it first"
        )
    if "tables" in state:
        check_capacity(
            4 * run.config.model.table_dim * sum(table_sizes(corpus).values()),
            "memory",
            what=f"the tables of {run.path}",
            remedy="read the run on a machine with more memory",
        )
    device = choose_device(run.config.device if torch.cuda.is_available() else "cpu")
    model = make_model(run.config, corpus).to(device)
    try:
        saved = dict(state["trainer"]["model"])
        if "tables" in state:  # of several processes; read in place, so that they take the memory of one copy
            tables = {f"weight.{name}": table.detach() for name, table in model.named_tables().items()}
            read_parts(run.checkpoint_path(state["trainer"]["step"]), tables, alone=True)
            saved |= {f"tables.{name}.weight": table for name, table in model.named_tables().items()}
        model.load_state_dict(saved)
    except (LookupError, RuntimeError, TypeError, ValueError, AttributeError):
        raise InputError(
            f"{run.path}: its checkpoint does not fit its config; start the run anew with --force"
        ) from None
    return model, state["trainer"]["step"]


def sweeps_done(run: BaselineRun) -> int:
    """The sweeps of a baseline; 0 if it is not iterative.

    Raises:
        InputError: when its metrics are missing or damaged.
    """
    records = run.metrics()
    if not records:
        raise InputError(f"{run.path / METRICS}: damaged (no records); fit the baseline anew with --force")
    return int(records[-1]["step"])


def load_embeddings(run: BaselineRun, corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """The embeddings of a baseline: float32, shapes (left items, k) and (right items, k).

    Raises:
        InputError: when they are missing or damaged, or `corpus` is not the run's.
    """
    runs.check_same_data(run, corpus.content_hash)
    path = run.file(EMBEDDINGS)
    try:
        with zipfile.ZipFile(path) as archive:
            # `numpy.savez` stores members. Refuse packed ones, which may unpack to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("packed")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            left, right = stored["left"], stored["right"]
    except (*UNREADABLE, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise InputError(f"{path}: missing or damaged; fit the baseline anew with --force") from None
    sizes = (corpus.left.items, corpus.right.items)
    fits = all(
        isinstance(values, np.ndarray)
        and values.dtype == np.float32
        and values.ndim == 2
        and len(values) == items
        for values, items in zip((left, right), sizes, strict=True)
    )
    if not fits or left.shape[1] != right.shape[1] or not all(np.isfinite(v).all() for v in (left, right)):
        raise InputError(
            f"{path}: damaged (not finite float32 embeddings of {sizes[0]} and {sizes[1]} items); fit the "
            "baseline anew with --force"
        )
    return torch.from_numpy(left), torch.from_numpy(right)


def load_item_weights(run: BaselineRun, corpus: SplitCorpus) -> ease.Weights:
    """B of EASE: float32, shape (right items, right items), memory-mapped.

    Raises:
        InputError: when it is missing or damaged, or `corpus` is not the run's.
    """
    runs.check_same_data(run, corpus.content_hash)
    path, items = run.file(ITEM_WEIGHTS), corpus.right.items
    try:
        weights = np.lib.format.open_memmap(path, mode="r")
    except UNREADABLE:
        raise InputError(f"{path}: missing or damaged; fit the baseline anew with --force") from None
    if not (
        weights.dtype == np.float32
        and weights.shape == (items, items)
        and all(np.isfinite(row).all() for row in weights)
    ):
        raise InputError(
            f"{path}: damaged (not a finite float32 matrix of {items} x {items} items); fit the baseline "
            "anew with --force"
        )
    return weights


@dataclass(frozen=True)
class TrainedEmbeddings:
    """The embeddings of a run's newest checkpoint, or of a baseline.

    Attributes:
        run: the run directory.
        corpus: its corpus.
        step: training steps, or sweeps of a baseline.
        dim: k, the embedding dimension.
        embed: maps a side and its items, int64 (B,), to embeddings, floating (B, k).
    """

    run: Run | BaselineRun
    corpus: SplitCorpus
    step: int
    dim: int
    embed: Callable[[SideName, Tensor], Tensor]

    def side(self, name: SideName) -> Side:
        """One side of the corpus."""
        return self.corpus.left if name == "left" else self.corpus.right

    def rows(self, name: SideName, items: Tensor) -> Tensor:
        """The embeddings of `items` of a side: int64 (B,) to float32 (B, k), on the CPU."""
        with torch.no_grad():
            return self.embed(name, items).cpu().float()

    def chunks(self, name: SideName) -> Iterator[Tensor]:
        """The embeddings of all items of a side in order, float32, at most `ITEMS_AT_ONCE` rows each."""
        for items in torch.arange(self.side(name).items).split(ITEMS_AT_ONCE):
            yield self.rows(name, items)

    def vocabulary_file(self, name: SideName) -> Path:
        """The Parquet file whose row i describes item i of a side."""
        assert self.corpus.path is not None
        return self.corpus.path / "vocabularies" / f"{self.side(name).item}.parquet"


def open_embeddings(path: Path, data: Path | None = None) -> TrainedEmbeddings:
    """Open the embeddings in a directory of `gramrun train` or `gramrun baseline`.

    Args:
        path: the run directory.
        data: the folder of its corpus, if it was moved.

    Raises:
        InputError: when the run has no checkpoint yet or is damaged, or its corpus is missing, damaged or
            another.
    """
    run = runs.open_directory(path)
    corpus = runs.corpus_of(run, data)
    if isinstance(run, BaselineRun):
        if run.config.baseline.name == "ease":
            raise InputError(f"{path}: holds EASE, which has no embeddings; its matrix B is {ITEM_WEIGHTS}")
        left, right = load_embeddings(run, corpus)
        tables = {"left": left, "right": right}
        step, dim = sweeps_done(run), left.shape[1]
        return TrainedEmbeddings(run, corpus, step, dim, lambda side, items: tables[side][items])
    model, step = load_model(run, corpus)
    towers = {"left": model.left_embeddings, "right": model.right_embeddings}
    return TrainedEmbeddings(
        run,
        corpus,
        step,
        model.embedding_dim,
        lambda side, items: embed_in_chunks(towers[side], items.to(model.device)),
    )
