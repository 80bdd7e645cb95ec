"""The ranking protocol: which left items and candidates are ranked, and what is measured.

1. Left items: those with at least one positive in the split, or ``evaluation.left_items`` of them.
2. Candidates: ``evaluation.candidates`` right items drawn uniformly without replacement, the same for all
   left items, plus each left item's own positives; all right items if there are fewer. Among ``unseen``,
   only right items without a training pair, of a corpus that holds out right items.
3. On the validation split, a left item's training positives are excluded; on the training split none are.
4. Ties count against the model (`gramrun.evaluation.ranking`).
5. Popularity is measured on the same candidates, for comparison.

The paper scores left items of the validation set against 50K random candidates (Section 4.3). It specifies
neither MAP's denominator nor whether training positives are excluded; results report both denominators.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from gramrun.base.errors import InputError
from gramrun.config import EvaluationSection
from gramrun.data.corpus import SplitCorpus
from gramrun.evaluation import metrics
from gramrun.evaluation.ranking import (
    InnerProducts,
    Ints,
    ItemSets,
    Scorer,
    candidate_hash,
    distinct_rows,
    rank_scored,
    sample_candidates,
)
from gramrun.gramian.exact import effective_rank
from gramrun.model.towers import TwoTower, embed_in_chunks
from gramrun.runs.directory import PER_ITEM

Metric = Callable[[Ints, Ints, int], NDArray[np.float64]]
Among = Literal["all", "unseen"]

MEASURES: Mapping[str, tuple[Metric, int]] = {
    "map@10": (metrics.average_precision, 10),
    "map@10_relevant": (metrics.average_precision_relevant, 10),
    "recall@10": (metrics.recall, 10),
    "recall@100": (metrics.recall, 100),
    "ndcg@10": (metrics.ndcg, 10),
}
_ROWS_READ = 4096  # rows of a split in memory at once; does not change a result


@dataclass(frozen=True)
class RankingTask:
    """What is ranked in one split.

    Attributes:
        split: ``validation`` or ``train``.
        left_items: the left items, int64, ascending.
        relevant: the right items of each left item in the split.
        excluded: the training positives of each left item, or None if they are ranked too.
        candidates: right item ids, int64, ascending.
        candidate_hash: SHA-256 of the candidate ids.
        full: whether the candidates are all right items, or all unseen ones.
        among: the right items that candidates are drawn from.
    """

    split: str
    left_items: Ints
    relevant: ItemSets
    excluded: ItemSets | None
    candidates: Ints
    candidate_hash: str
    full: bool
    among: Among = "all"


def ranking_task(
    corpus: SplitCorpus, split: str, settings: EvaluationSection, among: Among = "all"
) -> RankingTask:
    """Choose left items and candidates of ``validation`` or ``train``: a function of the arguments.

    Raises:
        InputError: when the split has no pairs; when ``unseen`` is asked of anything but the validation pairs
            of held-out right items.
    """
    if among == "unseen" and (split != "validation" or held_out_by(corpus) != "right-items"):
        raise InputError(
            f"{corpus.place}: the {split} positives are not all unseen right items; hold them out with "
            "--set split.by=right-items (fit: split_by), and rank the validation split"
        )
    pairs = corpus.pairs(split)
    if not len(pairs):
        raise InputError(f"{corpus.place}: has no {split} pairs; hold some out, or evaluate the other split")
    left_items, starts = distinct_rows(pairs.left)
    relevant = ItemSets(starts, np.append(starts[1:], len(pairs)), pairs.right)
    if settings.left_items is not None and settings.left_items < len(left_items):
        # A separate stream: the candidates do not depend on the number of left items.
        random = np.random.default_rng((settings.seed, 1))
        chosen = np.sort(random.choice(len(left_items), settings.left_items, replace=False))
        left_items = left_items[chosen]
        relevant = ItemSets(relevant.starts[chosen], relevant.ends[chosen], pairs.right)
    train = corpus.train
    excluded = ItemSets.of_left_items(train.left, train.right, left_items) if split == "validation" else None
    pool = np.flatnonzero(corpus.right_frequency == 0) if among == "unseen" else None
    size = corpus.right.items if pool is None else len(pool)
    candidates = sample_candidates(size, settings.candidates, settings.seed)
    full = len(candidates) == size
    if pool is not None:
        candidates = pool[candidates]
    hashed = candidate_hash(candidates)
    return RankingTask(split, left_items, relevant, excluded, candidates, hashed, full, among)


def held_out_by(corpus: SplitCorpus) -> str:
    """What the split holds out: ``pairs``, ``right-items`` or ``left-items``."""
    return str(corpus.manifest.get("split", {}).get("by", "pairs"))


def evaluate_embeddings(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    corpus: SplitCorpus,
    split: str,
    settings: EvaluationSection,
    among: Among = "all",
) -> dict[str, Any]:
    """Rank the candidates of every chosen left item by ⟨u, v⟩ and measure.

    Args:
        left_embeddings: floating, shape (left items, k), of all left items.
        right_embeddings: floating, shape (right items, k), of all right items.
        corpus: the split corpus.
        split: ``validation`` or ``train``.
        settings: candidates, left items and seed.
        among: the right items that candidates are drawn from.

    Returns:
        The record of `measure_embeddings`.
    """
    task = ranking_task(corpus, split, settings, among)
    rows = torch.from_numpy(task.left_items).to(left_embeddings.device)
    return measure_embeddings(task, left_embeddings[rows], right_embeddings, settings.seed)


@torch.no_grad()
def evaluate_model(
    model: TwoTower,
    corpus: SplitCorpus,
    splits: Iterable[str],
    settings: EvaluationSection,
    among: Among = "all",
) -> dict[str, dict[str, Any]]:
    """Measure a model on several splits; returns the records of `measure_embeddings` by split.

    Embeds only the items that are ranked, each once. Draws from no global random stream and changes nothing
    in the model.
    """
    tasks = [ranking_task(corpus, split, settings, among) for split in splits]
    left_rows = _rows_in_use([task.left_items for task in tasks], corpus.left.items)
    ranked = itertools.chain(*([task.candidates] for task in tasks), *(_items_of(t.relevant) for t in tasks))
    right_rows = _rows_in_use(ranked, corpus.right.items)
    device = model.device
    left, right = (
        embed_in_chunks(embed, torch.from_numpy(np.flatnonzero(rows >= 0)).to(device))
        for embed, rows in ((model.left_embeddings, left_rows), (model.right_embeddings, right_rows))
    )
    return {
        task.split: measure_embeddings(
            _renumbered(task, right_rows),
            left[torch.from_numpy(left_rows[task.left_items]).to(device)],
            right,
            settings.seed,
        )
        for task in tasks
    }


def measure_embeddings(task: RankingTask, left: Tensor, right: Tensor, seed: int) -> dict[str, Any]:
    """`measure` of inner products, with ``effective_rank`` of the left items' and the candidates' embeddings.

    It is None where all of them are 0.

    Args:
        task: its right items are rows of ``right``.
        left: floating, shape (left items of the task, k).
        right: floating, shape (right items, k).
        seed: of the bootstrap.
    """
    measured = measure(task, InnerProducts(left, right), seed)
    gramians = _gramian(left, np.arange(len(left))), _gramian(right, task.candidates)
    return {**measured, "effective_rank": [effective_rank(x) if x.any() else None for x in gramians]}


def measure(task: RankingTask, scorer: Scorer, seed: int) -> dict[str, Any]:
    """Rank one task and average the metrics over its left items.

    Args:
        task: what is ranked.
        scorer: the scores of the task's left items with right items.
        seed: of the bootstrap.

    Returns:
        ``split``; the `MEASURES`, with ``ci95``, the bootstrap interval of ``map@10`` over left items;
        ``effective_rank``, null; ``left_items`` and ``candidates`` (counts), ``among`` (``all`` or
        ``unseen``), ``full`` (whether the candidates are all of these), ``train_positives`` (excluded or
        included), ``candidate_hash``, and ``seconds``. And `PER_ITEM`, whose mean is ``map@10``: float32,
        shape (left items,), in ascending order of left items.
    """
    started = time.perf_counter()
    with tqdm(
        total=len(scorer), desc=f"ranking {task.split}", leave=False, disable=not sys.stderr.isatty()
    ) as bar:
        ranks, offsets = rank_scored(
            scorer, task.candidates, task.relevant, task.excluded, progress=bar.update
        )
    values = {name: _by_left_item(metric, ranks, offsets, k) for name, (metric, k) in MEASURES.items()}
    return {
        "split": task.split,
        **{name: float(by_item.mean()) for name, by_item in values.items()},
        "ci95": list(metrics.bootstrap_interval(values["map@10"], seed)),
        PER_ITEM: values["map@10"].astype(np.float32),
        "effective_rank": None,
        "left_items": len(scorer),
        "candidates": len(task.candidates),
        "among": task.among,
        "full": task.full,
        "train_positives": "excluded" if task.excluded is not None else "included",
        "candidate_hash": task.candidate_hash,
        "seconds": time.perf_counter() - started,
    }


def _gramian(embeddings: Tensor, rows: Ints) -> Tensor:
    """The sum of u ⊗ u over some rows in float64, in parts: a float64 copy of all would double the memory."""
    total = torch.zeros(embeddings.shape[1], embeddings.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), _ROWS_READ):
        part = torch.from_numpy(rows[start : start + _ROWS_READ]).to(embeddings.device)
        chosen = embeddings[part].double()
        total += (chosen.T @ chosen).cpu()
    return total


def popularity_embeddings(left_items: int, right_frequency: np.ndarray) -> tuple[Tensor, Tensor]:
    """One-dimensional embeddings that rank right items by their number of training pairs.

    Args:
        left_items: the number of left items.
        right_frequency: integers, shape (right items,).

    Returns:
        float32, shapes (left items, 1), all ones, and (right items, 1).
    """
    return torch.ones(left_items, 1), torch.from_numpy(right_frequency.astype(np.float32))[:, None]


def evaluate_popularity(
    corpus: SplitCorpus, split: str, settings: EvaluationSection, among: Among = "all"
) -> dict[str, Any]:
    """Measure popularity on the candidates of `ranking_task`."""
    left, right = popularity_embeddings(corpus.left.items, corpus.right_frequency)
    return evaluate_embeddings(left, right, corpus, split, settings, among)


def with_popularity(
    result: Mapping[str, Any], corpus: SplitCorpus, settings: EvaluationSection
) -> dict[str, Any]:
    """A record of `measure` with the corpus's hash and popularity's metrics on the same candidates."""
    popularity = evaluate_popularity(corpus, result["split"], settings, result["among"])
    return {
        **result,
        "data_hash": corpus.content_hash,
        "popularity": {name: popularity[name] for name in (*MEASURES, "ci95")},
    }


def describe(result: Mapping[str, Any]) -> str:
    """A record of `with_popularity` as a short table."""
    low, high = result["ci95"]
    unseen = " unseen" if result["among"] == "unseen" else ""
    pool = f"all{unseen} right items" if result["full"] else f"{result['candidates']:,}{unseen} candidates"
    lines = [
        f"{result['split']}: {result['left_items']:,} left items, {pool}, "
        f"training positives {result['train_positives']}; MAP@10's 95 % interval [{low:.4f}, {high:.4f}]",
        f"{'':12}{'model':>10}{'popularity':>12}",
    ]
    for name in ("map@10", "ndcg@10", "recall@10", "recall@100"):
        lines.append(f"  {name:10}{result[name]:10.4f}{result['popularity'][name]:12.4f}")
    return "\n".join(lines)


def _rows_in_use(ids: Iterable[Ints], count: int) -> Ints:
    """Number the items in ``ids`` in ascending order: int64 (count,), -1 for all other items."""
    rows = np.full(count, -1, dtype=np.int64)
    for items in ids:
        rows[items] = 0
    in_use = np.flatnonzero(rows == 0)
    rows[in_use] = np.arange(len(in_use))
    return rows


def _renumbered(task: RankingTask, rows: Ints) -> RankingTask:
    """The task with rows instead of right item ids; an excluded item without a row is no candidate."""
    return replace(
        task,
        candidates=rows[task.candidates],
        relevant=replace(task.relevant, numbers=rows),
        excluded=None if task.excluded is None else replace(task.excluded, numbers=rows),
    )


def _items_of(sets: ItemSets) -> Iterator[Ints]:
    """The items of all rows, in parts."""
    for start in range(0, len(sets), _ROWS_READ):
        yield sets.rows(start, start + _ROWS_READ)[1]


def _by_left_item(metric: Metric, ranks: Ints, offsets: Ints, k: int) -> NDArray[np.float64]:
    """A metric of every left item, computed in parts: its terms take many times the memory of the ranks."""
    values = []
    for start in range(0, len(offsets) - 1, _ROWS_READ):
        part = offsets[start : start + _ROWS_READ + 1]
        values.append(metric(ranks[part[0] : part[-1]], part - part[0], k))
    return np.concatenate(values)
