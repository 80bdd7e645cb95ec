"""Names of measurements, shared by the items that measure and the claims that compare.

A name is text, ``<corpus>/<method>/<quantity>``, so that claims.json stays readable. Build names with these
functions only: a misspelt quantity is then an error of Python and not a claim that is never tested.
Arguments may be placeholders of a claim, such as ``"{dataset}"``.
"""

from __future__ import annotations

import re
from enum import StrEnum

Value = str | int | float

SAMPLING, EXACT = "sampling", "exact Gramian"  # labels of methods
NEAREST = (  # those with the nearest Gramians, the nearest first; `factorial` has the last one's label
    EXACT,
    "SAGram β=1, per item",
    "SAGram β=1, per item, bfloat16",
    "SAGram per item",
)
GRAMIAN_FORM, DOUBLE_SUM = "Gramian form", "double sum"  # of a batch's gravity


class Ranking(StrEnum):
    """What is measured of a method that is trained and evaluated."""

    VALIDATION = "validation MAP"
    OVER_POPULARITY = "validation MAP over popularity's"
    EARLY = "validation MAP after a tenth of the steps"
    TRAINING = "training MAP"
    STEPS = "steps"
    SPEED_UP = "speed-up to sampling's final MAP"
    LARGEST_SPEED_UP = "largest speed-up that its evaluations can show"


class Gravity(StrEnum):
    """What is measured of a model trained with one λ."""

    OBSERVED_MEAN = "observed inner product mean"
    RANDOM_MEAN = "random inner product mean"
    RANDOM_SD = "random inner product sd"
    SEPARATION = "separation"
    VALIDATION = "validation MAP"


class Decay(StrEnum):
    """What is measured of an error curve under one learning rate."""

    EARLY = "early error"
    LATE = "late error"
    COMMON = "steps to the common level"
    OWN = "steps to its own level"
    DRIFT = "relative drift"


def corpus_of(dataset: str) -> str:
    """The corpus of which a data set is another split or copy; the data set itself, where it is none."""
    return re.sub(r"-(split|copy)\d+(?=-|$)", "", dataset)


def ranking(corpus: str, method: str, quantity: Ranking) -> str:
    """A quantity of a trained method."""
    return f"{corpus}/{method}/{quantity}"


def trained(corpus: str) -> str:
    """The validation MAP of `rankings.judged` over what trained towers must reach (`sections.REACHED`)."""
    return f"{corpus}/towers/share of the required MAP"


def gramian_error(corpus: str, method: str, batch: Value, side: str = "left", when: str = "") -> str:
    """The late error of a Gramian estimate at one batch size; the early one where `when` is "early"."""
    return f"{corpus}/{method}/{' '.join(filter(None, (side, when, 'error')))} B={batch}"


def trajectory_steps(corpus: str) -> str:
    """Steps of the trajectory along which errors are measured."""
    return f"{corpus}/trajectory steps"


def trajectory_passes(corpus: str, batch: Value) -> str:
    """Passes of Gramian batches of one size over the training pairs."""
    return f"{corpus}/trajectory passes B={batch}"


def gravity(corpus: str, method: str, quantity: Gravity, weight: Value) -> str:
    """A quantity of a model trained with gravity weight λ."""
    return f"{corpus}/{method}/{quantity} λ={weight}"


def decay(corpus: str, alpha: Value, side: str, quantity: str, learning_rate: Value) -> str:
    """A quantity (of `Decay`) of SOGram's error curve of one side under one learning rate."""
    return f"{corpus}/SOGram α={alpha}/{side} {quantity} η={learning_rate}"


def scale_steps(corpus: str) -> str:
    """Steps of the trajectories under several learning rates."""
    return f"{corpus}/scale trajectory steps"


def planted(items: Value, epochs: Value, dim: Value, *parts: str) -> str:
    """A quantity of runs on a planted corpus: ``"B=4", "lift"`` or ``"sampling", "B=4", "kept"``."""
    return "/".join((f"{items}/epochs={epochs}/k={dim}", *parts))


def size(corpus: str, column: str) -> str:
    """A count of Table 1 or 3."""
    return f"{corpus}/{column}"


def gravity_cost(dim: Value, batch: Value, form: str) -> str:
    """Milliseconds of the gradient of a batch's gravity, one number a round."""
    return f"random-rows/k={dim}/B={batch}/{form} ms"
