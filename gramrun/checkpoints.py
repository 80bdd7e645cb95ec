"""Checkpoints: one whole state a file, written atomically, loaded without running code."""

from __future__ import annotations

import logging
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from gramrun.errors import InputError, RunError
from gramrun.files import new_file
from gramrun.runs import Run
from gramrun.training import Trainer

SCHEMA_VERSION = 1

_log = logging.getLogger(__name__)


def save(run: Run, trainer: Trainer, **extra: Any) -> Path:
    """Save the trainer's state, and `extra` beside it, as the checkpoint of its current step.

    Raises:
        RunError: when a parameter is not finite (such a state is no use to anyone), or the disk is full.
    """
    for name, parameter in trainer.model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise RunError(f"step {trainer.step}: {name} is not finite; lower train.learning_rate")
    path = run.checkpoint_path(trainer.step)
    with new_file(path) as temporary:
        torch.save({"schema_version": SCHEMA_VERSION, "trainer": trainer.state_dict(), **extra}, temporary)
    run.drop_old_checkpoints()
    return path


def load(path: Path) -> dict[str, Any]:
    """Load one checkpoint.

    Raises:
        InputError: when it is missing, torn, or of another schema version.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        version = state["schema_version"]
    except (RuntimeError, EOFError, OSError, KeyError, TypeError, pickle.UnpicklingError, zipfile.BadZipFile):
        raise InputError(f"{path}: torn or damaged checkpoint") from None
    if version != SCHEMA_VERSION:
        raise InputError(f"{path}: checkpoint schema {version}; this gramrun reads {SCHEMA_VERSION}")
    return dict(state)


def load_newest(run: Run) -> dict[str, Any] | None:
    """Load the newest checkpoint that is whole, warning about torn ones; None where there is none.

    Raises:
        InputError: when there are checkpoints and every one is torn.
    """
    paths = run.checkpoints()
    for path in reversed(paths):
        try:
            return load(path)
        except InputError as error:
            _log.warning("%s; falling back on the one before", error)
    if paths:
        raise InputError(
            f"{run.path}: none of its {len(paths)} checkpoints is whole; start anew with --force"
        )
    return None
