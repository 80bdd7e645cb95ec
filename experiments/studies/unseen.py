"""Rank items that no training pair has, by their features: which methods can, and how well.

    python -m experiments.studies.unseen [--corpora movielens-1m enwik8 miwiki] [--seeds 0 1 2]

A fifth of MovieLens's movies, a tenth of a wiki's pages, are held out whole: new right items are ranked among
all right items and among the new ones; for new pages on the left, known ones among all (MovieLens's users
have no features). Wikis' ids are dropped on both sides, which share a table, MovieLens's on the right. Every
run is a line in results/unseen/runs.csv for each set that it ranks among.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from experiments.reproduce.corpora import DATASETS, Dataset, prepare
from experiments.studies.ranking import record, recorded, trained
from gramrun.config import BaselineSection, EvaluationSection
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.evaluation.baselines.run import fit_baseline
from gramrun.evaluation.protocol import Among, evaluate_embeddings

RUNS = Path("results/unseen/runs.csv")
# Words and categories of one page say nothing of another.
REPEATED = ("wikipedia.min_ngram_count=2", "wikipedia.min_category_count=2")
# The settings of `prepare`, the config and those of `train`: the better of ``sogram`` and ``recommended``
# on the corpus's tuning split; miwiki, on which nothing was chosen, has those of enwik8.
CORPORA = {
    "movielens-1m": ((), "configs/movielens-1m/sogram.yaml", ("train.epochs=5",)),
    "enwik8": (REPEATED, "configs/enwik8/recommended.yaml", ()),
    "miwiki": (REPEATED[:1], "configs/enwik8/recommended.yaml", ()),
}
BASELINES = {
    "popularity": BaselineSection(name="popularity"),
    "popularity of features": BaselineSection(name="feature-popularity"),
    "TF-IDF neighbours": BaselineSection(name="tfidf"),
}
TOWERS = {"towers, ids never dropped": 0.0, "towers, half of the ids dropped": 0.5}


def held_out(name: str, side: str) -> Dataset:
    """A corpus of which whole items of a side are held out."""
    dataset = DATASETS[name]
    settings = (*dataset.settings, *CORPORA[name][0], f"split.by={side}-items")
    return replace(dataset, name=f"{name}-{side}-items", settings=settings)


def embed(name: str, side: str, method: str, corpus: SplitCorpus, seed: int) -> tuple[torch.Tensor, ...]:
    """The left and right embeddings of one fit."""
    if method in BASELINES:
        fitted = fit_baseline(BASELINES[method], corpus)
        return fitted.left, fitted.right
    sides = (side,) if name.startswith("movielens") else ("left", "right")
    dropped = [f"train.id_dropout_{side}={TOWERS[method]}" for side in sides]
    _, config, own = CORPORA[name]
    return trained(Path(config), corpus, [f"train.seed={seed}", *own, *dropped])


def measure(name: str, side: str, method: str, seed: int) -> None:
    """Fit one method and add its lines, unless they are there."""
    key = {"corpus": name, "new": f"{side} items", "method": method, "seed": seed}
    if recorded(RUNS, key):
        return
    prepare(held_out(name, side))
    corpus = open_corpus(held_out(name, side).path)
    left, right = embed(name, side, method, corpus, seed)
    rows = []
    for among in get_args(Among) if side == "right" else ("all",):
        found = evaluate_embeddings(left, right, corpus, "validation", EvaluationSection(), among)
        rows.append(key | {"among": among, "map@10": found["map@10"], "recall@100": found["recall@100"]})
    record(RUNS, *rows)  # together: an interrupted call must not leave a part of them


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description="Items never seen.")
    parser.add_argument("--corpora", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.corpora:
        for side in ("right",) if name.startswith("movielens") else ("right", "left"):
            for method in BASELINES:
                measure(name, side, method, 0)
            for seed in arguments.seeds:
                for method in TOWERS:
                    measure(name, side, method, seed)


if __name__ == "__main__":
    main()
