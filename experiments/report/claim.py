"""What a claim is: typed records, which `claims` and `ranking_claims` list."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Measure = Literal[
    "ratio",  # left / right, seed by seed
    "difference",  # left − right
    "ratio between corpora",  # seeds of two corpora do not pair: Welch's interval
    "contrast",  # left, and left / right: both have to be within the limits
    "value",  # left
    "count",  # left, one exact number
    "interior peak",  # left has a *, a number: the best inner value over the better of the two ends
]
Name = str | tuple[str, str]  # of a measurement, or of two whose quotient it is


@dataclass(frozen=True)
class Limits:
    """Where the compared value must lie: within [low, high], or strictly beyond one finite limit."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def strict(self) -> bool:
        """Whether this is a bound, with one finite limit that is itself outside."""
        return math.isinf(self.low) or math.isinf(self.high)

    def __str__(self) -> str:
        """The limits in words, with all digits."""
        return self.told(_exact)

    def told(self, shown: Callable[[float], str]) -> str:
        """The limits in words, each as it is `shown`."""
        if not self.strict:
            return f"between {shown(self.low)} and {shown(self.high)}"
        return f"below {shown(self.high)}" if math.isinf(self.low) else f"above {shown(self.low)}"


def _exact(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")


@dataclass(frozen=True)
class Need:
    """A measurement that must be at least so large in every seed; "3/{α}" takes the placeholder's value."""

    name: str
    at_least: float | str

    def least(self, case: Mapping[str, str]) -> float:
        """The number, of one case."""
        top, _, bottom = str(self.at_least).format(**case).partition("/")
        return float(top) / float(bottom or 1)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper.

    Attributes:
        id: its name in claims.json.
        says: the paper's words, shortened.
        words: what is compared, such as "SOGram's error ÷ sampling's"; a ratio whose words begin with "lift"
            is shown in per cent.
        source: where they stand.
        paper: the paper's number, in words.
        item: the item of the report that measures it.
        each: placeholders and their values; one comparison for every combination. `dataset` is one of them.
        other: by data set, the corpus that it is compared with, ``{other}`` in names.
        measure: how left and right are compared.
        left, right: names of measurements (`keys`); two are their quotient, seed by seed.
        limits: where the compared value must lie.
        better: the side of a band on which the claim is more than met; empty where neither is.
        gains: whether left itself has to be within the limits too: a loss that shrinks is no gain that grows.
        why: the reason for these limits.
        needs: without these there is no verdict: runs too short, or towers below popularity.
        trained: names of `keys.trained`; where one falls short of 1, nothing is said about ranking.
        ceiling: by method, the names of the same comparison for the nearest Gramians, nearest first: what an
            estimate with less error gains.
        untested: why it cannot be measured without more data, where it cannot.
    """

    id: str
    says: str
    words: str
    source: str
    paper: str = "figure only"
    item: str
    each: Mapping[str, Sequence[str | int]]
    other: Mapping[str, str] = field(default_factory=dict)
    measure: Measure = "ratio"
    left: Name
    right: Name | None = None
    limits: Limits
    better: Literal["", "above", "below"] = ""
    gains: bool = False
    why: str = "the sign is the claim"
    needs: tuple[Need, ...] = ()
    trained: tuple[str, ...] = ()
    ceiling: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    untested: str | None = None

    def names(self, case: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names on the left and on the right, of one case; two names are a quotient."""
        sides = ((side,) if isinstance(side, str) else side or () for side in (self.left, self.right))
        left, right = (tuple(name.format(**case) for name in side) for side in sides)
        return left, right

    @property
    def family(self) -> tuple[str, ...]:
        """The measurements that are compared: claims that share them are one row of the report."""
        if self.measure == "ratio between corpora":
            return (self.id,)
        left, right = ((side,) if isinstance(side, str) else side or () for side in (self.left, self.right))
        return tuple(sorted(left if len(left) == 2 else (*left, *right)))

    def cases(self) -> list[dict[str, str]]:
        """Every combination of the placeholders' values, and the `other` corpus."""
        values = itertools.product(*self.each.values())
        found = [dict(zip(self.each, map(str, combination), strict=True)) for combination in values]
        return [case | {"other": self.other[case["dataset"]]} for case in found] if self.other else found

    @property
    def wanted(self) -> str:
        """The limits in words."""
        return f"{self.limits}{', with a gain on the larger corpus' * self.gains}"

    @property
    def compared(self) -> str:
        """What is compared, as the names themselves, without the corpus."""
        left, right = (
            " ÷ ".join((side,) if isinstance(side, str) else side).replace("{dataset}/", "") if side else ""
            for side in (self.left, self.right)
        )
        return " to ".join(filter(None, (left, right)))


D, OTHER = "{dataset}", "{other}"
ABOVE_1, BELOW_1, ABOVE_0 = Limits(low=1), Limits(high=1), Limits(low=0)
DUMP = {
    "simple": "needs the dump of Simple English Wikipedia of the paper's time, or as near as there is",
    "fr": "needs the dump of French Wikipedia and days of training",
    "en": "needs the dump of English Wikipedia and days of training",
}


def sogram(alpha: float | str) -> str:
    """The label of SOGram with one α."""
    return f"SOGram α={alpha}"
