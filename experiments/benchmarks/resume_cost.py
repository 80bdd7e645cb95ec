"""Time to save and to restore a checkpoint at simple-scale, against torch alone.

    python -m experiments.benchmarks.resume_cost [--rounds 15]

save     `gramrun.runs.checkpoints.save` (checks parameters, syncs the records, writes and syncs a temporary
         file, renames it, syncs the folder, deletes old checkpoints) against ``torch.save`` to a new file,
         one fsync and the deletion of the previous file
restore  `gramrun.runs.checkpoints.restore` (verifies checksums) against ``torch.load`` and
         ``load_state_dict`` (verify nothing)

A round runs all four in a new random order, after one more step of training. The table shows the ratios
within a round. Files come from the page cache, as after a crash of the process alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from experiments.reproduce.scheduler import gramrun
from experiments.reproduce.timing import write
from gramrun import runs
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.runs import checkpoints
from gramrun.training.trainer import Trainer

CONFIGS = Path("configs") / "wikipedia-simple"
METHODS = ("sogram", "sagram", "paper-sogram", "paper-sagram")
STEPS = 50  # steps timed before the rounds
SETTINGS = ("train.epochs=1000",)


def seconds(task: Callable[[], object]) -> float:
    """How long a task takes."""
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def plain_save(trainer: Trainer, folder: Path) -> None:
    """Save as a plain PyTorch script would, with one fsync, and delete the previous file."""
    before = list(folder.iterdir())
    with (folder / f"{trainer.step}.pt").open("wb") as file:
        torch.save(trainer.state_dict(), file)
        file.flush()
        os.fsync(file.fileno())
    for path in before:
        path.unlink()


def plain_load(trainer: Trainer, folder: Path) -> None:
    """Load as a plain PyTorch script would."""
    (path,) = folder.iterdir()
    trainer.load_state_dict(torch.load(path, weights_only=True))


def measure(method: str, data: Path, folder: Path, rounds: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """Seconds of each task in every round, and facts: seconds an epoch, bytes a checkpoint."""
    config = load_config(RunConfig, CONFIGS / f"{method}.yaml", [f"data.path={data}", *SETTINGS])
    corpus = open_corpus(config.data.path)
    run = runs.create(folder / method, "train", config, corpus.content_hash)
    trainer, other = Trainer(config, corpus), Trainer(config, corpus)
    plain = folder / f"{method}-plain"
    plain.mkdir()
    steps = trainer.steps()
    times = [seconds(lambda: next(steps)) for _ in range(STEPS)]
    checkpoints.save(run, trainer)  # there is something to restore in the first round
    plain_save(trainer, plain)
    tasks: dict[str, Callable[[], object]] = {
        "save": lambda: checkpoints.save(run, trainer),
        "torch.save": lambda: plain_save(trainer, plain),
        "restore": lambda: checkpoints.restore(run, other),
        "torch.load": lambda: plain_load(other, plain),
    }
    random, rows = np.random.default_rng(0), []
    for number in range(rounds + 1):
        next(steps)
        row = {name: seconds(tasks[name]) for name in random.permutation(list(tasks))}
        print(f"{method} round {number} of {rounds}", flush=True)
        if number:  # 0 warms up
            rows.append(row)
    epoch = float(np.median(times)) * trainer.pairs / config.train.batch_size
    return pd.DataFrame(rows), {"epoch": epoch, "bytes": run.checkpoints()[-1].stat().st_size}


def row(method: str, frame: pd.DataFrame, facts: dict[str, float]) -> str:
    """A line of the Markdown table."""
    share = frame["save"] / facts["epoch"]
    return (
        f"| {method} | {facts['bytes'] / 1e6:.0f} "
        f"| {_spread(1e3 * frame['save'], 0)} | {_spread(frame['save'] / frame['torch.save'], 2)} "
        f"| {_spread(1e3 * frame['restore'], 0)} | {_spread(frame['restore'] / frame['torch.load'], 2)} "
        f"| {facts['epoch']:.0f} | {_spread(100 * share, 2)} |"
    )


def _spread(values: pd.Series[float], digits: int) -> str:
    return f"{values.median():.{digits}f} ({values.min():.{digits}f}–{values.max():.{digits}f})"


def main() -> None:
    """Time four methods; write results/bench/resume_cost.{json,md}."""
    parser = argparse.ArgumentParser(description="Time checkpoints against torch alone, interleaved.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--data", type=Path, default=Path("data/simple-scale"), help="prepared unless there")
    parser.add_argument("--folder", type=Path, help="where checkpoints are written; a temporary folder here")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        gramrun(["prepare", "simple-scale", "--output", str(arguments.data)])
    threads = torch.get_num_threads()
    lines = [
        f"`python -m experiments.benchmarks.resume_cost --rounds {arguments.rounds}`, {threads} "
        f"threads, simple-scale; "
        "median (min–max). A share is that of one checkpoint each epoch in the time of the epoch's steps.",
        "",
        "| configuration | checkpoint, MB | save, ms | save / (torch.save + fsync) | restore, ms "
        "| restore / (torch.load + load_state_dict) | steps of an epoch, s | share of a checkpoint, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    numbers = {}
    # On the repository's file system: the system's temporary folder may be in memory.
    with tempfile.TemporaryDirectory(dir=arguments.folder or Path.cwd()) as folder:
        for method in METHODS:
            frame, facts = measure(method, arguments.data, Path(folder), arguments.rounds)
            lines.append(row(method, frame, facts))
            numbers[method] = {"seconds": frame.to_dict(orient="list"), **facts}
    write("resume_cost", "\n".join(lines), {"threads": threads, "methods": numbers})


if __name__ == "__main__":
    main()
