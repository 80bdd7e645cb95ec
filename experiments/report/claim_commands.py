"""Which command measures a claim: found in the profiles, by its item and the corpora that it names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from experiments.report.claims import Claim
from experiments.reproduce.corpora import DATASETS
from experiments.reproduce.plans import load_profile, profiles

QUICKEST_FIRST = ("quick", "standard", "paper")
NOWHERE = "no profile measures it"


def command(claim: Claim, case: Mapping[str, str], profile: str, *, measured: bool) -> str:
    """The call that measures one case of a claim, as narrow as it can be.

    Args:
        claim: what the paper says.
        case: what stands for its placeholders.
        profile: that of the report.
        measured: whether this profile measured it; else another is looked for first.
    """
    datasets = corpora(claim, case)
    plans = {name: _plans(name) for name in order()}
    those = [
        name for name, own in plans.items() if claim.item in own and own[claim.item].issuperset(datasets)
    ]
    if not those:
        return NOWHERE
    if measured:
        chosen = profile if profile in those else those[0]
    else:  # an item that makes its own corpora makes the largest in the longest profile
        chosen = ([name for name in those if name != profile] or those)[0] if datasets else those[-1]
    narrow = f" --datasets {' '.join(datasets)}" if datasets else ""
    return f"python -m experiments.reproduce --profile {chosen} --items {claim.item}{narrow}"


def corpora(claim: Claim, case: Mapping[str, str]) -> list[str]:
    """The corpora whose runs a case compares; none for those that an item makes for itself."""
    first = [name.partition("/")[0] for side in claim.names(case) for name in side]
    return [name for name in dict.fromkeys(first) if name in DATASETS]


def order() -> list[str]:
    """All profiles, those that take least first."""
    known = profiles()
    return [name for name in QUICKEST_FIRST if name in known] + [n for n in known if n not in QUICKEST_FIRST]


@cache
def _plans(profile: str) -> dict[str, frozenset[str]]:
    """The corpora of each item of a profile."""
    return {plan.item: frozenset(plan.datasets) for plan in load_profile(profile, Path())}
