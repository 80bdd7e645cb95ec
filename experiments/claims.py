"""Does a claim of the paper hold? experiments/claims.yaml and what sections measured, made into verdicts.

The rule. Left and right are compared seed by seed (the same seed has the same batches and parameters), and
the mean of the comparisons gets a 95 % interval by Student's t. A claim says where that value should be:
between two numbers around the paper's, or above or below a bound.

==============  =====================================================================================
PASS            the whole interval is between the two numbers, or on the claimed side of the bound
FAIL            none of it is
NOT DECIDED     the interval reaches across a limit: more seeds would tell
NOT TESTED HERE a measurement is missing, or there are fewer than two seeds and so no interval
==============  =====================================================================================

A seed that never got there counts as infinite; then the interval is from the least to the greatest value.
Of twenty intervals of 95 % about one misses the truth: a claim that holds on every corpus is surer than one
row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claim_schema import Claim, Name, exactly, load_claims, number
from experiments.sections import Section, Seeds, interval
from gramrun import runs

__all__ = ["Claim", "Outcome", "Verdict", "gather", "judge", "load_claims", "rejudge", "write_verdicts"]

Values = dict[str, Seeds]  # measurements by name


class Outcome(StrEnum):
    """What became of a claim on one corpus."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_DECIDED = "NOT DECIDED"
    NOT_TESTED = "NOT TESTED HERE"


@dataclass(frozen=True)
class Verdict:
    """One claim on one corpus.

    Attributes:
        claim: what the paper says.
        dataset: the corpus.
        case: the other placeholders, as "B = 1024"; may be empty.
        estimate: the mean over seeds of what the claim compares; NaN where it was not tested.
        low: the lower end of its 95 % interval, or NaN.
        high: the upper end, or NaN.
        outcome: by the rule of this module.
        reason: in words, with the numbers.
        command: what measures it.
        measured: the numbers behind it, one a seed, by name.
        missing: the names of those that there are not.
    """

    claim: Claim
    dataset: str
    case: str
    estimate: float
    low: float
    high: float
    outcome: Outcome
    reason: str
    command: str
    measured: Values = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def tested(self) -> bool:
        """Whether there is an interval to speak of."""
        return self.outcome != Outcome.NOT_TESTED


def gather(sections: Sequence[Section]) -> Values:
    """All sections' measurements by name.

    Raises:
        ValueError: when two sections call different numbers by one name.
    """
    measured: Values = {}
    for section in sections:
        for name, values in section.measured.items():
            numbers = tuple(float(value) for value in values)
            if not np.array_equal(measured.setdefault(name, numbers), numbers, equal_nan=True):
                raise ValueError(f"{section.name}: {name} has other numbers in another section")
    return measured


def judge(claims: Sequence[Claim], measured: Mapping[str, Seeds], profile: str = "standard") -> list[Verdict]:
    """A verdict on every claim, on each of its corpora.

    Args:
        claims: what the paper says.
        measured: a name, as "enwik8/sampling/validation MAP", to one number a seed.
        profile: what measured it, for the command.
    """
    return [_judge(claim, case, measured, profile) for claim in claims for case in claim.cases()]


def _judge(claim: Claim, case: dict[str, str], measured: Mapping[str, Seeds], profile: str) -> Verdict:
    used, missing = _find(claim, case, measured)
    values = () if missing else _compare(claim, case, used)
    estimate, low, high = _estimate(claim, values)
    if missing:
        outcome, reason = (
            Outcome.NOT_TESTED,
            claim.untested or f"not measured by this profile: {', '.join(missing)}",
        )
    elif fault := _fault(claim, used, values):
        outcome, reason = Outcome.NOT_TESTED, fault
    else:
        outcome = _outcome(low, high, *claim.limits)
        reason = _reason(claim, outcome, len(values), estimate, low, high)
    return Verdict(
        claim=claim,
        dataset=case["dataset"],
        case=", ".join(_told(name, value) for name, value in case.items() if name != "dataset"),
        estimate=estimate,
        low=low,
        high=high,
        outcome=outcome,
        reason=reason,
        command=claim.command.format(profile=_profile_for(case["dataset"]) if missing else profile),
        measured=used,
        missing=tuple(missing),
    )


def _profile_for(dataset: str) -> str:
    """The profile that measures what this one does not: only `paper` has the paper's own corpora."""
    return "paper" if dataset.startswith("wikipedia-") or dataset == "movielens-10m" else "standard"


def _told(placeholder: str, value: str) -> str:
    """A symbol with its value; of a word, as "method", the value says enough."""
    return f"{placeholder} = {value}" if len(placeholder) == 1 else value


def _names(name: Name | None, case: Mapping[str, str]) -> tuple[str, ...]:
    parts = () if name is None else (name,) if isinstance(name, str) else name
    return tuple(part.format(**case) for part in parts)


def _find(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> tuple[Values, list[str]]:
    """The measurements that a claim needs, and the names of those that are missing."""
    if claim.measure == "interior peak":
        prefix, _, suffix = _names(claim.left, case)[0].partition("*")
        pattern = re.compile(re.escape(prefix) + r"([0-9.e+-]+)" + re.escape(suffix))
        found = {float(match[1]): name for name in measured if (match := pattern.fullmatch(name))}
        used = {found[key]: tuple(measured[found[key]]) for key in sorted(found)}
        return used, [] if len(used) >= 3 else [f"three values of {prefix}*{suffix}"]
    names = (*_names(claim.left, case), *_names(claim.right, case))
    missing = [name for name in dict.fromkeys(names) if name not in measured]
    return {name: tuple(measured[name]) for name in names if name in measured}, missing


def _compare(claim: Claim, case: Mapping[str, str], used: Values) -> Seeds:
    """What the claim compares, seed by seed; empty when the seeds are not as many on all sides."""
    if len({len(values) for values in used.values()}) != 1:
        return ()
    if claim.measure == "interior peak":
        rows = np.array(list(used.values()))
        inner = rows[1:-1][np.argmax(rows[1:-1].mean(axis=1))]
        end = rows[[0, -1]][np.argmax(rows[[0, -1]].mean(axis=1))]
        return _tuple(_divide(inner, end))
    left = _side(_names(claim.left, case), used)
    if claim.right is None:
        return _tuple(left)
    right = _side(_names(claim.right, case), used)
    return _tuple(_divide(left, right) if claim.measure == "ratio" else left - right)


def _side(names: tuple[str, ...], used: Values) -> np.ndarray:
    sides = [np.array(used[name]) for name in names]
    return sides[0] if len(sides) == 1 else _divide(*sides)


def _divide(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Quotients; what is divided by zero has none."""
    quotients: np.ndarray = np.divide(left, right, out=np.full(left.shape, np.nan), where=right != 0)
    return quotients


def _tuple(values: np.ndarray) -> Seeds:
    return tuple(float(value) for value in values)


def _fault(claim: Claim, used: Values, values: Seeds) -> str | None:
    """Why the values say nothing, if they do."""
    if not values:
        return "not as many seeds on all sides: " + ", ".join(f"{n} has {len(v)}" for n, v in used.items())
    if any(math.isnan(value) for value in values):
        return "a seed gave no number: " + ", ".join(name for name in used)
    if claim.measure == "count":
        return None if len(set(values)) == 1 else "a count that differs between seeds"
    return "one seed gives no interval" if len(values) < 2 else None


def _estimate(claim: Claim, values: Seeds) -> tuple[float, float, float]:
    """The mean over seeds and its interval."""
    if not values or any(math.isnan(value) for value in values):
        return math.nan, math.nan, math.nan
    if claim.measure == "count":
        return values[0], min(values), max(values)
    if any(math.isinf(value) for value in values):
        return float(np.median(values)), min(values), max(values)
    return float(np.mean(values)), *interval(values)


def _outcome(low: float, high: float, least: float, greatest: float) -> Outcome:
    if least <= low and high <= greatest:
        return Outcome.PASS
    return Outcome.FAIL if high < least or low > greatest else Outcome.NOT_DECIDED


def _reason(claim: Claim, outcome: Outcome, seeds: int, estimate: float, low: float, high: float) -> str:
    what = {"interior peak": "best inner value ÷ better end"}.get(claim.measure, claim.measure)
    if claim.measure == "count":
        return f"{estimate:,.0f} is {'' if outcome == Outcome.PASS else 'not '}{claim.wanted}"
    told = f"{what} {number(estimate)} [{number(low)}, {number(high)}] over {seeds} seeds"
    if outcome == Outcome.PASS:
        return f"{told}: all of it {claim.wanted}"
    if outcome == Outcome.FAIL:
        least, greatest = claim.limits
        side = f"above {exactly(greatest)}" if low > greatest else f"below {exactly(least)}"
        return f"{told}: all of it {side}"
    return f"{told}: not all of it {claim.wanted}, so not decided"


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
    runs.write_json(path, {"verdicts": rows})


def rejudge(claims: Sequence[Claim], path: Path) -> tuple[list[dict[str, Any]], list[Verdict]]:
    """The rows of a claims.json, and new verdicts from the numbers that it keeps.

    Raises:
        InputError: when the file is missing or damaged.
    """
    rows = runs.read_json(path)["verdicts"]
    measured = {name: tuple(map(float, v)) for row in rows for name, v in row["measured"].items()}
    return rows, judge(claims, measured)


def _to_json(value: float) -> float | str:
    """JSON has no infinity and no NaN; `float` reads these words."""
    return value if math.isfinite(value) else str(value)
