"""The peak memory of a training run, predicted from its configuration and corpus: resident bytes at most.

    peak = process + parameters + optimizer + populations + caches + files + max over the moments of
           { the start of caches,  a step's batches,  an evaluation }

It counts what is resident, as the kernel does for a process (``ru_maxrss``): also the pages of mapped shards
that have been read, all of them in a run of an epoch, which the kernel may drop again when memory is short.
Rows that no step has touched yet take no memory in Adagrad's sums, so a short run can stay below.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from gramrun.caches import cache_bytes
from gramrun.config import RunConfig
from gramrun.data.shards import PreparedCorpus
from gramrun.models import learner_kind

# What a process that only predicts has not loaded yet: torch's optimizers, the compiled loops, the products'
# scratch memory and the threads. Measured (Linux x86-64, torch 2.13 for CPUs, 2 threads): 195 to 215 MB.
_FIRST_STEPS = 200_000_000
_ROWS_RANKED, _CANDIDATES_RANKED = 256, 65_536  # at once (`gramrun.ranking`)
_ROWS_SUMMED = 65_536  # of caches at once, in float32 and twice in float64 (`gramrun.gramian.sagram`)
STATE_FLOATS = {"adagrad": 1, "adam": 2, "sgd": 0}  # per parameter, as torch keeps them
_SET_BYTES = 28  # a pair's, while the sets of an evaluation are made: ids, positions, differences, masks


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


def peak_memory(config: RunConfig, corpus: PreparedCorpus, companion_dim: int) -> PeakMemory:
    """Predict the peak of ``gramrun train``.

    Args:
        config: of the run.
        corpus: of the run, which it fits.
        companion_dim: r, the companions of an item (`gramrun.objectives.companion_dim`).
    """
    process = psutil.Process().memory_info().rss + _FIRST_STEPS  # first: what follows reads mapped files
    parameters = 4 * count_parameters(config, corpus)
    items = corpus.left.items + corpus.right.items
    compiled = learner_kind(config, torch.device("cpu"), ()) == "compiled"
    tables = sum(corpus.vocabulary_sizes[name] for name in _vocabularies(corpus))
    optimizer = STATE_FLOATS[config.train.optimizer] * parameters + (4 * tables if compiled else 0)
    if config.train.optimizer == "adam":  # its gradients are as large as the tables, and so is its root
        optimizer += 2 * parameters
    gammas = ((corpus.left.items, config.train.gamma_left), (corpus.right.items, config.train.gamma_right))
    populations = sum(count * (4 if gamma == 1 else 16) for count, gamma in gammas)
    if config.train.prior.name != "none":
        populations += 4 * companion_dim * items
    caches = cache_bytes(config, config.estimator, corpus, companion_dim)
    in_file = config.estimator.cache_folder is not None
    return PeakMemory(
        process,
        parameters,
        optimizer,
        populations,
        0 if in_file else caches,
        mapped_bytes(config, corpus) + (caches if in_file else 0),
        max(_step_bytes(config, corpus), evaluation_bytes(config, corpus), _start_bytes(config, corpus)),
    )


def _vocabularies(corpus: PreparedCorpus) -> set[str]:
    return {feature.vocabulary for side in (corpus.left, corpus.right) for feature in side.features}


def count_parameters(config: RunConfig, corpus: PreparedCorpus) -> int:
    """How many parameters the towers of `config` have on `corpus`, without making them."""
    model = config.model
    width = model.input_dim if model.hidden else model.embedding_dim
    count = width * sum(corpus.vocabulary_sizes[name] for name in _vocabularies(corpus))
    for side in (corpus.left, corpus.right):
        widths = _widths(config, len(side.features))
        count += sum((a + 1) * b for a, b in itertools.pairwise(widths))
        count += widths[0] * widths[-1] if model.skip else 0
    return count


def _widths(config: RunConfig, features: int) -> list[int]:
    """The widths of a tower's layers, from its inputs to its embedding."""
    model = config.model
    return [model.input_dim * features, *model.hidden, model.embedding_dim] if model.hidden else []


def mapped_bytes(config: RunConfig, corpus: PreparedCorpus) -> int:
    """The size of the shards that a run reads: features, pairs, and targets where it has them."""
    unread = ["vocabularies/", "left/frequency", "right/frequency"]
    if "validation" not in config.evaluation.splits:
        unread.append("pairs/validation")
    if config.train.target == "one":
        unread += ["pairs/train_target", "pairs/validation_target"]
    files = corpus.manifest["files"].items()
    return sum(file["bytes"] for name, file in files if not name.startswith(tuple(unread)))


def _step_bytes(config: RunConfig, corpus: PreparedCorpus) -> int:
    """Activations of both batches and both sides, and the gradients of one."""
    rows = 2 * config.train.batch_size + config.estimator.gramian_batch_size
    k = config.model.embedding_dim
    numbers = sum(sum(_widths(config, len(s.features)) or [k]) for s in (corpus.left, corpus.right))
    return 2 * 4 * rows * numbers  # each width before and after its activation


def _start_bytes(config: RunConfig, corpus: PreparedCorpus) -> int:
    """What the start of the caches holds beside them: a sum's chunk, and for pairs one side's embeddings."""
    if config.estimator.cache_entry is None:
        return 0
    items = max(corpus.left.items, corpus.right.items)
    per_pair = config.estimator.cache_entry == "pair"
    summed = min(_ROWS_SUMMED, len(corpus.train) if per_pair else items)
    return config.model.embedding_dim * (20 * summed + (4 * items if per_pair else 0))


@dataclass(frozen=True)
class _Ranked:
    """What one split's evaluation ranks: left rows, right rows, pairs of its sets; and of the whole split."""

    left: int
    right: int
    relevant: int
    excluded: int
    pairs: int


def evaluation_bytes(config: RunConfig, corpus: PreparedCorpus) -> int:
    """What `gramrun.evaluation.evaluate_model` holds at most, for all splits."""
    settings, k = config.evaluation, config.model.embedding_dim
    ranked = [_ranked(config, corpus, split) for split in dict.fromkeys(settings.splits)]
    rows = max(r.left for r in ranked) + max(r.right for r in ranked)
    candidates = min(settings.candidates, corpus.right.items)
    embeddings = 4 * k * rows + 8 * (corpus.left.items + corpus.right.items)  # and where each item's row is
    sets = 8 * sum(r.relevant + r.excluded for r in ranked)
    products = 4 * (k * candidates + _ROWS_RANKED * min(candidates, _CANDIDATES_RANKED))
    moments = [sets + _SET_BYTES * max(r.excluded, r.relevant, r.pairs) for r in ranked]
    for r in ranked:
        renumbering = _SET_BYTES * max(r.excluded, r.relevant)
        ranking = 4 * k * r.left + products + 8 * (r.relevant + r.excluded)
        moments.append(sets + embeddings + max(renumbering, ranking))
    return max(moments)


def _ranked(config: RunConfig, corpus: PreparedCorpus, split: str) -> _Ranked:
    settings, pairs = config.evaluation, corpus.pairs(split)
    is_first = np.diff(pairs.left, prepend=-1) != 0  # pairs are sorted by left item
    left_items = pairs.left[is_first]
    left = min(len(left_items), settings.left_items or len(left_items))
    share = left / len(left_items)
    relevant = round(share * len(pairs))
    excluded = share * float(corpus.left_frequency[left_items].sum()) if split == "validation" else 0
    met = np.zeros(corpus.right.items, dtype=bool)
    met[pairs.right] = True
    right = settings.candidates + min(int(np.count_nonzero(met)), relevant)
    return _Ranked(left, min(corpus.right.items, right), relevant, round(excluded), len(pairs))
