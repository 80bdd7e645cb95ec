"""What `make reproduce` runs on each data set (paper, Sections 4.2, 4.3, Appendix E): methods and seeds.

Two settings are shown side by side. ``paper-*`` is the paper's: hidden towers and Gramians over pairs, with
ratings as targets on MovieLens. The others are what this project recommends: linear towers, target 1,
Gramians over distinct items. `configs/README.md` argues every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.scheduling import gramrun


@dataclass(frozen=True)
class Method:
    """One row of a table: a config, its overrides, and the table that it belongs to.

    Attributes:
        config: the config's name in configs/<dataset>/.
        overrides: ``--set`` settings.
        table: the heading of its table.
        label: its row in the table.
    """

    config: str
    table: str
    label: str
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A folder name that tells the methods apart."""
        return "-".join([self.config, *(o.partition("=")[2] for o in self.overrides)])


@dataclass(frozen=True)
class Dataset:
    """A prepared corpus and the runs that its report compares.

    Attributes:
        name: in configs/, data/ and results/.
        corpus: what ``gramrun prepare`` calls it.
        methods: the rows of its tables: at least one recommended first, the paper's last.
        settings: ``--set`` settings of ``gramrun prepare``.
        seeds: of parameters and batches.
    """

    name: str
    corpus: str
    methods: tuple[Method, ...]
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def path(self) -> Path:
        """The folder of the prepared corpus."""
        return Path("data") / self.name

    @property
    def configs(self) -> Path:
        """The folder of its configs."""
        return Path("configs") / self.name


RECOMMENDED = "Recommended setting: linear towers, gravity over distinct items (uniform)"
PAPER = "Appendix E of the paper: hidden towers, rating targets, gravity over pairs (frequency)"

_MOVIELENS = (
    Method("sampling", RECOMMENDED, "sampling"),
    Method("sogram", RECOMMENDED, "SOGram debiased, α=0.1"),
    Method("sogram", RECOMMENDED, "SOGram debiased, α=0.01", ("estimator.alpha=0.01",)),
    Method("sagram", RECOMMENDED, "SAGram β=1, per item"),
    Method("exact", RECOMMENDED, "exact Gramian (oracle)"),
    Method("hidden-sogram", RECOMMENDED, "hidden towers, SOGram debiased, α=0.1"),
    Method("paper-sampling", PAPER, "sampling"),
    Method("paper-sogram", PAPER, "SOGram α=0.1"),
    Method("paper-sogram", PAPER, "SOGram α=0.01", ("estimator.alpha=0.01",)),
    Method("paper-sagram", PAPER, "SAGram β=1, per pair"),
)

_WIKIPEDIA_PAPER = "Section 4.1 of the paper: hidden towers, gravity over pairs (frequency)"
_PAGES = (
    *(method for method in _MOVIELENS if method.table == RECOMMENDED),
    Method("paper-sampling", _WIKIPEDIA_PAPER, "sampling"),
    Method("paper-sogram", _WIKIPEDIA_PAPER, "SOGram α=0.01"),
    Method("paper-sogram", _WIKIPEDIA_PAPER, "SOGram α=0.1", ("estimator.alpha=0.1",)),
    Method("paper-sagram", _WIKIPEDIA_PAPER, "SAGram β=1, per pair"),
)
# Exact Gramians of 260,000 titles at every step, and caches of 600,000 pairs, would take most of the time.
_TITLES = tuple(
    method
    for method in _PAGES
    if method.config in ("sampling", "sogram", "sagram", "paper-sampling", "paper-sogram")
)

DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("movielens-100k", "movielens-100k", _MOVIELENS),
        Dataset("movielens-1m", "movielens-1m", _MOVIELENS),
        Dataset("enwik8", "enwik8", _PAGES),
        Dataset("enwik8-titles", "enwik8", _TITLES, settings=("wikipedia.graph=titles",)),
    )
}


def prepare(dataset: Dataset, output: Path | None = None, *settings: str, quiet: bool = True) -> None:
    """Prepare a data set's corpus, with more ``--set`` settings in another folder if wanted."""
    options = [part for setting in (*dataset.settings, *settings) for part in ("--set", setting)]
    gramrun(["prepare", dataset.corpus, *options, "--output", str(output or dataset.path)], quiet=quiet)


def run_path(results: Path, method: Method, seed: int) -> Path:
    """The run directory of one method and seed."""
    return results / "runs" / f"{method.name}-seed{seed}"


def gram_error_path(results: Path, seed: int) -> Path:
    """The run directory of one Gramian-error trajectory."""
    return results / "runs" / f"gram-error-seed{seed}"
