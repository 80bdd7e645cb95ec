"""When is the lift real? Where noise in the Gramians begins to cost MAP, by corpus size, B, k and estimator.

The paper's lift of SOGram over sampling differs from corpus to corpus (Section 4.3). Here corpora of planted
topics grow (`experiments.reproduce.planted_clusters`): of the corpus, whose best ranking is known, nothing
but the
number of items changes. What an estimator loses is held against training with a noise-free Gramian, seed by
seed:

    loss = 1 − MAP@10 / MAP@10 under the reference Gramian      (same seed: start and gradient batches)

The reference is the exact Gramian at every step, or, where that would cost hours, SOGram with so large a
batch that its own error, which a table shows, is nil beside the others'. λ and η are chosen once for each k:
under the exact Gramian, on the smallest corpus, on pairs held out of its training split; every size and
estimator has them. At as many epochs a larger corpus is trained for more steps, of which SOGram's lag of
1/α is a smaller part; so a grid may set its own epochs, and sizes are compared twice: at as many epochs, and
at as many steps. A larger corpus is still ranked among a smaller share of its items, and has λ and η that
were not chosen for it; the section says so. One corpus a size; seeds are of parameters and batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.report.section_files import write_figure
from experiments.report.sections import Section, Seeds, Table
from experiments.reproduce import planted_clusters
from experiments.reproduce.final_gramians import GRAMIANS, keep_gramians
from experiments.reproduce.plans import Plan, run_task
from experiments.reproduce.planted_clusters import Planted
from experiments.reproduce.scaling_figure import scaling_figure
from experiments.reproduce.scaling_summary import (
    REFERENCE,
    by_point,
    in_epochs,
    lift_over_sampling,
    verdict,
    with_losses,
)
from experiments.reproduce.scaling_tables import (
    POOLED,
    losses_table,
    needed_caption,
    needed_table,
    references_table,
)
from experiments.reproduce.scheduler import Task, state_of
from gramrun import runs
from gramrun.base.files import read_json, write_text
from gramrun.config import EvaluationSection
from gramrun.data.shards import open_corpus

CORPUS = "planted-clusters"
EXACT = ("exact",)


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        items: of each side of its corpus.
        epochs: it is trained for.
        dim: k.
        estimator: a label of the plan's estimators, or `REFERENCE`.
        batch: B; 0 for the exact Gramian.
        seed: of parameters and batches.
        task: the run itself.
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
    """The best (λ, η) for each k whose search has ended; runs that failed (diverged, say) are never best."""
    best = {}
    for dim, grid in search(plan).items():
        done = {pair: task for pair, task in grid.items() if state_of(task) == "done"}
        if done and _ended(list(grid.values())):
            best[dim] = max(done, key=lambda pair: _score(done[pair]))
    return best


def _score(task: Task) -> float:
    return float(runs.open_run(task.output).metrics()[-1]["map@10"])


def waves(plan: Plan) -> Iterator[list[Point]]:
    """The points of one size, k and seed after another: whose checkpoints may stand on disk at once.

    There are none of a k whose search has not ended.
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
        plan: whose estimators and epochs.
        grid: one of the plan's; ``epochs`` in it goes before the plan's.
        model: settings that all of them share.
        seed: of parameters and batches.
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


def can_tell(plan: Plan) -> bool:
    """Whether some run and its reference are finished: the section tells of what there is."""
    found = {(p.items, p.epochs, p.dim, p.seed, p.estimator == REFERENCE) for p in measured_points(plan)}
    return any((*point, True) in found for *point, is_reference in found if not is_reference)


def measured_points(plan: Plan) -> list[Point]:
    """Those that are finished, and whose Gramians are measured."""
    points = itertools.chain.from_iterable(waves(plan))
    return [p for p in points if (p.task.output / GRAMIANS).exists() and state_of(p.task) == "done"]


def _searches(plan: Plan) -> list[Task]:
    return [task for grid in search(plan).values() for task in grid.values()]


def _ended(asked: Sequence[Task]) -> bool:
    """Whether every run is done, or would only fail again."""
    return all(state_of(task) in ("done", "failed") for task in asked)


def table_of_runs(plan: Plan) -> pd.DataFrame:
    """A row for each measured run: what was set, MAP@10 beside the planted optimum, Gramians, seconds."""
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
    """Read the finished runs, draw, and tell."""
    frame = table_of_runs(plan)
    tolerance = plan.options["tolerance"]
    compared = with_losses(frame)
    tables = (
        Table("batch_needed", needed_caption(tolerance), needed_table(compared, tolerance)),
        Table(
            "references",
            "The reference of each size; mean ± standard deviation over seeds.",
            references_table(frame),
        ),
        Table(
            "losses",
            f"Mean ± standard deviation over seeds; intervals are Student's, of 95 %; the {POOLED}.",
            losses_table(compared),
        ),
    )
    write_text(plan.folder / "runs.csv", frame.to_csv(index=False))
    drawn = (
        write_figure(
            plan,
            scaling_figure(compared, "ratio", tolerance),
            "loss_by_batch",
            "What each estimator loses of the reference's validation MAP@10, against B/k, by corpus.",
        ),
        write_figure(
            plan,
            scaling_figure(compared, "error", tolerance),
            "loss_by_error",
            "The same losses against the Gramians' relative error at the end.",
        ),
    )
    return Section(
        name="scaling",
        title="When is the lift real? Gramian noise against corpus size, B and k",
        source="",
        verdict=f"{verdict(compared, tolerance)} {_conditions(plan, frame)}",
        tables=tables,
        figures=drawn,
        measured=_measured(compared),
        runs=tuple(point.task.output for point in measured_points(plan)),
    )


def _measured(compared: pd.DataFrame) -> dict[str, Seeds]:
    """Names as "10000/epochs=10/k=16/SOGram α=0.1/B=4/loss", ``…/error``, ``…/map@10``; and "…/B=4/lift"."""
    measured = {
        f"{items}/epochs={epochs}/k={dim}/{estimator}/B={batch}/{column}": values
        for column in ("loss", "error", "map@10")
        for (items, epochs, dim, estimator, batch), values in by_point(compared, column).items()
    }
    for dim, rows in compared.groupby("dim"):
        for (items, epochs, batch), values in lift_over_sampling(rows).items():
            measured[f"{items}/epochs={epochs}/k={dim}/B={batch}/lift"] = values
    return measured


def _conditions(plan: Plan, frame: pd.DataFrame) -> str:
    """What else differs between the sizes, and what does not."""
    found = "; ".join(f"k = {k}: λ = {λ:g}, η = {η:g}" for k, (λ, η) in chosen(plan).items())
    sizes = frame.groupby(["items", "epochs"])[["steps", "candidates"]].first()
    text = (
        f"(Linear towers over ids, γ = 0, {plan.options['topics']} planted topics, at most "
        f"{Planted(2).draws} links a left item, B' = 1,024 everywhere; "
        f"chosen under the exact Gramian on held-out training pairs of the smallest corpus: {found}.)"
    )
    if len(sizes) < 2:
        return text
    told = [
        f"{items:,} items, {in_epochs(epochs)}: {row.steps:,.0f} steps, candidates {row.candidates:.0%}"
        for (items, epochs), row in zip(sizes.index, sizes.itertuples(), strict=True)
    ]
    return (
        f"{text} Not size alone differs: at as many epochs a larger corpus is trained for more steps, of "
        "which the lag of an average over steps, 1/α, is a smaller part, and at as many steps its items are "
        "seen less often; candidates are a smaller share of its items; and λ and η are those of the smallest "
        f"({'; '.join(told)})."
    )
