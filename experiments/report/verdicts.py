"""Judge the claims by the measurements of the report's sections.

Left and right are compared seed by seed: the same seed has the same batches and start. The mean over seeds
(of ratios, by their logarithms) gets a 95 % interval by Student's t. Seeds of two corpora do not pair: there
it is Welch's interval, of ratios by their logarithms. A contrast takes the lesser of both parts' means and
ends, since both must hold; a verdict on gains (`Claim.gains`) takes the lesser ends of their growth, which is
shown, and of the gain on the larger corpus. A seed that never arrives counts as infinite; the interval is
then that of the median, from the least to the greatest value, which six seeds or more have at 95 %.

Comparisons of the same measurements (`Claim.family`), at every α, in one training (a data set of the
profile) and on its other splits are a family; so are those of one claim on two corpora, in all its
trainings. Holm's method keeps the chance of any wrong PASS or FAIL among them at 5 %: the verdicts of the m
comparisons are those at the level 1 − 5 %/m; with the d that this decides taken away, those of the rest at 1
− 5 %/(m − d), and so on. Verdicts on the same values are one comparison: where their interval covers the
truth, all are right. A contrast has a second value, and is one more.

===============  ====================================================================================
PASS             the whole interval lies within the claim's limits
FAIL             the whole interval lies outside
BETTER           the whole interval lies outside a band, on the side on which more is had than was claimed
NOT DECIDED      the interval reaches across a limit, or ties with a bound, or does so when corrected
NOT TRAINED      towers with the nearest Gramian (of sampling, where there is none) rank below popularity or
                 below 90 % of exact ALS of their own objective, where that was solved (the mean of seeds)
NOT TESTED HERE  a measurement is missing, the runs are too short for the claim, or there is no interval
===============  ====================================================================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from scipy import stats

from experiments.report.claim import Claim
from experiments.report.keys import corpus_of
from experiments.report.sections import (
    REACHED,
    Seeds,
    Values,
    geometric,
    interval,
    of_common_seeds,
    share_form,
)
from gramrun.base.files import write_json

Estimate = tuple[float, float, float]  # a mean and the two ends of its interval
NO_ESTIMATE = (math.nan,) * 3
LEVEL = 0.95


class Outcome(StrEnum):
    """The outcome of a claim on one corpus."""

    PASS = "PASS"
    FAIL = "FAIL"
    BETTER = "BETTER THAN CLAIMED"
    NOT_DECIDED = "NOT DECIDED"
    NOT_TRAINED = "NOT TRAINED"
    NOT_TESTED = "NOT TESTED HERE"


@dataclass(frozen=True)
class Verdict:
    """One claim on one corpus.

    Attributes:
        claim: what the paper says.
        dataset: the corpus.
        case: the other placeholders, as "B = 1024"; may be empty.
        estimate, low, high: the mean and its 95 % interval, or NaN.
        outcome: by the rule of this module.
        reason: the outcome in words, with the numbers.
        command: the command that measures it.
        seeds: the least number of seeds of any measurement.
        measured: the measurements, one number a seed, by name; those of the claim's conditions included.
        missing: names of measurements that were not made.
        compared: the compared values by seed; two rows for a contrast and between corpora.
        ceiling: the same comparison for the nearest Gramian, or NaN.
        nearest: the method with that Gramian; empty where there is none.
        corrected: whether it is Holm's correction that leaves it undecided.
    """

    claim: Claim
    dataset: str
    case: str
    estimate: float
    low: float
    high: float
    outcome: Outcome
    reason: str
    command: str = ""
    seeds: int = 0
    measured: Values = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    compared: tuple[Seeds, ...] = ()
    ceiling: Estimate = NO_ESTIMATE
    nearest: str = ""
    corrected: bool = False

    @property
    def tested(self) -> bool:
        """Whether there is a verdict on the claim."""
        return self.outcome not in (Outcome.NOT_TRAINED, Outcome.NOT_TESTED)


def judge(
    claims: Sequence[Claim],
    measured: Mapping[str, Seeds],
    command: Callable[[Claim, Mapping[str, str], bool], str] = lambda claim, case, is_measured: "",
) -> list[Verdict]:
    """A verdict on every claim, on each of its corpora; corrected for the number of each family.

    Args:
        claims: what the paper says.
        measured: one number a seed, by name.
        command: returns the call that measures one case, given whether it was measured.
    """
    verdicts = [_judge(claim, case, measured, command) for claim in claims for case in claim.cases()]
    families: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for place, verdict in enumerate(verdicts):
        if verdict.tested and verdict.claim.measure != "count":
            at_every_alpha = tuple(re.sub(r"α=[\d.]+", "α={α}", name) for name in verdict.claim.family)
            training = "" if verdict.claim.other else corpus_of(verdict.dataset)
            families.setdefault((at_every_alpha, training), []).append(place)
    for places in families.values():
        for place in undecided([verdicts[place] for place in places]):
            single = verdicts[places[place]]
            if single.outcome != Outcome.NOT_DECIDED:
                count = _distinct(verdicts[place] for place in places)
                reason = f"{single.reason}; not so with Holm's correction for {count} comparisons"
                verdicts[places[place]] = replace(
                    single, outcome=Outcome.NOT_DECIDED, reason=reason, corrected=True
                )
    return verdicts


def undecided(family: Sequence[Verdict]) -> list[int]:
    """The places of the comparisons that Holm's method leaves undecided."""
    left = list(range(len(family)))
    while left:
        level = 1 - (1 - LEVEL) / _distinct(family[place] for place in left)
        still = [place for place in left if _outcome_at(family[place], level) == Outcome.NOT_DECIDED]
        if still == left:
            break
        left = still
    return left


def _distinct(family: Iterable[Verdict]) -> int:
    """How many different values the verdicts compare."""
    return len({verdict.compared for verdict in family})


def _outcome_at(verdict: Verdict, level: float) -> Outcome:
    return _outcome(verdict.claim, [np.array(row) for row in verdict.compared], level)


def _judge(
    claim: Claim,
    case: dict[str, str],
    measured: Mapping[str, Seeds],
    command: Callable[[Claim, Mapping[str, str], bool], str],
) -> Verdict:
    used, missing = _find(claim, case, measured)
    needed = {name: tuple(measured[name]) for name in _conditions(claim, case) if name in measured}
    estimate, outcome, rows = NO_ESTIMATE, Outcome.NOT_TESTED, list[np.ndarray]()
    nearest, ceiling = _ceiling(claim, case, measured)
    if missing:
        reason = claim.untested or f"not measured by this profile: {', '.join(missing)}"
    elif unmet := _unmet_need(claim, case, measured):
        reason = unmet
    elif untrained := _untrained(claim, case, measured):
        outcome, reason = Outcome.NOT_TRAINED, untrained
    else:
        rows = _compare(claim, case, used)
        estimate = _estimate(claim, rows)
        if fault := _fault(claim, rows, used, estimate):
            reason = fault
        else:
            outcome = _outcome(claim, rows)
            reason = _reason(claim, outcome, min(map(len, used.values())), estimate, rows)
            if nearest:
                reason += f"; {nearest} has " + "{} [{}, {}]".format(*map(number, ceiling))
    return Verdict(
        claim,
        case["dataset"],
        ", ".join(
            f"{name} = {value}" if len(name) == 1 else value
            for name, value in case.items()
            if name not in ("dataset", "other")
        ),
        *estimate,
        outcome,
        reason,
        command(claim, case, not missing),
        min(map(len, used.values()), default=0),
        used | needed,
        tuple(missing),
        tuple(tuple(row.tolist()) for row in rows),
        ceiling,
        nearest,
    )


def _find(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> tuple[Values, list[str]]:
    """The measurements that a claim compares, and the names of those that are missing."""
    left, right = claim.names(case)
    if claim.measure == "interior peak":
        prefix, _, suffix = left[0].partition("*")
        pattern = re.compile(re.escape(prefix) + r"([0-9.e+-]+)" + re.escape(suffix))
        found = {float(match[1]): name for name in measured if (match := pattern.fullmatch(name))}
        used = {found[key]: tuple(measured[found[key]]) for key in sorted(found)}
        return used, [] if len(used) >= 3 else [f"three values of {prefix}*{suffix}"]
    names = dict.fromkeys((*left, *right))
    missing = [name for name in names if not measured.get(name)]
    return {name: tuple(measured[name]) for name in names if name not in missing}, missing


def _need_names(claim: Claim, case: Mapping[str, str]) -> list[str]:
    return [need.name.format(**case) for need in claim.needs]


def _conditions(claim: Claim, case: Mapping[str, str]) -> list[str]:
    """The measurements that decide whether there is a verdict at all."""
    return _need_names(claim, case) + [name.format(**case) for name in claim.trained]


def _unmet_need(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> str | None:
    """The first need that is not met, in words."""
    for need, name in zip(claim.needs, _need_names(claim, case), strict=True):
        if not measured.get(name):
            return f"not known whether its runs went far enough: no {name}"
        least, found = need.least(case), min(measured[name])
        if not found >= least:
            corpus, what = name.partition("/")[0], name.rpartition("/")[2]
            where = f" on {corpus}" * (corpus != case["dataset"])  # a claim can compare two corpora
            return f"needs {what} of at least {number(least)}{where}, has {number(found)}"
    return None


def _untrained(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> str | None:
    """Why the towers count as untrained, in words; None where they are trained, or nothing is known."""
    for name in claim.trained:
        share = measured.get(name.format(**case))
        if share and (reached := float(np.mean(share))) < 1:
            return (
                f"towers reach {reached:{share_form(reached, 1)}} of what is required: "
                f"popularity, and {100 * REACHED:.0f} % of exact ALS of the same objective"
            )
    return None


def _ceiling(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> tuple[str, Estimate]:
    """The method with the nearest Gramian, and the same ratio for it."""
    for method, names in claim.ceiling.items():
        own, base = (measured.get(name.format(**case), ()) for name in names)
        if own and base:
            return method, geometric(tuple(np.divide(*of_common_seeds(own, base))), LEVEL)
    return "", NO_ESTIMATE


def _compare(claim: Claim, case: Mapping[str, str], used: Values) -> list[np.ndarray]:
    """The compared values by the seeds that all have: one row; two for a contrast and between corpora."""
    paired = claim.measure != "ratio between corpora"
    if claim.measure == "interior peak":
        rows = np.array(of_common_seeds(*used.values()))
        inner, ends = rows[1:-1], rows[[0, -1]]
        return [_divide(inner[np.argmax(inner.mean(axis=1))], ends[np.argmax(ends.mean(axis=1))])]
    count = min(map(len, used.values())) if paired else None
    sides = [of_common_seeds(*(used[name][:count] for name in side)) for side in claim.names(case) if side]
    left, *others = (side[0] if len(side) == 1 else _divide(*side) for side in sides)
    if not others:
        return [left]
    (right,) = others
    if not paired:
        return [left, right]
    if claim.measure == "difference":
        return [left - right]
    return [left, _divide(left, right)] if claim.measure == "contrast" else [_divide(left, right)]


def _divide(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Quotients; NaN for a division by zero and for two infinities."""
    defined = (right != 0) & ~(np.isinf(left) & np.isinf(right))
    quotients: np.ndarray = np.divide(left, right, out=np.full(len(left), np.nan), where=defined)
    return quotients


def _estimate(claim: Claim, rows: Sequence[np.ndarray], level: float = LEVEL) -> Estimate:
    """The mean over seeds and its interval."""
    if not rows or any(np.isnan(row).any() for row in rows):
        return NO_ESTIMATE
    if claim.measure == "ratio between corpora":
        return between_corpora(*rows, level=level)
    ratios = claim.measure in ("ratio", "contrast", "interior peak")
    ends = [
        (float(row[0]),) * 3
        if claim.measure == "count"
        else _of_median(row, level)
        if np.isinf(row).any() or (ratios and not row.all())
        else geometric(tuple(row), level)
        if ratios and min(row) > 0
        else (float(np.mean(row)), *interval(tuple(row), level))
        for row in rows
    ]
    middle, low, high = np.min(ends, axis=0).tolist()  # a contrast holds where both of its parts do
    return middle, low, high


def _of_median(row: np.ndarray, level: float) -> Estimate:
    """The median, and its interval from the least to the greatest of n seeds: of level 1 − 2^(1 − n)."""
    wide_enough = 1 - 2.0 ** (1 - len(row)) >= level
    low, high = (float(row.min()), float(row.max())) if wide_enough else (-math.inf, math.inf)
    return float(np.median(row)), low, high


def between_corpora(left: np.ndarray, right: np.ndarray, *, level: float = LEVEL) -> Estimate:
    """Left over right, with Welch's interval of the logarithm at a confidence level.

    Returns:
        NaN where a logarithm is not defined; NaN ends where a side has a single seed.
    """
    if min(*left, *right) <= 0:
        return NO_ESTIMATE
    first, second = np.log(left), np.log(right)
    mean = float(first.mean() - second.mean())
    low = high = math.nan
    if min(len(first), len(second)) > 1:
        low = high = mean
        if np.ptp(first) or np.ptp(second):
            found = stats.ttest_ind(first, second, equal_var=False).confidence_interval(level)
            low, high = float(found.low), float(found.high)
    return math.exp(mean), math.exp(low), math.exp(high)


def _fault(claim: Claim, rows: Sequence[np.ndarray], used: Values, estimate: Estimate) -> str | None:
    """Why the compared values have no interval."""
    names = ", ".join(used)
    if any(np.isnan(row).any() for row in rows):
        never = sum(all(map(math.isinf, seed)) for seed in zip(*used.values(), strict=False))
        return f"neither side got there in {never} seeds" if never else f"a seed gave no number: {names}"
    if claim.measure == "ratio between corpora" and min(map(min, rows)) <= 0:
        return f"a ratio of what is not above zero: {names}"
    if claim.measure == "count":
        return None if not np.ptp(rows[0]) else "a count that differs between seeds"
    if min(map(len, rows)) < 2:
        return "one seed gives no interval"
    endless = estimate[1:] == (-math.inf, math.inf)
    return f"{len(rows[0])} seeds are too few for the interval of a median" if endless else None


def _outcome(claim: Claim, rows: Sequence[np.ndarray], level: float = LEVEL) -> Outcome:
    """Bounds are strict: a tie is on neither side."""
    limits = claim.limits
    _, low, high = _estimate(claim, rows, level)
    if claim.gains:
        low, high = np.minimum((low, high), geometric(tuple(rows[0]), level)[1:])
    if high < limits.low or low > limits.high:
        side = "below" if high < limits.low else "above"
        return Outcome.BETTER if side == claim.better else Outcome.FAIL
    inside = limits.low < low and high < limits.high
    if inside or (not limits.strict and limits.low <= low and high <= limits.high):
        return Outcome.PASS
    return Outcome.NOT_DECIDED


def _reason(
    claim: Claim, outcome: Outcome, seeds: int, estimate: Estimate, rows: Sequence[np.ndarray]
) -> str:
    middle, low, high = map(number, estimate)
    what, compared = "it", f"{claim.measure} {middle} [{low}, {high}] over {seeds} seeds"
    if claim.gains:
        gain, *ends = map(number, geometric(tuple(rows[0]), LEVEL))
        what, compared = "the lesser", f"{compared}, on the larger corpus {gain} [{', '.join(ends)}]"
    where = {
        Outcome.PASS: f"all of {what} {claim.limits}",
        Outcome.FAIL: f"none of {what} {claim.limits}",
        Outcome.BETTER: f"all of {what} {claim.better} the band {claim.limits}",
        Outcome.NOT_DECIDED: f"not all of {what} {claim.limits}",
    }[outcome]
    return f"{compared}: {where}"


def number(value: float) -> str:
    """Four significant digits, a real minus sign, and no exponent where people would not write one."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.4g}" if abs(value) < 1e4 or math.isinf(value) else f"{value:,.0f}"
    return text.replace("-", "−").replace("inf", "∞")


def write_verdicts(verdicts: Sequence[Verdict], path: Path) -> None:
    """Write claims.json: every verdict with the numbers that it was made from."""
    rows = [
        {
            "claim": verdict.claim.id,
            "dataset": verdict.dataset,
            "case": verdict.case,
            "outcome": verdict.outcome.value,
            **{name: _to_json(getattr(verdict, name)) for name in ("estimate", "low", "high")},
            "reason": verdict.reason,
            "command": verdict.command,
            "measured": {name: list(map(_to_json, values)) for name, values in verdict.measured.items()},
        }
        for verdict in verdicts
    ]
    write_json(path, {"verdicts": rows})


def _to_json(value: float) -> float | str:
    """JSON has no infinity and no NaN; `float` reads these words."""
    return value if math.isfinite(value) else str(value)
