"""What a machine has and what a run would need: for ``gramrun doctor`` and ``--dry-run``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from gramrun.caches import cache_bytes, check_caches
from gramrun.config import RunConfig
from gramrun.data.shards import PreparedCorpus
from gramrun.device_memory import device_memory
from gramrun.models import check_fits, choose_device
from gramrun.objectives import companion_dim
from gramrun.peak_memory import STATE_FLOATS, count_parameters, peak_memory
from gramrun.provenance import provenance
from gramrun.room import available_disk, available_memory, size_text
from gramrun.training import Trainer

_TIMED_STEPS = 50
_WARM_UP_STEPS = 10  # in which compiled loops are loaded and memory is touched for the first time


def describe_machine() -> Iterator[str]:
    """Versions, processor, threads, GPU and free disk, a line each."""
    facts = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    yield f"python {facts['python']}, {versions}"
    yield f"platform: {facts['platform']}"
    threads = f"{facts['host_threads']} threads, of which torch uses {torch.get_num_threads()}"
    yield f"processor: {facts['processor']}, {threads}"
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none that torch can use"
    yield f"GPU: {gpu}"
    memory = psutil.virtual_memory().total
    yield f"memory: {size_text(memory)}, of which {size_text(available_memory())} are available"
    yield f"disk free here: {size_text(available_disk(Path.cwd()))}"
    folder = "exists" if Path("data/raw").is_dir() else "is absent"
    yield f"raw data: GRAMRUN_RAW is {os.environ.get('GRAMRUN_RAW') or 'not set'}; data/raw {folder}"


def estimate_resources(config: RunConfig, corpus: PreparedCorpus) -> Iterator[str]:
    """Sizes, steps and memory of a run, a line each, without training it.

    Raises:
        ConfigError: when the configuration does not fit the corpus, or its caches nowhere.
        InputError: when the prior does not fit the corpus.
    """
    check_fits(config, corpus)
    sizes = corpus.manifest["corpus"]
    yield (
        f"corpus: {corpus.name}, {sizes['left_items']:,} × {sizes['right_items']:,} items, "
        f"{sizes['train_pairs']:,} training pairs"
    )
    steps = config.train.total_steps(len(corpus.train))
    epochs = steps * config.train.batch_size / len(corpus.train)
    yield f"steps: {steps:,} of batch {config.train.batch_size:,} ({epochs:.2f} epochs)"
    yield f"parameters: {count_parameters(config, corpus):,}"
    companions = companion_dim(config, corpus)
    sections = [config.estimator, *config.gram_error.estimators]
    check_caches(config, sections, corpus, companions)
    caches, mapped, watched, watched_mapped = (
        sum(cache_bytes(config, s, corpus, companions) for s in group if bool(s.cache_folder) == is_mapped)
        for group in (sections[:1], sections[1:])
        for is_mapped in (False, True)
    )
    device = choose_device(config.device)
    peak = peak_memory(config, corpus, companions, device)
    yield (
        f"memory: {size_text(peak.total)} at its peak = process {size_text(peak.process)}, parameters "
        f"{size_text(peak.parameters)}, optimizer {size_text(peak.optimizer)}, populations "
        f"{size_text(peak.populations)}, Gramian caches {size_text(peak.caches)}, mapped files "
        f"{size_text(peak.files)}, evaluation, batches or start {size_text(peak.work)}"
    )
    whole = peak.parameters * (1 + STATE_FLOATS[config.train.optimizer]) + caches + mapped
    if device.type == "cuda":
        gpu = device_memory(config, corpus, companions)
        named = ", ".join(f"{name} {size_text(size)}" for name, size in gpu.parts.items())
        yield f"GPU memory: {size_text(gpu.total)} = {named}"
    saved = config.train.checkpoints_kept + 1  # and the one being written
    yield f"disk: {size_text(saved * whole)} for checkpoints, {size_text(mapped)} for caches"
    if watched or watched_mapped:
        checkpoints = saved * (watched + watched_mapped)
        yield (
            f"gram-error: {size_text(watched)} more of memory; of disk {size_text(watched_mapped)} more for "
            f"caches and {size_text(checkpoints)} for checkpoints until it is finished"
        )


def estimate_time(config: RunConfig, corpus: PreparedCorpus) -> str:
    """Time a few real steps and extrapolate, in one line; evaluation comes on top."""
    trainer = Trainer(config, corpus)
    total = trainer.total_steps
    trainer.total_steps = min(total, _TIMED_STEPS)
    started = trainer.step, trainer.train_seconds
    for record in trainer.steps():
        last = record
        if last.step == _WARM_UP_STEPS < trainer.total_steps:
            started = last.step, last.train_seconds
    each = (last.train_seconds - started[1]) / (last.step - started[0])
    minutes = each * total / 60
    return f"time: {1e3 * each:.1f} ms a step here, {minutes:.1f} minutes for {total:,}, without evaluation"
