"""The ranking protocol: which left items, which candidates, what is left out, and popularity beside it.

1. Left items: those with at least one positive in the split (``evaluation.left_items`` samples some).
2. Candidates: ``evaluation.candidates`` right items drawn uniformly without replacement, the same for all
   left items, plus that left item's own positives; all right items where there are fewer.
3. For the validation split, a left item's training positives are taken out; for the training split there
   is nothing to take out. The result says which.
4. Ties count against the model (`gramrun.evaluation.ranking`).

The paper scores left items of the validation set against 50K random candidates (Section 4.3) and states
neither MAP's denominator nor whether training positives are taken out, so both denominators are reported.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from gramrun.base.errors import InputError
from gramrun.config import EvaluationSection
from gramrun.data.corpus import Pairs, SplitCorpus
from gramrun.evaluation import metrics
from gramrun.evaluation.baselines.popularity import popularity_embeddings
from gramrun.evaluation.ranking import (
    Ints,
    Stretches,
    candidate_hash,
    distinct_rows,
    rank_relevant,
    sample_candidates,
)
from gramrun.model.build import choose_device, make_model
from gramrun.model.embedding import embed_in_chunks
from gramrun.model.towers import TwoTower
from gramrun.runs import check_same_data, checkpoints
from gramrun.runs.directory import Run

Metric = Callable[[Ints, Ints, int], NDArray[np.float64]]

_ROWS_READ = 4096  # of a split at once; bounds memory, not a result


@dataclass(frozen=True)
class RankingTask:
    """What is ranked in one split, and against what.

    Attributes:
        split: ``validation`` or ``train``.
        left_items: the left items, int64, ascending.
        relevant: the right items of each of them in the split.
        excluded: their training positives, where these are taken out.
        candidates: right item ids, int64, ascending.
        candidate_hash: of these.
        full: whether they are all right items.
    """

    split: str
    left_items: Ints
    relevant: Stretches
    excluded: Stretches | None
    candidates: Ints
    candidate_hash: str
    full: bool


def ranking_task(
    corpus: SplitCorpus, split: str, settings: EvaluationSection, *, full: bool = False
) -> RankingTask:
    """Choose left items and candidates; the settings' seed alone decides.

    Args:
        corpus: for its pairs.
        split: ``validation`` or ``train``.
        settings: candidates, left items and seed.
        full: rank all right items, whatever ``settings.candidates`` says.
    """
    pairs = corpus.pairs(split)
    left_items, starts = distinct_rows(pairs.left)
    relevant = Stretches(starts, np.append(starts[1:], len(pairs)), pairs.right)
    if settings.left_items is not None and settings.left_items < len(left_items):
        # A stream of its own, so that the candidates do not change with the number of left items.
        random = np.random.default_rng((settings.seed, 1))
        chosen = np.sort(random.choice(len(left_items), settings.left_items, replace=False))
        left_items = left_items[chosen]
        relevant = Stretches(relevant.starts[chosen], relevant.ends[chosen], pairs.right)
    excluded = _rows_of(corpus.train, left_items) if split == "validation" else None
    count = corpus.right.items if full else settings.candidates
    candidates = sample_candidates(corpus.right.items, count, settings.seed)
    return RankingTask(
        split,
        left_items,
        relevant,
        excluded,
        candidates,
        candidate_hash(candidates),
        len(candidates) == corpus.right.items,
    )


def evaluate_embeddings(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    corpus: SplitCorpus,
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
        What `measure` does.
    """
    task = ranking_task(corpus, split, settings, full=full)
    rows = torch.from_numpy(task.left_items).to(left_embeddings.device)
    return measure(task, left_embeddings[rows], right_embeddings, settings.seed)


@torch.no_grad()
def evaluate_model(
    model: TwoTower,
    corpus: SplitCorpus,
    splits: Iterable[str],
    settings: EvaluationSection,
    *,
    full: bool = False,
) -> dict[str, dict[str, Any]]:
    """What `evaluate_embeddings` gives, by split. Items are embedded once, and only those that are ranked.

    Nothing is drawn from a global stream, and nothing of the model changes.
    """
    tasks = [ranking_task(corpus, split, settings, full=full) for split in splits]
    left_rows = _rows_in_use([task.left_items for task in tasks], corpus.left.items)
    ranked = itertools.chain(*([task.candidates] for task in tasks), *(_items_of(t.relevant) for t in tasks))
    right_rows = _rows_in_use(ranked, corpus.right.items)
    device = next(model.parameters()).device
    left, right = (
        embed_in_chunks(embed, torch.from_numpy(np.flatnonzero(rows >= 0)).to(device))
        for embed, rows in ((model.left_embeddings, left_rows), (model.right_embeddings, right_rows))
    )
    return {
        task.split: measure(
            _renumbered(task, right_rows),
            left[torch.from_numpy(left_rows[task.left_items]).to(device)],
            right,
            settings.seed,
        )
        for task in tasks
    }


def measure(task: RankingTask, left: Tensor, right: Tensor, seed: int) -> dict[str, Any]:
    """Rank and measure.

    Args:
        task: its right items are rows of ``right``.
        left: shape (left items of the task, k).
        right: shape (right items, k).
        seed: of the bootstrap.

    Returns:
        A JSON-ready record: ``map@10`` (denominator min(10, relevant)) and its bootstrap interval ``ci95``
        over left items, ``map@10_relevant`` (denominator relevant), ``recall@10``, ``recall@100``,
        ``ndcg@10``; ``left_items`` and ``candidates`` (how many), ``full`` (whether these are all right
        items), ``train_positives`` (excluded or included), ``candidate_hash``, ``seconds`` (without those
        of embedding).
    """
    started = time.perf_counter()
    with tqdm(
        total=len(left), desc=f"ranking {task.split}", leave=False, disable=not sys.stderr.isatty()
    ) as bar:
        ranks, offsets = rank_relevant(
            left, right, task.candidates, task.relevant, task.excluded, progress=bar.update
        )

    def values(metric: Metric, k: int) -> NDArray[np.float64]:
        return _by_left_item(metric, ranks, offsets, k)

    precision = values(metrics.average_precision, 10)
    low, high = metrics.bootstrap_interval(precision, seed)
    return {
        "split": task.split,
        "map@10": float(precision.mean()),
        "ci95": [low, high],
        "map@10_relevant": float(values(metrics.average_precision_relevant, 10).mean()),
        "recall@10": float(values(metrics.recall, 10).mean()),
        "recall@100": float(values(metrics.recall, 100).mean()),
        "ndcg@10": float(values(metrics.ndcg, 10).mean()),
        "left_items": len(left),
        "candidates": len(task.candidates),
        "full": task.full,
        "train_positives": "excluded" if task.excluded is not None else "included",
        "candidate_hash": task.candidate_hash,
        "seconds": time.perf_counter() - started,
    }


def evaluate_popularity(
    corpus: SplitCorpus, split: str, settings: EvaluationSection, *, full: bool = False
) -> dict[str, Any]:
    """Measure popularity, the baseline without any model, on the same candidates."""
    left, right = popularity_embeddings(corpus.left.items, corpus.right_frequency)
    return evaluate_embeddings(left, right, corpus, split, settings, full=full)


def trained_model(run: Run, corpus: SplitCorpus) -> tuple[TwoTower, int]:
    """The model of a run's newest checkpoint, and the step that it was saved at.

    Raises:
        InputError: when the run has no checkpoint, or one that does not fit its config or the corpus.
    """
    check_same_data(run, corpus.content_hash)
    state = checkpoints.load_newest(run)
    if state is None:
        raise InputError(f"{run.path}: has no checkpoint yet; train it first")
    model = make_model(run.config, corpus).to(choose_device(run.config.device))
    try:
        model.load_state_dict(state["trainer"]["model"])
    except (LookupError, RuntimeError, TypeError, AttributeError):
        raise InputError(
            f"{run.path}: its checkpoint holds no model of its config; start the run anew with --force"
        ) from None
    return model, state["trainer"]["step"]


def evaluate_run(
    run: Run, corpus: SplitCorpus, split: str, *, candidates: int | None = None, full: bool = False
) -> dict[str, Any]:
    """Evaluate a run's newest checkpoint, with popularity beside it.

    Raises:
        InputError: when the run has no checkpoint, or one that does not fit its config or the corpus.
    """
    model, step = trained_model(run, corpus)
    settings = run.config.evaluation
    if candidates is not None:
        settings = settings.model_copy(update={"candidates": candidates})
    result = evaluate_model(model, corpus, [split], settings, full=full)[split]
    result = _beside_popularity(result, corpus, settings, full=full)
    return {**result, "step": step, "method": run.config.estimator.label}


def evaluate_beside_popularity(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    corpus: SplitCorpus,
    split: str,
    settings: EvaluationSection,
    *,
    full: bool = False,
) -> dict[str, Any]:
    """What `evaluate_embeddings` gives, with the corpus's hash and popularity on the same candidates."""
    result = evaluate_embeddings(left_embeddings, right_embeddings, corpus, split, settings, full=full)
    return _beside_popularity(result, corpus, settings, full=full)


def _beside_popularity(
    result: dict[str, Any], corpus: SplitCorpus, settings: EvaluationSection, *, full: bool
) -> dict[str, Any]:
    popularity = evaluate_popularity(corpus, result["split"], settings, full=full)
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


def _rows_of(pairs: Pairs, left_items: Ints) -> Stretches:
    """The right items of the given left items in `pairs`; an empty row for a left item without any."""
    sought = left_items.astype(pairs.left.dtype)  # of another type, all pairs would be copied into it
    starts = np.searchsorted(pairs.left, sought, side="left")
    return Stretches(starts, np.searchsorted(pairs.left, sought, side="right"), pairs.right)


def _rows_in_use(ids: Iterable[Ints], count: int) -> Ints:
    """Number the items that occur in ``ids``, in ascending order: int64 (count,), -1 for the others."""
    rows = np.full(count, -1, dtype=np.int64)
    for items in ids:
        rows[items] = 0
    in_use = np.flatnonzero(rows == 0)
    rows[in_use] = np.arange(len(in_use))
    return rows


def _renumbered(task: RankingTask, rows: Ints) -> RankingTask:
    """The task with rows for right items; those of the excluded that have none are no candidates."""
    return replace(
        task,
        candidates=rows[task.candidates],
        relevant=replace(task.relevant, numbers=rows),
        excluded=None if task.excluded is None else replace(task.excluded, numbers=rows),
    )


def _items_of(sets: Stretches) -> Iterator[Ints]:
    """The items of all rows, a part at a time."""
    for start in range(0, len(sets), _ROWS_READ):
        yield sets.rows(start, start + _ROWS_READ)[1]


def _by_left_item(metric: Metric, ranks: Ints, offsets: Ints, k: int) -> NDArray[np.float64]:
    """A metric of every left item, of some at a time: its terms take many times what its ranks do."""
    values = []
    for start in range(0, len(offsets) - 1, _ROWS_READ):
        part = offsets[start : start + _ROWS_READ + 1]
        values.append(metric(ranks[part[0] : part[-1]], part - part[0], k))
    return np.concatenate(values)
