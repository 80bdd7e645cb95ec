"""What ranks best: methods tuned with one budget on a tuning split, then compared over seeds on the real one.

    python -m experiments.studies.ranking search --dataset movielens-1m --method implicit-als --width 64
    python -m experiments.studies.ranking final --dataset movielens-1m --method towers --width 64
    python -m experiments.studies.ranking defaults --dataset movielens-100k

A search draws `TRIES` points: half spread evenly over the ranges of `RANGES`, a quarter around the best of
them in ranges a third as wide, a quarter around the best of all in ranges a ninth as wide. ``towers`` have
features, and on wikis one table of pages for both sides; ``fit`` is `gramrun.fit` on the pairs alone; both
are linear. ``hidden-towers`` and ``hidden-fit`` have the form of the paper's (`HIDDEN`). The chosen points
are in ranking.yaml, beside fit's defaults, which no search chose for one corpus. Every try is a line in
results/ranking/search, every final run one in results/ranking/runs-DATASET.csv. ``defaults`` tries again what
fit's defaults were chosen from (`TRIED`), on one corpus's tuning split. The published free vectors are this
project's objective, solved; docs/ranking.md says by what.

The published searches of linear towers on MovieLens and enwik8, and those called ``-first``, had ν = 1 and an
L2 of at most 0.3. Those called ``-wide`` have today's ranges and chose nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from scipy.sparse import csr_array
from scipy.stats import qmc

import gramrun
from experiments.reproduce.corpora import DATASETS, prepare
from gramrun.base.files import write_text
from gramrun.base.locks import locked
from gramrun.config import BaselineConfig, EvaluationSection, RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.evaluation.baselines import ease
from gramrun.evaluation.baselines.run import fit_baseline
from gramrun.evaluation.protocol import evaluate_embeddings
from gramrun.model.build import embed_all
from gramrun.training.recommender import EPOCHS
from gramrun.training.trainer import Trainer

RESULTS = Path("results/ranking")
CHOSEN = Path(__file__).with_name("ranking.yaml")
TRIED = Path("results/reference/ranking/search/defaults.csv")
TRIES = 20
LOG, LINEAR = "log", "linear"

Point = dict[str, float]
SETTINGS = (  # columns of `TRIED`
    "optimizer", "start", "gravity", "gamma_left", "l2", "learning_rate", "decay_from", "epochs",
    "batch_size",
)  # fmt: skip

TRAINED = {
    "train.gravity": (LOG, 5, 300),
    "train.gamma_left": (LINEAR, -0.3, 1),
    "train.l2": (LOG, 0.01, 1),
    "train.l2_exponent": (LINEAR, 0, 1),
    "train.learning_rate": (LOG, 0.02, 0.3),
}
# Of each key: its scale and the ends of its range. A γ that is drawn below 0 counts as 0.
RANGES: dict[str, dict[str, tuple[str, float, float]]] = {
    "implicit-als": {
        "regularization": (LOG, 1, 300),
        "confidence": (LOG, 1.1, 40),
        "sweeps": (LOG, 5, 30),
    },
    "ease": {"l2": (LOG, 3, 3000)},
    "towers": TRAINED,
    "hidden-towers": TRAINED,
    "fit": TRAINED,
    "hidden-fit": TRAINED,
}
HIDDEN = {"model.input_dim": 64, "model.hidden": [128]}
DENSE = 0.01  # η of the dense layers, as a part of that of the tables: see configs/README.md
TOWERS = {"train.optimizer": "adagrad", "train.decay_from": 0.3, "train.epochs": 20}
WHOLE = ("sweeps", "train.epochs")


def draw(method: str, tries: int = TRIES) -> Any:
    """A generator of points that is sent the score of each, in rounds as the module says."""
    scales = RANGES[method]
    low, high = np.array(
        [[np.log(x) if scale == LOG else x for x in ends] for scale, *ends in scales.values()]
    ).T
    done: list[tuple[float, np.ndarray]] = []
    rounds = ((1.0, tries - 2 * (tries // 4)), (1 / 3, tries // 4), (1 / 9, tries // 4))
    for number, (part, points) in enumerate(rounds):
        middle = max(done, key=lambda pair: pair[0])[1] if done else (low + high) / 2
        for row in qmc.Halton(len(low), rng=number).random(points):
            at = middle + (row - 0.5) * part * (high - low)
            score = yield _values(scales, at)
            done.append((score, at))


def _values(scales: Mapping[str, tuple[str, float, float]], at: np.ndarray) -> Point:
    """The values of a point: γ and ν within 0 and 1, sweeps and epochs whole, three digits."""
    found: Point = {}
    for (key, (scale, *_)), x in zip(scales.items(), at, strict=True):
        value = float(np.exp(x)) if scale == LOG else min(1.0, max(0.0, float(x)))
        found[key] = round(value) if key in WHOLE else float(f"{value:.3g}")
    return found


def score(
    method: str, corpus: SplitCorpus, point: Mapping[str, Any], width: int, seed: int
) -> dict[str, float]:
    """Fit a method and rank the validation pairs.

    Args:
        method: of `RANGES`, or ``popularity``; ``towers`` and ``fit`` have the configuration's keys.
        corpus: the corpus.
        point: the values of the method's keys.
        width: k.
        seed: of the start and the batches.

    Returns:
        ``map@10``, ``recall@100``, ``ndcg@10`` and ``seconds`` of the fit.
    """
    settings = EvaluationSection()
    started = time.perf_counter()
    if method == "ease":
        weights = ease.fit(corpus.train, corpus.left.items, corpus.right.items, point["l2"])
        seconds = time.perf_counter() - started
        found = ease.evaluate(weights, corpus, "validation", settings)
    else:
        left, right = _fit(method, corpus, point, width, seed)
        seconds = time.perf_counter() - started
        found = evaluate_embeddings(left, right, corpus, "validation", settings)
    return {name: float(found[name]) for name in ("map@10", "recall@100", "ndcg@10")} | {"seconds": seconds}


def _fit(
    method: str, corpus: SplitCorpus, point: Mapping[str, Any], width: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    base = method.removeprefix("hidden-")
    if base != method:
        point = {**HIDDEN, "train.dense_learning_rate": DENSE * point["train.learning_rate"], **point}
    if base == "fit":
        pairs = csr_array(
            (np.ones(len(corpus.train)), (corpus.train.left, corpus.train.right)),
            shape=(corpus.left.items, corpus.right.items),
        )
        settings = dict(point)
        epochs = settings.pop("train.epochs", EPOCHS)
        model = gramrun.fit(pairs, embedding_dim=width, epochs=epochs, seed=seed, progress=False, **settings)
        return torch.from_numpy(model.left_embeddings), torch.from_numpy(model.right_embeddings)
    if base == "towers":
        batch = min(1024, len(corpus.train))
        sizes = {"train.batch_size": batch, "estimator.gramian_batch_size": batch}
        values = {**sizes, "model.embedding_dim": width, "train.seed": seed, **TOWERS, **point}
        return trained(Path("configs/movielens-1m/sogram.yaml"), corpus, _overrides(values))
    own = {f"baseline.{key}": value for key, value in point.items()}
    values = {
        "data.path": corpus.path,
        "baseline.name": method,
        "baseline.embedding_dim": width,
        "baseline.seed": seed,
        **own,
    }
    fitted = fit_baseline(load_config(BaselineConfig, None, _overrides(values)).baseline, corpus)
    return fitted.left, fitted.right


def trained(config: Path, corpus: SplitCorpus, settings: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """The left and right embeddings of towers, trained on a corpus as a config and settings say."""
    run = load_config(RunConfig, config, [f"data.path={corpus.path}", *settings])
    trainer = Trainer(run, corpus)
    for _ in trainer.steps():
        pass
    return embed_all(trainer.model, corpus)


def _overrides(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def search(dataset: str, method: str, width: int, tries: int = TRIES) -> None:
    """Run a search, appending every try to its file."""
    corpus = _open(f"{dataset}-tuning")
    points = draw(method, tries)
    point = next(points)
    while True:
        found = score(method, corpus, point, width, seed=0)
        record(_tries(dataset, method, width), {"method": method, "width": width, **point, **found})
        try:
            point = points.send(found["map@10"])
        except StopIteration:
            return


def _tries(dataset: str, method: str, width: int) -> Path:
    return RESULTS / "search" / f"{dataset}-{method}-{width}.csv"


def _open(name: str) -> SplitCorpus:
    prepare(DATASETS[name])
    return open_corpus(DATASETS[name].path)


def record(file: Path, *rows: Mapping[str, Any]) -> None:
    """Append rows to a table, with new columns where they have some."""
    with locked(file, wait_seconds=60):
        known = pd.read_csv(file) if file.exists() else pd.DataFrame()
        write_text(file, pd.concat([known, pd.DataFrame(rows)]).to_csv(index=False, float_format="%.6g"))


def recorded(file: Path, key: Mapping[str, Any]) -> bool:
    """Whether a table has a row with these values."""
    if not file.exists():
        return False
    known = pd.read_csv(file)
    return bool((known[list(key)] == list(key.values())).all(axis=1).any())


def finals(dataset: str) -> dict[str, tuple[str, Point | dict[str, Any]]]:
    """The methods that are compared on the real split of a data set: label to method and point."""
    chosen = yaml.safe_load(CHOSEN.read_text(encoding="utf-8"))[dataset]
    return {label: (row.pop("method"), row) for label, row in chosen.items()}


def final(dataset: str, labels: Sequence[str], widths: Sequence[int], seeds: Sequence[int]) -> None:
    """Fit methods on the real split, appending every run that is not there yet."""
    corpus = _open(dataset)
    file = RESULTS / f"runs-{dataset}.csv"
    for width in widths:
        for seed in seeds:
            for label in labels:
                method, point = finals(dataset)[label]
                key = {"method": label, "width": width, "seed": seed}
                if not recorded(file, key):
                    record(file, key | score(method, corpus, point, width, seed))


def defaults(dataset: str) -> None:
    """Score each line of `TRIED` on a tuning split, appending it to its own table."""
    corpus = _open(f"{dataset}-tuning")
    for row in pd.read_csv(TRIED).to_dict("records"):
        point = {"train.gamma_right": 0, **{f"train.{key}": row[key] for key in SETTINGS}}
        found = score("fit", corpus, point, width=64, seed=0)
        record(RESULTS / "search" / f"defaults-{dataset}.csv", {**point, "published": row[dataset], **found})


def main() -> None:
    """Search, run the finals, or try the defaults."""
    parser = argparse.ArgumentParser(description="What ranks best.")
    parser.add_argument("part", choices=("search", "final", "defaults"))
    parser.add_argument("--dataset", default="movielens-1m")
    parser.add_argument("--method", nargs="+", help="search: its methods; final: labels (all)")
    parser.add_argument("--width", nargs="+", type=int, default=[35, 64, 128])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--tries", type=int, default=TRIES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    match arguments.part:
        case "search":
            for method in arguments.method or ["implicit-als"]:
                for width in arguments.width:
                    search(arguments.dataset, method, width, arguments.tries)
        case "final":
            labels = arguments.method or list(finals(arguments.dataset))
            final(arguments.dataset, labels, arguments.width, arguments.seeds)
        case "defaults":
            defaults(arguments.dataset)


if __name__ == "__main__":
    main()
