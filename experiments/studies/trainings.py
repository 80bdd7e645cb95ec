"""The trainings of the published factorial experiment, by the titles that studies and documentation use."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

TRAININGS = {  # tables of results/reference/factorial, each with one optimizer
    "enwik8, sparse Adam": ["enwik8", "enwik8-long-average"],
    "enwik8, sparse Adam without momentum": ["enwik8-no-momentum", "enwik8-no-momentum-exact"],
    "enwik8, sparse Adam, 120 epochs": ["enwik8-twice-as-long"],
    "enwik8, sparse Adam, 30 epochs": ["enwik8-half-as-long"],
    "enwik8, sparse Adam, η/5": ["enwik8-slower"],
    "enwik8, sparse Adam, η/25": ["enwik8-slowest"],
    "enwik8, sparse Adam, smaller start": ["enwik8-smaller-start"],
    "enwik8, Adam": ["enwik8-dense-adam"],
    "enwik8, Adam, η/4": ["enwik8-dense-adam-sogram-rate"],
    "enwik8, Adam, 120 epochs": [
        "enwik8-dense-adam-twice-as-long",
        "enwik8-dense-adam-twice-as-long-large-batch",
    ],
    "enwik8, Adam, 30 epochs": ["enwik8-dense-adam-half-as-long"],
    "enwik8, Adagrad": ["enwik8-adagrad", "enwik8-adagrad-more-alphas"],
    "enwik8, Adagrad, smaller start": [
        "enwik8-adagrad-smaller-start",
        "enwik8-adagrad-smaller-start-small-batch",
    ],
    "enwik8, Adagrad, 480 epochs": ["enwik8-adagrad-eight-times-as-long"],
    "enwik8, Adagrad, 30 epochs": ["enwik8-adagrad-half-as-long"],
    "enwik8, Adagrad, η/5": ["enwik8-adagrad-slower"],
    "enwik8, SGD": ["enwik8-sgd"],
    "enwik8, SGD, 1,920 epochs": ["enwik8-sgd-to-its-plateau", "enwik8-sgd-to-its-plateau-small-batch"],
    "enwik8, SGD, 3,840 epochs": ["enwik8-sgd-twice-its-plateau"],
    "enwik8, SGD, 30 epochs": ["enwik8-sgd-half-as-long"],
    "enwik8, titles, Adagrad, 160 epochs": ["enwik8-titles-four-times-as-long"],
    "enwik8, titles, Adagrad, 80 epochs": [
        "enwik8-titles-twice-as-long-large-batch",
        "enwik8-titles-twice-as-long",
    ],
    "enwik8, titles, Adagrad, 40 epochs": ["enwik8-titles", "enwik8-titles-small-batch"],
    "enwik8, titles, Adagrad, smaller start": ["enwik8-titles-smaller-start"],
    "enwik8, titles, Adagrad, 20 epochs": ["enwik8-titles-half-as-long"],
    "enwik8, titles, Adagrad, 10 epochs": ["enwik8-titles-quarter-as-long"],
    "enwik8, titles, sparse Adam, 160 epochs": ["enwik8-titles-sparse-adam-eight-times-as-long"],
    "enwik8, titles, sparse Adam, 80 epochs": [
        "enwik8-titles-sparse-adam-four-times-as-long",
        "enwik8-titles-sparse-adam-four-times-as-long-small-alpha",
    ],
    "enwik8, titles, sparse Adam, 20 epochs": ["enwik8-titles-sparse-adam"],
    "enwik8, titles, sparse Adam, 10 epochs": ["enwik8-titles-sparse-adam-half-as-long"],
    "enwik8, titles, Adam, 320 epochs": ["enwik8-titles-longer"],
    "enwik8, titles, Adam, 160 epochs": [
        "enwik8-titles-adam-eight-times-as-long",
        "enwik8-titles-adam-eight-times-as-long-large-batch",
    ],
    "enwik8, titles, Adam, 80 epochs": [
        "enwik8-titles-adam-four-times-as-long",
        "enwik8-titles-adam-four-times-as-long-small-alpha",
        "enwik8-titles-adam-four-times-as-long-small-alpha-large-batch",
    ],
    "enwik8, titles, Adam, 20 epochs": ["enwik8-titles-adam"],
    "enwik8, titles, Adam, 10 epochs": ["enwik8-titles-adam-half-as-long"],
    "enwik8, titles, SGD, 320 epochs": [
        "enwik8-titles-sgd-to-its-plateau",
        "enwik8-titles-sgd-to-its-plateau-small-batch",
    ],
    "enwik8, titles, SGD, 20 epochs": ["enwik8-titles-sgd"],
    "enwik8, titles, SGD, 10 epochs": ["enwik8-titles-sgd-half-as-long"],
    "simple-scale, Adagrad": ["simple-scale", "simple-scale-small-batch"],
    "simple-scale, Adagrad, smaller start": ["simple-scale-smaller-start"],
    "simple-scale, sparse Adam": ["simple-scale-sparse-adam"],
    "simple-scale, inputs of 256, Adagrad": ["simple-scale-wider-inputs-adagrad"],
    "simple-scale, inputs of 256, Adagrad, smaller start": ["simple-scale-wider-inputs-smaller-start"],
    "simple-scale, inputs of 256, sparse Adam": ["simple-scale-wider-inputs"],
    "fr-scale, sparse Adam": ["fr-scale"],
    "fr-scale, Adagrad": ["fr-scale-adagrad"],
    "en-scale, Adagrad": ["en-scale"],
    "miwiki, sparse Adam": ["miwiki"],
    "miwiki, Adagrad": ["miwiki-adagrad"],
    "miwiki, k = 32, Adagrad": ["miwiki-k-32", "miwiki-k-32-small-batch"],
}


def rows(reference: Path, title: str) -> pd.DataFrame:
    """The published rows of a training, as text; of a row that several tables have, the first table's.

    Args:
        reference: results/reference.
        title: of `TRAININGS`.
    """
    files = [reference / "factorial" / f"{name}.csv" for name in TRAININGS[title]]
    frame = pd.concat(pd.read_csv(file, dtype=str) for file in files)
    assert frame["optimizer"].nunique() == 1, title
    return frame.drop_duplicates(["B", "estimator"])
