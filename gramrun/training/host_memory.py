"""The peak memory of a training run, predicted from its configuration and corpus: resident bytes at most.

    peak = process + parameters + optimizer + populations + caches + files + max over the moments of
           { the start of caches,  a step's batches,  an evaluation }

It counts what is resident, as the kernel does for a process (``ru_maxrss``): also the pages of mapped shards
that have been read, all of them in a run of an epoch, which the kernel may drop again when memory is short.
Rows that no step has touched yet take no memory in Adagrad's sums, so a short run can stay below.

Of a run on a GPU this is the part of the host, where the model and its caches are made before they are moved;
that part has not been compared with a GPU's. The GPU's own is in `gramrun.training.device_memory`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from gramrun.config import RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.evaluation.ranking import distinct_rows
from gramrun.model.build import learner_kind
from gramrun.training.caches import cache_bytes

# What a process that only predicts has not loaded yet: torch's optimizers, the compiled loops, the products'
# scratch memory and the threads. Measured (Linux x86-64, torch 2.13 for CPUs, 2 threads): 195 to 215 MB.
_FIRST_STEPS = 200_000_000
_ROWS_RANKED, _CANDIDATES_RANKED = 256, 65_536  # at once (`gramrun.evaluation.ranking`)
_ROWS_SUMMED = 65_536  # of caches at once, in float32 and twice in float64 (`gramrun.gramian.sagram`)
STATE_FLOATS = {"adagrad": 1, "adam": 2, "sgd": 0}  # per parameter, as torch keeps them
_ROWS_MEASURED = 4096  # at once (`gramrun.evaluation.protocol`)
_SET_BYTES = 80  # of a chunk's pair while it is ranked: row, item, their selection, its tensors, its place
_METRIC_BYTES = 40  # of a part's pair while a metric is computed: places, terms and what they are made of
_ROW_BYTES = 40  # of a left item: its id, and where its relevant and its excluded items begin and end


@dataclass(frozen=True)
class PeakMemory:
    """Bytes, by what they are for.

    Attributes:
        process: Python, torch and their code.
        parameters: tables and dense layers.
        optimizer: its state, and where the compiled loops keep their places.
        populations: weights of items, and the vectors of a prior.
        caches: of the Gramian estimators, in memory.
        files: mapped shards, and caches in files.
        work: of the moment that takes most: an evaluation, a step, or the start.
    """

    process: int
    parameters: int
    optimizer: int
    populations: int
    caches: int
    files: int
    work: int

    @property
    def total(self) -> int:
        """Of all."""
        parts = (self.process, self.parameters, self.optimizer, self.populations, self.caches)
        return sum(parts) + self.files + self.work

    @property
    def to_come(self) -> dict[str, int]:
        """What a process that has opened its corpus must still find free; mapped files can be dropped."""
        return {
            "threads and compiled loops": _FIRST_STEPS,
            "parameters": self.parameters,
            "optimizer": self.optimizer,
            "populations": self.populations,
            "Gramian caches": self.caches,
            "evaluation, batches or start": self.work,
        }


CPU = torch.device("cpu")


def peak_memory(
    config: RunConfig, corpus: SplitCorpus, companion_dim: int, device: torch.device = CPU
) -> PeakMemory:
    """Predict the peak of ``gramrun train``.

    Args:
        config: of the run.
        corpus: of the run, which it fits.
        companion_dim: r, the companions of an item (`gramrun.training.objective.companion_dim`).
        device: where the model is.
    """
    process = psutil.Process().memory_info().rss + _FIRST_STEPS  # first: what follows reads mapped files
    parameters = 4 * count_parameters(config, corpus)
    caches = cache_bytes(config, config.estimator, corpus, companion_dim)
    if device.type == "cuda":
        sets, _ = evaluation_bytes_apart(config, corpus)
        start = max(parameters, caches)  # made on the host, and moved
        return PeakMemory(
            process,
            0,
            0,
            8 * _weighted_items(config, corpus),
            0,
            mapped_bytes(config, corpus),
            max(sets, start),
        )
    optimizer = STATE_FLOATS[config.train.optimizer] * parameters
    if learner_kind(config, CPU, ()) == "compiled":
        optimizer += 4 * table_rows(corpus)
    if config.train.optimizer == "adam":  # its gradients are as large as the tables, and so is its root
        optimizer += 2 * parameters
    populations = 4 * (corpus.left.items + corpus.right.items) + 12 * _weighted_items(config, corpus)
    populations += companion_bytes(config, corpus, companion_dim)
    in_file = config.estimator.cache_folder is not None
    return PeakMemory(
        process,
        parameters,
        optimizer,
        populations,
        0 if in_file else caches,
        mapped_bytes(config, corpus) + (caches if in_file else 0),
        max(step_bytes(config, corpus), evaluation_bytes(config, corpus), start_bytes(config, corpus)),
    )


def _weighted_items(config: RunConfig, corpus: SplitCorpus) -> int:
    """Items of sides whose γ is not 1: 4 bytes of importance each, and 8 to draw by, always on the host."""
    gammas = ((corpus.left.items, config.train.gamma_left), (corpus.right.items, config.train.gamma_right))
    return sum(items for items, gamma in gammas if gamma != 1)


def companion_bytes(config: RunConfig, corpus: SplitCorpus, companion_dim: int) -> int:
    """The vectors of a prior."""
    items = corpus.left.items + corpus.right.items
    return 4 * companion_dim * items if config.train.prior.name != "none" else 0


def table_rows(corpus: SplitCorpus) -> int:
    """The rows of all feature tables."""
    return sum(corpus.vocabulary_sizes[name] for name in _vocabularies(corpus))


def _vocabularies(corpus: SplitCorpus) -> set[str]:
    return {feature.vocabulary for side in (corpus.left, corpus.right) for feature in side.features}


def count_parameters(config: RunConfig, corpus: SplitCorpus) -> int:
    """How many parameters the towers of `config` have on `corpus`, without making them."""
    model = config.model
    width = model.input_dim if model.hidden else model.embedding_dim
    count = width * sum(corpus.vocabulary_sizes[name] for name in _vocabularies(corpus))
    for side in (corpus.left, corpus.right):
        widths = layer_widths(config, len(side.features))
        count += sum((a + 1) * b for a, b in itertools.pairwise(widths))
        count += widths[0] * widths[-1] if model.skip else 0
    return count


def layer_widths(config: RunConfig, features: int) -> list[int]:
    """The widths of a tower's layers, from its inputs to its embedding."""
    model = config.model
    return [model.input_dim * features, *model.hidden, model.embedding_dim] if model.hidden else []


def mapped_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """The size of the shards that a run reads: features, pairs, and targets where it has them."""
    unread = ["vocabularies/", "left/frequency", "right/frequency"]
    if "validation" not in config.evaluation.splits:
        unread.append("pairs/validation")
    if config.train.target == "one":
        unread += ["pairs/train_target", "pairs/validation_target"]
    files = corpus.manifest["files"].items()
    return sum(file["bytes"] for name, file in files if not name.startswith(tuple(unread)))


def step_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """Activations of both batches and both sides, and the gradients of one."""
    rows = 2 * config.train.batch_size + config.estimator.gramian_batch_size
    k = config.model.embedding_dim
    numbers = sum(sum(layer_widths(config, len(s.features)) or [k]) for s in (corpus.left, corpus.right))
    return 2 * 4 * rows * numbers  # each width before and after its activation


def start_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What the start of the caches holds beside them: a sum's chunk, and for pairs one side's embeddings."""
    if config.estimator.cache_entry is None:
        return 0
    items = max(corpus.left.items, corpus.right.items)
    per_pair = config.estimator.cache_entry == "pair"
    summed = min(_ROWS_SUMMED, len(corpus.train) if per_pair else items)
    return config.model.embedding_dim * (20 * summed + (4 * items if per_pair else 0))


@dataclass(frozen=True)
class _Ranked:
    """What one split's evaluation ranks.

    Attributes:
        left: rows.
        right: rows.
        all_left: rows of the whole split, of which `left` are chosen.
        relevant: pairs.
        chunk: relevant and excluded pairs of the chunk of rows that has most.
        part: relevant pairs of the part that has most, of those that metrics are computed in.
    """

    left: int
    right: int
    all_left: int
    relevant: int
    chunk: int
    part: int


def evaluation_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What `evaluate_model` holds at most, for all splits, with the model on the CPU."""
    return sum(evaluation_bytes_apart(config, corpus))


def evaluation_bytes_apart(config: RunConfig, corpus: SplitCorpus) -> tuple[int, int]:
    """The same on the host, and where the model is: the ranks' room, and that of embeddings and products."""
    ranked = [_ranked(config, corpus, split) for split in dict.fromkeys(config.evaluation.splits)]
    rows = 8 * (corpus.left.items + corpus.right.items)  # where each item's row is
    sets = sum(_ROW_BYTES * r.left for r in ranked) + max(_ROW_BYTES * r.all_left for r in ranked)
    ranks = max(8 * r.relevant + max(_SET_BYTES * r.chunk, _METRIC_BYTES * r.part) for r in ranked)
    k, candidates = config.model.embedding_dim, min(config.evaluation.candidates, corpus.right.items)
    embeddings = k * (max(r.left for r in ranked) + max(r.right for r in ranked))
    split = k * (max(r.left for r in ranked) + candidates)  # its own left rows and candidates
    products = _ROWS_RANKED * min(candidates, _CANDIDATES_RANKED)
    return rows + sets + ranks, 4 * (embeddings + split + products)


def _ranked(config: RunConfig, corpus: SplitCorpus, split: str) -> _Ranked:
    settings, pairs = config.evaluation, corpus.pairs(split)
    if split == "train":
        left_items = np.flatnonzero(corpus.left_frequency)
        relevant = unranked = corpus.left_frequency[left_items]
    else:
        left_items, starts = distinct_rows(pairs.left)
        relevant = np.diff(starts, append=len(pairs))
        unranked = relevant + corpus.left_frequency[left_items]
    left = min(len(left_items), settings.left_items or len(left_items))
    share = left / len(left_items)
    met = np.zeros(corpus.right.items, dtype=bool)
    met[pairs.right] = True
    right = settings.candidates + min(int(np.count_nonzero(met)), round(share * len(pairs)))
    return _Ranked(
        left,
        min(corpus.right.items, right),
        len(left_items),
        round(share * len(pairs)),
        _most_of(_ROWS_RANKED, unranked),
        _most_of(_ROWS_MEASURED, relevant),
    )


def _most_of(rows: int, pairs: np.ndarray) -> int:
    """The pairs of the chunk of so many rows that has most."""
    return int(np.add.reduceat(pairs, np.arange(0, len(pairs), rows), dtype=np.int64).max())
