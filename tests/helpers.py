"""What the tests of several folders share: small settings, runs started and continued, results without their times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gramrun import runs
from gramrun.config import RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.runs import checkpoints
from gramrun.runs.directory import Run
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
CONFIG = CONFIGS / "synthetic" / "sogram.yaml"
BASELINE = CONFIGS / "synthetic" / "exact-als.yaml"
SMALL = ("train.steps=40", "train.batch_size=64", "estimator.gramian_batch_size=32")


def settings(*overrides: str) -> list[str]:
    """Overrides on the command line."""
    return [part for override in overrides for part in ("--set", override)]


def start(path: Path, config: RunConfig, corpus: SplitCorpus, **options: bool) -> Run:
    """A new run without a step."""
    return runs.create(path, "train", config, corpus.content_hash, **options)


def train(path: Path, config: RunConfig, corpus: SplitCorpus) -> tuple[Run, Trainer]:
    """A run from its start to its end."""
    run, trainer = start(path, config, corpus), Trainer(config, corpus)
    fit(run, trainer, corpus)
    return run, trainer


def restored(path: Path, config: RunConfig, corpus: SplitCorpus) -> tuple[Run, Trainer, dict[str, Any]]:
    """A run reopened, a new trainer at its newest whole checkpoint, and what else the checkpoint holds."""
    run, trainer = runs.resume(path, "train", config, corpus.content_hash), Trainer(config, corpus)
    return run, trainer, checkpoints.restore(run, trainer)


def resume(path: Path, config: RunConfig, corpus: SplitCorpus) -> Run:
    """A run continued to its end from what is on the disk."""
    run, trainer, saved = restored(path, config, corpus)
    fit(run, trainer, corpus, saved.get("losses", ()))
    return run


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """A record of results without what a clock decided."""
    return {key: value for key, value in record.items() if "second" not in key}


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested state by name, tensors as bytes, without what a clock decided."""
    if isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield name, (value.dtype, tuple(value.shape), bits)
    elif isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, f"{name}.{key}")
    elif "second" not in name:
        yield name, value
