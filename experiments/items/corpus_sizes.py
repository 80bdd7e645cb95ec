"""Table 1: pages, links, title n-grams and categories of each corpus."""

from __future__ import annotations

import pandas as pd

from experiments.datasets import DATASETS
from experiments.plans import Plan
from experiments.sections import Section, Table
from experiments.tasks import Task
from gramrun.data.shards import read_manifest

PAPER = {  # Table 1: pages, links, n-grams, categories
    "wikipedia-simple": (85_000, 4_600_000, 8_300, 6_100),
    "wikipedia-fr": (1_800_000, 142_000_000, 167_400, 125_300),
    "wikipedia-en": (5_300_000, 490_000_000, 501_000, 403_400),
}
_COLUMNS = ("pages", "links", "ngrams", "categories")


def tasks(plan: Plan) -> list[Task]:
    """None: the corpora are prepared before."""
    return []


def section(plan: Plan) -> Section:
    """The paper's rows beside those of the corpora at hand."""
    rows = [
        {"corpus": f"{name} (paper)", **{c: f"{x:,}" for c, x in zip(_COLUMNS, sizes, strict=True)}}
        for name, sizes in PAPER.items()
    ]
    measured = {}
    made = []
    for name in plan.datasets:
        manifest = read_manifest(DATASETS[name].path)
        sizes = manifest["corpus"]
        if manifest["origin"].get("verified") is None:
            made.append(name)
        rows.append(
            {
                "corpus": name,
                **{c: f"{sizes[c]:,}" for c in _COLUMNS if c in sizes},
                "left × right items": f"{sizes['left_items']:,} × {sizes['right_items']:,}",
                "training / validation pairs": f"{sizes['train_pairs']:,} / {sizes['validation_pairs']:,}",
            }
        )
        measured |= {f"{name}/{c}": (float(sizes[c]),) for c in _COLUMNS if c in sizes}
    absent = [name for name in PAPER if name not in plan.datasets]
    words = (
        f"The paper's own corpora {', '.join(absent)} are not among those prepared here. " if absent else ""
    )
    words += f"Made to the paper's sizes, and not real text: {', '.join(made)}. " if made else ""
    words += "What every corpus drops, and why, is counted in its manifest."
    return Section(
        plan.item,
        "Corpus sizes",
        "Table 1",
        words,
        (
            Table(
                "sizes",
                "Sizes after preparation; training pairs by each corpus's split.",
                pd.DataFrame(rows).fillna(""),
            ),
        ),
        measured=measured,
    )
