"""Ours: whether and when training reaches the optimum found by exact ALS.

For linear towers over ids, every item has a vector of its own, and the paper's objective

    F(U, V) = (1/n) sum_i (⟨u_i, v_i⟩ − s_i)² + λ (⟨G_u, G_v⟩ − 2⟨H_u, H_v⟩ + ⟨G_q, G_r⟩)

(equations 2 and 5, Appendix C) is minimised by `gramrun.evaluation.baselines.exact_als` without a learning
rate, batches or estimates; it shares no code with training. F is not convex, but here all starts of ALS end
at one value F*. Training with unbiased estimates follows F's gradient on average (Proposition 1), so every
estimator must end at F*; a wrong weight, factor or sign ends elsewhere. The section shows the first epoch at
which the excess F / F* − 1 is below 1 %, and the excess at the end.

Two limits: an average over 1/α steps lags behind a fast model, which costs SOGram and the control variate at
λ = 10; and F has saddles a little above F*, where Adagrad may stay for a while, so compare medians over
seeds. tests/experiments/test_known_optimum.py checks the gradient at the optimum, which shows smaller errors.

Each objective of the plan is one call of this module, so that objectives run in parallel:

    python -m experiments.reproduce.items.known_optimum --seeds 5 --learning-rate 0.3 --epochs 80
        --settings TITLE --estimators NAME... --output FILE.csv

Options: ``objectives`` and ``estimators`` by name, all by default; ``learning_rate``, ``epochs``.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.report.sections import Section, Table
from experiments.reproduce.jobs import Script
from experiments.reproduce.plans import RUNS, Plan, slug
from gramrun.base.files import write_text
from gramrun.config import BaselineSection, RunConfig
from gramrun.config.loading import load_config
from gramrun.data import synthetic
from gramrun.data.corpus import Corpus, Side, SplitCorpus
from gramrun.data.split import split_corpus
from gramrun.evaluation.baselines import exact_als
from gramrun.evaluation.baselines.run import exact_als_problem
from gramrun.model.build import embed_all
from gramrun.training.objective import make_prior
from gramrun.training.trainer import Trainer

MODULE = "experiments.reproduce.items.known_optimum"
REACHED = 0.01  # excess that counts as having arrived
MEASURED = 4  # times an epoch
STARTS = 10  # of ALS, all of which must agree
AGREEMENT = 1e-3  # of the starts, relative

ESTIMATORS = {
    "exact Gramian": ("name=exact",),
    "sampling": ("name=sampling",),
    "SOGram α=0.1": ("name=sogram", "alpha=0.1"),
    "SOGram α=0.01": ("name=sogram", "alpha=0.01"),
    "SOGram α=0.1, debiased": ("name=sogram", "alpha=0.1", "debias=true"),
    "SOGram α=0.01, debiased": ("name=sogram", "alpha=0.01", "debias=true"),
    "SOGram α=0.1, debiased, previous batch": ("name=sogram", "alpha=0.1", "debias=true", "batch=previous"),
    "control variate α=0.1": ("name=control-variate", "alpha=0.1"),
    "control variate α=0.01": ("name=control-variate", "alpha=0.01"),
    "control variate α=0.1, item cache": ("name=control-variate", "alpha=0.1", "cache=item"),
    "SAGram β=1, per item": ("name=sagram", "beta=1"),
    "SAGram β=1/n, per item": ("name=sagram", "beta=1/n"),
    "SAGram β=1, per pair": ("name=sagram", "beta=1", "cache=pair"),
    "SAGram β=1/n, per pair": ("name=sagram", "beta=1/n", "cache=pair"),
}


@dataclass(frozen=True)
class Setting:
    """One objective and the sizes of its batches.

    Attributes:
        title: its name in the table.
        overrides: ``--set`` settings.
    """

    title: str
    overrides: tuple[str, ...] = ()

    @property
    def per_pair(self) -> bool:
        """Whether Gramians are means over pairs on both sides, which caches per pair need."""
        return not any("gamma" in override for override in self.overrides)


SETTINGS = (
    Setting("γ = 1 (the paper), B = 64"),
    Setting("γ = 1 (the paper), B = 8", ("estimator.gramian_batch_size=8",)),
    Setting("γ = 1, popularity prior (Appendix C), B = 64", ("train.prior.name=popularity",)),
    Setting("γ = 0, B = 64", ("train.gamma_left=0", "train.gamma_right=0")),
    Setting(
        "γ = 0.5 left and 0 right, targets from 0.5 to 1.5, B = 64",
        ("train.gamma_left=0.5", "train.gamma_right=0", "train.target=value"),
    ),
    Setting("γ = 0, λ = 10, B = 64", ("train.gamma_left=0", "train.gamma_right=0", "train.gravity=10")),
)
SIZES = {"left_items": 200, "right_items": 150}
EMBEDDING_DIM = 3
BASE = (
    f"model.embedding_dim={EMBEDDING_DIM}",
    "model.table_scale=0.3",  # with 0.1, more seeds wait at a saddle
    "estimator.gramian_batch_size=64",
    "train.batch_size=64",
    "train.gravity=1",
    "train.checkpoint_every=0",
    "evaluation.every=0",
)


def tasks(plan: Plan) -> list[Script]:
    """A script for each objective."""
    wanted = plan.options.get("objectives", [setting.title for setting in SETTINGS])
    return [_script(plan, setting) for setting in SETTINGS if setting.title in wanted]


def _script(plan: Plan, setting: Setting) -> Script:
    names = list(plan.options.get("estimators", ESTIMATORS))
    rate, epochs, seeds = plan.options["learning_rate"], plan.options["epochs"], len(plan.seeds)
    arguments = (
        *("--seeds", f"{seeds}", "--learning-rate", f"{rate:g}", "--epochs", f"{epochs:g}"),
        *("--settings", setting.title, "--estimators", *names),
    )
    name = slug(
        f"{setting.title}-{len(names)}-estimators-learning-rate-{rate:g}-epochs-{epochs:g}-seeds-{seeds}"
    )
    settings = fingerprint([setting], names)
    return Script(MODULE, arguments, settings, RUNS / "known-optimum" / f"{name}.csv")


def section(plan: Plan) -> Section:
    """A row for each objective and estimator."""
    frame = pd.concat([pd.read_csv(script.output) for script in tasks(plan)], ignore_index=True)
    limit = float(plan.options["epochs"])
    options, sizes = plan.options, " × ".join(map(str, SIZES.values()))
    caption = (
        f"Linear towers over ids, {sizes} items, k = {EMBEDDING_DIM}, η = {options['learning_rate']:g}, "
        f"{limit:g} epochs, {len(plan.seeds)} seeds: median (least to greatest). Excess is F / F* − 1, with "
        f"F* from exact ALS; a run has arrived when it is below {REACHED:.0%}."
    )
    return Section(
        plan.item,
        "Training against a known optimum",
        "",
        f"{int((frame['excess'] < REACHED).sum())} of {len(frame)} runs end within {REACHED:.0%} of F*.",
        (Table("excess", caption, table(frame)),),
    )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each objective and estimator; a run that never arrives counts as infinitely late."""
    rows = []
    for (setting, name), found in frame.groupby(["setting", "estimator"], sort=False):
        epoch, end = found["epoch"].fillna(np.inf), found["excess"]
        rows.append(
            {
                "objective": setting,
                "Gramian estimate": name,
                "arrived": f"{int(np.isfinite(epoch).sum())} of {len(found)}",
                "epochs": f"{epoch.median():.1f} ({epoch.min():.1f} to {epoch.max():.1f})",
                "end excess": f"{end.median():.2%} ({end.min():.2%} to {end.max():.2%})",
            }
        )
    return pd.DataFrame(rows).replace({"epochs": {"inf": "never"}}, regex=True)


def one_hot_corpus(*, left_items: int, right_items: int) -> SplitCorpus:
    """A planted corpus whose only feature is the item id.

    Left items keep a share of their links that differs from item to item, so that both sides have frequent
    and rare items. The target of a pair is its right item's level, between 0.5 and 1.5.
    """
    planted = synthetic.generate(
        left_items=left_items,
        right_items=right_items,
        pairs_per_left_item=20,
        rank=4,
        popularity_exponent=0.8,
        seed=0,
    )
    random = np.random.default_rng(0)
    share = random.uniform(0.2, 1, left_items)
    kept = random.random(len(planted.pair_left)) < share[planted.pair_left]
    level = random.uniform(0.5, 1.5, right_items).astype(np.float32)

    def with_id(side: Side) -> Side:
        return replace(side, features=side.features[:1])

    corpus = Corpus(
        name="one-hot",
        left=with_id(planted.left),
        right=with_id(planted.right),
        vocabularies={side.item: planted.vocabularies[side.item] for side in (planted.left, planted.right)},
        pair_left=planted.pair_left[kept],
        pair_right=planted.pair_right[kept],
        target=level[planted.pair_right[kept]],
    )
    return split_corpus(corpus, fraction=0.1)


def make_problem(config: RunConfig, corpus: SplitCorpus) -> exact_als.Problem:
    """F as `exact_als` knows it: from the training pairs and ``config.train``."""
    section = config.train
    weighted = BaselineSection(
        name="exact-als",
        gravity=section.gravity,
        gamma_left=section.gamma_left,
        gamma_right=section.gamma_right,
        target=section.target,
    )
    problem = exact_als_problem(weighted, corpus)
    prior = make_prior(section.prior, corpus, target=section.target, seed=section.seed)
    if prior is None:
        return problem
    return replace(problem, prior=exact_als.Prior(prior.left.double(), prior.right.double()))


def optimum(config: RunConfig, corpus: SplitCorpus) -> float:
    """F*, at which all starts of ALS must end.

    Raises:
        ValueError: when they do not: then the least of them need not be the minimum.
    """
    ends = [minimiser(config, corpus, seed).objective for seed in range(STARTS)]
    if max(ends) > (1 + AGREEMENT) * min(ends):
        raise ValueError(f"the starts of ALS end at different values: {ends}")
    return min(ends)


def minimiser(config: RunConfig, corpus: SplitCorpus, seed: int) -> exact_als.Sweep:
    """Where ALS ends from one start."""
    problem, k = make_problem(config, corpus), config.model.embedding_dim
    *_, last = exact_als.fit(problem, embedding_dim=k, sweeps=10_000, tolerance=1e-10, seed=seed)
    return last


def excess(trainer: Trainer, corpus: SplitCorpus, problem: exact_als.Problem, best: float) -> float:
    """F / F* − 1 under the current parameters."""
    left, right = embed_all(trainer.model, corpus)
    return exact_als.objective(problem, left.double(), right.double()) / best - 1


def measure(config: RunConfig, corpus: SplitCorpus, best: float) -> dict[str, float]:
    """Train once; return the first epoch within `REACHED` of F* (or NaN) and the excess at the end."""
    problem = make_problem(config, corpus)
    trainer = Trainer(config, corpus)
    every = max(1, len(corpus.train) // (MEASURED * config.train.batch_size))
    epoch = float("nan")
    for record in trainer.steps():
        if np.isnan(epoch) and record.step % every == 0:
            epoch = record.epoch if excess(trainer, corpus, problem, best) < REACHED else epoch
    end = excess(trainer, corpus, problem, best)
    if np.isnan(epoch) and end < REACHED:
        epoch = trainer.epoch
    return {"epoch": epoch, "excess": end}


def make_config(corpus: SplitCorpus, estimator: Sequence[str], setting: Setting, *others: str) -> RunConfig:
    """The configuration of one run; `estimator` holds settings of that section."""
    chosen = [f"estimator.{override}" for override in estimator]
    fixed = ("data.path=.", "train.epochs=80", *BASE)  # the corpus is in memory
    return load_config(RunConfig, None, [*fixed, *chosen, *setting.overrides, *others])


def fingerprint(settings: Sequence[Setting], estimators: Sequence[str]) -> str:
    """A hash of what decides the result beside the arguments: objectives, estimators, sizes, thresholds."""
    chosen = [(setting.title, setting.overrides) for setting in settings]
    methods = [(name, ESTIMATORS[name]) for name in estimators]
    text = repr((chosen, methods, BASE, SIZES, REACHED, MEASURED, STARTS, AGREEMENT))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def possible(estimator: Sequence[str], setting: Setting) -> bool:
    """Whether a method exists in a setting: pairs are drawn where γ = 1, and B' is 64."""
    free = "batch=previous" in estimator and "estimator.gramian_batch_size=8" in setting.overrides
    return not free and (setting.per_pair or "cache=pair" not in estimator)


def rows(
    corpus: SplitCorpus, settings: Sequence[Setting], estimators: Sequence[str], seeds: int, *others: str
) -> Iterator[dict[str, Any]]:
    """What every possible run of a grid measured.

    Args:
        corpus: of `one_hot_corpus`.
        settings: of `SETTINGS`.
        estimators: names in `ESTIMATORS`.
        seeds: how many.
        *others: ``--set`` settings of every run.
    """
    for setting in settings:
        best = optimum(make_config(corpus, ESTIMATORS["sampling"], setting), corpus)
        for name, seed in itertools.product(estimators, range(seeds)):
            if not possible(ESTIMATORS[name], setting):
                continue
            config = make_config(corpus, ESTIMATORS[name], setting, *others, f"train.seed={seed}")
            found = measure(config, corpus, best)
            yield {"setting": setting.title, "optimum": best, "estimator": name, "seed": seed, **found}


def main() -> None:
    """Run a grid and write a CSV."""
    titles = [setting.title for setting in SETTINGS]
    parser = argparse.ArgumentParser(description="Every estimator against the exact minimiser.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument("--epochs", type=float, default=80)
    parser.add_argument("--settings", nargs="+", metavar="TITLE", choices=titles, default=titles)
    parser.add_argument(
        "--estimators", nargs="+", metavar="NAME", choices=ESTIMATORS, default=list(ESTIMATORS)
    )
    parser.add_argument("--output", type=Path, metavar="FILE.csv", required=True)
    arguments = parser.parse_args()
    chosen = [setting for setting in SETTINGS if setting.title in arguments.settings]
    fixed = (f"train.learning_rate={arguments.learning_rate}", f"train.epochs={arguments.epochs}")
    found = list(rows(one_hot_corpus(**SIZES), chosen, arguments.estimators, arguments.seeds, *fixed))
    write_text(arguments.output, pd.DataFrame(found).to_csv(index=False))


if __name__ == "__main__":
    main()
