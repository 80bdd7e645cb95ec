"""Time a step and memory of every estimator, relative to batch sampling.

    python -m experiments.benchmarks.estimator_cost [--rounds 11] [--workloads linear hidden pages]

Every step embeds a gradient batch and a Gramian batch of 1,024 pairs at k = 64. Estimators differ only in how
they use the second one. The workloads are:

    linear   MovieLens 1M, configs/movielens-1m/sampling.yaml: the cheapest step, where estimators weigh most
    hidden   MovieLens 1M, configs/movielens-1m/hidden-sogram.yaml: one hidden layer
    pages    a random corpus of the size of the paper's `simple` (85K pages, 4.6M links; an id, 10 title
             n-grams and 4 categories a page, which the paper does not state) with its towers: shared inputs
             of 50, hidden layers of 256 and 64, Gramians over pairs

Rounds are interleaved as in `experiments.reproduce.timing`. State counts the bytes that both estimators keep
between steps. Goals: SOGram at most 3 %, and per-item SAGram at most 10 % over sampling.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from experiments.benchmarks.random_pages import pages_corpus
from experiments.reproduce.scheduler import gramrun
from experiments.reproduce.timing import measure, table, write
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data import shards
from gramrun.data.corpus import SplitCorpus
from gramrun.gramian.sagram import SAGram
from gramrun.training.trainer import Trainer

REFERENCE = "sampling"
ESTIMATORS = {
    REFERENCE: ("name=sampling",),
    "SOGram": ("name=sogram", "alpha=0.01"),
    "SOGram, debiased": ("name=sogram", "alpha=0.01", "debias=true"),
    "SOGram, debiased, previous batch": ("name=sogram", "alpha=0.01", "debias=true", "batch=previous"),
    "control variate": ("name=control-variate", "alpha=0.1"),
    "control variate, item cache": ("name=control-variate", "alpha=0.1", "cache=item"),
    "SAGram β=1/n, per item": ("name=sagram", "beta=1/n"),
    "SAGram β=1, per item": ("name=sagram", "beta=1"),
    "SAGram β=1, per item, bfloat16": ("name=sagram", "beta=1", "cache_dtype=bfloat16"),
    "SAGram β=1, per item, on disk": ("name=sagram", "beta=1", "cache_folder={folder}"),
    "SAGram β=1, per pair (γ = 1)": ("name=sagram", "beta=1", "cache=pair"),
    "exact Gramian": ("name=exact",),
}
MOVIELENS = Path("data") / "movielens-1m"
BATCHES = ("model.embedding_dim=64", "train.batch_size=1024", "estimator.gramian_batch_size=1024")
PAGES_MODEL = (
    "model.hidden=[256, 64]",
    "model.input_dim=50",
    "train.gravity=10",
    "train.learning_rate=0.01",
)


def workload(name: str, folder: Path) -> tuple[Path | None, tuple[str, ...], SplitCorpus]:
    """A workload's config file, further settings and corpus; a random corpus is written into `folder`."""
    if name == "pages":
        return None, PAGES_MODEL, pages_corpus(folder / "pages")
    gramrun(["prepare", "movielens-1m", "--output", str(MOVIELENS)])
    file = {"linear": "sampling", "hidden": "hidden-sogram"}[name]
    return Path("configs/movielens-1m") / f"{file}.yaml", (), shards.open_corpus(MOVIELENS)


def contenders(
    file: Path | None, settings: Sequence[str], corpus: SplitCorpus, folder: Path
) -> tuple[dict[str, Callable[[], object]], dict[str, int], dict[str, float]]:
    """A function that does one step for every estimator, the bytes of its state, and the time of a rebuild.

    Args:
        file: the workload's YAML file, or None.
        settings: further ``--set`` settings.
        corpus: the workload's corpus.
        folder: where caches on disk lie.
    """
    steppers: dict[str, Callable[[], object]] = {}
    memory, rebuilds = {}, {}
    for name, estimator in ESTIMATORS.items():
        pairs = ("train.gamma_left=1", "train.gamma_right=1") if "cache=pair" in estimator else ()
        chosen = [f"estimator.{override.format(folder=folder)}" for override in estimator]
        endless = (f"data.path={corpus.path}", "train.epochs=null", "train.steps=1000000000")
        trainer = Trainer(
            load_config(RunConfig, file, [*settings, *BATCHES, *chosen, *pairs, *endless]), corpus
        )
        steppers[name] = trainer.steps().__next__
        memory[name] = state_bytes(trainer)
        rebuilds[name] = rebuild_ms(trainer)
    return steppers, memory, rebuilds


def state_bytes(trainer: Trainer) -> int:
    """Bytes that both estimators keep between steps."""
    estimators = (trainer.left_estimator, trainer.right_estimator)
    buffers = [buffer for estimator in estimators for buffer in estimator.state_dict().values()]
    return sum(buffer.numel() * buffer.element_size() for buffer in buffers)


def rebuild_ms(trainer: Trainer, rounds: int = 5) -> float:
    """Median milliseconds to sum Ŝ of both sides from the caches; 0 without caches."""
    estimators = [e for e in (trainer.left_estimator, trainer.right_estimator) if isinstance(e, SAGram)]
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        for estimator in estimators:
            estimator.rebuild()
        taken.append(1e3 * (time.perf_counter() - started))
    return statistics.median(taken) if estimators else 0.0


def main() -> None:
    """Time the workloads; write results/bench/estimator_cost.{json,md}."""
    parser = argparse.ArgumentParser(description="Cost of every estimator beside sampling, interleaved.")
    parser.add_argument("--rounds", type=int, default=11)
    names = ("linear", "hidden", "pages")
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    threads = torch.get_num_threads()
    parts, numbers = [], {}
    for name in arguments.workloads:
        with tempfile.TemporaryDirectory() as folder:
            steppers, memory, rebuilds = contenders(*workload(name, Path(folder)), Path(folder))
            frame = measure(steppers, arguments.rounds)
        megabytes = {contender: f"{size / 1e6:,.2f}" for contender, size in memory.items()}
        title = f"{name}, B = B' = 1024, k = 64, {threads} threads, {len(frame)} rounds"
        sums = {contender: f"{taken:,.1f}" if taken else "" for contender, taken in rebuilds.items()}
        parts.append(table(frame, title, REFERENCE, {"state, MB": megabytes, "rebuild of Ŝ, ms": sums}))
        numbers[name] = {"ms": frame.to_dict(orient="list"), "bytes": memory, "rebuild_ms": rebuilds}
    text = "\n\n".join(["Goals: SOGram 1.03, SAGram per item 1.10.", *parts])
    write("estimator_cost", text, {"threads": threads, **numbers})


if __name__ == "__main__":
    main()
