"""What a machine has and what a run would need: for ``gramrun doctor`` and ``--dry-run``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from gramrun.base.capacity import available_disk, available_memory, in_words, size_text
from gramrun.base.provenance import provenance
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.model.build import check_fits, choose_device
from gramrun.training.caches import cache_bytes, check_caches
from gramrun.training.device_memory import device_memory
from gramrun.training.host_memory import STATE_FLOATS, count_parameters, peak_memory
from gramrun.training.objective import companion_dim
from gramrun.training.trainer import Trainer

_TIMED_STEPS = 50
_WARM_UP_STEPS = 10  # in which compiled loops are loaded and memory is touched for the first time


def machine() -> dict[str, Any]:
    """What this machine has.

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
    """What `machine` found, in lines."""
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
    config: RunConfig, corpus: SplitCorpus, watching: Sequence[EstimatorSection] = ()
) -> dict[str, Any]:
    """Sizes, steps and memory of a run, without training it.

    Args:
        config: of the run.
        corpus: the prepared corpus.
        watching: the estimators that `gramrun gram-error` would make beside; none of `gramrun train`.

    Returns:
        A JSON-ready record: ``corpus`` (name, left_items, right_items, train_pairs), ``steps``,
        ``batch_size``, ``epochs``, ``parameters``, and bytes: ``memory`` (``total`` at its peak, and the
        parts of it), ``gpu_memory`` (likewise, None on the CPU), ``disk`` (checkpoints, caches) and
        ``gram_error``, what `gramrun gram-error` needs beside these (memory, caches, checkpoints).

    Raises:
        ConfigError: when the configuration does not fit the corpus, or its caches nowhere.
        InputError: when the prior does not fit the corpus.
    """
    check_fits(config, corpus, watching)
    sizes = corpus.manifest["corpus"]
    steps = config.train.total_steps(len(corpus.train))
    companions = companion_dim(config, corpus)
    sections = [config.estimator, *watching]
    check_caches(config, sections, corpus, companions)
    caches, mapped, watched, watched_mapped = (
        sum(cache_bytes(config, s, corpus, companions) for s in group if bool(s.cache_folder) == is_mapped)
        for group in (sections[:1], sections[1:])
        for is_mapped in (False, True)
    )
    device = choose_device(config.device)
    peak = peak_memory(config, corpus, companions, device)
    whole = peak.parameters * (1 + STATE_FLOATS[config.train.optimizer]) + caches + mapped
    saved = config.train.checkpoints_kept + 1  # and the one being written
    gpu = device_memory(config, corpus, companions) if device.type == "cuda" else None
    return {
        "corpus": {
            "name": corpus.name,
            **{name: sizes[name] for name in ("left_items", "right_items", "train_pairs")},
        },
        "steps": steps,
        "batch_size": config.train.batch_size,
        "epochs": steps * config.train.batch_size / len(corpus.train),
        "parameters": count_parameters(config, corpus),
        "memory": {
            "total": peak.total,
            "process": peak.process,
            "parameters": peak.parameters,
            "optimizer": peak.optimizer,
            "populations": peak.populations,
            "Gramian caches": peak.caches,
            "mapped files": peak.files,
            "evaluation, batches or start": peak.work,
        },
        "gpu_memory": None if gpu is None else {"total": gpu.total, **gpu.parts},
        "disk": {"checkpoints": saved * whole, "caches": mapped},
        "gram_error": {
            "memory": watched,
            "caches": watched_mapped,
            "checkpoints": saved * (watched + watched_mapped),
        },
    }


def describe_resources(needed: Mapping[str, Any]) -> Iterator[str]:
    """What `estimate_resources` found, in lines."""

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
    """Time a few real steps and extrapolate; evaluation comes on top.

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
    """What `estimate_time` found, in one line."""
    return (
        f"time: {1e3 * time['seconds_per_step']:.1f} ms a step here, {in_words(time['seconds'])} for "
        f"{time['steps']:,}, without evaluation"
    )
