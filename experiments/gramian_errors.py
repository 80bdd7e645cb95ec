"""Gramian errors along trajectories: what ``gramrun gram-error`` wrote → tables and numbers for claims."""

from __future__ import annotations

import pandas as pd

from experiments.plans import Plan
from experiments.sections import Seeds, spread
from experiments.tasks import Task
from gramrun import figures

LATE = 0.2  # the last part of a trajectory: what "late" is the mean over
EARLY = 0.1  # and the first


def tasks(plan: Plan) -> list[Task]:
    """The trajectories of a plan."""
    return [task for dataset in plan.datasets for task in of_dataset(plan, dataset)]


def of_dataset(plan: Plan, dataset: str) -> list[Task]:
    """The trajectories of one data set, one a seed."""
    return plan.tasks("gram-error", dataset, "gram-error", *plan.options.get("settings", ()))


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


def measured(dataset: str, frame: pd.DataFrame) -> dict[str, Seeds]:
    """Late and early errors of every estimator, side and batch size, by the names that claims use."""
    parts = {"error": late(frame), "early error": early(frame)}
    kinds = frame[["label", "side", "batch_size"]].drop_duplicates().itertuples(index=False)
    return {
        f"{dataset}/{label}/{side} {name} B={size}": by_seed(part, label, side, size)
        for label, side, size in kinds
        for name, part in parts.items()
    }


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
