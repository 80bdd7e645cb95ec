"""How far a finished run's Gramian estimates are from the exact Gramians, kept when its checkpoint goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gramrun import runs
from gramrun.base.files import read_json, write_json
from gramrun.data.shards import open_corpus
from gramrun.gramian.exact import relative_error
from gramrun.runs import checkpoints
from gramrun.training.trainer import Trainer

GRAMIANS = "gramians.json"


def keep_gramians(output: Path) -> dict[str, Any]:
    """Measure a finished run's Gramians, once, and drop its checkpoint, which at 1M items is of a gigabyte.

    The estimates are those of the last step, made before its gradient step; the exact Gramians are under the
    parameters after it. One step of the last epoch moves them by far less than what is measured.

    Returns:
        ``error``, the relative error ‖Ĝ − G‖_F / ‖G‖_F, and ``rank``, the effective rank (tr G)² / ‖G‖²_F of
        the exact Gramian, both as a mean over the two sides.
    """
    if (output / GRAMIANS).exists():
        return read_json(output / GRAMIANS)
    run = runs.open_run(output)
    state = checkpoints.load_newest(run)
    assert state is not None, "a finished run has a checkpoint until its Gramians are measured"
    trainer = Trainer(run.config, open_corpus(run.config.data.path))
    trainer.load_state_dict(state["trainer"])
    sides = ((trainer.left, trainer.left_estimator), (trainer.right, trainer.right_estimator))
    measured = []
    for side, estimator in sides:
        exact = side.exact_gramian()
        rank = float(exact.trace() ** 2 / exact.square().sum())
        measured.append((relative_error(estimator.gramian, exact), rank))
    error, rank = np.mean(measured, axis=0).tolist()
    result = {"error": error, "rank": rank}
    write_json(output / GRAMIANS, result)
    run.drop_checkpoints(0)
    return result
