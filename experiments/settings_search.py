"""Which weights, λ and η suit a corpus under linear and hidden towers: grids on a tuning corpus.

    python -m experiments.settings_search [--dataset enwik8]

`experiments/settings_search.yaml` lists the axes; dense layers get a hundredth of each η. Writes
results/settings_search/<dataset>/: every run, search.csv and RESULTS.md.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.comparison import origin, settings, slug
from experiments.datasets import DATASETS, Dataset, prepare
from experiments.scheduling import run_all
from experiments.tasks import Task
from gramrun import runs

SEARCH = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Point:
    """One combination of settings.

    Attributes:
        towers: their label in the search.
        gamma: γ of the left and of the right side.
        gravity: λ.
        learning_rate: η of the tables.
    """

    towers: str
    gamma: tuple[float, float]
    gravity: float
    learning_rate: float

    @property
    def settings(self) -> dict[str, float]:
        """What it sets, beside its towers."""
        return {
            "train.gamma_left": self.gamma[0],
            "train.gamma_right": self.gamma[1],
            "train.gravity": self.gravity,
            "train.learning_rate": self.learning_rate,
            "train.dense_learning_rate": self.learning_rate / 100,
        }


def points(search: dict[str, Any]) -> list[Point]:
    """Every combination of every grid."""
    return [
        Point(towers, tuple(gamma), gravity, rate)
        for towers, grid in search["towers"].items()
        for gamma, gravity, rate in itertools.product(
            *(grid["axes"][axis] for axis in ("gamma", "gravity", "learning_rate"))
        )
    ]


def task(search: dict[str, Any], point: Point, dataset: Dataset, data: Path, results: Path) -> Task:
    """The training run of one point; it is evaluated once, at its end."""
    merged = {
        **search["fixed"],
        **search["towers"][point.towers]["fixed"],
        **point.settings,
        "data.path": str(data),
        "train.epochs": search["epochs"],
        "train.checkpoint_every": 0,
        "evaluation.every": 0,
        "evaluation.splits": ["validation"],
    }
    name = slug(f"{point.towers}-{point.gamma}-{point.gravity}-{point.learning_rate}")
    return Task("train", dataset.configs / search["base"], settings(merged), results / "runs" / name)


def table(scores: dict[Point, float], search: dict[str, Any], dataset: Dataset) -> str:
    """The Markdown of the finished grids: the score of each point, the best of each kind of towers bold."""
    lines = [
        f"# {dataset.name}: a search of settings",
        "",
        f"`python -m experiments.settings_search --dataset {dataset.name}` "
        f"(`experiments/settings_search.yaml`). MAP@10 after {search['epochs']} epochs on pairs held out of "
        "the training split, one seed. Validation pairs play no part.",
    ]
    for towers, grid in search["towers"].items():
        best = max(score for point, score in scores.items() if point.towers == towers)
        columns = list(itertools.product(grid["axes"]["gravity"], grid["axes"]["learning_rate"]))
        header = " | ".join(f"λ = {gravity}, η = {rate}" for gravity, rate in columns)
        lines += ["", f"| {towers}, γ left, right | {header} |", "|---|" + "---|" * len(columns)]
        for gamma in grid["axes"]["gamma"]:
            row = [scores[Point(towers, tuple(gamma), *column)] for column in columns]
            cells = [f"**{score:.4f}**" if score == best else f"{score:.4f}" for score in row]
            lines.append(f"| {gamma[0]}, {gamma[1]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the grids; write their table."""
    parser = argparse.ArgumentParser(description="Grids of settings on a part of the training split.")
    parser.add_argument("--dataset", choices=DATASETS, default="enwik8")
    dataset = DATASETS[parser.parse_args().dataset]
    search = yaml.safe_load(SEARCH.read_text(encoding="utf-8"))
    data = Path("data") / f"{dataset.name}-tuning"
    results = Path("results/settings_search") / dataset.name
    prepare(dataset, data, f"split.tuning_fraction={search['tuning_fraction']}")
    every = {point: task(search, point, dataset, data, results) for point in points(search)}
    run_all(list(every.values()))
    scores = {point: runs.open_run(run.output).metrics()[-1]["map@10"] for point, run in every.items()}
    frame = pd.DataFrame({"towers": p.towers, **p.settings, "MAP@10": score} for p, score in scores.items())
    runs.write_text(results / "search.csv", frame.to_csv(index=False))
    report = f"{table(scores, search, dataset)}\n{origin(next(iter(every.values())).output)}\n"
    runs.write_text(results / "RESULTS.md", report)
    print(report)


if __name__ == "__main__":
    main()
