"""When does a better Gramian rank better? Lifts of final MAP@10 over batch sampling against B/k.

    python -m experiments.studies.lifts [--reference results/reference] [--output results/lifts]

It trains nothing: it reads the published tables of the factorial experiment, of planted topics and of the
Gramian batches on MovieLens 1M. ``lifts.csv`` has a row for each of some trainings, B and estimator, at the
end of training (the exact Gramian under SGD at epoch 1,695) or, where its name says so, a mean while η is
constant:

    lift, low, high    (MAP@10 of the estimator / MAP@10 of sampling with the same B) − 1, a geometric mean
                       over seeds, and its 95 % interval, which one seed does not have

On planted topics of 100,000 and a million items SOGram with B = 2,048 (error at most 3.5 %) stands for the
exact Gramian. ``lifts.png`` shows the trainings of `SHOWN`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.report.keys import EXACT, SAMPLING
from experiments.report.sections import geometric, write_figure
from experiments.studies.trainings import rows
from gramrun.base.files import write_text
from gramrun.runs.panels import empty_panels, line_styles, put_legend, styled

SOGRAM, SAGRAM = "SOGram α=0.1", "SAGram per item"
_STYLES = line_styles((EXACT, SOGRAM, "SAGram β=1, per item"))  # those of all figures
STYLES = dict(zip((EXACT, SOGRAM, SAGRAM), _STYLES.values(), strict=True))
COLUMNS = 3  # of panels
LIMITS = (-30, 32)  # per cent, of the y axis

LIFTS = {"": "lift [95 %]", ", constant η": "at a constant η"}  # of a table, by what a training is called
SGD = "enwik8, SGD, 1,920 epochs"
FACTORIAL = (  # of `TRAININGS`
    "enwik8, Adagrad",
    "enwik8, Adagrad, smaller start",
    "enwik8, sparse Adam, η/5",
    "enwik8, sparse Adam",
    "enwik8, Adam",
    SGD,
    "enwik8, titles, Adagrad, 40 epochs",
    "enwik8, titles, Adagrad, smaller start",
    "enwik8, titles, Adagrad, 20 epochs",
    "enwik8, titles, sparse Adam, 80 epochs",
    "enwik8, titles, Adam, 80 epochs",
    "enwik8, titles, SGD, 320 epochs",
    "simple-scale, Adagrad",
    "simple-scale, inputs of 256, Adagrad",
    "simple-scale, inputs of 256, sparse Adam",
    "miwiki, sparse Adam",
    "miwiki, Adagrad",
    "fr-scale, sparse Adam",
)
PLANTED = {  # items, epochs, k
    "planted, a million items, 1 epoch": (1_000_000, 1, 16),
    "planted, 100,000 items, 10 epochs": (100_000, 10, 16),
    "planted, 10,000 items, 10 epochs, k = 16": (10_000, 10, 16),
    "planted, 10,000 items, 10 epochs, k = 64": (10_000, 10, 64),
    "planted, 10,000 items, 100 epochs": (10_000, 100, 16),
}
MOVIES = "MovieLens 1M, 6 epochs"
SHOWN = {  # training -> title of its panel
    "planted, 10,000 items, 10 epochs, k = 64": "planted, 10,000 items\nlinear, γ = 0, k = 64",
    MOVIES: "MovieLens 1M\nlinear, γ = 0, k = 35",
    "enwik8, sparse Adam": "enwik8, sparse Adam\nk = 64",
    "enwik8, Adam": "enwik8, dense Adam\nk = 64",
    SGD: "enwik8, SGD, 1,920 epochs\nk = 64",
    "enwik8, titles, Adam, 80 epochs": "enwik8 with titles\ndense Adam, k = 64",
    "enwik8, titles, Adagrad, 40 epochs": "enwik8 with titles\nAdagrad, k = 64",
    "miwiki, Adagrad": "Māori Wikipedia\nAdagrad, k = 64",
    "simple-scale, inputs of 256, Adagrad": "simple-scale, inputs of 256\nAdagrad, k = 64",
}


def measure(reference: Path) -> pd.DataFrame:
    """The rows of ``lifts.csv``."""
    found = [*_planted(reference), *_movies(reference), *_factorial(reference), *_sgd(reference)]
    return pd.DataFrame(found, columns=["training", "k", "B", "estimator", "lift", "low", "high"])


def _planted(reference: Path) -> Iterator[tuple]:
    runs = pd.read_csv(reference / "scaling" / "runs.csv")
    for title, (items, epochs, k) in PLANTED.items():
        own = runs[(runs[["items", "epochs", "dim"]] == [items, epochs, k]).all(axis=1)]
        maps = {key: part.set_index("seed")["map@10"] for key, part in own.groupby(["estimator", "batch"])}
        exact = own[own["estimator"] == "reference"].set_index("seed")["map@10"]
        for batch in sorted(own.loc[own["estimator"] == SAMPLING, "batch"].unique()):
            for name, found in (
                (EXACT, exact),
                (SOGRAM, maps[SOGRAM, batch]),
                (SAGRAM, maps["SAGram", batch]),
            ):
                yield title, k, batch, name, *_lift(found / maps[SAMPLING, batch])


def _movies(reference: Path) -> Iterator[tuple]:
    runs = pd.read_csv(reference / "comparisons" / "gramian_batch" / "movielens-1m" / "runs.csv")
    maps = {name: part.set_index("seed")["map@10"] for name, part in runs.groupby("variant")}
    for batch in (2, 8, 32):
        names = {
            EXACT: "exact",
            SOGRAM: f"SOGram α=0.1 debiased, B={batch}",
            SAGRAM: f"SAGram β=1 per item, B={batch}",
        }
        for estimator, name in names.items():
            if name in maps:
                yield MOVIES, 35, batch, estimator, *_lift(maps[name] / maps[f"sampling, B={batch}"])


def _factorial(reference: Path) -> Iterator[tuple]:
    for title in FACTORIAL:
        frame, k = rows(reference, title), 128 if title.startswith("fr-scale") else 64
        for suffix, column in LIFTS.items():
            for row in frame[frame["estimator"].isin(STYLES)].dropna(subset=column).to_dict("records"):
                yield title + suffix, k, int(row["B"]), row["estimator"], *_parsed(row[column])


def _sgd(reference: Path) -> Iterator[tuple]:
    """The exact Gramian under SGD, whose curves alone there are, at the last epoch that three seeds have."""
    curves = pd.read_csv(reference / "gpu" / "sgd_curves.csv").pivot(
        index="epoch", columns=["estimator", "seed"], values="validation_map@10"
    )
    last = curves.index[curves[EXACT].count(axis=1) >= 3].max()
    constant = curves[(curves.index > 640) & (curves.index <= 960)].mean()  # the last third before η falls
    for suffix, maps in (("", curves.loc[last]), (", constant η", constant)):
        yield SGD + suffix, 64, 1024, EXACT, *_lift((maps[EXACT] / maps[SAMPLING]).dropna())


def _lift(ratios: pd.Series) -> tuple[float, float, float]:
    mean, low, high = geometric(tuple(ratios))
    return mean - 1, low - 1, high - 1


def _parsed(text: str) -> tuple[float, float, float]:
    """The numbers of "+3.2% [-1.7%, +8.0%]", of which one seed has the first alone."""
    numbers = [float(x) / 100 for x in re.findall(r"[+-][\d.]+", text)]
    return tuple(numbers) if len(numbers) == 3 else (numbers[0], np.nan, np.nan)


@styled
def draw(frame: pd.DataFrame) -> Figure:
    """A panel for each training of `SHOWN`: the lift in per cent against B/k, with its 95 % interval."""
    figure, grid = empty_panels(len(SHOWN) // COLUMNS, COLUMNS, share_y="all", share_x="none")
    for panel, (training, title) in zip((panel for row in grid for panel in row), SHOWN.items(), strict=True):
        panel.set_xscale("log", base=4)
        panel.axhline(0, color="0.6", linewidth=0.8)
        own = frame[frame["training"] == training]
        for index, (name, style) in enumerate(STYLES.items()):
            shown = own[own["estimator"] == name].sort_values("B")
            x = shown["B"] / shown["k"] * 1.15 ** (index - 1)  # a little apart
            ends = 100 * np.abs(shown[["low", "high"]].sub(shown["lift"], axis=0)).T.to_numpy()
            panel.errorbar(x, 100 * shown["lift"], yerr=ends, elinewidth=0.8, **style)
        panel.set_xlim(1 / 25, 25)
        panel.set_ylim(*LIMITS)
        panel.set_xticks([1 / 16, 1 / 4, 1, 4, 16], ["1/16", "1/4", "1", "4", "16"])
        panel.minorticks_off()
        panel.set_title(title)
        panel.set_xlabel("B / k")
    for row in grid:
        row[0].set_ylabel("lift over sampling, %")
    put_legend(figure, STYLES, pd.Series([1]), COLUMNS)
    return figure


def main() -> None:
    """Parse the arguments, then measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reference", type=Path, default=Path("results/reference"))
    parser.add_argument("--output", type=Path, default=Path("results/lifts"))
    arguments = parser.parse_args()
    frame = measure(arguments.reference)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_text(arguments.output / "lifts.csv", frame.to_csv(index=False, float_format="%.5f"))
    write_figure(arguments.output, draw(frame), "lifts", "")


if __name__ == "__main__":
    main()
