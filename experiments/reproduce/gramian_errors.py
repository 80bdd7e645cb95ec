"""Gramian errors along trajectories: what ``gramrun gram-error`` wrote → tables and numbers for claims."""

from __future__ import annotations

import pandas as pd

from experiments.report.sections import Seeds, spread
from experiments.reproduce.corpora import DATASETS
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from gramrun.data.shards import read_manifest
from gramrun.runs import figures

LATE = 0.2  # the last part of a trajectory: what "late" is the mean over
EARLY = 0.1  # and the first
MEASURED = 40  # times along a trajectory whose length the plan says


def tasks(plan: Plan) -> list[Task]:
    """The trajectories of a plan."""
    return [task for dataset in plan.datasets for task in of_dataset(plan, dataset)]


def of_dataset(plan: Plan, dataset: str) -> list[Task]:
    """The trajectories of one data set, one a seed; of ``steps`` steps where the plan has that option."""
    steps = plan.option("steps", dataset)
    settings = () if steps is None else (f"train.steps={steps}", f"gram_error.every={steps // MEASURED}")
    return plan.tasks("gram-error", dataset, "gram-error", *settings)


def errors(plan: Plan, dataset: str) -> pd.DataFrame:
    """``gram_error.csv`` of every seed, with a column ``label``."""
    frame = figures.gram_error_frame([task.output for task in of_dataset(plan, dataset)])
    alphas = frame["alpha"].map(lambda alpha: "" if pd.isna(alpha) else f" α={alpha:g}")
    return frame.assign(label=frame["estimator"] + alphas)


def late(frame: pd.DataFrame) -> pd.DataFrame:
    """The last `LATE` of the trajectory."""
    return frame[frame["step"] > (1 - LATE) * frame["step"].max()]


def early(frame: pd.DataFrame) -> pd.DataFrame:
    """The first `EARLY` of the trajectory."""
    return frame[frame["step"] <= EARLY * frame["step"].max()]


def by_seed(part: pd.DataFrame, label: str, side: str, batch_size: int) -> Seeds:
    """The mean error of one estimator over some of the trajectory, one number a seed."""
    own = part[(part["label"] == label) & (part["side"] == side) & (part["batch_size"] == batch_size)]
    return tuple(float(x) for x in own.groupby("seed")["error"].mean())


def measured(dataset: str, frame: pd.DataFrame, pairs: int) -> dict[str, Seeds]:
    """Late and early errors of every estimator, side and batch size, by the names that claims use.

    And how long the trajectory is, in steps and in passes of each batch size over the `pairs` of the corpus.
    """
    parts = {"error": late(frame), "early error": early(frame)}
    kinds = frame[["label", "side", "batch_size"]].drop_duplicates().itertuples(index=False)
    steps = float(frame["step"].max())
    lengths = {
        f"{dataset}/trajectory passes B={n}": (steps * n / pairs,) for n in frame["batch_size"].unique()
    }
    return {
        f"{dataset}/trajectory steps": (steps,),
        **lengths,
        **{
            f"{dataset}/{label}/{side} {name} B={size}": by_seed(part, label, side, size)
            for label, side, size in kinds
            for name, part in parts.items()
        },
    }


def pairs_of(dataset: str) -> int:
    """Training pairs of a corpus."""
    return int(read_manifest(DATASETS[dataset].path)["corpus"]["train_pairs"])


def conditions(frame: pd.DataFrame, pairs: int) -> str:
    """What the length of a trajectory leaves of the starts: SOGram's zero, and SAGram's first caches."""
    steps = int(frame["step"].max())
    alphas = sorted(frame["alpha"].dropna().unique())
    starts = ", ".join(f"{(1 - alpha) ** steps:.2g} (α = {alpha:g})" for alpha in alphas)
    passes = ", ".join(f"{steps * n / pairs:.2g} (B = {n:,})" for n in sorted(frame["batch_size"].unique()))
    return (
        f"{steps:,} steps leave SOGram's zero start a weight of {starts}; the Gramian batches go over the "
        f"training pairs {passes} times, which is how old SAGram's caches per pair are."
    )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Late errors as they are to be read: a row an estimator, a column a side and batch size."""
    rest = late(frame)
    columns = [(side, size) for side in ("left", "right") for size in sorted(frame["batch_size"].unique())]
    return pd.DataFrame(
        [
            {
                "estimator": label,
                **{
                    f"{side}, B = {size}": spread(by_seed(rest, label, side, size), 3)
                    for side, size in columns
                },
            }
            for label in frame["label"].unique()
        ]
    )
