"""Verdicts as the report shows them: a row a claim, a row a comparison, and what was not tested."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.report.claim import Claim
from experiments.report.sections import REACHED
from experiments.report.verdicts import Estimate, Outcome, Verdict, number

MADE = ("simple-scale", "fr-scale", "en-scale", "planted-clusters", "random-rows")
PARTS = {  # what the parts of a profile are called
    "enwik8-trained": "enwik8, fast training",
    "enwik8-dense-adam": "enwik8, dense Adam",
    "enwik8-adagrad": "enwik8, Adagrad",
    "enwik8-adagrad-smaller-start": "enwik8, Adagrad, smaller start",
    "enwik8-sgd-to-its-plateau": "enwik8, SGD",
    "miwiki-adagrad": "miwiki, Adagrad",
    "miwiki-k-32": "miwiki, k = 32, Adagrad",
    "miwiki-split1-adagrad": "miwiki, second split, Adagrad",
    "miwiki-split2-adagrad": "miwiki, third split, Adagrad",
    "enwik8-titles-half-as-long": "enwik8-titles, 20 epochs",
    "enwik8-titles-sparse-adam": "enwik8-titles, sparse Adam, 80 epochs",
    "enwik8-titles-adam": "enwik8-titles, dense Adam, 80 epochs",
    "enwik8-titles-sgd-to-its-plateau": "enwik8-titles, SGD, 320 epochs",
    "simple-scale-wider-inputs": "simple-scale, inputs of 256",
    **{
        f"{name}-split{split}{part}": f"{name}, {place} split{title}"
        for name, part, title in (
            ("enwik8", "", ""),
            ("enwik8", "-dense-adam", ", dense Adam"),
            ("enwik8-titles", "", ""),
        )
        for split, place in ((1, "second"), (2, "third"))
    },
}
AT_A_GLANCE = 2  # corpora of a row; the report folds more
PAPERS = frozenset(("wikipedia-simple", "wikipedia-fr", "wikipedia-en", "movielens-10m"))
RULE = (
    "PASS: all of the 95 % interval over seeds is within the claim's limits. FAIL: none of it. BETTER THAN "
    "CLAIMED: none of it, on the side where more is had. NOT DECIDED: it reaches across a limit. NOT "
    f"TRAINED: towers rank below popularity, or below {100 * REACHED:.0f} % of exact ALS of their objective, "
    "by the mean of seeds. NOT TESTED HERE: not measured, or in runs that did not get far enough for the "
    "claim, or with one seed. † made or expanded data. * A real corpus, but not one of the paper's. enwik8, "
    "fast training: errors along training with dense Adam; along the others towers learn slowly. Ranking: "
    "where no optimizer is named, it is sparse Adam on enwik8 and its splits, miwiki, fr-scale, MovieLens "
    "and the paper's French and English Wikipedia, and Adagrad on the others. Claims (a) and (b) of a row "
    "share numbers: a comparison in which they come out alike is counted once; where their numbers differ, "
    "(b)'s follows ·."
)
DETAILS = (
    "Each claim is compared seed by seed; the interval is Student's t (Welch's between two corpora; where a "
    "seed never arrives, from the least to the greatest of six seeds or more). It covers the noise of "
    "training alone (start and batches), on one split and one sample of candidates. NOT TRAINED is said by "
    "the towers of the exact Gramian, or else of SAGram per item, or else of sampling; exact ALS "
    "counts where it was solved. "
    "Verdicts, not the intervals shown, are corrected by Holm's method for the number of comparisons of the "
    "same measurements, at every α, in one training (corpus, optimizer, length) and on its other splits, of "
    "one claim on two corpora in all trainings; "
    "(Holm) marks what it leaves undecided. Claims, limits and their reasons: experiments/report/claims.py."
)


@dataclass(frozen=True)
class Told:
    """A claim in a row, and how its comparisons came out."""

    claim: Claim
    counts: Mapping[Outcome, int]


@dataclass(frozen=True)
class ClaimRow:
    """The claims on the same measurements, of which some were tested.

    Attributes:
        claims: the claims that were tested, with their outcomes.
        wanted: what is compared, and where it has to lie.
        here: by corpus, the estimates with their intervals, and what the nearest Gramian has.
        span: the least and the greatest of the estimates, where `here` is too long to read at a glance.
        where: where each claim holds, fails, is not decided, or no towers are trained.
        compared: what is compared, with the claims' limits.
        absent: where it was not tested, and why.
        command: the command that measures it.
    """

    claims: Sequence[Told]
    wanted: Sequence[str]
    here: Sequence[str]
    span: str
    where: Sequence[str]
    compared: str
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
    return PARTS.get(dataset, dataset) + (
        "†" if dataset.startswith(MADE) else "" if dataset in PAPERS else "*"
    )


def by_claim(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """The verdicts of each claim, in the claims' order."""
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.claim.id, []).append(verdict)
    return list(grouped.values())


def tally(verdicts: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many comparisons have each outcome; claims on the same names that come out alike count once."""
    distinct = {(v.claim.family, v.dataset, v.case, v.outcome) for v in verdicts}
    counted = Counter(outcome for *_, outcome in distinct)
    return {outcome: counted[outcome] for outcome in Outcome}


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold wherever they were tested, and how many fail."""
    found = [{verdict.outcome for verdict in group if verdict.tested} for group in by_claim(verdicts)]
    tested = [outcomes for outcomes in found if outcomes]
    met = {Outcome.PASS, Outcome.BETTER}
    hold = sum(outcomes <= met for outcomes in tested)
    both = sum(Outcome.FAIL in outcomes and bool(met & outcomes) for outcomes in tested)
    fail = sum(Outcome.FAIL in outcomes for outcomes in tested) - both
    return (
        f"{len(tested)} of {len(found)} claims were tested: "
        f"{hold} hold or do better in every comparison, {both} hold in some and fail in others, {fail} fail "
        f"and hold in none, {len(tested) - hold - both - fail} fail in none and are undecided in some."
    )


def claim_rows(verdicts: Sequence[Verdict]) -> list[ClaimRow]:
    """A row for each family of claims of which one was tested, in the claims' order."""
    families: dict[tuple[str, ...], list[list[Verdict]]] = {}
    for group in by_claim(verdicts):
        if any(verdict.tested for verdict in group):
            families.setdefault(group[0].claim.family, []).append(group)
    return [_row(groups) for groups in families.values()]


def _row(groups: Sequence[Sequence[Verdict]]) -> ClaimRow:
    claims = [group[0].claim for group in groups]
    every = [verdict for group in groups for verdict in group]
    tested = [verdict for verdict in every if verdict.tested]
    limits = dict.fromkeys(f"{claim.compared}: {claim.wanted} ({claim.why})" for claim in claims)
    here = [_measured(dataset, found) for dataset, found in _by_dataset(tested).items()]
    return ClaimRow(
        [Told(group[0].claim, {o: n for o, n in tally(group).items() if n and o != Outcome.NOT_TESTED})
         for group in groups],
        list(dict.fromkeys(f"{claim.words}, wanted {_wanted(claim)}" for claim in claims)),
        here,
        _span(tested, len(here)) if len(here) > AT_A_GLANCE else "",
        [_where(group) for group in groups],
        "; ".join(limits),
        "; ".join(
            f"{_places(every, absent)}: {reason}" for reason, absent in _by_reason(every).items()
        ),
        _command(tested),
    )  # fmt: skip


def _by_dataset(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.dataset, []).append(verdict)
    return found


def _measured(dataset: str, verdicts: Sequence[Verdict]) -> str:
    """The estimates on a corpus with intervals, and the ceiling; of many, the least and the greatest."""
    first = verdicts[0]
    found: dict[str, dict[str, None]] = {}  # claims of one row may share a case
    for verdict in verdicts:
        text = _with_interval(verdict, (verdict.estimate, verdict.low, verdict.high))
        found.setdefault(verdict.case, {})[text] = None
    texts = {case: " · ".join(own) for case, own in found.items()}
    if _is_lift(first.claim) and first.case:
        text = "; ".join(f"{case}: {own}" for case, own in texts.items())
    elif len(set(texts.values())) == 1:
        text = texts[first.case]
    else:
        ends = (end(verdicts, key=lambda v: v.estimate) for end in (min, max))
        shown_ends = dict.fromkeys(_with_interval(v, (v.estimate, v.low, v.high)) for v in ends)
        text = f"{' to '.join(shown_ends)} in {len(found)} cases"
    if first.nearest:
        text += f"; {first.nearest} {_with_interval(first, first.ceiling)}"
    return f"{marked(dataset)}: {text}"


def _span(verdicts: Sequence[Verdict], trainings: int) -> str:
    """The range of the estimates over all corpora, of lifts by case, and of the nearest Gramian's."""
    estimates: dict[str, list[float]] = {}
    for verdict in verdicts:
        estimates.setdefault(verdict.case * _is_lift(verdict.claim), []).append(verdict.estimate)
    if nearest := [verdict.ceiling[0] for verdict in verdicts if verdict.nearest]:
        estimates["nearest Gramian"] = nearest
    ranges = (
        f"{case}: " * bool(case)
        + " to ".join(dict.fromkeys(shown(verdicts[0], end(own)) for end in (min, max)))
        for case, own in estimates.items()
    )
    return f"{trainings} trainings: {'; '.join(ranges)}"


def _with_interval(verdict: Verdict, estimate: Estimate) -> str:
    text, low, high = (shown(verdict, x) for x in estimate)
    return text if text == low == high else f"{text} [{low}, {high}]"


def shown(verdict: Verdict, value: float) -> str:
    """A ratio of MAPs as a lift in per cent, all else as a number."""
    return _percent(value) if _is_lift(verdict.claim) else number(value)


def _is_lift(claim: Claim) -> bool:
    return claim.words.startswith("lift") and claim.measure in ("ratio", "contrast")


def _percent(value: float) -> str:
    return "0 %" if value == 1 else f"{value - 1:+.1%}".replace("-", "−").replace("%", " %")


def _wanted(claim: Claim) -> str:
    """The limits as estimates are shown."""
    return claim.limits.told(_percent) if _is_lift(claim) else claim.wanted


def _where(group: Sequence[Verdict]) -> str:
    found = [verdict for verdict in group if verdict.outcome != Outcome.NOT_TESTED]
    words = (
        (Outcome.PASS, "holds on"),
        (Outcome.FAIL, "fails on"),
        (Outcome.BETTER, "better on"),
        (Outcome.NOT_DECIDED, "not decided on"),
        (Outcome.NOT_TRAINED, "towers not trained on"),
    )
    return "; ".join(
        f"{text} {_places(found, chosen)}"
        for outcome, text in words
        if (chosen := [verdict for verdict in found if verdict.outcome == outcome])
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
    """The corpora of some verdicts of a claim, with the case or the number where they are not all."""
    places = []
    for dataset in dict.fromkeys(verdict.dataset for verdict in chosen):
        cases = [verdict.case for verdict in chosen if verdict.dataset == dataset]
        every = sum(verdict.dataset == dataset for verdict in group)
        few = cases[0] if len(cases) == 1 else f"{len(cases)} of {every}"
        places.append(marked(dataset) + f" ({few})" * (len(cases) < every))
    return ", ".join(places)


def comparisons(verdicts: Sequence[Verdict]) -> list[dict[str, str]]:
    """Every comparison with all its measurements, in the claims' order, as a row of a table."""
    return [
        {
            "claim": verdict.claim.id,
            "corpus": marked(verdict.dataset),
            "case": verdict.case or "–",
            "verdict": verdict.outcome.value + " (Holm)" * verdict.corrected,
            "measured": number(verdict.estimate),
            "95 %": f"[{number(verdict.low)}, {number(verdict.high)}]" if verdict.low == verdict.low else "–",
            "seeds": str(verdict.seeds),
            "wanted": verdict.claim.wanted if verdict.tested else verdict.reason,
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
        reason = "; ".join(partly) or claim.untested or f"not measured by this profile, on {corpora}"
        command = next((verdict.command for verdict in group if not verdict.missing), group[0].command)
        groups.setdefault((reason, command), []).append(claim)
    return [Untested(reason, command, claims) for (reason, command), claims in groups.items()]
