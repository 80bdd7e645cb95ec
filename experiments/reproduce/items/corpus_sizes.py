"""Tables 1 and 3: pages, links, n-grams and categories, or users, movies and ratings, of each corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.report import keys
from experiments.report.sections import Section, Seeds, Table
from experiments.report.summary import marked
from experiments.reproduce.corpora import DATASETS
from experiments.reproduce.jobs import Task, manifest_of
from experiments.reproduce.plans import Plan

COLUMNS = ("pages", "links", "ngrams", "categories")
MOVIELENS = {"users": "left_items", "movies": "right_items", "ratings": "pairs"}
PAPER = {
    "wikipedia-simple": {"pages": "85K", "links": "4.6M", "ngrams": "8.3K", "categories": "6.1K"},
    "wikipedia-fr": {"pages": "1.8M", "links": "142M", "ngrams": "167.4K", "categories": "125.3K"},
    "wikipedia-en": {"pages": "5.3M", "links": "490M", "ngrams": "501.0K", "categories": "403.4K"},
    "movielens-10m": {"users": "72K", "movies": "10K", "ratings": "10M"},
}
HASH_DIGITS = 12  # of the content hash; the manifest has them all


def tasks(plan: Plan) -> list[Task]:
    """None: the corpora are prepared before."""
    return []


def counts(manifest: Mapping[str, Any]) -> dict[str, int]:
    """The counts of Tables 1 and 3 for a corpus; users and movies without a rating are excluded."""
    sizes = manifest["corpus"]
    kinds = [manifest["sides"][side]["item"] for side in ("left", "right")]
    names = MOVIELENS if kinds == ["user", "movie"] else {column: column for column in COLUMNS}
    return {column: int(sizes[name]) for column, name in names.items() if name in sizes}


def section(plan: Plan) -> Section:
    """The rows of the paper and of the prepared corpora."""
    rows: list[dict[str, str]] = [{"corpus": f"{name} (paper)", **sizes} for name, sizes in PAPER.items()]
    measured: dict[str, Seeds] = {}
    for name in plan.datasets:
        manifest = manifest_of(DATASETS[name].path)
        sizes, found = manifest["corpus"], counts(manifest)
        rows.append(
            {
                "corpus": marked(name),
                **{column: f"{size:,}" for column, size in found.items()},
                "left × right items": f"{sizes['left_items']:,} × {sizes['right_items']:,}",
                "training / validation pairs": f"{sizes['train_pairs']:,} / {sizes['validation_pairs']:,}",
                "content hash": manifest["content_hash"][:HASH_DIGITS],
            }
        )
        measured |= {keys.size(name, column): (float(size),) for column, size in found.items()}
    caption = "Sizes after preparation; training pairs by each corpus's split; the hash is of all data."
    return Section(
        plan.item,
        "Corpus sizes",
        "Tables 1 and 3",
        "What every corpus drops, and why, is counted in its manifest.",
        (Table("sizes", caption, pd.DataFrame(rows).fillna("")),),
        measured=measured,
    )
