"""Does training arrive where it should? Every estimator against an optimum that is known exactly.

    python -m experiments.reproduce.known_optimum [--seeds 5] [--learning-rate 0.3] [--epochs 80]
        [--settings TITLE...] [--estimators NAME...] [--output FILE.csv]

`experiments.reproduce.items.known_optimum` runs it a setting at a time and draws what it writes.

For linear towers over ids alone, every item has a vector of its own, and the paper's objective

    F(U, V) = (1/n) sum_i (⟨u_i, v_i⟩ − s_i)² + λ (⟨G_u, G_v⟩ − 2⟨H_u, H_v⟩ + ⟨G_q, G_r⟩)

(equations 2 and 5, Appendix C) is what `gramrun.evaluation.baselines.exact_als` minimises without a learning
rate, a batch or an estimate. F is not convex, but here every start ends at the same value F*, which this
experiment checks. Proposition 1 says that training with unbiased estimates follows F's gradient on average
(the surrogate is linear in Ĝ: its noise is noise in the gradient, and no regularisation), and Adagrad's
falling step size averages the noise away; biases that vanish as the model comes to rest (SOGram's lag, SAG's
old caches) do no harm at the end, if it comes to rest. So every estimator must end at F*; a wrong weight,
factor or sign anywhere between the corpus and the optimizer ends elsewhere.

Rest is not for granted. An average over 1/α steps is wrong in one direction for as long, and where gravity is
strong and the model follows it, the two chase one another: the last setting (λ = 10) shows what that costs
SOGram and the control variate, whose errors against a trajectory driven by others are small.

F is a minimum, so small mistakes cost only to second order in it and may stay below 1 %. The gradient at the
optimum is of first order in them, and a test (`tests/experiments/test_known_optimum.py`) holds it to 0. One
mistake is invisible to F altogether: Ĝ_u and Ĝ_v exchanged. That descends f + λ/2 (‖G_u‖² + ‖G_v‖²), and
over all (A u, A⁻ᵀ v), which leave scores and ⟨G_u, G_v⟩ as they are, the least of ½ (‖G_u‖² + ‖G_v‖²) is
⟨G_u, G_v⟩. The test finds it by the gradient at other representatives of the optimum.

What delays a run. F has saddles a little above F*, which ALS needs many sweeps to leave. Adagrad, whose steps
only shrink, may wait there for long, under the exact Gramian as under others; a small k, initial vectors of
0.3 and η = 0.3 make that rare: medians over seeds are to be compared, not ends of ranges. SAG with caches per
pair and B = 8 refreshes an entry every n/B = 290 steps and so lags like SOGram with α = B/n.

What is measured: the excess F / F* − 1, four times an epoch, with the F of `exact_als`, which shares no code
with training; the first epoch at which it is below 1 %, and where it is at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramrun.base.files import write_text
from gramrun.base.provenance import provenance
from gramrun.config import BaselineSection, RunConfig
from gramrun.config.loading import load_config
from gramrun.data import shards, synthetic
from gramrun.data.corpus import Corpus, Side, SplitCorpus
from gramrun.evaluation.baselines import exact_als
from gramrun.evaluation.baselines.run import exact_als_problem
from gramrun.model.build import embed_all
from gramrun.training.objective import make_prior
from gramrun.training.trainer import Trainer

RESULTS = Path("results") / "known_optimum"
REACHED = 0.01  # excess that counts as having arrived
EPOCHS = 80
MEASURED = 4  # times an epoch
STARTS = 10  # of ALS, all of which must agree
AGREEMENT = 1e-3  # of the starts, relative: a tenth of what is looked for

ESTIMATORS = {
    "exact Gramian": ("name=exact",),
    "sampling": ("name=sampling",),
    "SOGram α=0.1": ("name=sogram", "alpha=0.1"),
    "SOGram α=0.01": ("name=sogram", "alpha=0.01"),
    "SOGram α=0.1, debiased": ("name=sogram", "alpha=0.1", "debias=true"),
    "SOGram α=0.01, debiased": ("name=sogram", "alpha=0.01", "debias=true"),
    "SOGram α=0.1, debiased, previous batch": (
        "name=sogram",
        "alpha=0.1",
        "debias=true",
        "batch=previous",
    ),
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
        title: what the table calls it.
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


def one_hot_corpus(folder: Path, *, left_items: int, right_items: int) -> SplitCorpus:
    """A planted corpus whose items have an id and nothing else, in `folder`, which must not exist.

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
    origin = {"fingerprint": "", "verified": True}
    shards.write_corpus(corpus, folder, validation_fraction=0.1, split_seed=0, origin=origin)
    return shards.open_corpus(folder)


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
    fixed = (f"data.path={corpus.path}", f"train.epochs={EPOCHS}", *BASE)
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
    """Run the grid; write a CSV, by default results/known_optimum/learning-rate-<η>.csv, and its table."""
    titles = [setting.title for setting in SETTINGS]
    parser = argparse.ArgumentParser(description="Every estimator against the exact minimiser.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument("--epochs", type=float, default=EPOCHS)
    parser.add_argument("--settings", nargs="+", metavar="TITLE", choices=titles, default=titles)
    parser.add_argument(
        "--estimators", nargs="+", metavar="NAME", choices=ESTIMATORS, default=list(ESTIMATORS)
    )
    parser.add_argument("--output", type=Path, metavar="FILE.csv")
    arguments = parser.parse_args()
    chosen = [setting for setting in SETTINGS if setting.title in arguments.settings]
    fixed = (f"train.learning_rate={arguments.learning_rate}", f"train.epochs={arguments.epochs}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = one_hot_corpus(Path(folder) / "one-hot", **SIZES)
        for row in rows(corpus, chosen, arguments.estimators, arguments.seeds, *fixed):
            found.append(row)
            print(row, flush=True)
        sizes = f"{corpus.left.items} × {corpus.right.items} items, {len(corpus.train):,} training pairs"
    frame = pd.DataFrame(found)
    text = table(frame, sizes, arguments.learning_rate, arguments.epochs)
    file = arguments.output or RESULTS / f"learning-rate-{arguments.learning_rate:g}.csv"
    facts = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    text += f"\nCode: commit `{facts['git_commit']}`; python {facts['python']}, {versions}; "
    text += f"{facts['processor']}.\n"
    write_text(file.with_suffix(".md"), text)
    write_text(file, frame.to_csv(index=False))
    print(text)


def table(frame: pd.DataFrame, sizes: str, learning_rate: float, epochs: float = EPOCHS) -> str:
    """A Markdown table for each setting; a run that never arrives counts as infinitely late."""
    seeds = frame["seed"].nunique()
    lines = [
        f"`python -m experiments.reproduce.known_optimum --seeds {seeds} --learning-rate "
        f"{learning_rate:g}`: {sizes}, "
        f"k = {EMBEDDING_DIM}, B' = 64, λ = 1 unless said, Adagrad, {epochs:g} epochs. Excess is F / F* − 1, "
        "with F* from exact ALS.",
    ]
    for setting, group in frame.groupby("setting", sort=False):
        lines += [
            "",
            f"### {setting}: F* = {group['optimum'].iloc[0]:.5f}",
            "",
            f"| Gramian estimate | epochs to {REACHED:.0%}, median (range) | end excess, median (range) |",
            "|---|---|---|",
        ]
        for name, found in group.groupby("estimator", sort=False):
            epoch, end = found["epoch"].fillna(np.inf), found["excess"]
            lines.append(
                f"| {name} | {epoch.median():.1f} ({epoch.min():.1f}–{epoch.max():.1f}) "
                f"| {end.median():.2%} ({end.min():.2%} to {end.max():.2%}) |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
