"""The last sweep of an exact ALS that was interrupted, in a folder beside its run directory.

sweep.json              what is fitted, the records so far, F before the sweep, checksums of the other files
left.npy, right.npy     u and v: float64, shapes (left items, k) and (right items, k)
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gramrun.base.errors import InputError
from gramrun.base.files import (
    check_recorded,
    disk_errors,
    new_folder,
    read_json,
    recorded,
    remove_orphans,
    write_json,
)
from gramrun.evaluation.baselines.exact_als import Sweep

SWEEP, SIDES = "sweep.json", ("left.npy", "right.npy")
REMEDY = "remove the folder or start anew with --force"

_log = logging.getLogger(__name__)


def folder_of(run: Path) -> Path:
    """The folder beside a run directory: RUN.unfinished."""
    return run.with_name(f"{run.name}.unfinished")


def save(
    folder: Path, identity: Mapping[str, Any], sweep: Sweep, records: Sequence[Mapping[str, Any]]
) -> None:
    """Write a sweep, whole or not at all, over the one before.

    Args:
        folder: where.
        identity: what is fitted.
        sweep: the last one.
        records: one a sweep, with ``step`` and ``objective``, up to this one.

    Raises:
        RunError: when the folder cannot be written.
    """
    with new_folder(folder) as temporary:
        for name, vectors in zip(SIDES, (sweep.left, sweep.right), strict=True):
            np.save(temporary / name, vectors.numpy())
        files = {name: recorded(temporary / name) for name in SIDES}
        before = sweep.before if math.isfinite(sweep.before) else None  # JSON has no infinity
        content = {"identity": identity, "records": records, "before": before, "files": files}
        write_json(temporary / SWEEP, content)


def restore(
    folder: Path, identity: Mapping[str, Any], *, force: bool
) -> tuple[Sweep | None, list[dict[str, Any]]]:
    """The sweep that was saved and the records up to it; None and none where no such fit was interrupted.

    Args:
        folder: of `save`.
        identity: of the fit that goes on.
        force: start anew where the folder is damaged.

    Raises:
        InputError: when the folder is damaged, or holds something else.
        RunError: when what a killed process left behind cannot be removed.
    """
    with disk_errors(folder):
        remove_orphans(folder)
    if not folder.exists():
        return None, []
    if not (folder / SWEEP).exists():
        raise InputError(f"{folder}: is in the way, and no folder of exact ALS; move it")
    try:
        return _read(folder, identity)
    except InputError as error:
        if not force:
            raise
        _log.warning("%s; starts anew", error)
        return None, []


def _read(folder: Path, identity: Mapping[str, Any]) -> tuple[Sweep | None, list[dict[str, Any]]]:
    content = read_json(folder / SWEEP, REMEDY)
    if content["identity"] != identity:
        _log.warning("%s: is of another baseline or corpus, and will be replaced", folder)
        return None, []
    for name in SIDES:
        check_recorded(folder / name, content["files"][name], REMEDY)
    left, right = (torch.from_numpy(np.load(folder / name)) for name in SIDES)
    records = content["records"]
    number, objective = records[-1]["step"], records[-1]["objective"]
    before = math.inf if content["before"] is None else content["before"]
    _log.warning("%s: goes on after sweep %d", folder, number)
    return Sweep(number, before, objective, left, right), records


def remove(folder: Path) -> None:
    """Remove the folder, if it is there and holds a sweep.

    Raises:
        RunError: when it cannot be removed.
    """
    with disk_errors(folder):
        remove_orphans(folder)
        if (folder / SWEEP).exists():
            shutil.rmtree(folder)
