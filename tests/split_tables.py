"""What `test_row_wise` starts: train each configuration in so many processes, keep what came out.

split_tables.py FOLDER       FOLDER/<processes>/<case>.yaml → FOLDER/<processes>/<case>.pt

The processes are forks of this one, so that TorchRec is imported once.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import torch
from torch.multiprocessing import start_processes

from gramrun.base.processes import joined
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


def train(rank: int, folder: Path, port: int) -> None:
    """Train the configurations of a folder in one of its processes."""
    place = {"RANK": rank, "WORLD_SIZE": int(folder.name), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()}
    with joined() as processes:
        for path in sorted(folder.glob("*.yaml")):
            config = load_config(RunConfig, path, [])
            trainer = Trainer(config, open_corpus(config.data.path), processes)
            kept = result(trainer)
            check_replicas(trainer)
            if processes.first:
                torch.save(kept, path.with_suffix(".pt"))
    os._exit(0)  # as `gramrun.__main__` leaves, and why


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


if __name__ == "__main__":
    import torchrec.distributed.embeddingbag  # noqa: F401

    for folder in Path(sys.argv[1]).iterdir():
        start_processes(train, (folder, free_port()), nprocs=int(folder.name), start_method="fork")
