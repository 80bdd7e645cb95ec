"""Time a step of Adam on large tables, by engine, beside a step of sparse Adam.

    python -m experiments.benchmarks.adam_step [data/enwik8-titles] [--threads 1 2] [--rounds 9]

The towers are those of configs/enwik8-titles/paper-sampling.yaml, on the prepared corpus. The contenders are
interleaved. The compiled engine first takes 600 steps, as a row that no batch has met yet costs it nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch

from experiments.reproduce.timing import apart, measure, table, write
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.training.trainer import Trainer

CONFIG = Path("configs/enwik8-titles/paper-sampling.yaml")
SPARSE, ADAM = "compiled, sparse Adam", "compiled, Adam"
CONTENDERS = {
    SPARSE: ("train.optimizer=sparse-adam",),
    ADAM: ("train.optimizer=adam",),
    "static, Adam": ("train.optimizer=adam", "train.engine=static"),
    "plain, Adam": ("train.optimizer=adam", "train.engine=plain"),
}
COMMON = ("train.initial_accumulator=0", "train.reduction=mean", "train.learning_rate=0.0025")
ENDLESS = ("train.dense_learning_rate=0.000318", "train.epochs=null", "train.steps=1000000000")
WARM = 600


def time_steps(config: Path, folder: Path, threads: int, rounds: int, warm: int = WARM) -> pd.DataFrame:
    """Milliseconds a step of every contender in every round."""
    torch.set_num_threads(threads)
    corpus = open_corpus(folder)
    settings = (f"data.path={folder}", "model.products=bfloat16", *COMMON, *ENDLESS)
    steppers = {
        name: Trainer(load_config(RunConfig, config, [*settings, *own]), corpus).steps().__next__
        for name, own in CONTENDERS.items()
    }
    for _ in range(warm):
        steppers[ADAM]()
    return measure(steppers, rounds)


def main() -> None:
    """Time the contenders; write results/bench/adam_step.{json,md}."""
    parser = argparse.ArgumentParser(description="Time steps of Adam, interleaved.")
    parser.add_argument("corpus", nargs="?", type=Path, default=Path("data/enwik8-titles"))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    frames = {t: apart(time_steps, CONFIG, arguments.corpus, t, arguments.rounds) for t in arguments.threads}
    sections = [table(frame, f"{t} threads, {len(frame)} rounds", ADAM) for t, frame in frames.items()]
    text = "\n\n".join(["`python -m experiments.benchmarks.adam_step`.", *sections])
    write("adam_step", text, {"ms": {t: frame.to_dict(orient="list") for t, frame in frames.items()}})


if __name__ == "__main__":
    main()
