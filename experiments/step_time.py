"""Time per training step: every estimator beside a plain PyTorch step of the same model, interleaved.

    python -m experiments.step_time [--dataset movielens-1m] [--rounds 15]

The plain step is what a user would write without this project: nn.EmbeddingBag and nn.Linear, autograd,
torch.optim.Adagrad, batch sampling in Gramian form (the cheapest of its forms). Each round times every
contender for the same number of steps, in a new random order; what is reported are the ratios within a
round, so a machine whose speed drifts does not favour anyone.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional

from experiments.scheduling import gramrun
from gramrun import runs
from gramrun.config import RunConfig
from gramrun.config_loading import load_config
from gramrun.data.shards import PreparedCorpus, open_corpus
from gramrun.provenance import provenance
from gramrun.training import Trainer

STEPS = 40  # steps of one contender in one round, or fewer where they take longer than this:
LONGEST = 2.0  # seconds
RESULTS = Path("results") / "bench"
PLAIN = "plain PyTorch"


class PlainTower(nn.Module):
    """The obvious tower: a table a feature, concatenated (or summed, if linear), then dense layers."""

    def __init__(self, sizes: list[int], dim: int, hidden: tuple[int, ...], out: int) -> None:
        super().__init__()
        width = dim if hidden else out
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum", sparse=True) for size in sizes)
        widths = [width * len(sizes), *hidden, out]
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.dense = nn.Sequential(*layers[:-1]) if hidden else None

    def forward(self, bags: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        """Embed a batch given as (indices, offsets) a feature."""
        inputs = [table(*bag) for table, bag in zip(self.tables, bags, strict=True)]
        return sum(inputs[1:], start=inputs[0]) if self.dense is None else self.dense(torch.cat(inputs, 1))


def plain_steps(config: RunConfig, corpus: PreparedCorpus) -> Iterator[None]:
    """The step that needs no library: one step each time it is asked."""
    sides = []
    for side in (corpus.left, corpus.right):
        sizes = [corpus.vocabulary_sizes[f.vocabulary] for f in side.features]
        tower = PlainTower(sizes, config.model.input_dim, config.model.hidden, config.model.embedding_dim)
        bags = [(torch.from_numpy(f.offsets), torch.from_numpy(f.indices).long()) for f in side.features]
        sides.append((tower, bags))
    parameters = [p for tower, _ in sides for p in tower.parameters()]
    optimizer = torch.optim.Adagrad(parameters, lr=config.train.learning_rate)
    pair_items = [torch.from_numpy(corpus.train.left).long(), torch.from_numpy(corpus.train.right).long()]

    def embed(which: int, items: torch.Tensor) -> torch.Tensor:
        tower, features = sides[which]
        batch = []
        for offsets, indices in features:
            starts, ends = offsets[items], offsets[items + 1]
            lengths = ends - starts
            begin = lengths.cumsum(0) - lengths
            flat = torch.repeat_interleave(starts - begin, lengths) + torch.arange(int(lengths.sum()))
            batch.append((indices[flat], begin))
        return tower(batch)  # type: ignore[no-any-return]

    while True:
        pairs = torch.randint(len(corpus.train), (config.train.batch_size,))
        others = torch.randint(len(corpus.train), (config.estimator.gramian_batch_size,))
        with torch.no_grad():
            rows = [embed(which, pair_items[which][others]) for which in (0, 1)]
            gramians = [e.T @ e / len(e) for e in rows]
        u, v = (embed(which, pair_items[which][pairs]) for which in (0, 1))
        loss = functional.mse_loss((u * v).sum(1), torch.ones(len(u)))
        gravity = ((u @ gramians[1]) * u).sum(1).mean() + ((v @ gramians[0]) * v).sum(1).mean()
        optimizer.zero_grad()
        (loss + config.train.gravity * gravity).backward()
        optimizer.step()
        yield


def contenders(dataset: str, towers: str) -> dict[str, Callable[[], object]]:
    """Everything that is timed, by name: a function that does one step."""
    folder = Path("configs") / dataset
    names = {
        "linear": ("sampling", "sogram", "sagram"),
        "hidden": ("paper-sampling", "paper-sogram", "paper-sagram"),
    }[towers]
    settings = [f"data.path=data/{dataset}", "train.steps=1000000000"]
    steppers: dict[str, Callable[[], object]] = {}
    for name in names:
        config = load_config(RunConfig, folder / f"{name}.yaml", settings)
        corpus = open_corpus(config.data.path)
        steppers[name] = Trainer(config, corpus).steps().__next__
    steppers[PLAIN] = plain_steps(config, corpus).__next__
    return steppers


def measure(steppers: dict[str, Callable[[], object]], rounds: int) -> pd.DataFrame:
    """Milliseconds a step of every contender in every round."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(rounds + 1):
        for name in random.permutation(list(steppers)):
            started, done, seconds = time.perf_counter(), 0, 0.0
            while done < STEPS and seconds < LONGEST:
                steppers[name]()
                done, seconds = done + 1, time.perf_counter() - started
            rows.append((number, name, 1e3 * seconds / done))
        print(f"round {number} of {rounds}", flush=True)
    frame = pd.DataFrame(rows, columns=["round", "contender", "ms"])
    return frame[frame["round"] > 0].pivot(index="round", columns="contender", values="ms")  # 0 warms up


def table(
    frame: pd.DataFrame,
    title: str,
    reference: str = PLAIN,
    others: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """A Markdown table of times and of ratios to a reference.

    Args:
        frame: what `measure` returns.
        title: its heading.
        reference: the contender that ratios are taken to; it comes first.
        others: further columns, by heading: a cell for each contender.
    """
    others = others or {}
    lines = [
        f"### {title}",
        "",
        f"| step | ms, median (min–max) | ratio to {reference}, median (min–max) |"
        + "".join(f" {heading} |" for heading in others),
        "|---|---|---|" + "---|" * len(others),
    ]
    for name in sorted(frame, key=lambda n: (n != reference, n)):
        ratios = (frame[name] / frame[reference]).tolist()
        lines.append(
            f"| {name} | {frame[name].median():.2f} ({frame[name].min():.2f}–{frame[name].max():.2f}) "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) |"
            + "".join(f" {cells[name]} |" for cells in others.values())
        )
    return "\n".join(lines)


def main() -> None:
    """Time linear and hidden towers; write results/bench/step_time.{json,md}."""
    parser = argparse.ArgumentParser(description="Time training steps, interleaved.")
    parser.add_argument("--dataset", default="movielens-100k")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    gramrun(["prepare", arguments.dataset, "--output", f"data/{arguments.dataset}"])
    threads = torch.get_num_threads()
    parts, numbers = [], {}
    for towers in ("linear", "hidden"):
        frame = measure(contenders(arguments.dataset, towers), arguments.rounds)
        title = f"{arguments.dataset}, {towers} towers, B = B' = 1024, {threads} threads, {len(frame)} rounds"
        parts.append(table(frame, title))
        numbers[towers] = frame.to_dict(orient="list")
    runs.write_json(RESULTS / "step_time.json", {**provenance(), "threads": threads, "ms": numbers})
    runs.write_text(RESULTS / "step_time.md", "\n\n".join(parts) + "\n")
    print("\n\n".join(parts))
    print(f"wrote {RESULTS}/step_time.md")


if __name__ == "__main__":
    main()
