"""Ours: at which batch size Gramian noise begins to cost MAP, by corpus size, k and estimator.

The paper's lift of SOGram over sampling differs between corpora (Section 4.3). The planted corpora here
(`experiments.reproduce.planted_clusters`) differ in the number of items only. Losses are relative to training
with a noise-free Gramian, paired by seed (same start and gradient batches):

    loss = 1 − MAP@10 / MAP@10 under the reference Gramian

The reference is the exact Gramian at every step or, where that takes hours, SOGram with a batch so large that
its error (shown in a table) is negligible. λ and η are chosen once for each k: under the exact Gramian, on
the smallest corpus, on pairs held out of its training split. A larger corpus needs more steps for the same
epochs, so grids may set their own epochs: sizes are compared both at equal epochs and at equal steps.

The option ``runs`` names a ``runs.csv`` of an earlier report, whose runs are reported without training; the
option ``chosen`` then has λ and η by k.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.report import keys
from experiments.report.sections import Section, Seeds, Table, write_figure
from experiments.reproduce import planted_clusters
from experiments.reproduce.jobs import Task, state_of
from experiments.reproduce.plans import Plan, run_task
from experiments.reproduce.planted_clusters import Planted
from experiments.reproduce.scaling_figure import scaling_figure
from experiments.reproduce.scaling_losses import (
    REFERENCE,
    by_point,
    lift_over_sampling,
    lifts_table,
    losses_table,
    references_table,
    with_losses,
)
from gramrun import runs
from gramrun.base.files import read_json, write_json, write_text
from gramrun.config import EvaluationSection
from gramrun.data.shards import open_corpus
from gramrun.gramian.exact import effective_rank, relative_error
from gramrun.runs import checkpoints
from gramrun.training.trainer import Trainer

CORPUS = "planted-clusters"
EXACT = ("exact",)
GRAMIANS = "gramians.json"


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        items: number of items of each side.
        epochs: length of the training.
        dim: k.
        estimator: a label of the plan's estimators, or `REFERENCE`.
        batch: B; 0 for the exact Gramian.
        seed: seed of parameters and batches.
        task: the run.
    """

    items: int
    epochs: int
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
    epochs = f"train.epochs={plan.options['epochs']}"
    return {
        dim: {pair: make_task(smallest, EXACT, 0, *_model(dim, *pair), epochs) for pair in pairs}
        for dim in dict.fromkeys(grid["dim"] for grid in grids)
    }


def _model(dim: int, gravity: float, learning_rate: float) -> tuple[str, ...]:
    return (
        f"model.embedding_dim={dim}",
        f"train.gravity={gravity:g}",
        f"train.learning_rate={learning_rate:g}",
    )


def chosen(plan: Plan) -> dict[int, tuple[float, float]]:
    """The best (λ, η) for each k whose search has ended; failed runs are never best."""
    best = {}
    for dim, grid in search(plan).items():
        done = {pair: task for pair, task in grid.items() if state_of(task) == "done"}
        if done and _ended(list(grid.values())):
            best[dim] = max(done, key=lambda pair: _score(done[pair]))
    return best


def _score(task: Task) -> float:
    return float(runs.open_run(task.output).metrics()[-1]["map@10"])


def waves(plan: Plan) -> Iterator[list[Point]]:
    """Groups of points of one size, k and seed, which keep their checkpoints at the same time.

    Leaves out each k whose search has not ended.
    """
    settings = {dim: _model(dim, *pair) for dim, pair in chosen(plan).items()}
    for grid in plan.options["grids"]:
        if grid["dim"] not in settings:
            continue
        for seed in plan.seeds[: grid.get("seeds")]:
            yield list(points(plan, grid, settings[grid["dim"]], seed))


def points(plan: Plan, grid: Mapping[str, Any], model: Sequence[str], seed: int) -> Iterator[Point]:
    """The reference and every estimator at every B, for one seed.

    Args:
        plan: gives the estimators and epochs.
        grid: one of the plan's grids; its ``epochs`` overrides the plan's.
        model: settings that all points share.
        seed: seed of parameters and batches.
    """
    items, dim = grid["items"], grid["dim"]
    epochs = grid.get("epochs", plan.options["epochs"])
    dataset = data(items).name

    def point(label: str, estimator: Sequence[str], batch: int) -> Point:
        size = (f"estimator.gramian_batch_size={batch}",) if batch else ()
        settings = (*size, *model, f"train.epochs={epochs}")
        return Point(items, epochs, dim, label, batch, seed, make_task(dataset, estimator, seed, *settings))

    large = grid["reference"]  # 0 for the exact Gramian
    yield point(REFERENCE, ("sogram", "estimator.alpha=0.1") if large else EXACT, large)
    for (label, estimator), batch in itertools.product(plan.options["estimators"].items(), grid["batches"]):
        yield point(label, estimator, batch)


def tasks(plan: Plan) -> list[Task]:
    """The search, then wave after wave."""
    if "runs" in plan.options:
        return []
    asked = _searches(plan)
    if not _ended(asked):
        return asked
    for wave in waves(plan):
        asked += [point.task for point in wave]
        if not _ended([point.task for point in wave]):
            break
    return asked


def make_ready(plan: Plan) -> None:
    """Prepare the corpora of the next runs; of ended waves, measure Gramians and drop checkpoints."""
    if "runs" in plan.options:
        return
    smallest = min(grid["items"] for grid in plan.options["grids"])
    planted_clusters.prepare(planted(plan, smallest), data(smallest, tuning=True), tuning=True)
    searches = _searches(plan)
    if not _ended(searches):
        return
    for task in searches:
        runs.open_run(task.output).drop_checkpoints(0)
    for wave in waves(plan):
        planted_clusters.prepare(planted(plan, wave[0].items), data(wave[0].items))
        if not _ended([point.task for point in wave]):
            return
        for point in wave:
            if state_of(point.task) == "done":
                keep_gramians(point.task.output)


def keep_gramians(output: Path) -> dict[str, Any]:
    """Measure a finished run's Gramians once and drop its checkpoint (1 GB at 1M items).

    The estimates precede the last gradient step, and the exact Gramians follow it. One step of the last epoch
    changes them by far less than the measured errors.

    Returns:
        ``error``, the relative error ‖Ĝ − G‖_F / ‖G‖_F, and ``rank``, the effective rank (tr G)² / ‖G‖²_F of
        the exact Gramian, both as a mean over the two sides.
    """
    if (output / GRAMIANS).exists():
        return read_json(output / GRAMIANS)
    run = runs.open_run(output)
    state = checkpoints.load_newest(run)
    assert state is not None, "a finished run has a checkpoint until its Gramians are measured"
    trainer = Trainer(run.config, open_corpus(run.config.data.path))
    trainer.load_state_dict(state["trainer"])
    sides = ((trainer.left, trainer.left_estimator), (trainer.right, trainer.right_estimator))
    measured = []
    for side, estimator in sides:
        exact = side.exact_gramian()
        measured.append((relative_error(estimator.gramian, exact), effective_rank(exact)))
    error, rank = np.mean(measured, axis=0).tolist()
    result = {"error": error, "rank": rank}
    write_json(output / GRAMIANS, result)
    run.drop_checkpoints(0)
    return result


def can_tell(plan: Plan) -> bool:
    """Whether some run and its reference are finished; the section reports the finished ones."""
    if "runs" in plan.options:
        return Path(plan.options["runs"]).exists()
    found = {(p.items, p.epochs, p.dim, p.seed, p.estimator == REFERENCE) for p in measured_points(plan)}
    return any((*point, True) in found for *point, is_reference in found if not is_reference)


def measured_points(plan: Plan) -> list[Point]:
    """The finished points whose Gramians are measured."""
    points = itertools.chain.from_iterable(waves(plan))
    return [p for p in points if (p.task.output / GRAMIANS).exists() and state_of(p.task) == "done"]


def _searches(plan: Plan) -> list[Task]:
    return [task for grid in search(plan).values() for task in grid.values()]


def _ended(asked: Sequence[Task]) -> bool:
    """Whether every run is done or failed."""
    return all(state_of(task) in ("done", "failed") for task in asked)


def table_of_runs(plan: Plan) -> pd.DataFrame:
    """A row for each measured run: settings, MAP@10, the planted optimum, Gramians, seconds."""
    best: dict[int, float] = {}
    rows = []
    for point in measured_points(plan):
        run = runs.open_run(point.task.output)
        last = run.metrics()[-1]
        if point.items not in best:
            best[point.items] = _optimum(plan, point.items, run.config.evaluation)
        own = {key: getattr(point, key) for key in ("items", "epochs", "dim", "estimator", "batch", "seed")}
        rows.append(
            {
                **own,
                "map@10": last["map@10"],
                "optimum": best[point.items],
                **read_json(point.task.output / GRAMIANS),
                "steps": last["step"],
                "candidates": min(1.0, run.config.evaluation.candidates / point.items),
                "train_seconds": last["train_seconds"],
            }
        )
    return pd.DataFrame(rows)


def _optimum(plan: Plan, items: int, settings: EvaluationSection) -> float:
    return planted_clusters.optimum(planted(plan, items), open_corpus(data(items)), settings)


def section(plan: Plan) -> Section:
    """Tables and figures of the runs that are finished."""
    earlier = plan.options.get("runs")
    frame = pd.read_csv(earlier) if earlier else table_of_runs(plan)
    compared = with_losses(frame)
    best = plan.options["chosen"] if earlier else chosen(plan)
    found = "; ".join(f"k = {k}: λ = {weight:g}, η = {rate:g}" for k, (weight, rate) in best.items())
    tables = (
        Table(
            "lifts",
            "MAP@10 relative to sampling's, paired by seed, with 95 % t-intervals of its logarithm.",
            lifts_table(compared),
        ),
        Table(
            "references",
            "The reference of each size; mean ± standard deviation over seeds; candidates are the share of "
            "all right items that are ranked.",
            references_table(frame),
        ),
        Table(
            "losses",
            "Mean ± standard deviation over seeds. Losses are paired by seed, with 95 % t-intervals of the "
            "logarithm of what is kept.",
            losses_table(compared),
        ),
    )
    write_text(plan.folder / "runs.csv", frame.to_csv(index=False))
    drawn = tuple(
        write_figure(plan.folder, scaling_figure(compared, x), f"loss_by_{name}", caption)
        for x, name, caption in (
            ("ratio", "batch", "What each estimator loses of the reference's validation MAP@10, by B/k."),
            ("error", "error", "The same losses against the Gramians' relative error at the end."),
        )
    )
    return Section(
        "scaling",
        "When is the lift real? Gramian noise against corpus size, B and k",
        "",
        f"Linear towers over ids, γ = 0, {plan.options['topics']} planted topics, at most {Planted(2).draws} "
        f"links a left item, B' = 1,024. λ and η are chosen under the exact Gramian on held-out training "
        f"pairs of the smallest corpus: {found}.",
        tables,
        drawn,
        _measured(compared),
        () if earlier else tuple(point.task.output for point in measured_points(plan)),
    )


def _measured(compared: pd.DataFrame) -> dict[str, Seeds]:
    measured = {
        keys.planted(items, epochs, dim, estimator, f"B={batch}", "kept"): values
        for (items, epochs, dim, estimator, batch), values in by_point(compared, "kept").items()
    }
    return measured | {
        keys.planted(items, epochs, dim, f"B={batch}", "lift"): values
        for (items, epochs, dim, batch), values in lift_over_sampling(compared).items()
    }
