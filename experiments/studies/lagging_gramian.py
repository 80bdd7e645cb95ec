"""Why a slow SOGram can lose: the embeddings turn away from where its estimate still looks.

    python -m experiments.studies.lagging_gramian [--dataset movielens-1m]

SOGram and the model play a game (paper, equation 10). Proposition 4 says that its stationary points are the
right ones, and nothing of whether it goes there. Where the model moves fast and α is small, Ĝ still points to
where the embeddings were 1/α steps ago, gravity pushes them out of that direction only, and they turn on.

What is measured on Appendix E's model, for several drivers and two learning rates of the dense layers (which
turn all embeddings at once): the cosine of the exact right Gramians,
⟨G(t), G(t − 50)⟩ / ‖G(t)‖‖G(t − 50)‖ (1 where they stand still, about 0 where they have turned away), the
driver's own error ‖Ĝ − G‖ / ‖G‖ (both as means over the second half of the run), and validation MAP@10 at
its end.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import pandas as pd

from experiments.reproduce.scheduler import gramrun
from gramrun.base.files import write_text
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.evaluation.protocol import evaluate_embeddings
from gramrun.gramian.exact import relative_error
from gramrun.model.build import embed_all
from gramrun.training.trainer import Trainer

DRIVERS = {
    "exact Gramian": ("estimator.name=exact",),
    "sampling": ("estimator.name=sampling",),
    "SOGram α=0.1": ("estimator.name=sogram", "estimator.alpha=0.1"),
    "SOGram α=0.01": ("estimator.name=sogram", "estimator.alpha=0.01"),
}
DENSE_RATES = (5e-4, 5e-3)
SEEDS = (0, 1, 2)
LAG = 50  # steps between the Gramians that are compared
STEPS = 1500


def measure(config: RunConfig, corpus: SplitCorpus) -> dict[str, float]:
    """Train once; return what the module's docstring lists."""
    trainer = Trainer(config, corpus)
    previous, cosines, errors = None, [], []
    for record in trainer.steps():
        if record.step % LAG:
            continue
        exact = trainer.right.exact_gramian()
        if record.step > STEPS // 2 and previous is not None:
            cosines.append(float((exact * previous).sum() / exact.norm() / previous.norm()))
            errors.append(relative_error(trainer.right_estimator.gramian, exact))
        previous = exact
    left, right = embed_all(trainer.model, corpus)
    result = evaluate_embeddings(left, right, corpus, "validation", config.evaluation)
    return {
        "cosine": sum(cosines) / len(cosines),
        "error": sum(errors) / len(errors),
        "map@10": result["map@10"],
    }


def main() -> None:
    """Run the grid; write results/lagging_gramian/<dataset>.{csv,md}."""
    parser = argparse.ArgumentParser(description="Drivers of a trajectory against how fast it turns.")
    parser.add_argument("--dataset", default="movielens-100k")
    arguments = parser.parse_args()
    data = Path("data") / arguments.dataset
    gramrun(["prepare", arguments.dataset, "--output", str(data)])
    corpus = open_corpus(data)
    file = Path("configs") / arguments.dataset / "paper-sogram.yaml"
    rows = []
    for rate, (driver, settings), seed in itertools.product(DENSE_RATES, DRIVERS.items(), SEEDS):
        fixed = (f"train.dense_learning_rate={rate}", f"train.seed={seed}", f"train.steps={STEPS}")
        config = load_config(RunConfig, file, [*settings, *fixed])
        rows.append({"dense_rate": rate, "driver": driver, "seed": seed, **measure(config, corpus)})
        print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    folder = Path("results") / "lagging_gramian"
    write_text(folder / f"{arguments.dataset}.csv", frame.to_csv(index=False))
    write_text(folder / f"{arguments.dataset}.md", table(frame, arguments.dataset))
    print(table(frame, arguments.dataset))


def table(frame: pd.DataFrame, dataset: str) -> str:
    """A Markdown table of means ± standard deviations over seeds."""
    columns = {"cosine": f"cos(G(t), G(t − {LAG}))", "error": "own error", "map@10": "validation MAP@10"}
    lines = [
        f"{dataset}, paper-sogram.yaml, {STEPS:,} steps, {len(SEEDS)} seeds; "
        f"`python -m experiments.studies.lagging_gramian --dataset {dataset}`.",
        "",
        f"| dense rate | Gramian estimate that trains | {' | '.join(columns.values())} |",
        "|---|---|" + "---|" * len(columns),
    ]
    for (rate, driver), group in frame.groupby(["dense_rate", "driver"], sort=False):
        cells = " | ".join(f"{group[name].mean():.3f} ± {group[name].std():.3f}" for name in columns)
        lines.append(f"| {rate:g} | {driver} | {cells} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
