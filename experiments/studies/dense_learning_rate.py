"""Why hidden towers need a far lower learning rate in their dense layers than in their tables.

    python -m experiments.studies.dense_learning_rate [--dataset movielens-1m]

Hypothesis. Under Adagrad a step has about the size η whatever the gradient, and the first hundred steps of a
dense weight all obey the same demand: raise the scores of observed pairs. Where η √T is comparable to the
initial weights, √(2 / fan-in), that common change drowns them: every item is mapped into nearly the same
direction, and one direction can only rank by popularity. A table row meets few pairs, and its own ones.

What is measured, for several dense rates at one table rate: validation MAP@10; the effective rank of the
right Gramian (its participation ratio (tr G)² / ‖G‖², 1 for a rank-one G and at most k); the size of the
first dense layer's change relative to its initial weights, and the share of that change's energy in its
first singular direction, σ_1² / Σ σ_i² (1/128 if it had none). The frozen layer (rate 1e-12) is the control.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch

from experiments.reproduce.scheduler import gramrun
from gramrun.base.files import write_text
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.evaluation.protocol import evaluate_embeddings
from gramrun.model.build import embed_all
from gramrun.training.trainer import Trainer

DENSE_RATES = (1e-12, 5e-4, 5e-3, 5e-2)
SEEDS = (0, 1, 2)
EARLY = 100  # steps after which the drift of the dense layer is looked at


def measure(config: RunConfig, corpus: SplitCorpus) -> dict[str, float]:
    """Train once; return what the module's docstring lists."""
    trainer = Trainer(config, corpus)
    layer = trainer.model.right.hidden[0]
    assert isinstance(layer, torch.nn.Linear)
    initial = layer.weight.detach().clone()
    found: dict[str, float] = {}
    for record in trainer.steps():
        if record.step == EARLY:
            change = layer.weight.detach() - initial
            squares = torch.linalg.svdvals(change).square()
            found["drift"] = float(change.norm() / initial.norm())
            found["first_singular_share"] = float(squares[0] / squares.sum())
            found["early_rank"] = effective_rank(trainer)
    left, right = embed_all(trainer.model, corpus)
    found["rank"] = effective_rank(trainer)
    found["map@10"] = evaluate_embeddings(left, right, corpus, "validation", config.evaluation)["map@10"]
    return found


def effective_rank(trainer: Trainer) -> float:
    """The participation ratio of the right Gramian's eigenvalues, between 1 and k."""
    gramian = trainer.right.exact_gramian()
    return float(gramian.trace() ** 2 / gramian.square().sum())


def main() -> None:
    """Run the grid; write results/dense_learning_rate/<dataset>.{csv,md}."""
    parser = argparse.ArgumentParser(description="Dense learning rates against the rank of the embeddings.")
    parser.add_argument("--dataset", default="movielens-100k")
    parser.add_argument("--epochs", type=float, default=5)
    arguments = parser.parse_args()
    data = Path("data") / arguments.dataset
    gramrun(["prepare", arguments.dataset, "--output", str(data)])
    corpus = open_corpus(data)
    rows = []
    for rate in DENSE_RATES:
        for seed in SEEDS:
            config = load_config(
                RunConfig,
                Path("configs") / arguments.dataset / "hidden-sogram.yaml",
                [
                    f"train.dense_learning_rate={rate:.12f}",
                    f"train.seed={seed}",
                    f"train.epochs={arguments.epochs}",
                ],
            )
            rows.append({"dense_learning_rate": rate, "seed": seed, **measure(config, corpus)})
            print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    folder = Path("results") / "dense_learning_rate"
    write_text(folder / f"{arguments.dataset}.csv", frame.to_csv(index=False))
    write_text(folder / f"{arguments.dataset}.md", table(frame, arguments.dataset, config))
    print(table(frame, arguments.dataset, config))


def table(frame: pd.DataFrame, dataset: str, config: RunConfig) -> str:
    """A Markdown table of means ± standard deviations over seeds."""
    columns = {
        "map@10": "validation MAP@10",
        "early_rank": f"effective rank at step {EARLY}",
        "rank": "effective rank at the end",
        "drift": f"‖ΔW‖ / ‖W₀‖ at step {EARLY}",
        "first_singular_share": "σ₁² share of ΔW",
    }
    lines = [
        f"{dataset}, hidden-sogram.yaml, {config.train.epochs:g} epochs, table rate "
        f"{config.train.learning_rate:g}, {len(SEEDS)} seeds; `python -m "
        f"experiments.studies.dense_learning_rate "
        f"--dataset {dataset}`.",
        "",
        f"| dense rate | {' | '.join(columns.values())} |",
        "|---|" + "---|" * len(columns),
    ]
    for rate, group in frame.groupby("dense_learning_rate"):
        cells = " | ".join(f"{group[name].mean():.3f} ± {group[name].std():.3f}" for name in columns)
        lines.append(f"| {'frozen' if rate < 1e-9 else f'{rate:g}'} | {cells} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
