"""The corpora of the experiments, by the names that configs/ and data/ give them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.report.keys import corpus_of
from experiments.reproduce.scheduler import gramrun

TUNING_FRACTION = 0.1
SEEDS = (1, 2)  # of splits and copies beside the first


@dataclass(frozen=True)
class Dataset:
    """A corpus that ``gramrun prepare`` makes.

    Attributes:
        name: in configs/, data/ and results/.
        corpus: what ``gramrun prepare`` calls it.
        settings: ``--set`` settings of ``gramrun prepare``.
        source: the folder in $GRAMRUN_RAW, or else in data/raw, with raw files that cannot be downloaded.
    """

    name: str
    corpus: str
    settings: tuple[str, ...] = ()
    source: str | None = None

    @property
    def path(self) -> Path:
        """The folder of the prepared corpus."""
        return Path("data") / self.name


_SAME_NAME = (
    "movielens-100k", "movielens-1m", "movielens-10m", "enwik8", "simple-scale", "fr-scale", "en-scale",
    "wikipedia-simple", "wikipedia-fr", "wikipedia-en",
)  # fmt: skip
DATASETS = {name: Dataset(name, name) for name in _SAME_NAME}
DATASETS["enwik8-titles"] = Dataset("enwik8-titles", "enwik8", ("wikipedia.graph=titles",))
# Whole wikis, their tables of January 2016, without categories: Māori, as small as enwik8, Zulu and Venda.
WIKIS = ("miwiki", "zuwiki", "vewiki")
DATASETS |= {name: Dataset(name, "wikipedia-sql", ("wikipedia.categories=false",), name) for name in WIKIS}
# Other splits of the links into training and validation pairs.
for name in ("enwik8", "enwik8-titles", "miwiki"):
    for seed in SEEDS:
        other, settings = f"{name}-split{seed}", (*DATASETS[name].settings, f"split.seed={seed}")
        DATASETS[other] = replace(DATASETS[name], name=other, settings=settings)
# Other expansions to Simple's size, each with a split of its own.
DATASETS |= {
    f"simple-scale-copy{seed}": Dataset(
        f"simple-scale-copy{seed}", "simple-scale", (f"expansion.seed={seed}", f"split.seed={seed}")
    )
    for seed in SEEDS
}


def configs(dataset: str) -> Path:
    """The folder of a data set's configs; those of another split or copy are the corpus's."""
    return Path("configs") / corpus_of(dataset)


def tuning(name: str) -> Dataset:
    """The corpus on which a data set's hyper-parameters are chosen: a part of its training split."""
    dataset = DATASETS[name]
    settings = (*dataset.settings, f"split.tuning_fraction={TUNING_FRACTION}")
    return replace(dataset, name=f"{name}-tuning", settings=settings)


DATASETS |= {f"{name}-tuning": tuning(name) for name in ("movielens-100k", "movielens-1m", "enwik8", *WIKIS)}


def prepare(dataset: Dataset) -> None:
    """Prepare a data set's corpus, unless it is prepared already."""
    options = [part for setting in dataset.settings for part in ("--set", setting)]
    if dataset.source is not None:
        raw = Path(os.environ.get("GRAMRUN_RAW") or Path("data") / "raw")
        options += ["--source", str(raw / dataset.source)]
    gramrun(["prepare", dataset.corpus, *options, "--output", str(dataset.path)])
