"""Verdicts as they are told: a line a claim that was tested, the comparisons, and what was not tested."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.claim_schema import Claim, number
from experiments.claims import Outcome, Verdict

OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.NOT_DECIDED, Outcome.NOT_TESTED)
RULE = (
    "Each claim is compared seed by seed; the interval is 95 %, Student's t over seeds. PASS: all of it is "
    "where the claim says. FAIL: none of it. NOT DECIDED: it reaches across the limit. NOT TESTED HERE: not "
    "measured, or without an interval. Of twenty intervals about one misses the truth. "
    "Claims, bounds and tolerances, with their reasons: experiments/claims.yaml."
)


@dataclass(frozen=True)
class ClaimLine:
    """A claim that was tested somewhere, with all its comparisons taken together.

    Attributes:
        claim: what the paper says.
        counts: how many comparisons came out how, without those that come out in no comparison.
        measured: the range of the estimates and what was wanted.
        details: where it fails and where it is not decided; empty where it holds.
        absent: corpora on which it was not tested.
        command: what measures it.
    """

    claim: Claim
    counts: dict[Outcome, int]
    measured: str
    details: str
    absent: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Comparison:
    """One verdict that has an interval, or that lacks only that."""

    claim: Claim
    dataset: str
    case: str
    measured: str
    interval: str
    seeds: int
    wanted: str
    outcome: Outcome


@dataclass(frozen=True)
class Untested:
    """Claims that were tested nowhere, by the one reason that they share."""

    reason: str
    command: str
    claims: list[Claim]


def by_claim(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each claim, in the claims' order."""
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.claim.id, []).append(verdict)
    return grouped


def tally(verdicts: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many verdicts there are of each outcome."""
    counted = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: counted[outcome] for outcome in OUTCOMES}


def summary(verdicts: Sequence[Verdict]) -> str:
    """Two sentences on all verdicts: how many claims hold wherever they were tested, and how many fail."""
    found = [
        {verdict.outcome for verdict in group if verdict.tested} for group in by_claim(verdicts).values()
    ]
    tested = [outcomes for outcomes in found if outcomes]
    everywhere = sum(outcomes == {Outcome.PASS} for outcomes in tested)
    nowhere = sum(Outcome.FAIL in outcomes and Outcome.PASS not in outcomes for outcomes in tested)
    both = sum({Outcome.PASS, Outcome.FAIL} <= outcomes for outcomes in tested)
    left = len(tested) - everywhere - nowhere - both
    comparisons = sum(verdict.tested for verdict in verdicts)
    return (
        f"{len(tested)} of {len(found)} claims were tested, in {comparisons} comparisons. "
        f"Of these claims {everywhere} hold in every comparison, {both} hold in some and fail in others, "
        f"{nowhere} fail and hold in none, and {left} fail in none but are not decided everywhere."
    )


def claim_lines(verdicts: Sequence[Verdict]) -> list[ClaimLine]:
    """A line for each claim that was tested."""
    return [_line(group) for group in by_claim(verdicts).values() if any(v.tested for v in group)]


def _line(group: Sequence[Verdict]) -> ClaimLine:
    claim = group[0].claim
    tested = [verdict for verdict in group if verdict.tested]
    estimates = sorted(verdict.estimate for verdict in tested)
    span = "" if len(estimates) == 1 else f" to {number(estimates[-1])}"
    details = [
        f"{words} {_places(tested, outcome)}"
        for outcome, words in ((Outcome.FAIL, "fails on"), (Outcome.NOT_DECIDED, "not decided on"))
        if any(verdict.outcome == outcome for verdict in tested)
    ]
    known = {verdict.dataset for verdict in tested}
    return ClaimLine(
        claim=claim,
        counts={outcome: count for outcome, count in tally(tested).items() if count},
        measured=f"{number(estimates[0])}{span}; the claim: {claim.wanted}",
        details="; ".join(details),
        absent=tuple(name for name in dict.fromkeys(v.dataset for v in group) if name not in known),
        command=tested[0].command,
    )


def _places(verdicts: Sequence[Verdict], outcome: Outcome) -> str:
    """Where an outcome was found: a corpus alone where it holds for all its cases."""
    places = []
    for dataset in dict.fromkeys(verdict.dataset for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.dataset == dataset]
        cases = [verdict.case for verdict in mine if verdict.outcome == outcome]
        if len(cases) == len(mine):
            places.append(dataset)
        elif cases:
            places.append(f"{dataset} ({'; '.join(cases)})")
    return ", ".join(places)


def comparisons(verdicts: Sequence[Verdict]) -> list[Comparison]:
    """Every comparison that was made, in the claims' order, and those that lack only an interval."""
    rows = []
    for verdict in verdicts:
        if verdict.missing:
            continue
        missing = math.isnan(verdict.low)
        rows.append(
            Comparison(
                claim=verdict.claim,
                dataset=verdict.dataset,
                case=verdict.case,
                measured=number(verdict.estimate),
                interval="–" if missing else f"[{number(verdict.low)}, {number(verdict.high)}]",
                seeds=min(len(values) for values in verdict.measured.values()),
                wanted=verdict.claim.wanted if verdict.tested else verdict.reason,
                outcome=verdict.outcome,
            )
        )
    return rows


def untested(verdicts: Sequence[Verdict]) -> list[Untested]:
    """The claims that were tested nowhere, those of one reason together."""
    groups: dict[tuple[str, str], list[Claim]] = {}
    for group in by_claim(verdicts).values():
        if not any(verdict.tested for verdict in group):
            claim = group[0].claim
            corpora = ", ".join(map(str, claim.each["dataset"]))
            partly = [verdict.reason for verdict in group if not verdict.missing]
            absent = f"not measured by this profile, on {corpora}"
            reason = claim.untested or (partly[0] if partly else absent)
            groups.setdefault((reason, group[0].command), []).append(claim)
    return [Untested(reason, command, claims) for (reason, command), claims in groups.items()]
