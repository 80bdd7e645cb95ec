"""Tables 1 and 3: pages, links, n-grams and categories, or users, movies and ratings, of each corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.report.sections import Section, Seeds, Table
from experiments.reproduce.corpora import DATASETS
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from gramrun.data.shards import read_manifest

PAPER = {  # Table 1: pages, links, n-grams, categories
    "wikipedia-simple": (85_000, 4_600_000, 8_300, 6_100),
    "wikipedia-fr": (1_800_000, 142_000_000, 167_400, 125_300),
    "wikipedia-en": (5_300_000, 490_000_000, 501_000, 403_400),
}
_COLUMNS = ("pages", "links", "ngrams", "categories")
_MOVIELENS = {
    "users": "left_items",
    "movies": "right_items",
    "ratings": "pairs",
}  # Table 3's, and a manifest's
PAPER_MOVIELENS = {"users": "72K", "movies": "10K", "ratings": "10M"}  # Table 3
HASH_DIGITS = 12  # of the content hash; the manifest has them all


def tasks(plan: Plan) -> list[Task]:
    """None: the corpora are prepared before."""
    return []


def counts(manifest: Mapping[str, Any]) -> dict[str, int]:
    """What Tables 1 and 3 count of a corpus; nothing where it is of neither kind.

    Users, and movies, are those with a rating.
    """
    sizes = manifest["corpus"]
    kinds = [manifest["sides"][side]["item"] for side in ("left", "right")]
    names = _MOVIELENS if kinds == ["user", "movie"] else {column: column for column in _COLUMNS}
    return {column: int(sizes[name]) for column, name in names.items() if name in sizes}


def section(plan: Plan) -> Section:
    """The paper's rows beside those of the corpora at hand."""
    rows = [
        {"corpus": f"{name} (paper)", **{c: f"{x:,}" for c, x in zip(_COLUMNS, sizes, strict=True)}}
        for name, sizes in PAPER.items()
    ]
    rows += [{"corpus": "movielens-10m (paper)", **PAPER_MOVIELENS}]
    measured: dict[str, Seeds] = {}
    made = []
    for name in plan.datasets:
        manifest = read_manifest(DATASETS[name].path)
        sizes = manifest["corpus"]
        if manifest["origin"].get("verified") is None:
            made.append(name)
        found = counts(manifest)
        rows.append(
            {
                "corpus": name,
                **{column: f"{size:,}" for column, size in found.items()},
                "left × right items": f"{sizes['left_items']:,} × {sizes['right_items']:,}",
                "training / validation pairs": f"{sizes['train_pairs']:,} / {sizes['validation_pairs']:,}",
                "content hash": manifest["content_hash"][:HASH_DIGITS],
            }
        )
        measured |= {f"{name}/{column}": (float(size),) for column, size in found.items()}
    absent = [name for name in PAPER if name not in plan.datasets]
    words = (
        f"The paper's own corpora {', '.join(absent)} are not among those prepared here. " if absent else ""
    )
    words += f"Made to the paper's sizes, and not real text: {', '.join(made)}. " if made else ""
    words += "What every corpus drops, and why, is counted in its manifest."
    return Section(
        plan.item,
        "Corpus sizes",
        "Tables 1 and 3",
        words,
        (
            Table(
                "sizes",
                "Sizes after preparation; training pairs by each corpus's split; the hash is of all "
                "prepared data.",
                pd.DataFrame(rows).fillna(""),
            ),
        ),
        measured=measured,
    )
