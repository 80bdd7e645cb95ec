"""Figure 4: MAP@10 of the training and the validation set along training, under the paper's own objective."""

from __future__ import annotations

from experiments import rankings
from experiments.plans import Plan
from experiments.sections import Figure, Section
from experiments.tasks import Task
from gramrun import figures


def tasks(plan: Plan) -> list[Task]:
    """Sampling, SOGram at every α of the plan, and SAGram."""
    return rankings.tasks(plan, rankings.paper_methods(plan.options["alphas"]))


def section(plan: Plan) -> Section:
    """The curves, and how much sooner a method ranks as sampling does at its end."""
    methods = rankings.paper_methods(plan.options["alphas"])
    drawn, words, measured, runs = [], [], {}, []
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods)
        paths = [
            path
            for method in rankings.present(dataset, methods)
            for path in rankings.paths(plan, dataset, method)
        ]
        runs += paths
        name = f"map-{dataset}"
        for suffix in ("png", "svg"):
            figures.draw("map", paths, plan.folder / f"{name}.{suffix}")
        drawn.append(Figure(name, f"{dataset}: MAP@10 against steps, epochs and training time."))
        measured |= rankings.measured(dataset, frame)
        sooner = {
            label: rankings.speed_ups(frame, label)
            for label in frame["label"].unique()
            if label != rankings.SAMPLING
        }
        words.append(
            f"On {dataset} sampling's final validation MAP@10 is reached, as a part of its time, after "
            + "; ".join(f"{label}: {_times(values)}" for label, values in sooner.items())
            + "."
        )
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


def _times(speed_ups: tuple[float, ...]) -> str:
    times = sorted(1 / x if x else float("inf") for x in speed_ups)
    shown = [f"{x:.2f}" if x != float("inf") else "never" for x in times]
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"
