"""What a claim compares, from measurements by name: seed by seed where seeds pair, and the interval of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from experiments.report.claims import Claim
from experiments.report.sections import Seeds, interval

Values = dict[str, Seeds]  # measurements by name


def compare(claim: Claim, case: Mapping[str, str], used: Values) -> tuple[Seeds, ...]:
    """What the claim compares, seed by seed; empty when the seeds are not as many where they are paired.

    One row; two for a contrast, both of which must hold, and between corpora, of which each has its own.
    """
    left, right = (_side(names, used) for names in claim.names(case))
    if claim.measure.endswith(" between corpora"):
        return () if left is None or right is None else (_tuple(left), _tuple(right))
    if len({len(values) for values in used.values()}) != 1 or left is None:
        return ()
    if claim.measure == "interior peak":
        rows = np.array(list(used.values()))
        inner = rows[1:-1][np.argmax(rows[1:-1].mean(axis=1))]
        end = rows[[0, -1]][np.argmax(rows[[0, -1]].mean(axis=1))]
        return (_tuple(_divide(inner, end)),)
    if right is None:
        return (_tuple(left),)
    if claim.measure == "contrast":
        return _tuple(left), _tuple(_divide(left, right))
    return (_tuple(left - right if claim.measure == "difference" else _divide(left, right)),)


def _side(names: tuple[str, ...], used: Values) -> np.ndarray | None:
    """One side's values; of an interior peak, whose name stands for many, the first's."""
    sides = [np.array(used.get(name, next(iter(used.values())))) for name in names]
    if not sides or len({len(side) for side in sides}) != 1:
        return None
    return sides[0] if len(sides) == 1 else _divide(*sides)


def _divide(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Quotients; what is divided by zero has none, nor have two infinities."""
    has_one = (right != 0) & ~(np.isinf(left) & np.isinf(right))
    quotients: np.ndarray = np.divide(left, right, out=np.full(len(left), np.nan), where=has_one)
    return quotients


def _tuple(values: np.ndarray) -> Seeds:
    return tuple(float(value) for value in values)


def estimate(claim: Claim, values: Sequence[Seeds], used: Values) -> tuple[float, float, float]:
    """The mean over seeds and its interval."""
    if not values or any(math.isnan(value) for row in values for value in row):
        return math.nan, math.nan, math.nan
    if claim.measure == "count":
        return values[0][0], min(values[0]), max(values[0])
    if claim.measure.endswith(" between corpora"):
        return between_corpora(*values, logarithms=claim.measure.startswith("ratio"))
    ends = [
        (float(np.median(row)), min(row), max(row))
        if any(math.isinf(value) for side in used.values() for value in side)
        else (float(np.mean(row)), *interval(row))
        for row in values
    ]
    middle, low, high = np.min(ends, axis=0).tolist()  # a contrast holds where both of its parts do
    return middle, low, high


def between_corpora(left: Seeds, right: Seeds, *, logarithms: bool) -> tuple[float, float, float]:
    """Left less right, or by logarithms left over right, with Welch's 95 % interval: seeds do not pair.

    Returns:
        NaN for all three where a logarithm is asked of what is not above zero; NaN ends of one seed a side.
    """
    if logarithms and min(*left, *right) <= 0:
        return math.nan, math.nan, math.nan
    first, second = (np.log(side) if logarithms else np.array(side) for side in (left, right))
    mean = float(first.mean() - second.mean())
    if min(len(first), len(second)) < 2:
        low = high = math.nan
    else:
        parts = [side.var(ddof=1) / len(side) for side in (first, second)]
        total = sum(parts)
        weights = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True))
        half = stats.t.ppf(0.975, total**2 / weights) * math.sqrt(total) if weights else 0.0
        low, high = mean - half, mean + half
    ends = (mean, float(low), float(high))
    return (math.exp(ends[0]), math.exp(ends[1]), math.exp(ends[2])) if logarithms else ends
