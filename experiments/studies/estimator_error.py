"""The error of every estimator, the paper's and ours, along one trajectory at equal batch size.

    python -m experiments.studies.estimator_error [--dataset movielens-1m]

The trajectory is that of configs/<dataset>/gram-error.yaml (the model of Appendix E, trained with batch
sampling). experiments/studies/estimator_error.yaml lists the estimators and batch sizes. Estimators of one
batch size see the same draws. The report shows the mean error over the last fifth of the steps, the step from
which the error stays below 5 %, and which of our estimators are below all of the paper's at every measured
step.

Writes results/estimator_error/<dataset>/: the runs, RESULTS.md and a figure for each batch size.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import scalar
from experiments.reproduce.scheduler import gramrun, run_all
from experiments.studies.comparison import origin
from gramrun.base.files import write_text
from gramrun.config import EstimatorSection
from gramrun.runs import figures, plotting

SEARCH = Path(__file__).with_suffix(".yaml")
TAIL = 0.2  # the last part of the trajectory, over which errors are averaged
GRADIENT_BATCH = 1024  # train.batch_size of the trajectory
SMALL = 0.05  # the error whose first step is reported


def of_size(sections: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """The estimators that support this batch size; a reused gradient batch has a fixed one."""
    return [
        {**section, "gramian_batch_size": size}
        for section in sections
        if section.get("batch") != "previous" or size == GRADIENT_BATCH
    ]


def task(dataset: str, watched: dict[str, Any], size: int, seed: int, results: Path) -> Task:
    """The run of one seed, measured for every estimator at one batch size."""
    sections = of_size(watched["paper"] + watched["ours"], size)
    overrides = (
        f"data.path={Path('data') / dataset}",
        f"train.seed={seed}",
        f"gram_error.estimators={scalar(sections)}",
    )
    config = Path("configs") / dataset / "gram-error.yaml"
    return Task("gram-error", config, overrides, results / "runs" / f"B{size}-seed{seed}")


def labelled(paths: list[Path]) -> pd.DataFrame:
    """The errors of runs, with a label for each estimator."""
    frame = figures.gram_error_frame(paths)
    alpha = frame["alpha"].map(lambda a: "" if pd.isna(a) else f" α={a:g}")
    return frame.assign(label=frame["estimator"] + alpha)


def labels(sections: list[dict[str, Any]]) -> list[str]:
    """The labels of estimator sections."""
    return [EstimatorSection.model_validate(section).label for section in sections]


def settled(errors: pd.Series) -> float:
    """The first step from which the error stays below `SMALL`; infinite if the last error is not below."""
    above = errors.index[errors >= SMALL]
    if len(above) == 0:
        return float(errors.index[0])
    after = errors.index[errors.index > above[-1]]
    return float(after[0]) if len(after) else float("inf")


def always_below(frame: pd.DataFrame, paper: list[str], ours: list[str]) -> list[str]:
    """Our estimators whose error is below all of the paper's at every step, side and seed."""
    curves = frame.set_index(["side", "seed", "step", "label"])["error"].unstack("label")
    best = curves[paper].min(axis=1)
    # At step 1 all estimators tie: no cache and no average has any history.
    later = curves.index.get_level_values("step") > 1
    return [label for label in ours if (curves[label] < best)[later].all()]


def table(frame: pd.DataFrame, watched: dict[str, Any], size: int) -> str:
    """The Markdown table of one batch size."""
    late = frame[frame["step"] > (1 - TAIL) * frame["step"].max()]
    means = late.groupby(["label", "side", "seed"])["error"].mean().groupby(["label", "side"])
    mean, spread = means.mean(), means.std()
    curves = frame.groupby(["label", "side", "step"])["error"].mean()
    paper, ours = (labels(of_size(watched[kind], size)) for kind in ("paper", "ours"))
    lines = [
        f"## B = {size}",
        "",
        f"| estimator | right: last {100 * TAIL:.0f} % | below {100 * SMALL:.0f} % from step "
        f"| left: last {100 * TAIL:.0f} % | below {100 * SMALL:.0f} % from step |",
        "|---|---|---|---|---|",
    ]
    for kind, some in (("paper", paper), ("ours", ours)):
        for label in some:
            cells = []
            for side in ("right", "left"):
                first = settled(curves[label, side])
                step = f"{first:,.0f}" if first < float("inf") else "never"
                cells.append(f"{mean[label, side]:.4f} ± {spread[label, side]:.4f} | {step}")
            lines.append(f"| {label}{' (paper)' if kind == 'paper' else ''} | {' | '.join(cells)} |")
    winners = always_below(frame, paper, ours)
    verdict = ", ".join(winners) if winners else "none"
    lines += [
        "",
        "Below every method of the paper at every measured step after the first, on both sides and with "
        f"every seed: {verdict}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run, tabulate and draw."""
    parser = argparse.ArgumentParser(description="Every estimator's Gramian error on one trajectory.")
    parser.add_argument("--dataset", default="movielens-1m")
    dataset = parser.parse_args().dataset
    watched = yaml.safe_load(SEARCH.read_text(encoding="utf-8"))
    results = Path("results/estimator_error") / dataset
    gramrun(["prepare", dataset, "--output", str(Path("data") / dataset)])
    every = {
        (size, seed): task(dataset, watched, size, seed, results)
        for size in watched["batch_sizes"]
        for seed in watched["seeds"]
    }
    run_all(list(every.values()))
    parts = [
        f"# {dataset}: Gramian errors of every estimator",
        f"`python -m experiments.studies.estimator_error --dataset {dataset}`; ‖Ĝ − G‖_F / ‖G‖_F along "
        f"`configs/{dataset}/gram-error.yaml`, {len(watched['seeds'])} seeds, ± standard deviation. All "
        "estimators of one batch size see the same draws.",
    ]
    for size in watched["batch_sizes"]:
        frame = labelled([task.output for (b, _), task in every.items() if b == size])
        parts.append(table(frame, watched, size))
        drawn = frame[frame["label"].isin(watched["drawn"])]
        figure = plotting.gram_error_figure(drawn)
        plotting.save(figure, results / f"gram-error-B{size}.png")
        parts.append(f"![Gramian error at B = {size}](gram-error-B{size}.png)")
    parts.append(origin(next(iter(every.values())).output))
    write_text(results / "RESULTS.md", "\n\n".join(parts) + "\n")
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
