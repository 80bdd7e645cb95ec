"""The ranking protocol: which left items, which candidates, what is left out, and popularity beside it.

1. Left items: those with at least one positive in the split (``evaluation.left_items`` samples some).
2. Candidates: ``evaluation.candidates`` right items drawn uniformly without replacement, the same for all
   left items, plus that left item's own positives; all right items where there are fewer.
3. For the validation split, a left item's training positives are taken out; for the training split there
   is nothing to take out. The result says which.
4. Ties count against the model (`gramrun.ranking`).

The paper scores left items of the validation set against 50K random candidates (Section 4.3) and states
neither MAP's denominator nor whether training positives are taken out, so both denominators are reported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from gramrun import checkpoints, metrics
from gramrun.baselines.popularity import popularity_embeddings
from gramrun.config import EvaluationSection
from gramrun.data.shards import Pairs, PreparedCorpus
from gramrun.errors import InputError
from gramrun.models import embed_all, make_model
from gramrun.ranking import Relevant, candidate_hash, rank_relevant, sample_candidates
from gramrun.runs import Run, check_same_data


def evaluate_embeddings(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    corpus: PreparedCorpus,
    split: str,
    settings: EvaluationSection,
    *,
    full: bool = False,
) -> dict[str, Any]:
    """Rank every chosen left item's candidates by ⟨u, v⟩ and measure.

    Args:
        left_embeddings: shape (left items, k), of all left items.
        right_embeddings: shape (right items, k), of all right items.
        corpus: for its pairs.
        split: ``validation`` or ``train``.
        settings: candidates, left items and seed.
        full: rank all right items, whatever ``settings.candidates`` says.

    Returns:
        A JSON-ready record: ``map@10`` (denominator min(10, relevant)) and its bootstrap interval ``ci95``
        over left items, ``map@10_relevant`` (denominator relevant), ``recall@10``, ``recall@100``,
        ``ndcg@10``; ``left_items`` and ``candidates`` (how many), ``full`` (whether these are all right
        items), ``train_positives`` (excluded or included), ``candidate_hash``, ``seconds``.
    """
    started = time.perf_counter()
    left_items, relevant = _group(corpus.pairs(split))
    if settings.left_items is not None and settings.left_items < len(left_items):
        # A stream of its own, so that the candidates do not change with the number of left items.
        random = np.random.default_rng((settings.seed, 1))
        chosen = np.sort(random.choice(len(left_items), settings.left_items, replace=False))
        left_items, relevant = left_items[chosen], _take(relevant, chosen)
    excluded = _rows_of(corpus.train, left_items) if split == "validation" else None
    count = corpus.right.items if full else settings.candidates
    candidates = sample_candidates(corpus.right.items, count, settings.seed)
    with tqdm(
        total=len(left_items), desc=f"ranking {split}", leave=False, disable=not sys.stderr.isatty()
    ) as bar:
        ranks, offsets = rank_relevant(
            left_embeddings[torch.from_numpy(left_items).long()],
            right_embeddings,
            candidates,
            relevant,
            excluded,
            progress=bar.update,
        )
    precision = metrics.average_precision(ranks, offsets, 10)
    low, high = metrics.bootstrap_interval(precision, settings.seed)
    return {
        "split": split,
        "map@10": float(precision.mean()),
        "ci95": [low, high],
        "map@10_relevant": float(metrics.average_precision_relevant(ranks, offsets, 10).mean()),
        "recall@10": float(metrics.recall(ranks, offsets, 10).mean()),
        "recall@100": float(metrics.recall(ranks, offsets, 100).mean()),
        "ndcg@10": float(metrics.ndcg(ranks, offsets, 10).mean()),
        "left_items": len(left_items),
        "candidates": len(candidates),
        "full": len(candidates) == corpus.right.items,
        "train_positives": "excluded" if excluded is not None else "included",
        "candidate_hash": candidate_hash(candidates),
        "seconds": time.perf_counter() - started,
    }


def evaluate_popularity(
    corpus: PreparedCorpus, split: str, settings: EvaluationSection, *, full: bool = False
) -> dict[str, Any]:
    """Measure popularity, the baseline without any model, on the same candidates."""
    left, right = popularity_embeddings(corpus.left.items, corpus.right_frequency)
    return evaluate_embeddings(left, right, corpus, split, settings, full=full)


def evaluate_run(
    run: Run, corpus: PreparedCorpus, split: str, *, candidates: int | None = None, full: bool = False
) -> dict[str, Any]:
    """Evaluate a run's newest checkpoint, with popularity beside it.

    Raises:
        InputError: when the run has no checkpoint, or one that does not fit its config or the corpus.
    """
    check_same_data(run, corpus.content_hash)
    state = checkpoints.load_newest(run)
    if state is None:
        raise InputError(f"{run.path}: has no checkpoint yet; train it first")
    model = make_model(run.config, corpus)
    model.load_state_dict(state["trainer"]["model"])
    settings = run.config.evaluation
    if candidates is not None:
        settings = settings.model_copy(update={"candidates": candidates})
    result = evaluate_beside_popularity(*embed_all(model, corpus), corpus, split, settings, full=full)
    return {**result, "step": state["trainer"]["step"], "method": run.config.estimator.label}


def evaluate_beside_popularity(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    corpus: PreparedCorpus,
    split: str,
    settings: EvaluationSection,
    *,
    full: bool = False,
) -> dict[str, Any]:
    """What `evaluate_embeddings` gives, with the corpus's hash and popularity on the same candidates."""
    result = evaluate_embeddings(left_embeddings, right_embeddings, corpus, split, settings, full=full)
    popularity = evaluate_popularity(corpus, split, settings, full=full)
    kept = ("map@10", "ci95", "map@10_relevant", "recall@10", "recall@100", "ndcg@10")
    return {
        **result,
        "data_hash": corpus.content_hash,
        "popularity": {name: popularity[name] for name in kept},
    }


def describe(result: Mapping[str, Any]) -> str:
    """An evaluation beside popularity, as a short table."""
    low, high = result["ci95"]
    pool = "all right items" if result["full"] else f"{result['candidates']:,} candidates"
    lines = [
        f"{result['split']}: {result['left_items']:,} left items, {pool}, "
        f"training positives {result['train_positives']}; MAP@10's 95 % interval [{low:.4f}, {high:.4f}]",
        f"{'':12}{'model':>10}{'popularity':>12}",
    ]
    for name in ("map@10", "ndcg@10", "recall@10", "recall@100"):
        lines.append(f"  {name:10}{result[name]:10.4f}{result['popularity'][name]:12.4f}")
    return "\n".join(lines)


def _group(pairs: Pairs) -> tuple[np.ndarray, Relevant]:
    """The distinct left items of a split and their right items; pairs are sorted by left."""
    left = np.asarray(pairs.left)
    starts = np.flatnonzero(np.diff(left, prepend=-1))
    offsets = np.append(starts, len(left)).astype(np.int64)
    return left[starts].astype(np.int64), Relevant(offsets, np.asarray(pairs.right).astype(np.int64))


def _take(relevant: Relevant, rows: np.ndarray) -> Relevant:
    """Some rows of a CSR structure, in the order given."""
    return _gather(relevant.items, relevant.offsets[rows], relevant.offsets[rows + 1])


def _rows_of(pairs: Pairs, left_items: np.ndarray) -> Relevant:
    """The right items of the given left items in `pairs`; an empty row for a left item without any."""
    starts = np.searchsorted(pairs.left, left_items, side="left")
    ends = np.searchsorted(pairs.left, left_items, side="right")
    return _gather(pairs.right, starts, ends)


def _gather(values: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Relevant:
    """A CSR structure whose row r is ``values[starts[r]:ends[r]]``."""
    lengths = ends - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return Relevant(offsets, np.asarray(values[positions], dtype=np.int64))
