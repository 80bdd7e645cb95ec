"""Checkpoints: the whole state in one file, written atomically and loaded without running code.

Split tables are beside the file, in a folder of their own (`gramrun.runs.parts`).

A file is torch's zip archive, with a CRC-32 for each member. `save` first syncs the records of the run, then
writes under a temporary name, syncs and renames. After a kill or a crash of the machine, the newest complete
checkpoint and the records before it are therefore on the disk. A run resumed from them ends with the same
bits as one that was never stopped, on the same machine with the same number of threads.
"""

from __future__ import annotations

import copy
import logging
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.base.files import check_schema, disk_errors, new_file, remove_orphans_in, sync_files
from gramrun.base.records import is_number
from gramrun.runs.directory import Run
from gramrun.runs.parts import Records, check_parts, read_parts, write_parts
from gramrun.runs.session import identities

SCHEMA_VERSION = 2  # 2: another order of pairs, and learners instead of torch optimizers

if TYPE_CHECKING:
    from gramrun.training.trainer import Trainer

_log = logging.getLogger(__name__)


def save(run: Run, trainer: Trainer, **extra: Any) -> Path:
    """Save the trainer's state and `extra` as the checkpoint of its current step.

    Of several processes the first calls this; with split tables the others call `save_split` meanwhile.

    Raises:
        RunError: when a parameter is not finite, or the disk is full.
    """
    check_finite(trainer)
    path = run.checkpoint_path(trainer.step)
    remove_orphans_in(path.parent)
    records = save_split(run, trainer)
    state = {
        "schema_version": SCHEMA_VERSION,
        "identity": identities(run)[0],
        "trainer": trainer.state_dict(),
        "extra": extra,
        **({"tables": records} if records else {}),
    }
    sync_files(run.path)  # the records first: those of a resumed run begin after the checkpoint
    with new_file(path) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # how torch reports a full disk
            raise OSError("a write was cut short") from error
    run.drop_checkpoints(run.config.train.checkpoints_kept)
    return path


def save_split(run: Run, trainer: Trainer) -> Records:
    """Write this process's part of the split tables; does nothing without any.

    Raises:
        RunError: when a value is not finite, the disk is full, or another process is gone.
    """
    tensors = trainer.split_state()
    if not tensors:
        return {}
    for name, tensor in tensors.items():
        _check_finite(trainer.step, name, tensor.to_local())  # type: ignore[attr-defined]
    return write_parts(run.checkpoint_path(trainer.step), tensors, trainer.processes)


def check_finite(trainer: Trainer) -> None:
    """Check the parameters that this process holds whole.

    Raises:
        RunError: when one is not finite.
    """
    for name, parameter in trainer.model.named_parameters():
        _check_finite(trainer.step, name, parameter)


def _check_finite(step: int, name: str, values: Tensor) -> None:
    # The sum is a cheap test; it can overflow although all values are finite.
    if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
        raise RunError(f"step {step}: {name} is not finite; lower train.learning_rate")


def restore(run: Run, trainer: Trainer) -> dict[str, Any]:
    """Restore the newest complete checkpoint into `trainer`; return its `extra`.

    Without a checkpoint the trainer stays at its start, and `extra` is empty. Torn checkpoints, which are
    newer, are renamed to ``.torn`` and no longer count for ``train.checkpoints_kept``. With several
    processes the first one chooses the checkpoint and all load it.

    Raises:
        InputError: when every checkpoint is torn, or the newest complete one belongs to another run.
        ConfigError: when the checkpoint is beyond the configured number of steps.
        RunError: when the folder cannot be written.
    """
    processes = trainer.processes
    newest = _newest(run) if processes.first else None
    step = processes.from_first(lambda: None if newest is None else int(newest[1]["trainer"]["step"]))
    if step is None:
        if processes.first and run.metrics():
            _log.warning("%s: has no checkpoint any more, or had none yet; starts again at step 0", run.path)
        return {}
    whole, state = newest or (path := run.checkpoint_path(step), _read(path))
    trainer.load_state_dict({name: _own(name, part) for name, part in state["trainer"].items()})
    if split := trainer.split_state():
        read_parts(whole, split, alone=False)
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


# Parts whose `load_state_dict` copies values into place.
_MODULES = frozenset({"model", "left_estimator", "right_estimator"})


def _own(name: str, part: Any) -> Any:
    """A part of the trainer's state that does not map the checkpoint's file.

    An optimizer keeps the tensors that it is given, and a user may replace or truncate the file.
    """
    return part if name in _MODULES else copy.deepcopy(part)


def _warn_of_other_threads(run: Run) -> None:
    """Warn that another number of threads changes the rounding of sums."""
    before, now = run.manifest.get("threads"), torch.get_num_threads()
    if before not in (None, now):
        _log.warning(
            "%s: goes on with %d threads after %d: equal to an uninterrupted run up to rounding only; "
            "set OMP_NUM_THREADS=%d for the same bits", run.path, now, before, before,
        )  # fmt: skip


def load_newest(run: Run) -> dict[str, Any] | None:
    """Load the newest complete checkpoint; None if there is none. Logs a warning for each torn one.

    Raises:
        InputError: when all checkpoints are torn, or one belongs to another run.
    """
    newest = _newest(run)
    return None if newest is None else newest[1]


def _newest(run: Run) -> tuple[Path, dict[str, Any]] | None:
    paths = run.checkpoints()
    for path in reversed(paths):
        try:
            state = load(path)
        except InputError as error:
            if not path.exists():  # training goes on and has written a newer one
                return _newest(run)
            if not isinstance(error, TornCheckpoint):
                raise
            _log.warning("%s; falling back on the one before", error)
            continue
        if state["identity"] not in identities(run):
            raise InputError(f"{path}: is the checkpoint of another configuration, command or corpus")
        return path, state
    if paths:
        raise InputError(
            f"{run.path}: none of its {len(paths)} checkpoints is whole; start anew with --force"
        )
    return None


# What zipfile and torch raise for damaged files.
_DAMAGE = (
    OSError, RuntimeError, ValueError, LookupError, EOFError, TypeError, NotImplementedError,
    pickle.UnpicklingError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class TornCheckpoint(InputError):
    """A checkpoint that was cut short or changed after it was written."""


def load(path: Path) -> dict[str, Any]:
    """Load one checkpoint after verifying its checksums, which torch does not.

    Split tables are verified and not loaded (`gramrun.runs.parts.read_parts`).

    Raises:
        TornCheckpoint: when it is torn, damaged or no checkpoint.
        InputError: when it is missing, or has another schema version.
    """
    state = _read(path)
    if "tables" in state:
        try:
            check_parts(path, state["tables"])
        except InputError as error:
            raise TornCheckpoint(str(error)) from error
    return state


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint")
    torn = TornCheckpoint(f"{path}: torn or damaged checkpoint")
    try:
        with zipfile.ZipFile(path) as archive:  # torch.save writes a zip with a CRC-32 for each member
            # torch stores members. Refuse packed ones, which may unpack to any size.
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
    if state.keys() - {"tables"} != {"schema_version", "identity", "trainer", "extra"}:
        raise torn
    trainer, extra = state["trainer"], state["extra"]
    if not (isinstance(trainer, dict) and isinstance(extra, dict) and _is_held(state)):
        raise torn
    step = trainer.get("step")
    if type(step) is not int or step < 0 or not is_number(trainer.get("train_seconds")):
        raise torn
    return state


def _is_held(part: Any) -> bool:
    """Whether the file holds all values of every tensor; a copy of an expanded one could fill the memory."""
    if isinstance(part, torch.Tensor):
        return part.layout == torch.strided and part.nbytes <= part.untyped_storage().nbytes()
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
    return all(map(_is_held, parts))
