"""Time a step, a start and memory at the sizes of the paper's Wikipedias: a step must not depend on size.

    python -m experiments.benchmarks.growth [--sizes 85K 1.8M 5.3M] [--rounds 11]

The corpora are random (`experiments.benchmarks.random_pages`). They have the pages, n-grams and categories of
the paper's Simple, French and English Wikipedias, and fewer links: a step reads 4,096 pairs at any size.
Uniform n-grams and categories are worse for CPU caches than those of a real wiki. All sizes use the paper's
towers. Steps are interleaved in one process, after every page of memory has been written once. The start
verifies the shards' checksums and builds a trainer. The kernel reports the peak memory of ``gramrun train``
in its own process; the table compares it with ``gramrun train --dry-run``.

Goals: at most 1.3 times the smallest corpus's time; memory within 10 % of the prediction.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from experiments.benchmarks.random_pages import pages_corpus
from experiments.reproduce.timing import apart, measure, table, write
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.training.trainer import Trainer

SIZES = {
    "85K": {"pages": 85_000, "links": 4_600_000, "ngrams": 8_300, "categories": 6_100},
    "1.8M": {"pages": 1_800_000, "links": 10_000_000, "ngrams": 167_400, "categories": 125_300},
    "5.3M": {"pages": 5_300_000, "links": 20_000_000, "ngrams": 501_000, "categories": 403_400},
}
CONFIG = Path("configs/wikipedia-simple/paper-sogram.yaml")
OPTIMIZER = "train.optimizer=adagrad"  # that of the published table
# Evaluate few left items: ranking all of them would take an hour.
MEMORY = (OPTIMIZER, "train.epochs=null", "evaluation.every=0", "evaluation.left_items=20000")
STEPS = 1500  # of a run whose memory is measured; enough to touch nearly all pages of memory
# Run through a small process, because a child's reported peak starts at its parent's.
_PEAK = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def peak_of_training(config: Path, settings: Sequence[str], output: Path, processes: int = 1) -> int:
    """The peak memory of ``gramrun train`` in a process of its own, in bytes; of several the largest."""
    return peak_of([*_train(config, settings, processes), "--output", str(output), "--force"])


def peak_of(command: Sequence[str]) -> int:
    """The peak memory of a command, in bytes; of several processes the largest."""
    shown = subprocess.run(
        [sys.executable, "-c", _PEAK, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    return int(shown.stdout) * unit


def predicted_peak(config: Path, settings: Sequence[str], processes: int = 1) -> float:
    """What ``gramrun train --dry-run`` says, in bytes."""
    command = [*_train(config, settings, processes), "--dry-run", "--json"]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(shown.stdout)["resources"]["memory"]["total"])


def together(processes: int) -> list[str]:
    """The start of a command that runs a module in so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [sys.executable, *(launcher if processes > 1 else []), "-m"]


def _train(config: Path, settings: Sequence[str], processes: int) -> list[str]:
    chosen = [part for setting in settings for part in ("--set", setting)]
    return [*together(processes), "gramrun", "train", "--config", str(config), *chosen]


def time_steps(folders: Mapping[str, Path], rounds: int) -> dict[str, Any]:
    """Milliseconds a step at each size, interleaved, and the seconds of each start."""
    steppers, start = {}, {}
    for name, folder in folders.items():
        started = time.perf_counter()
        corpus = open_corpus(folder)
        settings = [f"data.path={folder}", "train.epochs=null", "train.steps=1000000000", OPTIMIZER]
        trainer = Trainer(load_config(RunConfig, CONFIG, settings), corpus)
        start[name] = time.perf_counter() - started
        # The kernel allocates zeroed memory at the first write, so write every page before timing.
        for sums in trainer.engine.state_dict()["accumulated"].values():
            sums.fill_(0)
        steppers[name] = trainer.steps().__next__
    frame = measure(steppers, rounds)
    return {"ms": frame.to_dict(orient="list"), "start": start}


def main() -> None:
    """Measure; write results/bench/growth.{json,md}."""
    parser = argparse.ArgumentParser(description="Time and memory of steps at three sizes of corpus.")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary) / name for name in arguments.sizes}
        for name, folder in folders.items():
            pages_corpus(folder, **SIZES[name])
        timed = apart(time_steps, folders, arguments.rounds)
        memory = {}
        for name, folder in folders.items():
            settings = [f"data.path={folder}", f"train.steps={STEPS}", *MEMORY]
            peak = peak_of_training(CONFIG, settings, Path(temporary) / "run")
            memory[name] = {"peak": peak, "predicted": predicted_peak(CONFIG, settings)}
            print(f"{name}: {memory[name]}", flush=True)
    write("growth", report(timed, memory), {"sizes": SIZES, **timed, "memory": memory})


def report(timed: Mapping[str, Any], memory: Mapping[str, Mapping[str, float]]) -> str:
    """The Markdown table."""
    frame = pd.DataFrame(timed["ms"])
    others = {
        "start, s": {name: f"{seconds:.1f}" for name, seconds in timed["start"].items()},
        "peak, GB": {name: f"{m['peak'] / 1e9:.2f}" for name, m in memory.items()},
        "predicted / peak": {name: f"{m['predicted'] / m['peak']:.2f}" for name, m in memory.items()},
    }
    smallest = next(iter(memory))
    goals = "Goals: time 1.3, predicted within 0.9 to 1.1 of the peak."
    title = f"corpora of so many pages, {torch.get_num_threads()} threads, {len(frame)} rounds"
    return f"{goals}\n\n{table(frame, title, smallest, others)}"


if __name__ == "__main__":
    main()
