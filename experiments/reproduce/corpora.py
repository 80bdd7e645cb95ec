"""The corpora of the experiments, by the names that configs/ and data/ give them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.reproduce.scheduler import gramrun


@dataclass(frozen=True)
class Dataset:
    """A corpus that ``gramrun prepare`` makes.

    Attributes:
        name: in configs/, data/ and results/.
        corpus: what ``gramrun prepare`` calls it.
        settings: ``--set`` settings of ``gramrun prepare``.
    """

    name: str
    corpus: str
    settings: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The folder of the prepared corpus."""
        return Path("data") / self.name

    @property
    def configs(self) -> Path:
        """The folder of its configs."""
        return Path("configs") / self.name


_TUNED = ("movielens-100k-tuning", "movielens-1m-tuning", "enwik8-tuning")
DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("movielens-100k", "movielens-100k"),
        Dataset("movielens-1m", "movielens-1m"),
        Dataset("movielens-10m", "movielens-10m"),
        Dataset("enwik8", "enwik8"),
        Dataset("enwik8-titles", "enwik8", settings=("wikipedia.graph=titles",)),
        Dataset("simple-scale", "simple-scale"),
        Dataset("wikipedia-simple", "wikipedia-simple"),
        Dataset("wikipedia-fr", "wikipedia-fr"),
        Dataset("wikipedia-en", "wikipedia-en"),
    )
}


TUNING_FRACTION = 0.1


def tuning(name: str) -> Dataset:
    """The corpus on which a data set's hyper-parameters are chosen: a part of its training split."""
    dataset = DATASETS[name]
    fraction = f"split.tuning_fraction={TUNING_FRACTION}"
    return Dataset(f"{name}-tuning", dataset.corpus, (*dataset.settings, fraction))


DATASETS |= {name: tuning(name.removesuffix("-tuning")) for name in _TUNED}


def prepare(dataset: Dataset, output: Path | None = None, *settings: str, quiet: bool = True) -> None:
    """Prepare a data set's corpus, with more ``--set`` settings in another folder if wanted."""
    options = [part for setting in (*dataset.settings, *settings) for part in ("--set", setting)]
    gramrun(["prepare", dataset.corpus, *options, "--output", str(output or dataset.path)], quiet=quiet)
