"""One of the processes that `test_row_wise` starts by torchrun: train each configuration, keep what came out.

torchrun ... split_tables.py FOLDER       FOLDER/<case>.yaml → FOLDER/<case>.pt
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from gramrun.base.processes import Processes, joined
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.training.loop import check_replicas
from gramrun.training.trainer import Trainer


def result(trainer: Trainer) -> dict:
    """The losses, Gramian estimates, tables and dense parameters of a training."""
    start = tables_of(trainer)
    losses = [record.loss for record in trainer.steps()]
    return {
        "start": start,
        "losses": torch.tensor(losses),
        "moments": [trainer.left_estimator.moments, trainer.right_estimator.moments],
        "tables": tables_of(trainer),
        "dense": [p.detach() for p in trainer.model.dense_parameters()],
    }


def tables_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Copies of the whole tables, whoever holds them."""
    if trainer.split_tables is None:
        return {name: table.detach().clone() for name, table in trainer.model.named_tables().items()}
    gather = trainer.processes.gather_uneven
    return {name: gather(shard.weight).clone() for name, shard in trainer.split_tables.shards.items()}


def main(folder: Path, processes: Processes) -> None:
    for path in sorted(folder.glob("*.yaml")):
        config = load_config(RunConfig, path, [])
        trainer = Trainer(config, open_corpus(config.data.path), processes)
        kept = result(trainer)
        check_replicas(trainer)
        if processes.first:
            torch.save(kept, path.with_suffix(".pt"))


if __name__ == "__main__":
    with joined() as together:
        main(Path(sys.argv[1]), together)
    os._exit(0)  # as `gramrun.__main__` leaves, and why
