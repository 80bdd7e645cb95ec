"""Do expansions look and rank like the real corpora? Degrees, reciprocity, transitivity, spectrum and MAP@10.

    python -m experiments.studies.realism CORPUS_FOLDER ... [--output results/realism]
    python -m experiments.studies.realism CORPUS_FOLDER ... --links-only
    python -m experiments.studies.realism CORPUS_FOLDER ... --towers CONFIG [--set KEY=VALUE]

One row per prepared corpus. --links-only leaves out the spectrum and ALS, which take hours on the largest;
--towers only adds the MAP@10 of towers. All statistics are of the training and validation pairs together:

    top share      the links into the most linked page / all links
    degrees        quantiles of links out of and into a page
    reciprocity    the share of links whose reverse is a link
    transitivity   the chance that the ends y ≠ z of two links x → y, x → z of a page are linked in any
                   direction: estimated from --wedges draws of such pairs (standard error at most 0.5/√draws)
    decay          σ_64 / σ_1 of the 0/1 matrix; effective rank: (sum σ)² / sum σ² of its 64 largest

MAP@10 is on the validation split, of popularity, implicit ALS (the package ``implicit``) and exact ALS of the
paper's objective (γ = 1, λ = 10, k = 64), and of towers trained as CONFIG says, by gramrun's own evaluation
with at most 3,000 left items.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import scipy.sparse.linalg
import torch

from experiments.studies.ranking import trained
from gramrun.base.files import write_text
from gramrun.config import BaselineSection, EvaluationSection
from gramrun.data.corpus import Corpus, SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.data.split import joined
from gramrun.evaluation.baselines.run import fit_baseline
from gramrun.evaluation.protocol import evaluate_embeddings

SINGULAR_VALUES = 64
QUANTILES = (0.5, 0.9, 0.99)
LEFT_ITEMS = 3_000
_COMMON: dict[str, Any] = {"embedding_dim": 64}
BASELINES = {
    "popularity": BaselineSection(name="popularity"),
    "implicit ALS": BaselineSection(
        name="implicit-als", sweeps=15, confidence=40, regularization=50, **_COMMON
    ),
    "exact ALS": BaselineSection(
        name="exact-als", sweeps=8, gravity=10, gamma_left=1, gamma_right=1, **_COMMON
    ),
}


def graph(corpus: Corpus, wedges: int) -> dict[str, float]:
    """Statistics of the 0/1 matrix; reciprocity and transitivity where both sides are one set of items.

    Args:
        corpus: the corpus.
        wedges: draws for the transitivity.
    """
    shape = corpus.left.items, corpus.right.items
    out, into = (
        np.bincount(pairs, minlength=items)
        for pairs, items in zip((corpus.pair_left, corpus.pair_right), shape, strict=True)
    )
    found: dict[str, float] = {
        "pages": shape[0],
        "links": len(corpus.pair_left),
        "top share": into.max() / into.sum(),
    }
    for name, degrees in (("out", out), ("in", into)):
        values = np.quantile(degrees[degrees > 0], QUANTILES)
        found |= {f"{name} {q:g}": value for q, value in zip(QUANTILES, values, strict=True)}
    if corpus.left.item == corpus.right.item:
        keys = corpus.pair_left.astype(np.int64) * shape[1] + corpus.pair_right
        found["reciprocity"] = _are_in(keys, corpus.pair_right, corpus.pair_left, shape[1]).mean()
        found["transitivity"] = _transitivity(keys, out, corpus.pair_right, shape[1], wedges)
    return found


def spectrum(corpus: Corpus) -> dict[str, float]:
    """Statistics of the singular values of the 0/1 matrix."""
    shape = corpus.left.items, corpus.right.items
    ones = np.ones(len(corpus.pair_left))
    matrix = scipy.sparse.csr_array((ones, (corpus.pair_left, corpus.pair_right)), shape=shape)
    start = np.random.default_rng(0).random(min(shape))
    values = scipy.sparse.linalg.svds(
        matrix, SINGULAR_VALUES, return_singular_vectors=False, v0=start, tol=1e-3
    )
    return {
        "decay": values.min() / values.max(),
        "effective rank": values.sum() ** 2 / (values**2).sum(),
    }


def _are_in(keys: np.ndarray, left: np.ndarray, right: np.ndarray, columns: int) -> np.ndarray:
    """Whether each pair is among the sorted `keys`."""
    wanted = left.astype(np.int64) * columns + right
    return np.asarray(keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted)


def _transitivity(keys: np.ndarray, out: np.ndarray, right: np.ndarray, columns: int, wedges: int) -> float:
    """Of the links of each page, `right`, which are sorted by page and `out` in number."""
    random = np.random.default_rng(0)
    starts, degrees = np.cumsum(out) - out, out.astype(float)
    weights = degrees * (degrees - 1)
    pages = random.choice(len(degrees), wedges, p=weights / weights.sum())
    first = random.integers(degrees[pages])
    second = (first + 1 + random.integers(degrees[pages] - 1)) % degrees[pages]
    y, z = (right[starts[pages] + rank.astype(np.int64)] for rank in (first, second))
    return float((_are_in(keys, y, z, columns) | _are_in(keys, z, y, columns)).mean())


def quality(corpus: SplitCorpus, names: Sequence[str]) -> dict[str, float]:
    """Validation MAP@10 of baselines."""
    found = {}
    for name in names:
        fitted = fit_baseline(BASELINES[name], corpus)
        found[name] = _map(corpus, fitted.left, fitted.right)
        print(f"{corpus.name}: {name} {found[name]:.4f}", flush=True)
    return found


def towers(corpus: SplitCorpus, config: Path, settings: Sequence[str]) -> float:
    """Validation MAP@10 of towers."""
    return _map(corpus, *trained(config, corpus, settings))


def _map(corpus: SplitCorpus, left: torch.Tensor, right: torch.Tensor) -> float:
    settings = EvaluationSection(left_items=min(LEFT_ITEMS, corpus.left.items))
    return float(evaluate_embeddings(left, right, corpus, "validation", settings)["map@10"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write OUTPUT/realism.csv and realism.md; rows of other corpora that are there stay."""
    parser = argparse.ArgumentParser(description="Compare expansions with real corpora.")
    parser.add_argument("corpora", nargs="+", type=Path, help="folders of prepared corpora")
    parser.add_argument("--links-only", action="store_true", help="no spectrum and no ALS")
    parser.add_argument("--towers", type=Path, metavar="CONFIG", help="a config of gramrun train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of it")
    parser.add_argument("--output", type=Path, default=Path("results/realism"))
    parser.add_argument("--wedges", type=int, default=200_000)
    given = parser.parse_args(arguments)
    table = given.output / "realism.csv"
    rows = {r["corpus"]: r for r in pd.read_csv(table).to_dict("records")} if table.exists() else {}
    for folder in given.corpora:
        corpus = open_corpus(folder)
        if given.towers:
            found = {"towers": towers(corpus, given.towers, given.set)}
        else:
            whole = joined(corpus)
            found = graph(whole, given.wedges) | ({} if given.links_only else spectrum(whole))
            found |= quality(corpus, ["popularity"] if given.links_only else list(BASELINES))
        rows[folder.name] = {"corpus": folder.name, **rows.get(folder.name, {}), **found}
        frame = pd.DataFrame(list(rows.values()))
        given.output.mkdir(parents=True, exist_ok=True)
        write_text(table, frame.to_csv(index=False))
        write_text(given.output / "realism.md", markdown(frame))


def markdown(frame: pd.DataFrame) -> str:
    """The table, transposed: one column per corpus."""
    lines = [f"| | {' | '.join(frame['corpus'])} |", "|---" * (len(frame) + 1) + "|"]
    for name in frame.columns[1:]:
        values = ["–" if pd.isna(v) else f"{v:,.0f}" if v >= 10 else f"{v:.3g}" for v in frame[name]]
        lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
