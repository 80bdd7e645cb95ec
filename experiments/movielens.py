"""The MovieLens experiments (paper, Section 4.2 and Appendix E): which runs, with how many seeds.

Two settings are shown side by side. ``paper-*`` is Appendix E: one hidden layer, ratings as targets, Gramians
over pairs. The others are what this project recommends: linear towers, target 1, Gramians over distinct
items. `configs/README.md` argues every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DATASETS = ("movielens-100k", "movielens-1m")
SEEDS = (0, 1, 2)


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


RECOMMENDED = "Recommended setting: linear towers, gravity over distinct items (uniform)"
PAPER = "Appendix E of the paper: hidden towers, rating targets, gravity over pairs (frequency)"

METHODS = (
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


def run_path(results: Path, method: Method, seed: int) -> Path:
    """The run directory of one method and seed."""
    return results / "runs" / f"{method.name}-seed{seed}"


def gram_error_path(results: Path, seed: int) -> Path:
    """The run directory of one Gramian-error trajectory."""
    return results / "runs" / f"gram-error-seed{seed}"
