"""The machine's resources and those that a run needs, for ``gramrun doctor`` and ``--dry-run``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from gramrun.base.capacity import available_disk, available_memory, size_text, time_text
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.base.provenance import provenance
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.model.build import choose_device
from gramrun.training.checks import check_run
from gramrun.training.memory import (
    STATE_FLOATS,
    cache_bytes,
    count_parameters,
    device_memory,
    host_memory,
)
from gramrun.training.objective import companion_dim
from gramrun.training.trainer import Trainer

_TIMED_STEPS = 50
_WARM_UP_STEPS = 10  # compiled loops are loaded, and memory is touched for the first time


def machine() -> dict[str, Any]:
    """Describe this machine.

    Returns:
        A JSON-ready record: ``python``, ``versions``, ``platform``, ``processor``, ``host_threads``,
        ``torch_threads``, ``gpu`` (its name or None), bytes of ``memory``, ``memory_available`` and
        ``disk_free`` (here), ``gramrun_raw`` (the variable or None), ``data_raw`` (whether it exists).
    """
    facts = provenance()
    return {
        **{name: facts[name] for name in ("python", "versions", "platform", "processor", "host_threads")},
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "memory": psutil.virtual_memory().total,
        "memory_available": available_memory(),
        "disk_free": available_disk(Path.cwd()),
        "gramrun_raw": os.environ.get("GRAMRUN_RAW") or None,
        "data_raw": Path("data/raw").is_dir(),
    }


def describe_machine(facts: Mapping[str, Any]) -> Iterator[str]:
    """Format `machine`'s record as lines."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    yield f"python {facts['python']}, {versions}"
    yield f"platform: {facts['platform']}"
    threads = f"{facts['host_threads']} threads, of which torch uses {facts['torch_threads']}"
    yield f"processor: {facts['processor']}, {threads}"
    yield f"GPU: {facts['gpu'] or 'none that torch can use'}"
    available = size_text(facts["memory_available"])
    yield f"memory: {size_text(facts['memory'])}, of which {available} are available"
    yield f"disk free here: {size_text(facts['disk_free'])}"
    folder = "exists" if facts["data_raw"] else "is absent"
    yield f"raw data: GRAMRUN_RAW is {facts['gramrun_raw'] or 'not set'}; data/raw {folder}"


def estimate_resources(
    config: RunConfig,
    corpus: SplitCorpus,
    processes: Processes = SINGLE_PROCESS,
    observers: Sequence[EstimatorSection] = (),
) -> dict[str, Any]:
    """Predict what a run needs, from sizes alone.

    Args:
        config: the run's configuration.
        corpus: its corpus.
        processes: the processes that train together.
        observers: the estimators that `gramrun gram-error` would make besides.

    Returns:
        A JSON-ready record: ``corpus``, ``steps``, ``batch_size``, ``epochs``, ``parameters``, and bytes of
        ``memory``, ``gpu_memory`` (or None), ``disk`` and ``gram_error``.

    Raises:
        ConfigError: when the configuration, without the observers, does not fit the corpus or the machine.
        InputError: when the file of a prior does not fit the corpus.
    """
    check_run(config, corpus, processes)
    companions = companion_dim(config, corpus)
    steps = config.train.total_steps(len(corpus.train))
    own, own_mapped = _caches(config, corpus, companions, [config.estimator])
    observed, observed_mapped = _caches(config, corpus, companions, observers)
    device = choose_device(config.device)
    parameters = count_parameters(config, corpus)
    state = 4 * parameters * (1 + STATE_FLOATS[config.train.optimizer]) + own + own_mapped
    checkpoints = config.train.checkpoints_kept + 1  # and the one being written
    sizes = corpus.manifest["corpus"]
    return {
        "corpus": {
            "name": corpus.name,
            **{name: sizes[name] for name in ("left_items", "right_items", "train_pairs")},
        },
        "steps": steps,
        "batch_size": config.train.batch_size,
        "epochs": steps * config.train.batch_size / len(corpus.train),
        "parameters": parameters,
        "memory": _with_total(host_memory(config, corpus, device, processes.count)),
        "gpu_memory": _with_total(device_memory(config, corpus)) if device.type == "cuda" else None,
        "disk": {"checkpoints": checkpoints * state, "caches": own_mapped},
        "gram_error": {
            "memory": observed,
            "caches": observed_mapped,
            "checkpoints": checkpoints * (observed + observed_mapped),
        },
    }


def _caches(
    config: RunConfig, corpus: SplitCorpus, companions: int, sections: Sequence[EstimatorSection]
) -> tuple[int, int]:
    """The bytes of some estimators' caches, in memory and in mapped files."""
    sizes = [(bool(s.cache_folder), cache_bytes(config, s, corpus, companions)) for s in sections]
    return sum(n for mapped, n in sizes if not mapped), sum(n for mapped, n in sizes if mapped)


def _with_total(parts: Mapping[str, int]) -> dict[str, int]:
    return {"total": sum(parts.values()), **parts}


def describe_resources(needed: Mapping[str, Any]) -> Iterator[str]:
    """Format `estimate_resources`'s record as lines."""

    def parts(sizes: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items() if name != "total")

    corpus, memory, gpu = needed["corpus"], needed["memory"], needed["gpu_memory"]
    yield (
        f"corpus: {corpus['name']}, {corpus['left_items']:,} × {corpus['right_items']:,} items, "
        f"{corpus['train_pairs']:,} training pairs"
    )
    yield f"steps: {needed['steps']:,} of batch {needed['batch_size']:,} ({needed['epochs']:.2f} epochs)"
    yield f"parameters: {needed['parameters']:,}"
    yield f"memory: {size_text(memory['total'])} at its peak = {parts(memory)}"
    if gpu is not None:
        yield f"GPU memory: {size_text(gpu['total'])} = {parts(gpu)}"
    disk = {name: size_text(size) for name, size in needed["disk"].items()}
    yield f"disk: {disk['checkpoints']} for checkpoints, {disk['caches']} for caches"
    watched = {name: size_text(size) for name, size in needed["gram_error"].items()}
    if any(needed["gram_error"].values()):
        yield (
            f"gram-error: {watched['memory']} more of memory; of disk {watched['caches']} more for "
            f"caches and {watched['checkpoints']} for checkpoints until it is finished"
        )


def estimate_time(config: RunConfig, corpus: SplitCorpus) -> dict[str, Any]:
    """Time a few real steps and extrapolate to the run, without its evaluations.

    Returns:
        ``seconds_per_step``, ``steps`` and their product, ``seconds``.
    """
    trainer = Trainer(config, corpus)
    total = trainer.total_steps
    trainer.total_steps = min(total, _TIMED_STEPS)
    started = trainer.step, trainer.train_seconds
    for record in trainer.steps():
        last = record
        if last.step == _WARM_UP_STEPS < trainer.total_steps:
            started = last.step, last.train_seconds
    each = (last.train_seconds - started[1]) / (last.step - started[0])
    return {"seconds_per_step": each, "steps": total, "seconds": each * total}


def describe_time(time: Mapping[str, Any]) -> str:
    """Format `estimate_time`'s record as one line."""
    return (
        f"time: {1e3 * time['seconds_per_step']:.1f} ms a step here, {time_text(time['seconds'])} for "
        f"{time['steps']:,}, without evaluation"
    )
