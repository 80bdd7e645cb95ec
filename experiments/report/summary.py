"""Verdicts as the report shows them: a row a claim, a row a comparison, and what was not tested."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.report.claim import Claim
from experiments.report.verdicts import Outcome, Verdict, number

MADE = frozenset(("simple-scale", "planted-clusters"))
PAPERS = frozenset(("wikipedia-simple", "wikipedia-fr", "wikipedia-en", "movielens-10m"))
RULE = (
    "Each claim is compared seed by seed; the interval is 95 %, Student's t over seeds (Welch's between two "
    "corpora). PASS: all of it within the claim's limits. FAIL: none of it. NOT DECIDED: it reaches across a "
    "limit. NOT TRAINED: towers rank below popularity, or below 90 % of exact ALS of their objective. "
    "NOT TESTED HERE: not measured, or in runs too short for the claim, or without an interval. "
    "Intervals cover the noise of training alone (start and batches): each corpus has one split and one "
    "sample of candidates. They are not corrected for their number: about one in twenty misses the truth. "
    "Claims, limits and their reasons: experiments/report/claims.py. "
    "† made data, no real corpus. * A real corpus, but not one of the paper's."
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim that was tested somewhere, with all its comparisons together.

    Attributes:
        claim: what the paper says.
        counts: comparisons by outcome.
        measured: the range of the estimates, and the limits.
        where_not: where it fails or is not decided.
        corpora: where it was tested.
        absent: where it was not tested, and why.
        command: the command that measures it.
    """

    claim: Claim
    counts: Mapping[Outcome, int]
    measured: str
    where_not: str
    corpora: str
    absent: str
    command: str


@dataclass(frozen=True)
class Untested:
    """Claims that were tested nowhere, by the reason that they share."""

    reason: str
    command: str
    claims: list[Claim]


def marked(dataset: str) -> str:
    """A corpus, marked by its kind as `RULE` says."""
    return dataset + ("†" if dataset in MADE else "" if dataset in PAPERS else "*")


def by_claim(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """The verdicts of each claim, in the claims' order."""
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.claim.id, []).append(verdict)
    return list(grouped.values())


def tally(verdicts: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many verdicts there are of each outcome."""
    counted = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: counted[outcome] for outcome in Outcome}


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold wherever they were tested, and how many fail."""
    found = [{verdict.outcome for verdict in group if verdict.tested} for group in by_claim(verdicts)]
    tested = [outcomes for outcomes in found if outcomes]
    hold = sum(outcomes == {Outcome.PASS} for outcomes in tested)
    both = sum({Outcome.PASS, Outcome.FAIL} <= outcomes for outcomes in tested)
    fail = sum(Outcome.FAIL in outcomes for outcomes in tested) - both
    return (
        f"{len(tested)} of {len(found)} claims were tested, in {sum(v.tested for v in verdicts)} "
        f"comparisons: "
        f"{hold} hold in every comparison, {both} hold in some and fail in others, {fail} fail and hold in "
        f"none, {len(tested) - hold - both - fail} fail in none and are not decided everywhere."
    )


def claim_rows(verdicts: Sequence[Verdict]) -> list[ClaimRow]:
    """A row for each claim that was tested."""
    return [_row(group) for group in by_claim(verdicts) if any(v.tested for v in group)]


def _row(group: Sequence[Verdict]) -> ClaimRow:
    tested = [verdict for verdict in group if verdict.tested]
    ends = dict.fromkeys(number(end(v.estimate for v in tested)) for end in (min, max))
    where_not = [
        f"{words} {_places(tested, [v for v in tested if v.outcome == outcome])}"
        for outcome, words in ((Outcome.FAIL, "fails on"), (Outcome.NOT_DECIDED, "not decided on"))
        if any(verdict.outcome == outcome for verdict in tested)
    ]
    return ClaimRow(
        claim=group[0].claim,
        counts={outcome: count for outcome, count in tally(tested).items() if count},
        measured=f"{' to '.join(ends)}; the claim: {group[0].claim.limits}",
        where_not="; ".join(where_not),
        corpora=", ".join(dict.fromkeys(marked(verdict.dataset) for verdict in tested)),
        absent="; ".join(
            f"{_places(group, verdicts)}: {reason}" for reason, verdicts in _by_reason(group).items()
        ),
        command=_command(tested),
    )


def _by_reason(group: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """The untested cases of a claim by reason; if only runs are missing, by the profile that makes them."""
    reasons: dict[str, list[Verdict]] = {}
    for verdict in group:
        if not verdict.tested:
            profile = re.search(r"--profile (\S+)", verdict.command)
            where = f"in profile {profile[1]}" if verdict.missing and profile else verdict.reason
            reasons.setdefault(where, []).append(verdict)
    return reasons


def _command(group: Sequence[Verdict]) -> str:
    """One call for all corpora of some verdicts, which share profile and item."""
    calls = [verdict.command.partition(" --datasets ") for verdict in group]
    datasets = dict.fromkeys(name for call in calls for name in call[2].split())
    return calls[0][0] + (f" --datasets {' '.join(datasets)}" if datasets else "")


def _places(group: Sequence[Verdict], chosen: Sequence[Verdict]) -> str:
    """The corpora of some verdicts of a claim, with the cases where they are not all of the corpus's."""
    places = []
    for dataset in dict.fromkeys(verdict.dataset for verdict in chosen):
        cases = [verdict.case for verdict in chosen if verdict.dataset == dataset]
        whole = len(cases) == sum(verdict.dataset == dataset for verdict in group)
        places.append(marked(dataset) if whole else f"{marked(dataset)} ({'; '.join(cases)})")
    return ", ".join(places)


def comparisons(verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    """Every comparison with all its measurements, in the claims' order, as a row of a table."""
    return [
        {
            "claim": verdict.claim.id,
            "corpus": marked(verdict.dataset),
            "case": verdict.case or "–",
            "verdict": verdict.outcome.value,
            "measured": number(verdict.estimate),
            "95 %": f"[{number(verdict.low)}, {number(verdict.high)}]" if verdict.low == verdict.low else "–",
            "seeds": str(verdict.seeds),
            "wanted": str(verdict.claim.limits) if verdict.tested else verdict.reason,
        }
        for verdict in verdicts
        if not verdict.missing
    ]


def untested(verdicts: Sequence[Verdict]) -> list[Untested]:
    """The claims that were tested nowhere, those of one reason together."""
    groups: dict[tuple[str, str], list[Claim]] = {}
    for group in by_claim(verdicts):
        if any(verdict.tested for verdict in group):
            continue
        claim = group[0].claim
        partly = dict.fromkeys(f"{marked(v.dataset)}: {v.reason}" for v in group if not v.missing)
        corpora = ", ".join(map(str, claim.each["dataset"]))
        reason = claim.untested or "; ".join(partly) or f"not measured by this profile, on {corpora}"
        groups.setdefault((reason, group[0].command), []).append(claim)
    return [Untested(reason, command, claims) for (reason, command), claims in groups.items()]
