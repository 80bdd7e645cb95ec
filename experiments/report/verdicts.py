"""Judge the claims of claims.yaml by the measurements of the report's sections.

The rule. Left and right are compared seed by seed (the same seed has the same batches and parameters), and
the mean of the comparisons gets a 95 % interval by Student's t. Between corpora nothing pairs the seeds:
there it is Welch's interval, of ratios by way of their logarithms. A claim says where that value should be:
between two numbers around the paper's, or strictly above or below a bound.

==============  =====================================================================================
PASS            the whole interval is between the two numbers, or on the claimed side of the bound
FAIL            none of it is
NOT DECIDED     the interval reaches across a limit, or is a tie on it: more seeds would tell
NOT TESTED HERE a measurement is missing, a need of the claim is not met (its runs were too short to speak of
                it), or there are fewer than two seeds and so no interval
==============  =====================================================================================

A contrast is of two claims that must hold together (left is above the bound, and so is left ÷ right): its
interval has the lesser of both lower ends and the lesser of both upper ends. A seed that never got there
counts as infinite; then the interval is from the least to the greatest value. Of twenty intervals of 95 %
about one misses the truth: a claim that holds on every corpus is surer than one row.
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

from experiments.report.claim_commands import command
from experiments.report.claim_values import Values, compare, estimate
from experiments.report.claims import Claim, exactly, load_claims, number
from experiments.report.sections import Section, Seeds
from gramrun.base.files import read_json, write_json

__all__ = ["Claim", "Outcome", "Verdict", "gather", "judge", "load_claims", "rejudge", "write_verdicts"]


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
        seeds: how many it has; the fewer, of two corpora.
        measured: the numbers behind it, one a seed, by name; those of the claim's needs included.
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
    seeds: int = 0
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
    needed, unmet = _needs(claim, case, measured)
    values = () if missing else compare(claim, case, used)
    middle, low, high = estimate(claim, values, used)
    if missing:
        reason = claim.untested or f"not measured by this profile: {', '.join(missing)}"
        outcome = Outcome.NOT_TESTED
    elif fault := unmet or _fault(claim, case, values, used, needed):
        outcome, reason = Outcome.NOT_TESTED, fault
        middle, low, high = (math.nan,) * 3 if unmet else (middle, low, high)
    else:
        outcome = _outcome(claim, low, high)
        reason = _reason(claim, outcome, _seeds(values), middle, low, high)
    return Verdict(
        claim=claim,
        dataset=case["dataset"],
        case=", ".join(_told(name, value) for name, value in case.items() if name != "dataset"),
        estimate=middle,
        low=low,
        high=high,
        outcome=outcome,
        reason=reason,
        command=command(claim, case, profile, measured=not missing),
        seeds=_seeds(tuple(used.values())),
        measured=used | needed,
        missing=tuple(missing),
    )


def _told(placeholder: str, value: str) -> str:
    """A symbol with its value; of a word, as "method", the value says enough."""
    return f"{placeholder} = {value}" if len(placeholder) == 1 else value


def _seeds(values: Sequence[Seeds]) -> int:
    return min(map(len, values), default=0)


def _find(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> tuple[Values, list[str]]:
    """The measurements that a claim compares, and the names of those that are missing."""
    left, right = claim.names(case)
    if claim.measure == "interior peak":
        prefix, _, suffix = left[0].partition("*")
        pattern = re.compile(re.escape(prefix) + r"([0-9.e+-]+)" + re.escape(suffix))
        found = {float(match[1]): name for name in measured if (match := pattern.fullmatch(name))}
        used = {found[key]: tuple(measured[found[key]]) for key in sorted(found)}
        return used, [] if len(used) >= 3 else [f"three values of {prefix}*{suffix}"]
    names = (*left, *right)
    missing = [name for name in dict.fromkeys(names) if name not in measured]
    return {name: tuple(measured[name]) for name in names if name in measured}, missing


def _needs(claim: Claim, case: Mapping[str, str], measured: Mapping[str, Seeds]) -> tuple[Values, str | None]:
    """What a claim's needs are judged by, and which of them is not met, if one is not."""
    found, unmet = {}, None
    for need in claim.needs:
        name = need.name.format(**case)
        values = tuple(measured.get(name, ()))
        if not values:
            unmet = unmet or f"not known whether its runs are long enough: no {name}"
            continue
        found[name] = values
        if not min(values) >= need.least(case):
            unmet = unmet or need.unmet(case, min(values))
    return found, unmet


def _fault(
    claim: Claim, case: Mapping[str, str], values: Sequence[Seeds], used: Values, needed: Values
) -> str | None:
    """Why the values say nothing, if they do."""
    if not values:
        return "not as many seeds on all sides: " + ", ".join(f"{n} has {len(v)}" for n, v in used.items())
    if any(math.isnan(value) for row in values for value in row):
        if never := sum(all(map(math.isinf, seed)) for seed in zip(*used.values(), strict=False)):
            lengths = "".join(f" in {number(min(v))} {n.split()[-1]}" for n, v in needed.items())
            memory = f"; 1/α = {number(1 / float(case['α']))}" if "α" in case else ""
            return f"neither side got there{lengths}, in {never} of {_seeds(values)} seeds{memory}"
        return "a seed gave no number: " + ", ".join(used)
    if claim.measure == "ratio between corpora" and min(map(min, values)) <= 0:
        return "a ratio of what is not above zero: " + ", ".join(used)
    if claim.measure == "count":
        return None if len(set(values[0])) == 1 else "a count that differs between seeds"
    return "one seed gives no interval" if _seeds(values) < 2 else None


def _outcome(claim: Claim, low: float, high: float) -> Outcome:
    """A bound is strict: what lies on it is on neither side."""
    least, greatest = claim.limits
    if claim.between:
        holds, fails = least <= low and high <= greatest, high < least or low > greatest
    else:
        holds, fails = least < low and high < greatest, high < least or low > greatest
    return Outcome.PASS if holds else Outcome.FAIL if fails else Outcome.NOT_DECIDED


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
    if low == high:
        return f"{told}: a tie, so not decided"
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
    write_json(path, {"verdicts": rows})


def rejudge(claims: Sequence[Claim], path: Path) -> tuple[list[dict[str, Any]], list[Verdict]]:
    """The rows of a claims.json, and new verdicts from the numbers that it keeps.

    Raises:
        InputError: when the file is missing or damaged.
    """
    rows = read_json(path)["verdicts"]
    measured = {name: tuple(map(float, v)) for row in rows for name, v in row["measured"].items()}
    return rows, judge(claims, measured)


def _to_json(value: float) -> float | str:
    """JSON has no infinity and no NaN; `float` reads these words."""
    return value if math.isfinite(value) else str(value)
