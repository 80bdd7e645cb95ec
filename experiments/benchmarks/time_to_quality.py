"""Seconds of training to a validation MAP@10 on MovieLens 1M: gramrun against implicit ALS.

    python -m experiments.benchmarks.time_to_quality [--seeds 0 1 2] [--levels .20 .22 .24 .26 .28]

Both use the configs in `configs/movielens-1m`: linear towers with SOGram or batch sampling, from random
tables (`recommended.yaml` too, nearly the defaults of `gramrun.fit`) or from a decomposition (`svd.yaml`;
also with γ = 0), and the package `implicit` with tuned confidence and regularisation, all at k = 35. Only
training counts, on the same number of threads: gramrun's decomposition and steps, and implicit's ``fit``.
Reading the corpus, building the model and evaluations are excluded. A level is reached at the first
evaluation at or above it. There is an evaluation after each of implicit's sweeps, after a decomposition, and
after every 200 steps of gramrun, a quarter of an epoch. Within a seed the methods run one after the other in
a random order.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.reproduce.scheduler import gramrun
from experiments.reproduce.timing import apart, write
from gramrun.config import BaselineConfig, EvaluationSection, RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.evaluation.baselines import implicit_als
from gramrun.evaluation.protocol import evaluate_embeddings
from gramrun.training.trainer import Trainer

EVERY = 200  # steps between evaluations
CONFIGS = Path("configs/movielens-1m")
CORPUS = Path("data/movielens-1m")
REFERENCE = "implicit ALS"
WIDTH = 35  # k of all
LEVELS = (0.20, 0.22, 0.24, 0.26, 0.28)

Curve = list[tuple[float, float]]  # seconds of training, and the validation MAP@10 then


def quality(left: Tensor, right: Tensor, corpus: SplitCorpus, settings: EvaluationSection) -> float:
    """The validation MAP@10 of two tables of embeddings."""
    return float(evaluate_embeddings(left, right, corpus, "validation", settings)["map@10"])


def gramrun_curve(config: Path, corpus: SplitCorpus, settings: Sequence[str], seed: int) -> Curve:
    """Train by a config, with evaluations in between."""
    chosen = [f"data.path={corpus.path}", f"model.embedding_dim={WIDTH}", *settings, f"train.seed={seed}"]
    run = load_config(RunConfig, config, chosen)
    trainer = Trainer(run, corpus)
    curve: Curve = []

    def note(seconds: float) -> None:
        embeddings = (side.embed_items(torch.arange(side.items)) for side in (trainer.left, trainer.right))
        curve.append((seconds, quality(*embeddings, corpus, run.evaluation)))

    if run.train.start == "svd":
        note(trainer.train_seconds)
    for record in trainer.steps():
        if record.step % EVERY == 0 or record.step == trainer.total_steps:
            note(record.train_seconds)
    return curve


def implicit_curve(config: Path, corpus: SplitCorpus, settings: Sequence[str], seed: int) -> Curve:
    """Fit implicit ALS as a config says, evaluating after each sweep."""
    chosen = [f"data.path={corpus.path}", *settings, f"baseline.seed={seed}"]
    run = load_config(BaselineConfig, config, chosen)
    curve: Curve = []
    watched = 0.0

    def watch(left: Tensor, right: Tensor) -> None:
        nonlocal watched
        stopped = time.perf_counter()
        curve.append((stopped - started - watched, quality(left, right, corpus, run.evaluation)))
        watched += time.perf_counter() - stopped

    started = time.perf_counter()
    implicit_als.fit(run.baseline, corpus, after_sweep=watch)
    return curve


METHODS: dict[str, Callable[[SplitCorpus, Sequence[str], int], Curve]] = {
    REFERENCE: lambda *arguments: implicit_curve(CONFIGS / "implicit-als.yaml", *arguments),
    "sampling": lambda *arguments: gramrun_curve(CONFIGS / "sampling.yaml", *arguments),
    "SOGram": lambda *arguments: gramrun_curve(CONFIGS / "sogram.yaml", *arguments),
    "recommended": lambda *arguments: gramrun_curve(CONFIGS / "recommended.yaml", *arguments),
    "SOGram, SVD start": lambda *arguments: gramrun_curve(CONFIGS / "svd.yaml", *arguments),
    "the same, γ = 0": lambda corpus, settings, seed: gramrun_curve(
        CONFIGS / "svd.yaml", corpus, (*settings, "train.gamma_left=0"), seed
    ),
}


def curves(folder: Path, seeds: Sequence[int], threads: int, names: Sequence[str]) -> dict[str, list[Curve]]:
    """The curves of methods, seed by seed."""
    torch.set_num_threads(threads)
    corpus = open_corpus(folder)
    # Load compiled code before timing starts.
    for name in ("sogram.yaml", "svd.yaml"):
        gramrun_curve(CONFIGS / name, corpus, ("train.steps=10",), 0)
    random = np.random.default_rng(0)
    found: dict[str, list[Curve]] = {name: [] for name in names}
    for seed in seeds:
        for name in random.permutation(list(names)):
            found[name].append(METHODS[name](corpus, (), seed))
            seconds, best = found[name][-1][-1][0], max(value for _, value in found[name][-1])
            print(f"seed {seed}, {name}: {seconds:.1f} s of training, best MAP@10 {best:.4f}", flush=True)
    return found


def seconds_to(curve: Curve, level: float) -> float:
    """Seconds of training until the first evaluation at or above a level; infinite where there is none."""
    return next((seconds for seconds, value in curve if value >= level), math.inf)


def report(found: Mapping[str, Sequence[Curve]], levels: Sequence[float], threads: int) -> str:
    """The Markdown table: seconds to each level, and the ratio to implicit ALS's within a seed."""
    seeds = len(next(iter(found.values())))
    lines = [
        f"`python -m experiments.benchmarks.time_to_quality`, {threads} threads, {seeds} seeds: "
        f"seconds of training to "
        f"a validation MAP@10 and, in brackets, how many times those of {REFERENCE}; median (min–max) over "
        "seeds. – where a seed does not get there.",
        "",
        "| method |"
        + "".join(f" {level:.2f} |" for level in levels)
        + " its best | best MAP@10 | in all, s |",
        "|---|" + "---|" * (len(levels) + 3),
    ]
    for name, of_seeds in found.items():
        best = [max(value for _, value in curve) for curve in of_seeds]
        cells = []
        for targets in [*([level] * seeds for level in levels), best]:
            taken = list(map(seconds_to, of_seeds, targets))
            theirs = list(map(seconds_to, found[REFERENCE], targets))
            cells.append(_spread(taken, "{:.2f}") + _ratios(taken, theirs))
        whole = [curve[-1][0] for curve in of_seeds]
        cells += [_spread(best, "{:.4f}"), _spread(whole, "{:.1f}")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ratios(taken: Sequence[float], theirs: Sequence[float]) -> str:
    ratios = [a / b for a, b in zip(taken, theirs, strict=True) if math.isfinite(a) and math.isfinite(b)]
    return f" [{statistics.median(ratios):.1f}]" if len(ratios) == len(taken) else ""


def _spread(values: Sequence[float], form: str) -> str:
    if not all(map(math.isfinite, values)):
        return "–"
    middle, least, most = (form.format(v) for v in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}–{most})"


def main() -> None:
    """Measure; write results/bench/time_to_quality.{json,md}."""
    parser = argparse.ArgumentParser(description="Seconds to a validation MAP@10 beside implicit ALS.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--levels", nargs="+", type=float, default=list(LEVELS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    arguments = parser.parse_args()
    gramrun(["prepare", "movielens-1m", "--output", str(CORPUS)])
    threads = torch.get_num_threads()
    names = list(dict.fromkeys([REFERENCE, *arguments.methods]))  # the ratios are to it
    found: dict[str, list[Curve]] = apart(curves, CORPUS, arguments.seeds, threads, names)
    numbers: dict[str, Any] = {"threads": threads, "seeds": arguments.seeds, "curves": found}
    write("time_to_quality", report(found, arguments.levels, threads), numbers)


if __name__ == "__main__":
    main()
