"""Figure 4: MAP@10 of the training and the validation set along training, under the paper's own objective."""

from __future__ import annotations

import pandas as pd

from experiments.report.section_files import draw_runs
from experiments.report.sections import Section, Seeds
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan


def tasks(plan: Plan) -> list[Task]:
    """Sampling, SOGram at every α of the plan, and SAGram."""
    return rankings.tasks(plan, rankings.paper_methods(plan.options["alphas"]))


def section(plan: Plan) -> Section:
    """The curves, and how much sooner a method ranks as sampling does at its end."""
    methods = rankings.paper_methods(plan.options["alphas"])
    drawn, words, runs = [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods)
        paths = [
            path
            for method in rankings.present(dataset, methods)
            for path in rankings.paths(plan, dataset, method)
        ]
        runs += paths
        caption = f"MAP@10 against steps, epochs and training time {rankings.SIDE_BY_SIDE}."
        drawn.append(draw_runs(plan, "map", paths, dataset, caption))
        measured |= rankings.measured(dataset, frame)
        words.append(_sooner(dataset, frame))
    return Section(
        plan.item,
        "MAP@10 along training",
        "Figure 4, Section 4.3",
        " ".join(words),
        (),
        tuple(drawn),
        measured,
        tuple(runs),
    )


def _sooner(dataset: str, frame: pd.DataFrame) -> str:
    """When each method comes to rank as sampling does at its end, as parts of sampling's time and steps."""
    others = [label for label in frame["label"].unique() if label != rankings.SAMPLING]
    if not others:
        return f"On {dataset} there is sampling alone."
    told = [
        f"{label}: {_parts(rankings.speed_ups(frame, label))} ({_parts(steps)} of its steps)"
        for label in others
        for steps in [rankings.speed_ups(frame, label, rankings.STEPS)]
    ]
    least = min(1 / x for label in others for x in rankings.largest_speed_ups(frame, label))
    return (
        f"On {dataset} the validation MAP@10 at which sampling ends is reached for good after these parts of "
        f"the time that sampling itself takes to it: {'; '.join(told)}. Evaluations are too far apart to "
        f"show less than {least:.2f}."
    )


def _parts(speed_ups: Seeds) -> str:
    """Parts of sampling's time, from the least to the greatest of all seeds."""
    times = sorted(1 / x if x else float("inf") for x in speed_ups)
    shown = [f"{x:.2f}" if x != float("inf") else "never" for x in times]
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"
