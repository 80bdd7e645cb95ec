"""Predict the peak memory of a training run, and refuse a run that does not fit.

    host = process + parameters + optimizer + populations + caches + mapped files + work
    GPU  =           parameters + optimizer + features and pairs + caches          + work

with work a step's batches, whose memory the allocator keeps, and the most that an evaluation, a checkpoint of
split tables or the start of the caches takes at once. Linux overcommits memory and kills later, so a run is
checked before it makes anything. The host's prediction is of resident bytes, as ``ru_maxrss`` counts them,
mapped pages included; the kernel drops those when it needs memory, so the check leaves them out. ``make gpu``
compares the GPU's prediction with what torch reserves: on an H200 the static engine's was within .3 %, the
plain engine's above by 1 to 6 % on larger wikis and by half at Simple's size.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import psutil
import torch

from gramrun.base.capacity import check_available, check_capacity, size_text
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.evaluation.ranking import distinct_rows
from gramrun.gramian.cache import CACHE_DTYPES
from gramrun.model.build import choose_device, engine_name, table_sizes
from gramrun.model.row_wise import padded_width
from gramrun.model.svd_start import EXTRA
from gramrun.model.towers import EMBED_CHUNK
from gramrun.training.objective import companion_dim

CPU = torch.device("cpu")
STATE_FLOATS = {"adagrad": 1, "adam": 2, "sgd": 0, "sparse-adam": 2}  # per parameter
WORK = "evaluation, batches or start"
CACHES = "Gramian caches"

# Optimizers, compiled loops, scratch memory and threads, which a process that only predicts has not loaded.
# Measured (Linux x86-64, torch 2.13 for CPUs, 1 and 2 threads): 140 to 195 MB.
_FIRST_STEPS = 150_000_000
_CUDA_BUILD = 150_000_000  # what torch's build for CUDA loads more in a first step, on a CPU too; 50 to 200
_TORCHREC = 50_000_000  # what TorchRec's modules take more than compiled loops; measured
WORKSPACES = 200_000_000  # of cuBLAS and the allocator; a guess, which fits the static engine on an H200
_ROWS_RANKED, _CANDIDATES_RANKED = 256, 65_536  # at once (`gramrun.evaluation.ranking`)
_ROWS_MEASURED = 4096  # at once (`gramrun.evaluation.protocol`)
_ROWS_SUMMED = 65_536  # of caches at once, in float32 and twice in float64 (`gramrun.gramian.sagram`)
_SET_BYTES = 80  # of a pair while it is ranked
_METRIC_BYTES = 40  # of a pair while a metric is computed
_ROW_BYTES = 40  # of a left item: its id, and the bounds of its relevant and excluded items
_NAMED = 0.1  # an error names the parts that take at least this share


def check_memory(
    config: RunConfig, corpus: SplitCorpus, processes: Processes = SINGLE_PROCESS, observed: int = 0
) -> None:
    """Check that a run fits into what is free now, on the host and on its GPU.

    Args:
        config: the run's configuration.
        corpus: its corpus.
        processes: the processes that train together; each on this machine needs the memory.
        observed: the bytes of the caches of gram-error's estimators.

    Raises:
        ConfigError: when it does not fit, with the figures.
    """
    device = choose_device(config.device)
    parts = needed_memory(host_memory(config, corpus, device, processes.count))
    if observed:
        parts["observers' caches"] = observed
    here = processes.here
    what = _largest_parts(parts) + (f", in each of {here} processes," if here > 1 else "")
    check_capacity(here * sum(parts.values()), "memory", what=what, remedy=_remedy(config, parts))
    if device.type == "cuda":
        parts = device_memory(config, corpus)
        free, _ = torch.cuda.mem_get_info(device)
        check_available(
            sum(parts.values()),
            free,
            "GPU memory",
            what=_largest_parts(parts),
            remedy=_remedy(config, parts),
        )


def host_memory(
    config: RunConfig, corpus: SplitCorpus, device: torch.device = CPU, processes: int = 1
) -> dict[str, int]:
    """Predict the peak of one process of ``gramrun train`` on the host, as bytes by part.

    Args:
        config: the run's configuration.
        corpus: its corpus.
        device: holds the model.
        processes: the number of processes, among which tables may be split.
    """
    mapped = mapped_bytes(corpus)
    # `open_corpus` has read the mapped files, so they are resident.
    process = max(0, psutil.Process().memory_info().rss - mapped) + _FIRST_STEPS
    on_gpu = device.type == "cuda"
    if config.train.tables == "row-wise":
        process += _TORCHREC
    elif torch.version.cuda:
        process += _CUDA_BUILD
    parameters = 4 * _parameters_here(config, corpus, processes)
    caches = _estimator_caches(config, corpus, processes)
    in_file = config.estimator.cache_folder is not None
    ranks, ranking = _evaluation_bytes(config, corpus)
    if on_gpu:  # the model and the caches are made on the host and moved
        work = max(ranks, parameters, caches, _frequency_bytes(config, corpus), _svd_bytes(config, corpus))
    else:
        start = max(
            _start_bytes(config, corpus), _frequency_bytes(config, corpus), _svd_bytes(config, corpus)
        )
        checkpoint = _checkpoint_bytes(config, corpus, processes)
        work = _step_bytes(config, corpus) + max(ranks + ranking, checkpoint, start)
    return {
        "process": process,
        "parameters": 0 if on_gpu else parameters,
        "optimizer": 0 if on_gpu else _optimizer_bytes(config, corpus, CPU, processes),
        "populations": _populations_bytes(config, corpus, on_gpu=on_gpu),
        CACHES: 0 if on_gpu or in_file else caches,
        "mapped files": mapped + (caches if in_file and not on_gpu else 0),
        WORK: work,
    }


def needed_memory(parts: Mapping[str, int]) -> dict[str, int]:
    """Return what a process that has opened its corpus must still find free, of `host_memory`'s parts."""
    counted = {name: size for name, size in parts.items() if name not in ("process", "mapped files")}
    return {"threads and compiled loops": _FIRST_STEPS, **counted}


def device_memory(config: RunConfig, corpus: SplitCorpus) -> dict[str, int]:
    """Predict what one process of ``gramrun train`` takes on its GPU, as bytes by part."""
    device = torch.device("cuda")
    step = _step_bytes(config, corpus)
    if engine_name(config, device) == "static":
        step += _padded_bytes(config, corpus)
    _, ranking = _evaluation_bytes(config, corpus)
    return {
        "parameters": 4 * count_parameters(config, corpus),
        "optimizer": _optimizer_bytes(config, corpus, device),
        "features and pairs": _data_bytes(config, corpus),
        CACHES: _estimator_caches(config, corpus),
        WORK: WORKSPACES + step + max(ranking, _start_bytes(config, corpus)),
    }


def cache_bytes(
    config: RunConfig, section: EstimatorSection, corpus: SplitCorpus, companion_dim: int, processes: int = 1
) -> int:
    """Return the bytes of an estimator's caches in one process: an embedding and r companions an entry."""
    if section.cache_entry is None:
        return 0
    pairs = len(corpus.train)
    sides = (corpus.left.items, corpus.right.items) if section.cache_entry == "item" else (pairs, pairs)
    embedding = config.model.embedding_dim * CACHE_DTYPES[section.cache_dtype].itemsize
    return sum(_rows_here(config, n, processes) for n in sides) * (embedding + 4 * companion_dim)


def count_parameters(config: RunConfig, corpus: SplitCorpus) -> int:
    """Return the number of parameters, without making them."""
    count = config.model.table_dim * _table_rows(corpus)
    for side in (corpus.left, corpus.right):
        widths = _layer_widths(config, len(side.features))
        count += sum((a + 1) * b for a, b in itertools.pairwise(widths))
        count += widths[0] * widths[-1] if config.model.skip else 0
    return count


def _parameters_here(config: RunConfig, corpus: SplitCorpus, processes: int) -> int:
    """The numbers of parameters in one process: of split tables its rows, padded."""
    count = count_parameters(config, corpus)
    if config.train.tables == "replicated":
        return count
    width = config.model.table_dim
    here = sum(_rows_here(config, rows, processes) for rows in table_sizes(corpus).values())
    return count - width * _table_rows(corpus) + padded_width(width) * here


def _rows_here(config: RunConfig, rows: int, processes: int) -> int:
    """The most rows of a table or cache that a process holds."""
    return -(-rows // processes) if config.train.tables == "row-wise" else rows


def _checkpoint_bytes(config: RunConfig, corpus: SplitCorpus, processes: int) -> int:
    """Two copies of the largest part of a split table, while a checkpoint is written."""
    if config.train.tables == "replicated":
        return 0
    largest = max(table_sizes(corpus).values())
    return 2 * 4 * padded_width(config.model.table_dim) * _rows_here(config, largest, processes)


def mapped_bytes(corpus: SplitCorpus) -> int:
    """Return the size of the shards that are mapped: all but the vocabularies."""
    files = corpus.manifest["files"].items()
    return sum(file["bytes"] for name, file in files if not name.startswith("vocabularies/"))


def _table_rows(corpus: SplitCorpus) -> int:
    return sum(table_sizes(corpus).values())


def _layer_widths(config: RunConfig, features: int) -> list[int]:
    """The widths of a tower's layers, from its inputs to its embedding; empty for a linear tower."""
    model = config.model
    return [model.input_dim * features, *model.hidden, model.embedding_dim] if model.hidden else []


def _estimator_caches(config: RunConfig, corpus: SplitCorpus, processes: int = 1) -> int:
    return cache_bytes(config, config.estimator, corpus, companion_dim(config, corpus), processes)


def _optimizer_bytes(config: RunConfig, corpus: SplitCorpus, device: torch.device, processes: int = 1) -> int:
    """The optimizer's state, and what the engine keeps beside each table."""
    parameters = 4 * _parameters_here(config, corpus, processes)
    size = STATE_FLOATS[config.train.optimizer] * parameters
    engine = engine_name(config, device)
    if engine == "compiled":
        size += 4 * _table_rows(corpus)  # the slot of each row
        if config.train.optimizer == "adam":
            size += 8 * _table_rows(corpus)  # its last gradient and its last update
    if engine == "static":
        size += 4 * config.model.table_dim * _table_rows(corpus)  # D
    if config.train.l2:
        size += 4 * _table_rows(corpus)  # d of the penalty
    if config.train.optimizer == "adam" and engine == "plain":
        size += 2 * parameters  # gradients as large as the tables, and a root
    return size


def _populations_bytes(config: RunConfig, corpus: SplitCorpus, *, on_gpu: bool) -> int:
    """Weights of items and vectors of a prior. Members are drawn on the host, also for a GPU."""
    gammas = ((corpus.left.items, config.train.gamma_left), (corpus.right.items, config.train.gamma_right))
    weighted = sum(items for items, gamma in gammas if gamma != 1)
    if on_gpu:
        return 8 * weighted
    return 4 * (corpus.left.items + corpus.right.items) + 12 * weighted + _prior_bytes(config, corpus)


def _prior_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    if config.train.prior.name == "none":
        return 0
    return 4 * companion_dim(config, corpus) * (corpus.left.items + corpus.right.items)


def _data_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What is copied to a GPU: features, training pairs, targets, item weights and a prior."""
    train = corpus.train
    total = _prior_bytes(config, corpus) + train.left.nbytes + train.right.nbytes
    if config.train.target == "value" and train.target is not None:
        total += train.target.nbytes
    for side, gamma in ((corpus.left, config.train.gamma_left), (corpus.right, config.train.gamma_right)):
        total += side.items * (4 if gamma == 1 else 8)  # w, and the importance where it is not 1
        total += sum(feature.offsets.nbytes + feature.indices.nbytes for feature in side.features)
    if config.train.objective == "batch-softmax":
        total += 4 * corpus.right.items
    return total


def _step_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """Activations of both batches and both sides, and the gradients of one."""
    rows = 2 * config.train.batch_size + config.estimator.gramian_batch_size
    k = config.model.embedding_dim
    numbers = sum(sum(_layer_widths(config, len(s.features)) or [k]) for s in (corpus.left, corpus.right))
    return 2 * 4 * rows * numbers  # each width before and after its activation


def _start_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What the start of the caches holds besides: a chunk of a sum; for pairs, one side's embeddings."""
    if config.estimator.cache_entry is None:
        return 0
    items = max(corpus.left.items, corpus.right.items)
    per_pair = config.estimator.cache_entry == "pair"
    summed = min(_ROWS_SUMMED, len(corpus.train) if per_pair else items)
    return config.model.embedding_dim * (20 * summed + (4 * items if per_pair else 0))


def _frequency_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What `gramrun.model.l2` holds at the start: frequencies and importances, and two powers, in float64."""
    return 32 * _table_rows(corpus) if config.train.l2 else 0


def _svd_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What `gramrun.model.svd_start` holds: its matrix by rows and by columns, and bases of both sides."""
    if config.train.start != "svd":
        return 0
    items = corpus.left.items + corpus.right.items
    return 40 * len(corpus.train) + 4 * 4 * items * (config.model.embedding_dim + EXTRA)


def _padded_bytes(config: RunConfig, corpus: SplitCorpus) -> int:
    """What the padded bags of `gramrun.model.static_engine` take in the graphs of a step."""
    batch, width = config.train.batch_size, config.model.table_dim
    embedded = max(config.estimator.gramian_batch_size, EMBED_CHUNK if config.estimator.cache_entry else 0)
    touched: dict[str, int] = {}  # rows of each table in B'
    gathers = 0
    for side in (corpus.left, corpus.right):
        longest = [int((f.offsets[1:] - f.offsets[:-1]).max()) for f in side.features]
        for feature, length in zip(side.features, longest, strict=True):
            touched[feature.vocabulary] = touched.get(feature.vocabulary, 0) + batch * length
        inputs = 4 * (sum(_layer_widths(config, len(longest))[:1]) or width)
        # r and the scales of every bag stay; of one column at a time the rows, before and after scaling.
        gathers += 12 * sum(longest) + inputs + 2 * 4 * width * max(longest)
    # Of the largest table: row numbers, rows of D, s and E, and two results.
    update = max(touched.values()) * (8 + 5 * 4 * width)
    return 2 * (batch * gathers + update + embedded * gathers)  # the calls before a capture reserve it again


def _evaluation_bytes(config: RunConfig, corpus: SplitCorpus) -> tuple[int, int]:
    """What an evaluation holds at most: on the host, and where the model is (embeddings and products)."""
    k, candidates = config.model.embedding_dim, min(config.evaluation.candidates, corpus.right.items)
    row_sets, all_rows, ranks, lefts, rights = 0, 0, 0, 0, 0
    for split in dict.fromkeys(config.evaluation.splits):
        pairs = corpus.pairs(split)
        if not len(pairs):  # of a corpus in memory
            continue
        if split == "train":
            left_items = np.flatnonzero(corpus.left_frequency)
            relevant = unranked = corpus.left_frequency[left_items]
        else:
            left_items, starts = distinct_rows(pairs.left)
            relevant = np.diff(starts, append=len(pairs))
            unranked = relevant + corpus.left_frequency[left_items]
        left = min(len(left_items), config.evaluation.left_items or len(left_items))
        ranked_pairs = round(left / len(left_items) * len(pairs))
        met = np.zeros(corpus.right.items, dtype=bool)
        met[pairs.right] = True
        met_items = min(int(np.count_nonzero(met)), ranked_pairs)
        right = min(corpus.right.items, config.evaluation.candidates + met_items)
        chunk = _SET_BYTES * _most_pairs(_ROWS_RANKED, unranked)
        part = _METRIC_BYTES * _most_pairs(_ROWS_MEASURED, relevant)
        row_sets += _ROW_BYTES * left
        all_rows = max(all_rows, _ROW_BYTES * len(left_items))
        ranks = max(ranks, 8 * ranked_pairs + max(chunk, part))
        lefts, rights = max(lefts, left), max(rights, right)
    places = 8 * (corpus.left.items + corpus.right.items)
    embeddings = k * (lefts + rights) + k * (lefts + candidates)  # of all splits, and of one
    products = _ROWS_RANKED * min(candidates, _CANDIDATES_RANKED)
    return places + row_sets + all_rows + ranks, 4 * (embeddings + products)


def _most_pairs(rows: int, pairs: np.ndarray) -> int:
    """The pairs of the chunk of so many rows that has most."""
    return int(np.add.reduceat(pairs, np.arange(0, len(pairs), rows), dtype=np.int64).max())


def _largest_parts(parts: Mapping[str, int]) -> str:
    """The largest parts, such as ``parameters (1.2 GB) and the rest of this run``."""
    whole = sum(parts.values())
    large = [name for name in sorted(parts, key=lambda n: -parts[n]) if parts[name] >= _NAMED * whole]
    listed = ", ".join(f"{name} ({size_text(parts[name])})" for name in large)
    return f"{listed} and the rest of this run" if len(large) < len(parts) else listed


def _remedy(config: RunConfig, parts: Mapping[str, int]) -> str:
    """How to make the largest part smaller."""
    largest = max(parts, key=lambda name: parts[name])
    tables = f"lower model.{'input_dim' if config.model.hidden else 'embedding_dim'}"
    return {
        CACHES: "set estimator.cache: item, estimator.cache_dtype: bfloat16 or an estimator.cache_folder",
        WORK: "lower evaluation.left_items, evaluation.candidates or the batch sizes",
        "parameters": tables,
        "optimizer": tables,
    }.get(largest, "free some, or train on a machine that has more")
