"""How strongly does gravity answer an error of the Gramians? The κ of docs/mathematics.md, measured.

    python -m experiments.studies.gain [--trainings ...] [--seeds 0 1 2] [--output results/gain]
    python -m experiments.studies.gain --draw --output results/reference/gain

A training of the published factorial experiment is driven by sampling, at a constant η, to a part of its
steps (`MOMENTS`). From that state `STEPS` steps are taken again with the same batches and estimates, with an
error εE added to the latter. With ΔG the change of the two Gramians that follows from it,

    K(E) = −ΔG / (ε · STEPS),        κ = ⟨K(E), E⟩ / ‖E‖²        one step's answer, as a share of the error

by central differences; ⟨·, ·⟩ is the sum over both sides. ``strongest`` is |κ| of the dominant mode of K, by
power iteration, ``along_g`` κ for E = G. The answer goes through the optimizer, so that κ depends on its kind
and on η. Gramians are exact, on corpora of more than `MEMBERS` items those of so many drawn members.

``gain.csv`` has a row for each training, seed and moment. ``lifts.csv`` and ``gain.png`` set SOGram's
published lifts against κ/α: in the theory, lag helps a mode below about 1/2 and harms it above.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from experiments.report.keys import SAMPLING
from experiments.report.sections import write_figure
from experiments.reproduce.items.factorial import DEFAULT_BATCH, ESTIMATORS
from experiments.reproduce.plans import Plan, load_profile, run_task
from experiments.studies.lifts import parsed
from gramrun.base.files import write_text
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.gramian.batch import batch_moments
from gramrun.gramian.estimator import NoGramian
from gramrun.runs.panels import (
    BASELINE,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    empty_panels,
    line_style,
    put_legend,
    styled,
)
from gramrun.training.side import EmbeddedSide
from gramrun.training.trainer import Trainer

MOMENTS = (1 / 16, 1 / 4)  # parts of all steps, before η falls
STEPS = 10
EPSILON = 0.003  # ‖εE‖ / ‖G‖
ITERATIONS = 6  # of the power iteration on K²
MEMBERS = 20_000
STREAM = 10**6  # a step that no run reaches: its members are drawn for this alone
KEY = ["training", "seed", "moment"]
SIMPLE = "simple-scale"
TRAININGS = {  # tables of the published factorial experiment and their optimizer
    "enwik8, sparse Adam": [("enwik8", "sparse Adam"), ("enwik8-long-average", "sparse Adam")],
    "… at η/5": [("enwik8-slower", "sparse Adam at a fifth of η")],
    "… at η/25": [("enwik8-slowest", "sparse Adam at η/25")],
    "… smaller start": [("enwik8-smaller-start", "sparse Adam, tables from 0.03")],
    "enwik8, Adagrad": [("enwik8-adagrad", "Adagrad")],
    "enwik8, SGD": [("enwik8-sgd", "SGD")],
    "titles, Adagrad": [("enwik8-titles", "Adagrad")],
    "titles, sparse Adam": [("enwik8-titles-sparse-adam", "sparse Adam")],
    "Simple's size, inputs of 256, Adagrad": [
        (f"{SIMPLE}-wider-inputs-adagrad", "Adagrad, inputs of 256"),
        (f"{SIMPLE}-wider-inputs-small-alpha", "Adagrad, inputs of 256"),
    ],
    "… inputs of 50, Adagrad": [(SIMPLE, "Adagrad"), (f"{SIMPLE}-small-alpha", "Adagrad")],
    "… inputs of 50, sparse Adam": [(f"{SIMPLE}-sparse-adam", "sparse Adam")],
    "fr's size, Adagrad": [("fr-scale-adagrad", "Adagrad, 30,000 steps")],
    "fr's size, sparse Adam": [("fr-scale", "sparse Adam")],
}
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
        """K(E), symmetrised."""
        size = EPSILON * (inner(self.gramians, self.gramians) / inner(error, error)) ** 0.5
        above, below = self._after(error, size), self._after(error, -size)
        left, right = (-(a - b) / (2 * size * len(self.estimates)) for a, b in zip(above, below, strict=True))
        return (left + left.T) / 2, (right + right.T) / 2

    def strongest(self, iterations: int = ITERATIONS) -> float:
        """|κ| of the dominant mode; of K², as K couples the sides, with eigenvalues near pairs of ±κ."""
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(g.shape, generator=generator, dtype=g.dtype) for g in self.gramians)
        error, found = (left + left.T, right + right.T), 0.0
        for _ in range(iterations):
            twice = self(self(error))
            found = (inner(twice, twice) / inner(error, error)) ** 0.25
            error = twice
        return found

    def along_g(self) -> float:
        """κ for E = G."""
        return inner(self(self.gramians), self.gramians) / inner(self.gramians, self.gramians)

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


def measure(title: str, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of one training and seed."""
    name, optimizer = TRAININGS[title][0]
    plan = published()[name]
    dataset = next(dataset for dataset in plan.datasets if plan.named(dataset) == name)
    config, *own = ESTIMATORS[SAMPLING]
    task = run_task("train", dataset, config, *plan.options["optimizers"][optimizer], *own, seed=seed)
    run = load_config(RunConfig, task.config, task.overrides)
    trainer = Trainer(run, open_corpus(run.data.path))
    for moment in MOMENTS:
        while trainer.step < round(moment * trainer.total_steps):
            next(trainer.steps())
        gain = Gain(trainer)
        found = {"strongest": gain.strongest(), "along_g": gain.along_g()}
        yield {"training": title, "seed": seed, "moment": moment, "step": trainer.step, **found}


def lifts(reference: Path) -> pd.DataFrame:
    """SOGram's published final lifts over sampling with B = 1,024: table, optimizer, α, lift, low, high."""
    rows = []
    for name in published():
        for row in pd.read_csv(reference / "factorial" / f"{name}.csv", dtype=str).to_dict("records"):
            alpha = re.fullmatch(r"SOGram α=([\d.]+)", row["estimator"])
            if alpha and row["B"] == str(DEFAULT_BATCH):
                rows.append((name, row["optimizer"], float(alpha[1]), *parsed(row["lift [95 %]"])))
    return pd.DataFrame(rows, columns=["table", "optimizer", "α", "lift", "low", "high"])


def compared(measured: pd.DataFrame, reference: Path) -> pd.DataFrame:
    """The lifts of every training whose κ is measured, with κ at the later moment, a mean over seeds."""
    later = measured[measured["moment"] == max(MOMENTS)]
    means = later.groupby("training")[["strongest", "along_g"]].mean()
    training = {cell: title for title, cells in TRAININGS.items() for cell in cells}
    frame = lifts(reference)
    titles = [training.get(cell) for cell in zip(frame["table"], frame["optimizer"], strict=True)]
    frame = frame.assign(training=titles).join(means, on="training", how="inner")
    return frame[["training", "α", "strongest", "along_g", "lift", "low", "high"]]


@styled
def draw(frame: pd.DataFrame) -> Figure:
    """The lift in per cent against κ/α of the strongest mode; a mark for each training and α."""
    figure, [[panel]] = empty_panels(1, 1, share_y="all")
    figure.set_size_inches(2 * PANEL_WIDTH, 1.4 * PANEL_HEIGHT)
    panel.set_xscale("log")
    panel.axhline(0, color="0.6", linewidth=0.8)
    panel.axvline(0.5, **BASELINE)
    styles = {title: line_style(index) | {"linestyle": "none"} for index, title in enumerate(TRAININGS)}
    for title, style in styles.items():
        own = frame[frame["training"] == title]
        ends = 100 * np.abs(own[["low", "high"]].sub(own["lift"], axis=0)).T.to_numpy()
        panel.errorbar(own["strongest"] / own["α"], 100 * own["lift"], yerr=ends, elinewidth=0.8, **style)
    panel.set_xlabel("κ/α: gravity's answer to an error in one step, over SOGram's rate")
    panel.set_ylabel("lift over sampling, %")
    put_legend(figure, styles, pd.Series([1]), 2)
    return figure


def main() -> None:
    """Parse the arguments, then measure, or draw what is measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainings", nargs="+", default=list(TRAININGS), choices=list(TRAININGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="SEED")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw gain.csv")
    parser.add_argument("--reference", type=Path, default=Path("results") / "reference")
    parser.add_argument("--output", type=Path, default=Path("results") / "gain")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "gain.csv"
    if arguments.draw:
        found = compared(pd.read_csv(file), arguments.reference)
        write_text(arguments.output / "lifts.csv", found.to_csv(index=False, float_format="%.4g"))
        write_figure(arguments.output, draw(found), "gain", "")
        return
    for title, seed in itertools.product(arguments.trainings, arguments.seeds):
        for row in measure(title, seed):
            print(row, flush=True)
            known = [pd.read_csv(file)] if file.exists() else []
            every = pd.concat([*known, pd.DataFrame([row])]).drop_duplicates(KEY, keep="last")
            write_text(file, every.sort_values(KEY).to_csv(index=False, float_format="%.5g"))


if __name__ == "__main__":
    main()
