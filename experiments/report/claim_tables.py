"""Verdicts as they are told: a line a claim that was tested, the comparisons, and what was not tested."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.report.claims import Claim, number
from experiments.report.verdicts import Outcome, Verdict

OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.NOT_DECIDED, Outcome.NOT_TESTED)
MADE = frozenset(("simple-scale", "planted-clusters"))  # made corpora
PAPERS = frozenset(
    ("wikipedia-simple", "wikipedia-fr", "wikipedia-en", "movielens-10m")
)  # of the paper's names
LEGEND = "† made data, no real corpus. * A real corpus, but another than the paper's."


def marked(dataset: str) -> str:
    """A corpus with what it is, by the `LEGEND`."""
    return dataset + ("†" if dataset in MADE else "" if dataset in PAPERS else "*")


def rule(verdicts: Sequence[Verdict]) -> str:
    """How verdicts come about, what their intervals cover, and how many to expect by chance."""
    judged = sum(verdict.tested for verdict in verdicts)
    return (
        "Each claim is compared seed by seed; the interval is 95 %, Student's t over seeds (Welch's, where "
        "two corpora are compared). PASS: all of it is where the claim says. FAIL: none of it. NOT DECIDED: "
        "it reaches across the limit, or ties with it. NOT TESTED HERE: not measured, measured in runs too "
        "short to speak of it, or without an interval. Intervals cover the noise of training alone (start "
        "and batches): each corpus has one split, one sample of candidates and one copy. What another "
        "sample of left items would change stands beside the tables of rankings. Intervals are not corrected "
        f"for their number: of {judged} of 95 % about {judged / 20:.0f} miss what they are of, so that one "
        "row by itself says little. Claims, bounds, tolerances and their reasons: "
        "experiments/report/claims.yaml. "
        f"{LEGEND}"
    )


@dataclass(frozen=True)
class ClaimLine:
    """A claim that was tested somewhere, with all its comparisons taken together.

    Attributes:
        claim: what the paper says.
        counts: how many comparisons came out how, without those that come out in no comparison.
        measured: the range of the estimates and what was wanted.
        details: where it fails and where it is not decided; empty where it holds.
        corpora: those on which it was tested, marked.
        absent: what was not tested: corpora, marked, and why, or where they are.
        command: what measures it.
    """

    claim: Claim
    counts: dict[Outcome, int]
    measured: str
    details: str
    corpora: tuple[str, ...]
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
    comparisons = [frozenset(verdict.measured) for verdict in verdicts if verdict.tested]
    return (
        f"{len(tested)} of {len(found)} claims were tested, in {len(comparisons)} comparisons, which are of "
        f"{len(set(comparisons))} different sets of numbers (a claim's sign and its size share theirs). "
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
    ends = list(dict.fromkeys(number(estimate) for estimate in (estimates[0], estimates[-1])))
    details = [
        f"{words} {_places(tested, [v for v in tested if v.outcome == outcome])}"
        for outcome, words in ((Outcome.FAIL, "fails on"), (Outcome.NOT_DECIDED, "not decided on"))
        if any(verdict.outcome == outcome for verdict in tested)
    ]
    return ClaimLine(
        claim=claim,
        counts={outcome: count for outcome, count in tally(tested).items() if count},
        measured=f"{' to '.join(ends)}; the claim: {claim.wanted}",
        details="; ".join(details),
        corpora=tuple(dict.fromkeys(marked(verdict.dataset) for verdict in tested)),
        absent=_absent(group),
        command=_command(tested),
    )


def _command(group: Sequence[Verdict]) -> str:
    """One call for all corpora of some verdicts, which share profile and item."""
    calls = [verdict.command.partition(" --datasets ") for verdict in group]
    datasets = dict.fromkeys(name for call in calls for name in call[2].split())
    return calls[0][0] + "".join(calls[0][1:2] if datasets else []) + " ".join(datasets)


def _absent(group: Sequence[Verdict]) -> tuple[str, ...]:
    """What of a claim was not tested, by reason: places that share one together."""
    reasons: dict[str, list[Verdict]] = {}
    for verdict in group:
        if not verdict.tested:
            reasons.setdefault(_reason(verdict), []).append(verdict)
    return tuple(f"{_places(group, verdicts)}: {reason}" for reason, verdicts in reasons.items())


def _reason(verdict: Verdict) -> str:
    """Why it was not tested; where nothing but its runs is missing, the profile that makes them."""
    if not verdict.missing:
        return verdict.reason
    other = re.search(r"--profile (\S+)", verdict.command)
    where = f"in profile {other[1]}" if other else verdict.command
    return f"{where}: {verdict.claim.untested}" if verdict.claim.untested else where


def _places(group: Sequence[Verdict], chosen: Sequence[Verdict]) -> str:
    """Where some verdicts of a claim are: a corpus alone where they are all of its cases."""
    places = []
    for dataset in dict.fromkeys(verdict.dataset for verdict in chosen):
        cases = [verdict.case for verdict in chosen if verdict.dataset == dataset]
        whole = len(cases) == sum(verdict.dataset == dataset for verdict in group)
        places.append(marked(dataset) if whole else f"{marked(dataset)} ({'; '.join(cases)})")
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
                dataset=marked(verdict.dataset),
                case=verdict.case,
                measured=number(verdict.estimate),
                interval="–" if missing else f"[{number(verdict.low)}, {number(verdict.high)}]",
                seeds=verdict.seeds,
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
            partly = list(dict.fromkeys(f"{marked(v.dataset)}: {v.reason}" for v in group if not v.missing))
            absent = f"not measured by this profile, on {corpora}"
            reason = claim.untested or ("; ".join(partly) if partly else absent)
            groups.setdefault((reason, group[0].command), []).append(claim)
    return [Untested(reason, command, claims) for (reason, command), claims in groups.items()]
