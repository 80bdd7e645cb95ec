"""Figure 2: errors of SAGram, SOGram and sampling on one trajectory, Gramian batches of 128 and 1,024.

`trade_off` (Figure 3) reads the same trajectories with the functions of this module.

Options: ``steps``; ``settings`` (``--set`` settings of another training than the config's); ``part``, which
lengthens the corpus's name in tables, figures and claims where there is such a training.
"""

from __future__ import annotations

import pandas as pd

from experiments.report import keys
from experiments.report.sections import Section, Seeds, Table, draw_runs, spread
from experiments.reproduce.corpora import DATASETS
from experiments.reproduce.jobs import Task, manifest_of
from experiments.reproduce.plans import Plan
from gramrun.runs import figures

LATE = 0.2  # the last part of a trajectory: the mean over it is the late error
EARLY = 0.1  # the first part
MEASURED = 40  # measurements along a trajectory whose length the plan sets


def tasks(plan: Plan) -> list[Task]:
    """The trajectories of a plan."""
    return [task for dataset in plan.datasets for task in of_dataset(plan, dataset)]


def of_dataset(plan: Plan, dataset: str) -> list[Task]:
    """The trajectories of one data set, one a seed; of ``steps`` steps where the plan has that option."""
    steps = plan.option("steps", dataset)
    length = () if steps is None else (f"train.steps={steps}", f"gram_error.every={steps // MEASURED}")
    return plan.tasks("gram-error", dataset, "gram-error", *length, *plan.options.get("settings", ()))


def section(plan: Plan) -> Section:
    """The curves, and tables of late errors."""
    tables, drawn, runs = [], [], []
    measured: dict[str, Seeds] = {}
    training = training_of(plan)
    for dataset in plan.datasets:
        paths = [task.output for task in of_dataset(plan, dataset)]
        runs += paths
        frame, pairs = errors(plan, dataset), pairs_of(dataset)
        name = plan.named(dataset)
        figures_of = {
            "gram-error": f"errors on one trajectory a seed, driven by batch sampling{training}.",
            "theory": "measured errors beside Proposition 5's bounds.",
        }
        drawn += [draw_runs(plan.folder, kind, paths, name, text) for kind, text in figures_of.items()]
        caption = (
            f"{dataset}{training}: ‖Ĝ − G‖_F / ‖G‖_F, mean over the last {LATE:.0%} of "
            f"{frame['step'].max():,} steps; ± over {len(plan.seeds)} seeds; sorted by the last column. "
            + conditions(frame, pairs)
        )
        tables.append(Table(name, caption, table(frame)))
        measured |= measurements(name, frame, pairs)
    return Section(
        plan.item,
        "Gramian error",
        "Figure 2, Section 4.2",
        "All estimators watch one trajectory a seed, and all of one batch size see the same draws.",
        tuple(tables),
        tuple(drawn),
        measured,
        tuple(runs),
    )


def training_of(plan: Plan) -> str:
    """The option ``settings``, for captions: in brackets, empty where the training is the config's."""
    own = " ".join(plan.options.get("settings", ()))
    return f" ({own})" if own else ""


def errors(plan: Plan, dataset: str) -> pd.DataFrame:
    """``gram_error.csv`` of every seed, with a column ``label``."""
    return labelled(figures.gram_error_frame([task.output for task in of_dataset(plan, dataset)]))


def labelled(frame: pd.DataFrame) -> pd.DataFrame:
    """With a column ``label``: the estimator and its α."""
    alphas = frame["alpha"].map(lambda alpha: "" if pd.isna(alpha) else f" α={alpha:g}")
    return frame.assign(label=frame["estimator"] + alphas)


def late(frame: pd.DataFrame) -> pd.DataFrame:
    """The last `LATE` of the trajectory."""
    return frame[frame["step"] > (1 - LATE) * frame["step"].max()]


def by_seed(part: pd.DataFrame, label: str, side: str, batch_size: int) -> Seeds:
    """The mean error of one estimator over a part of the trajectory, one number a seed."""
    own = part[(part["label"] == label) & (part["side"] == side) & (part["batch_size"] == batch_size)]
    return tuple(float(x) for x in own.groupby("seed")["error"].mean())


def measurements(dataset: str, frame: pd.DataFrame, pairs: int) -> dict[str, Seeds]:
    """Late and early errors of every estimator, side and batch size, and the length of the trajectory."""
    steps = float(frame["step"].max())
    parts = {"": late(frame), "early": frame[frame["step"] <= EARLY * steps]}
    kinds = frame[["label", "side", "batch_size"]].drop_duplicates().itertuples(index=False)
    found: dict[str, Seeds] = {keys.trajectory_steps(dataset): (steps,)}
    for size in frame["batch_size"].unique():
        found[keys.trajectory_passes(dataset, size)] = (steps * size / pairs,)
    for label, side, size in kinds:
        for when, part in parts.items():
            found[keys.gramian_error(dataset, label, size, side, when)] = by_seed(part, label, side, size)
    return found


def pairs_of(dataset: str) -> int:
    """Training pairs of a corpus."""
    return int(manifest_of(DATASETS[dataset].path)["corpus"]["train_pairs"])


def conditions(frame: pd.DataFrame, pairs: int) -> str:
    """The share of the initial state (SOGram's zero, SAGram's first caches) left at the end."""
    steps = int(frame["step"].max())
    alphas = sorted(frame["alpha"].dropna().unique())
    starts = ", ".join(f"{(1 - alpha) ** steps:.2g} (α = {alpha:g})" for alpha in alphas)
    passes = ", ".join(f"{steps * n / pairs:.2g} (B = {n:,})" for n in sorted(frame["batch_size"].unique()))
    return (
        f"{steps:,} steps leave SOGram's zero start a weight of {starts}; the Gramian batches pass over the "
        f"training pairs {passes} times, which is the age of SAGram's caches per pair."
    )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Late errors: a row an estimator, a column a side and batch size."""
    rest = late(frame)
    columns = [(side, size) for side in ("left", "right") for size in sorted(frame["batch_size"].unique())]
    rows = [
        {
            "estimator": label,
            **{f"{side}, B = {size}": spread(by_seed(rest, label, side, size), 3) for side, size in columns},
        }
        for label in frame["label"].unique()
    ]
    found = pd.DataFrame(rows)
    return found.sort_values(
        found.columns[-1], key=lambda cells: cells.str.split().str[0].astype(float), ignore_index=True
    )
