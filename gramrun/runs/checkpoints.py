"""Checkpoints: one whole state a file, written atomically, loaded without running code.

A file is torch's own zip archive, with a CRC-32 for each member. It is written under a temporary name,
synced, and renamed, after what the run has recorded so far is on the disk: whenever a process is killed or
a machine stops, the newest whole checkpoint and the records before it are there, and a run that goes on from
them ends with the bits of one that was never stopped (same machine, same number of threads).
"""

from __future__ import annotations

import copy
import logging
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.base.files import check_schema, disk_errors, new_file, remove_orphans_in, sync_files
from gramrun.base.processes import Processes
from gramrun.base.records import is_number
from gramrun.runs.directory import Run
from gramrun.runs.session import identity

SCHEMA_VERSION = 2  # 2: the order of pairs by permutation.py, and learners instead of torch optimizers

_log = logging.getLogger(__name__)


class Resumable(Protocol):
    """What is saved and restored: `gramrun.training.trainer.Trainer`."""

    @property
    def model(self) -> nn.Module:
        """The parameters."""

    processes: Processes
    step: int
    total_steps: int

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as tensors and numbers."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""


def save(run: Run, trainer: Resumable, **extra: Any) -> Path:
    """Save the trainer's state, and `extra` beside it, as the checkpoint of its current step.

    Raises:
        RunError: when a parameter is not finite (such a state is no use to anyone), or the disk is full.
    """
    for name, parameter in trainer.model.named_parameters():
        # What is not finite makes the sum so too, at a fraction of the time; a sum can overflow without it.
        if not torch.isfinite(parameter.sum()) and not torch.isfinite(parameter).all():
            raise RunError(f"step {trainer.step}: {name} is not finite; lower train.learning_rate")
    path = run.checkpoint_path(trainer.step)
    state = {
        "schema_version": SCHEMA_VERSION,
        "identity": identity(run),
        "trainer": trainer.state_dict(),
        "extra": extra,
    }
    remove_orphans_in(path.parent)
    sync_files(run.path)  # the records up to this step first: those of a resumed run begin after it
    with new_file(path) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # all that torch says of a disk that takes no more
            raise OSError("a write was cut short") from error
    run.drop_checkpoints(run.config.train.checkpoints_kept)
    return path


def restore(run: Run, trainer: Resumable) -> dict[str, Any]:
    """Bring `trainer` to the run's newest whole checkpoint; return what was saved as `extra`.

    Without any checkpoint the trainer stays at its start, and `extra` is empty. Newer ones, which are torn,
    are renamed to ``.torn``, so that they count no longer among those that are kept. Of several processes
    the first chooses the checkpoint, and all load it.

    Raises:
        InputError: when every checkpoint is torn, or the newest whole one belongs to another run.
        ConfigError: when the run was made shorter than it is already.
        RunError: when the folder cannot be written.
    """
    processes = trainer.processes
    newest = _newest(run) if processes.first else None
    step = processes.from_first(lambda: None if newest is None else int(newest[1]["trainer"]["step"]))
    if step is None:
        if processes.first and run.metrics():
            _log.warning("%s: has no checkpoint any more, or had none yet; starts again at step 0", run.path)
        return {}
    whole, state = newest or (path := run.checkpoint_path(step), load(path))
    trainer.load_state_dict({name: _own(name, part) for name, part in state["trainer"].items()})
    if trainer.step > trainer.total_steps:
        raise ConfigError(
            f"{run.path}: is at step {trainer.step} already; train.steps or train.epochs asks for "
            f"{trainer.total_steps} steps"
        )
    if processes.first:
        with disk_errors(whole.parent):
            for torn in run.checkpoints():
                if torn > whole:
                    torn.replace(torn.with_suffix(".torn"))
            remove_orphans_in(whole.parent)
        _warn_of_other_threads(run)
    return dict(state["extra"])


# What is loaded by copying it into place, however it lies in memory.
_MODULES = frozenset({"model", "left_estimator", "right_estimator"})


def _own(name: str, part: Any) -> Any:
    """A part of the trainer's state that is no longer a view of the checkpoint's file.

    The optimizer keeps the very tensors that it is given, and the file is the user's, to copy over or cut.
    """
    return part if name in _MODULES else copy.deepcopy(part)


def _warn_of_other_threads(run: Run) -> None:
    """Sums are split among threads, and so is their rounding."""
    before, now = run.manifest.get("threads"), torch.get_num_threads()
    if before not in (None, now):
        _log.warning(
            "%s: goes on with %d threads after %d: equal to an uninterrupted run up to rounding only; "
            "set OMP_NUM_THREADS=%d for the same bits", run.path, now, before, before,
        )  # fmt: skip


def load_newest(run: Run) -> dict[str, Any] | None:
    """Load the newest checkpoint that is whole, warning about torn ones; None where there is none.

    Raises:
        InputError: when there are checkpoints and every one is torn, or one belongs to another run.
    """
    newest = _newest(run)
    return None if newest is None else newest[1]


def _newest(run: Run) -> tuple[Path, dict[str, Any]] | None:
    paths = run.checkpoints()
    for path in reversed(paths):
        try:
            state = load(path)
        except InputError as error:
            if not path.exists():  # a training that goes on has a newer one
                return _newest(run)
            if not isinstance(error, TornCheckpoint):
                raise
            _log.warning("%s; falling back on the one before", error)
            continue
        if state["identity"] != identity(run):
            raise InputError(f"{path}: is the checkpoint of another configuration, command or corpus")
        return path, state
    if paths:
        raise InputError(
            f"{run.path}: none of its {len(paths)} checkpoints is whole; start anew with --force"
        )
    return None


# What zipfile and torch raise when their input is not what it should be.
_DAMAGE = (
    OSError, RuntimeError, ValueError, LookupError, EOFError, TypeError, NotImplementedError,
    pickle.UnpicklingError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class TornCheckpoint(InputError):
    """A checkpoint that was cut short or changed since it was written."""


def load(path: Path) -> dict[str, Any]:
    """Load one checkpoint, verifying every byte first: torch itself checks no checksum.

    Raises:
        TornCheckpoint: when it is torn, damaged or no checkpoint at all.
        InputError: when another schema version wrote it.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint")
    torn = TornCheckpoint(f"{path}: torn or damaged checkpoint")
    try:
        with zipfile.ZipFile(path) as archive:  # torch.save writes a zip with a CRC-32 for each member
            # torch stores its members: what is packed is another's, and may unpack to any size.
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist())
            damaged = packed or archive.testzip() is not None
        if damaged:
            raise torn
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except _DAMAGE as error:
        raise torn from error
    if not isinstance(state, dict) or "schema_version" not in state:
        raise torn
    remedy = "start the run anew with --force, or go on with the gramrun that made it"
    check_schema(path, state["schema_version"], SCHEMA_VERSION, remedy)
    if set(state) != {"schema_version", "identity", "trainer", "extra"}:
        raise torn
    trainer, extra = state["trainer"], state["extra"]
    if not (isinstance(trainer, dict) and isinstance(extra, dict) and _is_held(state)):
        raise torn
    step = trainer.get("step")
    if type(step) is not int or step < 0 or not is_number(trainer.get("train_seconds")):
        raise torn
    return state


def _is_held(part: Any) -> bool:
    """Whether every tensor's values are in the file: an expanded one would fill the memory when copied."""
    if isinstance(part, torch.Tensor):
        return part.layout == torch.strided and part.nbytes <= part.untyped_storage().nbytes()
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
    return all(map(_is_held, parts))
