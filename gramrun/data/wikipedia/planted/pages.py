"""Pages of a planted wiki: their ids, other namespaces, and redirects with every way to go wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gramrun.data.byte_strings import ByteStrings
from gramrun.data.wikipedia.planted.settings import PlantedWiki
from gramrun.data.wikipedia.records import CATEGORIES

ARTICLE, REDIRECT, OTHER, MISSING = range(4)  # kinds of page; MISSING has an id and no row
ARTICLE_TITLE, REDIRECT_TITLE, RED_TITLE, OTHER_TITLE, CATEGORY_TITLE = range(5)  # kinds of title

# What becomes of a redirect; the names of the counts in the truth.
FATES = (
    "redirects_resolved",
    "redirects_without_row",
    "redirects_interwiki",
    "redirects_to_other_namespaces",
    "redirects_to_missing_pages",
    "redirects_in_loops",
)
RESOLVED, WITHOUT_ROW, INTERWIKI, TO_OTHER, TO_MISSING, IN_LOOP = range(len(FATES))
_DIRECT, _CHAINED, _TO_BROKEN = len(FATES), len(FATES) + 1, len(FATES) + 2
_SHARES = {
    _CHAINED: 0.1,
    _TO_BROKEN: 0.02,
    WITHOUT_ROW: 0.01,
    INTERWIKI: 0.01,
    TO_OTHER: 0.03,
    TO_MISSING: 0.03,
    IN_LOOP: 0.03,
}

# Namespaces of other pages: talk, user, user talk, project, file, template, portal.
_NAMESPACES = np.array([1, 2, 3, 4, 6, 10, 100])
_NAMESPACE_SHARES = np.array([0.5, 0.1, 0.1, 0.05, 0.05, 0.15, 0.05])


@dataclass(frozen=True)
class Layout:
    """All page ids in ascending order.

    Attributes:
        numbers: int64, shape (pages,). page_id: neither dense nor from 1.
        kinds: int64, shape (pages,). ARTICLE, REDIRECT, OTHER or MISSING.
        rows: int64, shape (pages,). Which one of its kind; the k-th of a kind in order of ids is k.
    """

    numbers: np.ndarray
    kinds: np.ndarray
    rows: np.ndarray

    def of_kind(self, kind: int) -> np.ndarray:
        """The page_ids of a kind, in order."""
        numbers: np.ndarray = self.numbers[self.kinds == kind]
        return numbers


@dataclass(frozen=True)
class OtherPages:
    """Pages of other namespaces: first the category pages, then the rest.

    Attributes:
        namespaces: int64, shape (others,).
        categories: int64, shape (category pages,). Which category each of the first ones describes.
        articles: int64, shape (others - category pages,). Whose title each of the rest has.
        is_redirect: bool, shape (others,).
    """

    namespaces: np.ndarray
    categories: np.ndarray
    articles: np.ndarray
    is_redirect: np.ndarray


@dataclass(frozen=True)
class PlantedRedirects:
    """Redirecting pages of namespace 0, and where they lead.

    Attributes:
        fates: int64, shape (redirects,). Positions in `FATES`: where the chain ends.
        articles: int64, shape (redirects,). The article where the chain ends, -1 for none.
        steps: int64, shape (redirects,). Redirects on the way, this one included; 0 for unresolved ones.
        target_kinds: int64, shape (redirects,). The kind of title that the row of ``redirect`` names.
        targets: int64, shape (redirects,). Which one of that kind; -1 for a page without a row.
        interwiki: bool, shape (redirects,). The row names another wiki.
    """

    fates: np.ndarray
    articles: np.ndarray
    steps: np.ndarray
    target_kinds: np.ndarray
    targets: np.ndarray
    interwiki: np.ndarray


def lay_out(wiki: PlantedWiki, redirects: int, others: int) -> Layout:
    """Mix pages of all kinds and number them with gaps."""
    random = wiki.random(4)
    missing = max(5, wiki.pages // 500)
    kinds = random.permutation(np.repeat(np.arange(4), [wiki.pages, redirects, others, missing]))
    numbers = 2 + np.cumsum(random.choice([1, 1, 1, 2, 3, 7], len(kinds)))
    rows = np.empty(len(kinds), dtype=np.int64)
    for kind in range(4):
        here = kinds == kind
        rows[here] = np.arange(np.count_nonzero(here))
    return Layout(numbers, kinds, rows)


def other_pages(wiki: PlantedWiki, described: np.ndarray) -> OtherPages:
    """Plant the pages of other namespaces.

    Args:
        wiki: the settings.
        described: int64. The categories that have a page.
    """
    random = wiki.random(5)
    count = round(wiki.other_pages * wiki.pages)
    namespaces = random.choice(_NAMESPACES, count, p=_NAMESPACE_SHARES)
    is_redirect = np.concatenate([np.zeros(len(described), dtype=bool), random.random(count) < 0.03])
    return OtherPages(
        np.concatenate([np.full(len(described), CATEGORIES), namespaces]),
        described,
        random.permutation(wiki.pages)[:count],
        is_redirect,
    )


def plant_redirects(wiki: PlantedWiki, red_titles: int, other_titles: int) -> PlantedRedirects:
    """Plant redirects to articles, over others, to nowhere and in circles."""
    random = wiki.random(6)
    count = round(wiki.redirects * wiki.pages)
    kinds = np.full(count, _DIRECT)
    start = 0
    for kind, share in _SHARES.items():
        end = min(count, start + max(1, round(share * count)))
        kinds[start:end] = kind
        start = end
    kinds = random.permutation(kinds)

    fates, articles, steps = kinds.copy(), np.full(count, -1), np.zeros(count, dtype=np.int64)
    target_kinds, targets = np.full(count, ARTICLE_TITLE), np.full(count, -1)
    direct = np.flatnonzero(kinds == _DIRECT)
    # Half of them to popular pages: the product of two uniform numbers is small more often than not.
    chosen = random.random(len(direct)) * np.where(
        random.random(len(direct)) < 0.5, random.random(len(direct)), 1
    )
    articles[direct] = targets[direct] = (chosen * wiki.pages).astype(np.int64)
    steps[direct] = 1
    fates[direct] = RESOLVED

    interwiki = kinds == INTERWIKI
    targets[interwiki] = random.integers(0, wiki.pages, np.count_nonzero(interwiki))
    for kind, titles, size in ((TO_OTHER, OTHER_TITLE, other_titles), (TO_MISSING, RED_TITLE, red_titles)):
        here = kinds == kind
        target_kinds[here] = titles
        targets[here] = random.integers(0, size, np.count_nonzero(here))
    target_kinds[np.isin(kinds, [_CHAINED, _TO_BROKEN, IN_LOOP])] = REDIRECT_TITLE
    _close_loops(np.flatnonzero(kinds == IN_LOOP), targets)
    broken = np.flatnonzero(kinds < len(FATES))
    to_broken = np.flatnonzero(kinds == _TO_BROKEN)
    targets[to_broken] = random.choice(broken, len(to_broken))
    fates[to_broken] = fates[targets[to_broken]]
    # Each chained one leads to one before it, so that there are no more loops; often to the one just before.
    chain = [*direct.tolist()]
    for redirect, u, near in zip(
        np.flatnonzero(kinds == _CHAINED).tolist(), random.random(count), random.random(count), strict=False
    ):
        target = chain[-1] if near < 0.5 else chain[int(u * len(chain))]
        targets[redirect], articles[redirect] = target, articles[target]
        steps[redirect], fates[redirect] = steps[target] + 1, RESOLVED
        # A new start now and then keeps chains short.
        chain.append(redirect if u < 0.8 else int(direct[int(u * len(direct))]))
    return PlantedRedirects(fates, articles, steps, target_kinds, targets, interwiki)


def _close_loops(redirects: np.ndarray, targets: np.ndarray) -> None:
    """Loops of one, two and three pages in turn."""
    start, length = 0, 1
    while start < len(redirects):
        loop = redirects[start : start + length]
        targets[loop] = np.roll(loop, -1)
        start, length = start + length, length % 3 + 1


def case_variants(titles: ByteStrings) -> ByteStrings:
    """The titles with their last letter, a small one of ASCII, as a capital."""
    data = titles.data.copy()
    data[titles.offsets[1:] - 1] -= 32
    return ByteStrings(titles.offsets, data)
