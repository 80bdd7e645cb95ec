"""When is the lift real? Where noise in the Gramians begins to cost MAP, by corpus size, B, k and estimator.

The paper's lift of SOGram over sampling differs from corpus to corpus (Section 4.3). Here corpora of planted
topics grow (`experiments.planted_clusters`: the best ranking is known, and nothing but the number of items
changes). What an estimator loses is held against training with a noise-free Gramian, seed by seed:

    loss = 1 − MAP@10 / MAP@10 under the reference Gramian      (same seed: start and gradient batches)

The reference is the exact Gramian at every step, or, where that would cost hours, SOGram with so large a
batch that its own error, which a table shows, is nil beside the others'. λ and η are chosen once for each k:
under the exact Gramian, on the smallest corpus, on pairs held out of its training split; every size and
estimator has them, and the same number of epochs. One corpus a size; seeds are of parameters and batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from experiments import planted_clusters
from experiments.plans import Plan, run_task
from experiments.planted_clusters import Planted
from experiments.scaling_summary import (
    REFERENCE,
    by_point,
    lift_over_sampling,
    losses_table,
    needed_caption,
    needed_table,
    references_table,
    verdict,
    with_losses,
)
from experiments.scheduling import Task, state_of
from experiments.sections import Figure, Section, Seeds, Table
from gramrun import checkpoints, runs
from gramrun.config import EvaluationSection
from gramrun.data.shards import open_corpus
from gramrun.gramian.exact import relative_error
from gramrun.plotting import save
from gramrun.plotting.scaling import scaling_figure
from gramrun.training import Trainer

CORPUS = "planted-clusters"
PARTIAL = True  # it tells of the sizes that are finished
GRAMIANS = "gramians.json"
EXACT = ("exact",)


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        items: of each side of its corpus.
        dim: k.
        estimator: a label of the plan's estimators, or `REFERENCE`.
        batch: B; 0 for the exact Gramian.
        seed: of parameters and batches.
        task: the run itself.
    """

    items: int
    dim: int
    estimator: str
    batch: int
    seed: int
    task: Task


def planted(plan: Plan, items: int) -> Planted:
    """The corpus of a size."""
    return Planted(items, topics=plan.options["topics"])


def data(items: int, *, tuning: bool = False) -> Path:
    """Where the corpus of a size is prepared."""
    return Path("data") / f"{CORPUS}-{items}{'-tuning' if tuning else ''}"


def make_task(dataset: str, estimator: Sequence[str], seed: int, *settings: str) -> Task:
    """A run; `estimator` is the name of a config and settings of its own."""
    config, *own = estimator
    task = run_task("train", dataset, config, *own, *settings, seed=seed)
    return replace(task, config=Path("configs") / CORPUS / f"{config}.yaml")


def search(plan: Plan) -> dict[int, dict[tuple[float, float], Task]]:
    """For each k, the runs that choose (λ, η)."""
    grids = plan.options["grids"]
    smallest = data(min(grid["items"] for grid in grids), tuning=True).name
    axes = plan.options["search"]
    pairs = list(itertools.product(axes["gravity"], axes["learning_rate"]))
    return {
        dim: {(λ, η): make_task(smallest, EXACT, 0, *_model(plan, dim, λ, η)) for λ, η in pairs}
        for dim in dict.fromkeys(grid["dim"] for grid in grids)
    }


def _model(plan: Plan, dim: int, gravity: float, learning_rate: float) -> tuple[str, ...]:
    return (
        f"model.embedding_dim={dim}",
        f"train.gravity={gravity:g}",
        f"train.learning_rate={learning_rate:g}",
        f"train.epochs={plan.options['epochs']}",
    )


def chosen(plan: Plan) -> dict[int, tuple[float, float]]:
    """The best (λ, η) for each k, of the finished search."""
    return {dim: max(grid, key=lambda pair: _score(grid[pair])) for dim, grid in search(plan).items()}


def _score(task: Task) -> float:
    return float(runs.open_run(task.output).metrics()[-1]["map@10"])


def waves(plan: Plan) -> Iterator[list[Point]]:
    """The points of one size, k and seed after another: whose checkpoints may stand on disk at once."""
    settings = {dim: _model(plan, dim, *pair) for dim, pair in chosen(plan).items()}
    for grid in plan.options["grids"]:
        for seed in plan.seeds[: grid.get("seeds")]:
            yield list(points(plan, grid, settings[grid["dim"]], seed))


def points(plan: Plan, grid: Mapping[str, Any], model: Sequence[str], seed: int) -> Iterator[Point]:
    """The reference and every estimator at every B, for one seed.

    Args:
        plan: whose estimators.
        grid: one of the plan's.
        model: settings that all of them share.
        seed: of parameters and batches.
    """
    items, dim = grid["items"], grid["dim"]
    dataset = data(items).name

    def point(label: str, estimator: Sequence[str], batch: int) -> Point:
        size = (f"estimator.gramian_batch_size={batch}",) if batch else ()
        return Point(items, dim, label, batch, seed, make_task(dataset, estimator, seed, *size, *model))

    large = grid["reference"]  # 0 for the exact Gramian
    yield point(REFERENCE, ("sogram", "estimator.alpha=0.1") if large else EXACT, large)
    for (label, estimator), batch in itertools.product(plan.options["estimators"].items(), grid["batches"]):
        yield point(label, estimator, batch)


def tasks(plan: Plan) -> list[Task]:
    """The search, then wave after wave; of a finished wave, Gramians are measured and checkpoints dropped."""
    sizes = [grid["items"] for grid in plan.options["grids"]]
    planted_clusters.prepare(planted(plan, min(sizes)), data(min(sizes), tuning=True), tuning=True)
    asked = [task for grid in search(plan).values() for task in grid.values()]
    if not _done(asked):
        return asked
    for task in asked:
        runs.open_run(task.output).drop_checkpoints(0)
    for wave in waves(plan):
        planted_clusters.prepare(planted(plan, wave[0].items), data(wave[0].items))
        asked += [point.task for point in wave]
        if not _done([point.task for point in wave]):
            break
        for point in wave:
            keep_gramians(point.task.output)
    return asked


def _done(asked: Sequence[Task]) -> bool:
    return all(state_of(task) == "done" for task in asked)


def keep_gramians(output: Path) -> dict[str, Any]:
    """Measure a finished run's Gramians, once, and drop its checkpoint, which at 1M items is of a gigabyte.

    The estimates are those of the last step, made before its gradient step; the exact Gramians are under the
    parameters after it. One step of the last epoch moves them by far less than what is measured.

    Returns:
        ``error``, the relative error ‖Ĝ − G‖_F / ‖G‖_F, and ``rank``, the effective rank (tr G)² / ‖G‖²_F of
        the exact Gramian, both as a mean over the two sides.
    """
    if (output / GRAMIANS).exists():
        return runs.read_json(output / GRAMIANS)
    run = runs.open_run(output)
    state = checkpoints.load_newest(run)
    assert state is not None, "a finished run has a checkpoint until its Gramians are measured"
    trainer = Trainer(run.config, open_corpus(run.config.data.path))
    trainer.load_state_dict(state["trainer"])
    sides = ((trainer.left, trainer.left_estimator), (trainer.right, trainer.right_estimator))
    measured = []
    for side, estimator in sides:
        exact = side.exact_gramian()
        rank = float(exact.trace() ** 2 / exact.square().sum())
        measured.append((relative_error(estimator.gramian, exact), rank))
    error, rank = np.mean(measured, axis=0).tolist()
    result = {"error": error, "rank": rank}
    runs.write_json(output / GRAMIANS, result)
    run.drop_checkpoints(0)
    return result


def table_of_runs(plan: Plan) -> pd.DataFrame:
    """A row for each finished run: what was set, MAP@10 beside the planted optimum, Gramians, seconds."""
    best: dict[int, float] = {}
    rows = []
    for point in itertools.chain.from_iterable(waves(plan)):
        if not point.task.output.exists() or state_of(point.task) != "done":
            continue
        last = runs.open_run(point.task.output).metrics()[-1]
        if point.items not in best:
            settings = runs.open_run(point.task.output).config.evaluation
            best[point.items] = _optimum(plan, point.items, settings)
        own = {key: getattr(point, key) for key in ("items", "dim", "estimator", "batch", "seed")}
        rows.append(
            {
                **own,
                "map@10": last["map@10"],
                "optimum": best[point.items],
                **keep_gramians(point.task.output),
                "steps": last["step"],
                "train_seconds": last["train_seconds"],
            }
        )
    return pd.DataFrame(rows)


def _optimum(plan: Plan, items: int, settings: EvaluationSection) -> float:
    return planted_clusters.optimum(planted(plan, items), open_corpus(data(items)), settings)


def section(plan: Plan) -> Section:
    """Read the finished runs, draw, and tell."""
    frame = table_of_runs(plan)
    tolerance = plan.options["tolerance"]
    compared = with_losses(frame)
    planned = [point.task.output for point in itertools.chain.from_iterable(waves(plan))]
    plan.folder.mkdir(parents=True, exist_ok=True)
    tables = (
        Table("batch_needed", needed_caption(tolerance), needed_table(compared, tolerance)),
        Table(
            "references",
            "The reference of each size; mean ± standard deviation over seeds.",
            references_table(frame),
        ),
        Table(
            "losses",
            "Mean ± standard deviation over seeds; the interval is Student's, of 95 %.",
            losses_table(compared),
        ),
    )
    for table in tables:
        runs.write_text(plan.folder / f"{table.name}.csv", table.frame.to_csv(index=False))
    runs.write_text(plan.folder / "runs.csv", frame.to_csv(index=False))
    captions: dict[Literal["ratio", "error"], Figure] = {
        "ratio": Figure(
            "loss_by_batch",
            "What each estimator loses of the reference's validation MAP@10, against B/k, by corpus size.",
        ),
        "error": Figure("loss_by_error", "The same losses against the Gramians' relative error at the end."),
    }
    for x, figure in captions.items():
        drawn = scaling_figure(compared, x, tolerance)
        for suffix in (".png", ".svg"):
            save(drawn, plan.folder / f"{figure.name}{suffix}")
    return Section(
        name="scaling",
        title="When is the lift real? Gramian noise against corpus size, B and k",
        source="",
        verdict=f"{verdict(compared, tolerance)} {_conditions(plan)}",
        tables=tables,
        figures=tuple(captions.values()),
        measured=_measured(compared),
        runs=tuple(path for path in planned if path.exists()),
    )


def _measured(compared: pd.DataFrame) -> dict[str, Seeds]:
    """Names as "10000/k=16/SOGram α=0.1/B=4/loss", ``…/error``, ``…/map@10``; and "10000/k=16/B=4/lift"."""
    measured = {
        f"{items}/k={dim}/{estimator}/B={batch}/{column}": values
        for column in ("loss", "error", "map@10")
        for (items, dim, estimator, batch), values in by_point(compared, column).items()
    }
    for dim, rows in compared.groupby("dim"):
        for (items, batch), values in lift_over_sampling(rows).items():
            measured[f"{items}/k={dim}/B={batch}/lift"] = values
    return measured


def _conditions(plan: Plan) -> str:
    found = "; ".join(f"k = {k}: λ = {λ:g}, η = {η:g}" for k, (λ, η) in chosen(plan).items())
    return (
        f"(Linear towers over ids, γ = 0, {plan.options['topics']} planted topics, at most "
        f"{Planted(2).draws} links a left item, {plan.options['epochs']} epochs of B' = 1,024 everywhere; "
        f"chosen under the exact Gramian on held-out training pairs of the smallest corpus: {found}.)"
    )
