"""The response of gravity to an error of the Gramians, through the optimizer of a training.

    python -m experiments.studies.gain [--trainings ...] [--seeds 0 1 2] [--output results/gain]

A training of the published factorial experiment is driven by sampling, at a constant η, to a quarter of its
steps. From that state `STEPS` steps are taken again, in float32, with the same batches and estimates, with an
error εE added to the latter. With ΔG the change of the two Gramians that follows from it,

    K(E) = −ΔG / (ε · STEPS),     response = (‖K(K(E))‖ / ‖E‖)^(1/2) for the dominant E, by power iteration

by central differences, over both sides: the part of an error that one step corrects. K couples the two
sides, so its eigenvalues come nearly in pairs ±κ, whence K². The response is not quite the κ of
docs/mathematics.md: Adam's momentum gives less than half of its answer within ten steps, and the observed
pairs answer too. Gramians are exact, on corpora of more than `MEMBERS` items those of so many drawn members.

``gain.csv`` has a row for each training and seed.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments.report.keys import SAMPLING
from experiments.reproduce.items.factorial import ESTIMATORS
from experiments.reproduce.plans import Plan, load_profile, run_task
from experiments.studies.trainings import TRAININGS
from gramrun.base.files import write_text
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.gramian.batch import batch_moments
from gramrun.gramian.estimator import NoGramian
from gramrun.training.side import EmbeddedSide
from gramrun.training.trainer import Trainer

MOMENT = 1 / 4  # of all steps, before η falls
STEPS = 10
EPSILON = 0.003  # ‖εE‖ / ‖G‖
ITERATIONS = 6  # of the power iteration on K²
MEMBERS = 20_000
STREAM = 10**6  # a step that no run reaches: its members are drawn for this alone
KEY = ["training", "seed"]
MEASURED = (
    "enwik8, sparse Adam",
    "enwik8, sparse Adam, η/5",
    "enwik8, sparse Adam, η/25",
    "enwik8, sparse Adam, smaller start",
    "enwik8, Adagrad",
    "enwik8, Adagrad, η/5",
    "enwik8, SGD",
    "miwiki, sparse Adam",
    "miwiki, Adagrad",
    "enwik8, titles, Adagrad, 20 epochs",
    "enwik8, titles, sparse Adam, 20 epochs",
    "simple-scale, Adagrad",
    "simple-scale, inputs of 256, Adagrad",
    "simple-scale, sparse Adam",
)
Sides = tuple[Tensor, Tensor]  # of the left and the right Gramian: float64, shape (k, k)


def inner(first: Sides, second: Sides) -> float:
    """⟨·, ·⟩ over both sides."""
    return float(sum((a * b).sum() for a, b in zip(first, second, strict=True)))


def gramians(trainer: Trainer) -> Sides:
    """Both Gramians under the current parameters."""

    def one(side: EmbeddedSide) -> Tensor:
        if side.items <= MEMBERS:
            return side.exact_gramian()
        return batch_moments(side.draw(0, side.stream, STREAM, MEMBERS)).double()

    return one(trainer.left), one(trainer.right)


class Gain:
    """K at the current state of a trainer, which it leaves as it was.

    Args:
        trainer: driven by sampling.
        steps: over which the answer is measured.
    """

    def __init__(self, trainer: Trainer, steps: int = STEPS) -> None:
        self.trainer = trainer
        self.state = copy.deepcopy(trainer.state_dict())
        self.gramians = gramians(trainer)
        self.estimates = []
        for _ in range(steps):
            next(trainer.steps())
            self.estimates.append(
                (trainer.left_estimator.moments.clone(), trainer.right_estimator.moments.clone())
            )
        self._restore()

    def __call__(self, error: Sides) -> Sides:
        """K(E)."""
        size = EPSILON * (inner(self.gramians, self.gramians) / inner(error, error)) ** 0.5
        above, below = self._after(error, size), self._after(error, -size)
        left, right = (-(a - b) / (2 * size * len(self.estimates)) for a, b in zip(above, below, strict=True))
        return left, right

    def strongest(self, iterations: int = ITERATIONS) -> float:
        """The response: |κ| of the dominant mode of K."""
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(g.shape, generator=generator, dtype=g.dtype) for g in self.gramians)
        error, found = (left + left.T, right + right.T), 0.0
        for _ in range(iterations):
            twice = self(self(error))
            found = (inner(twice, twice) / inner(error, error)) ** 0.25
            error = twice
        return found

    def _after(self, error: Sides, size: float) -> Sides:
        """The Gramians after the steps with `estimates` and an error of this size."""
        trainer, own = self.trainer, (self.trainer.left_estimator, self.trainer.right_estimator)
        width = error[0].shape[0]
        given = [NoGramian(width), NoGramian(width)]
        trainer.left_estimator, trainer.right_estimator = given
        try:
            for moments in self.estimates:
                for estimator, estimate, part in zip(given, moments, error, strict=True):
                    estimator.moments.copy_(estimate + size * part)
                next(trainer.steps())
            return gramians(trainer)
        finally:
            trainer.left_estimator, trainer.right_estimator = own
            self._restore()

    def _restore(self) -> None:
        self.trainer.load_state_dict(copy.deepcopy(self.state))


def published() -> dict[str, Plan]:
    """The plans of the published factorial experiment, by the names of their tables."""
    plans = (plan for plan in load_profile("published", Path()) if plan.item == "factorial")
    return {plan.named(name): plan for plan in plans for name in plan.datasets}


def measure(title: str, seed: int) -> dict[str, Any]:
    """The row of one training and seed."""
    name = TRAININGS[title][0]
    plan = published()[name]
    dataset = next(dataset for dataset in plan.datasets if plan.named(dataset) == name)
    (optimizer,) = plan.options["optimizers"].values()
    config, *own = ESTIMATORS[SAMPLING]
    task = run_task("train", dataset, config, *optimizer, *own, seed=seed)
    run = load_config(RunConfig, task.config, task.overrides)
    corpus = open_corpus(run.data.path)
    trainer = Trainer(run, corpus)
    while trainer.step < round(MOMENT * trainer.total_steps):
        next(trainer.steps())
    # Rounding to bfloat16 would drown a small answer.
    exact = Trainer(load_config(RunConfig, task.config, (*task.overrides, "model.products=float32")), corpus)
    exact.load_state_dict(copy.deepcopy(trainer.state_dict()))
    return {"training": title, "seed": seed, "step": exact.step, "response": Gain(exact).strongest()}


def main() -> None:
    """Parse the arguments, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainings", nargs="+", default=MEASURED, choices=MEASURED)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    parser.add_argument("--output", type=Path, default=Path("results") / "gain")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "gain.csv"
    for title, seed in itertools.product(arguments.trainings, arguments.seeds):
        row = measure(title, seed)
        print(row, flush=True)
        known = [pd.read_csv(file)] if file.exists() else []
        every = pd.concat([*known, pd.DataFrame([row])]).drop_duplicates(KEY, keep="last")
        write_text(file, every.sort_values(KEY).to_csv(index=False, float_format="%.4g"))


if __name__ == "__main__":
    main()
