"""Does a better Gramian rank better? Each estimator at its best λ, η and α, with paired differences.

    python -m experiments.estimators [--dataset movielens-1m]

1. Search: `experiments/estimators.yaml` gives every method the same budget, on a tuning corpus whose
   validation pairs come out of the training split.
2. Final: the best configuration of each method on the real split, with every seed. Runs of one seed start
from
   the same parameters and see the same gradient batches, so differences are paired by seed.

Writes results/estimators/<dataset>/: every run, search.csv, final.csv and RESULTS.md.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from experiments.comparison import origin, paired, settings, slug
from experiments.scheduling import gramrun, run_all
from experiments.tasks import Task
from gramrun import runs

SEARCH = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One configuration of one method.

    Attributes:
        method: its row in the table.
        index: which point of the search it is.
        values: λ, η and, where the method has one, α.
        overrides: all of it as ``--set`` settings.
    """

    method: str
    index: int
    values: dict[str, float]
    overrides: tuple[str, ...]


def candidates(search: dict[str, Any]) -> list[Candidate]:
    """All configurations: the same (λ, η) for every method, α cycling through its values."""
    random = np.random.default_rng(0)  # draws the points of the search, once and for all

    def log_uniform(low: float, high: float) -> list[float]:
        drawn = np.exp(random.uniform(np.log(low), np.log(high), search["points"]))
        return [float(f"{value:.3g}") for value in drawn]

    points = list(zip(log_uniform(*search["gravity"]), log_uniform(*search["learning_rate"]), strict=True))
    found = []
    for (method, section), (index, (gravity, rate)) in itertools.product(
        search["methods"].items(), enumerate(points)
    ):
        values = {"train.gravity": gravity, "train.learning_rate": rate}
        if section["name"] in ("sogram", "control-variate"):
            values["estimator.alpha"] = search["alpha"][index % len(search["alpha"])]
        chosen = {f"estimator.{key}": value for key, value in section.items()}
        found.append(Candidate(method, index, values, settings({**chosen, **values})))
    return found


def task(candidate: Candidate, config: Path, data: Path, epochs: float, seed: int, output: Path) -> Task:
    """The training run of one candidate on one corpus; it is evaluated once, at its end."""
    fixed = (f"data.path={data}", f"train.epochs={epochs}", f"train.seed={seed}", "evaluation.every=0")
    return Task("train", config, (*candidate.overrides, *fixed, "train.checkpoint_every=0"), output)


def measured(path: Path) -> dict[str, float]:
    """The last evaluation of a run."""
    last = runs.open_run(path).metrics()[-1]
    return {"validation": last["map@10"], "train": last["train_map@10"], "seconds": last["train_seconds"]}


def choose(frame: pd.DataFrame) -> dict[str, int]:
    """The index of each method's best configuration on the tuning corpus."""
    best = frame.loc[frame.groupby("method", sort=False)["validation"].idxmax()]
    return dict(zip(best["method"], best["index"], strict=True))


def table(search: pd.DataFrame, final: pd.DataFrame, dataset: str) -> str:
    """The Markdown of both steps."""
    methods = list(dict.fromkeys(final["method"]))
    seeds = final["seed"].nunique()
    by_seed = final.pivot(index="seed", columns="method", values="validation")
    lines = [
        f"# {dataset}: each estimator at its best",
        "",
        f"`python -m experiments.estimators --dataset {dataset}`; the search is "
        f"`experiments/estimators.yaml` ({len(search) // len(methods)} configurations a method, on a part of "
        f"the training split). Validation MAP@10 on the real split over {seeds} seeds; ± is the standard "
        "deviation. Differences are paired by seed, with 95 % t-intervals; they are what the choice of the "
        "estimator changes on *this* split: which users were drawn is not in them.",
        "",
        "| method | λ | η | α | on the tuning split | validation MAP@10 | minus sampling | minus exact "
        "| training MAP@10 | training time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    chosen = search.loc[search.groupby("method", sort=False)["validation"].idxmax()].set_index("method")
    for method in methods:
        rows, best = final[final["method"] == method], chosen.loc[method]
        alpha = "" if pd.isna(best["estimator.alpha"]) else f"{best['estimator.alpha']:g}"
        differences = [
            "" if method == other else paired(by_seed, method, other) for other in ("sampling", "exact")
        ]
        lines.append(
            f"| {method} | {best['train.gravity']:g} | {best['train.learning_rate']:g} | {alpha} "
            f"| {best['validation']:.4f} | {rows['validation'].mean():.4f} ± {rows['validation'].std():.4f} "
            f"| {' | '.join(differences)} | {rows['train'].mean():.4f} | {rows['seconds'].mean():.0f} s |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Search, train, write."""
    parser = argparse.ArgumentParser(description="Every estimator at its best, with paired differences.")
    parser.add_argument("--dataset", default="movielens-1m")
    dataset = parser.parse_args().dataset
    search = yaml.safe_load(SEARCH.read_text(encoding="utf-8"))
    results, config = Path("results/estimators") / dataset, Path("configs") / dataset / search["base"]
    data, tuning = Path("data") / dataset, Path("data") / f"{dataset}-tuning"
    gramrun(["prepare", dataset, "--output", str(data)])
    fraction = f"split.tuning_fraction={search['tuning_fraction']}"
    gramrun(["prepare", dataset, "--set", fraction, "--output", str(tuning)])

    every = candidates(search)
    tasks = {
        candidate: task(
            candidate,
            config,
            tuning,
            search["epochs"],
            0,
            results / "runs" / f"search-{slug(candidate.method)}-{candidate.index}",
        )
        for candidate in every
    }
    run_all(list(tasks.values()))
    found = pd.DataFrame(
        {"method": c.method, "index": c.index, **c.values, **measured(t.output)} for c, t in tasks.items()
    )
    runs.write_text(results / "search.csv", found.to_csv(index=False))

    best = choose(found)
    finals = {
        (candidate.method, seed): task(
            candidate,
            config,
            data,
            search["epochs"],
            seed,
            results / "runs" / f"final-{slug(candidate.method)}-seed{seed}",
        )
        for candidate in every
        if best[candidate.method] == candidate.index
        for seed in search["seeds"]
    }
    run_all(list(finals.values()))
    final = pd.DataFrame(
        {"method": method, "seed": seed, **measured(t.output)} for (method, seed), t in finals.items()
    )
    runs.write_text(results / "final.csv", final.to_csv(index=False))
    report = f"{table(found, final, dataset)}\n{origin(next(iter(finals.values())).output)}\n"
    runs.write_text(results / "RESULTS.md", report)
    print(report)


if __name__ == "__main__":
    main()
