"""One of the processes that `test_processes` starts by torchrun: train each configuration, keep what came out.

torchrun ... replica.py FOLDER       FOLDER/<variant>.yaml → FOLDER/<variant>.rank<r>.pt
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import torch

from gramrun.base.errors import RunError
from gramrun.base.processes import Processes, joined
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.training.loop import check_replicas
from gramrun.training.trainer import Trainer


def result(trainer: Trainer) -> dict:
    """The losses, Gramian estimates and parameters of a training, and a hash of its whole state."""
    losses = [record.loss for record in trainer.steps()]
    left, right = trainer.left_estimator.state_dict(), trainer.right_estimator.state_dict()
    state = [*trainer.model.state_dict().values(), *left.values(), *right.values()]
    digest = hashlib.sha256(
        b"".join(t.contiguous().numpy().tobytes() for t in state if t.dtype != torch.bfloat16)
    )
    return {
        "losses": torch.tensor(losses),
        "moments": [trainer.left_estimator.moments, trainer.right_estimator.moments],
        "parameters": [p.detach() for p in trainer.model.parameters()],
        "hash": digest.hexdigest(),
    }


def complaint(trainer: Trainer) -> str:
    """What is said when this process's replica, unless it is the first, differs in the last bit of a number."""
    check_replicas(trainer)
    if not trainer.processes.first:
        number = next(trainer.model.parameters()).detach().view(-1)[:1]
        number.copy_(torch.nextafter(number, number + 1))
    try:
        check_replicas(trainer)
    except RunError as error:
        return str(error)
    return ""


def main(folder: Path, processes: Processes) -> None:
    for path in sorted(folder.glob("*.yaml")):
        config = load_config(RunConfig, path, [])
        trainer = Trainer(config, open_corpus(config.data.path), processes)
        kept = {**result(trainer), "complaint": complaint(trainer)}
        torch.save(kept, folder / f"{path.stem}.rank{processes.rank}.pt")


if __name__ == "__main__":
    with joined() as together:
        main(Path(sys.argv[1]), together)
    os._exit(0)  # as `gramrun.__main__` leaves, and why
