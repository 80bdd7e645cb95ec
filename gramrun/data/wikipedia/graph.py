"""The page graph of a wiki: which article links to which, and which categories it is in.

The paper's corpora (Section 4.1): x links to y if the page of x has a link to y, redirects resolved. Articles
are the pages of namespace 0 that are no redirects. Every row of ``pagelinks`` is either kept or counted in
exactly one class of `LINK_CLASSES`. Its source is judged first, then the namespace of its target, then the
target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gramrun.base.compiled import compiled
from gramrun.data.threads import prefetch, start_thread
from gramrun.data.wikipedia.byte_strings import are_text
from gramrun.data.wikipedia.lookups import NumberMap, TitleIndex
from gramrun.data.wikipedia.pages import (
    MISSING_TITLE,
    NOT_TEXT,
    OTHER_NAMESPACE,
    UNKNOWN_NUMBER,
    PageTable,
    read_pages,
    resolve_redirects,
)
from gramrun.data.wikipedia.records import ARTICLES, CATEGORIES, ByNumber, Links, LinkTargets, Wiki
from gramrun.data.wikipedia.sparse_rows import RowBuilder, SparseRows

LINK_CLASSES = (
    "links_from_other_namespaces",
    "links_from_redirects",
    "links_from_missing_pages",
    "links_to_other_namespaces",
    "links_without_target",
    "links_to_missing_pages",
    "links_to_broken_redirects",
    "links_to_titles_not_utf8",  # only if missing pages are kept; else these are links to missing pages
    "self_links",
    "links_through_redirects",  # kept: the one class that drops nothing
)
(
    _FROM_OTHER,
    _FROM_REDIRECT,
    _FROM_MISSING,
    _TO_OTHER,
    _NO_TARGET,
    _TO_MISSING,
    _TO_BROKEN,
    _TO_NO_TEXT,
    _SELF,
    _THROUGH,
) = range(len(LINK_CLASSES))
_BROKEN = -100  # the code of a target that is a redirect to no article
_FIRST_CATEGORY = -1000  # category c has the code _FIRST_CATEGORY - c
_VIA_REDIRECT = 1 << 30  # added to the row where a redirect ends; rows are smaller


@dataclass(frozen=True)
class PageGraph:
    """The links and categories of a wiki's pages, before rare ones are dropped.

    Rows are the pages of namespace 0 in ascending order of their numbers; rows of redirects are empty.

    Attributes:
        pages: the pages.
        targets: the titles that `links` point to: those of the pages, then, if missing pages are kept,
            their titles.
        links: columns are rows of `targets`.
        categories: columns are rows of `category_names`.
        category_names: every category with a member or a page.
        hidden: bool, one for each category.
        counts: what was read, dropped and resolved.
    """

    pages: PageTable
    targets: pa.Array
    links: SparseRows
    categories: SparseRows
    category_names: pa.Array
    hidden: np.ndarray
    counts: dict[str, int]


def read_graph(wiki: Wiki, *, categories: bool = True, missing_pages: bool = False) -> PageGraph:
    """Read a wiki's tables into its graph.

    Args:
        wiki: the tables.
        categories: whether to read categories; else no page has any.
        missing_pages: whether to keep links to titles of namespace 0 that no page has.

    Raises:
        InputError: a table is missing, damaged, or contradicts itself.
    """
    pages = read_pages(wiki.pages())
    final, redirect_counts = resolve_redirects(pages, wiki.redirects())
    targets = _Targets(pages.index, TitleIndex(), final, missing_pages)
    names = targets.categories
    every = np.ones(len(pages.categories.titles), dtype=bool)
    if categories:
        names.add(pages.categories.titles, every)
    targets.read_numbers(wiki.link_targets())

    memberships = start_thread(lambda: _read_categories(wiki if categories else None, pages, targets))
    links, link_counts = _read_links(wiki, pages, targets)
    category_rows, category_counts = memberships()
    hidden = np.zeros(len(names), dtype=bool)
    if categories:
        listed = np.concatenate([np.zeros(0, dtype=np.int64), *wiki.hidden_categories()])
        hidden[names.find(pages.categories.titles, every)[np.isin(pages.categories.numbers, listed)]] = True
    return PageGraph(
        pages=pages,
        targets=pages.index.titles,
        links=links,
        categories=category_rows,
        category_names=names.titles,
        hidden=hidden,
        counts={
            "pages_read": pages.read,
            "pages_of_other_namespaces": pages.read - len(pages),
            "articles": len(pages) - redirect_counts["redirects"],
            **redirect_counts,
            **link_counts,
            **category_counts,
            "hidden_categories": int(hidden.sum()),
        },
    )


class _Targets:
    """Finds where links lead: to a row (plus `_VIA_REDIRECT` if through a redirect), or to a code.

    Args:
        index: the titles of the pages; titles of missing pages are added to it, if these are kept.
        categories: the names of categories; those that are met are added to it.
        final: the result of `resolve_redirects`.
        missing_pages: whether missing pages are kept.
    """

    def __init__(
        self, index: TitleIndex, categories: TitleIndex, final: np.ndarray, missing_pages: bool
    ) -> None:
        self.index, self.categories = index, categories
        self._final, self._missing_pages = final, missing_pages
        self._of_number = NumberMap(UNKNOWN_NUMBER)

    def read_numbers(self, batches: Iterator[LinkTargets]) -> None:
        """Read the table ``linktarget``."""
        for batch in prefetch(batches):
            codes = self._of_titles(batch.namespaces, batch.titles)
            rows = batch.namespaces == CATEGORIES
            codes[rows] = _FIRST_CATEGORY - self.categories.add(batch.titles, rows)[rows]
            self._of_number.set(batch.numbers, codes, "lt_id")
        self._of_number.settle()

    def of_links(self, batch: Links) -> np.ndarray:
        """Where each link leads: int32, shape (n,)."""
        if isinstance(batch.targets, ByNumber):
            return self._of_number.get(batch.targets.numbers)
        return self._of_titles(batch.targets.namespaces, batch.targets.titles)

    def of_memberships(self, batch: Links) -> np.ndarray:
        """The category of each membership: int32, shape (n,); negative if there is none."""
        if isinstance(batch.targets, ByNumber):
            return _FIRST_CATEGORY - self._of_number.get(batch.targets.numbers)
        return self.categories.add(batch.targets.titles, np.ones(len(batch), dtype=bool))

    def _of_titles(self, namespaces: np.ndarray, titles: pa.Array) -> np.ndarray:
        rows = namespaces == ARTICLES
        if self._missing_pages:  # no page has a title that is not UTF-8, and it could not be a key
            text = are_text(titles)
            found = self.index.add(titles, rows & text)
            found[rows & ~text] = NOT_TEXT
        else:
            found = self.index.find(titles, rows)
            found[rows & (found < 0)] = MISSING_TITLE
        found[~rows] = OTHER_NAMESPACE
        _follow_redirects(found, self._final, self._missing_pages)
        return found


def _read_links(wiki: Wiki, pages: PageTable, targets: _Targets) -> tuple[SparseRows, dict[str, int]]:
    tally = np.zeros(len(LINK_CLASSES), dtype=np.int64)
    builder = RowBuilder(len(pages))
    read = 0
    for batch in prefetch(wiki.links()):
        read += len(batch)
        # Separate passes, each with one random access to memory per link: the processor overlaps these.
        sources = pages.row_of.get(batch.sources)
        ends = targets.of_links(batch)
        kept = _judge_links(sources, ends, pages.is_redirect, tally)
        builder.add(sources[:kept], ends[:kept])
    gathered = builder.pairs
    links = builder.build()
    counts = {
        "links_read": read,
        **dict(zip(LINK_CLASSES, tally.tolist(), strict=True)),
        "duplicate_links": gathered - len(links.columns),
    }
    return links, counts


def _read_categories(
    wiki: Wiki | None, pages: PageTable, targets: _Targets
) -> tuple[SparseRows, dict[str, int]]:
    builder = RowBuilder(len(pages))
    read = of_others = without_target = 0
    for batch in prefetch(wiki.category_links()) if wiki else ():
        sources = pages.row_of.get(batch.sources)
        categories = targets.of_memberships(batch)
        from_article = sources >= 0
        from_article[from_article] = ~pages.is_redirect[sources[from_article]]
        known = from_article & (categories >= 0)
        read += len(sources)
        of_others += int((~from_article).sum())
        without_target += int((from_article & ~known).sum())
        builder.add(sources[known], categories[known])
    counts = {
        "category_rows_read": read,
        "category_rows_dropped_source": of_others,
        "category_rows_without_target": without_target,
    }
    return builder.build(), counts


@compiled
def _follow_redirects(targets: np.ndarray, final: np.ndarray, missing_pages: bool) -> None:
    """Replace rows of redirects by where they end, in place; a broken one is a target if these are kept."""
    for position in range(len(targets)):
        target = targets[position]
        if 0 <= target < len(final) and final[target] != target:
            if final[target] >= 0:
                targets[position] = final[target] + _VIA_REDIRECT
            elif not missing_pages:
                targets[position] = _BROKEN


@compiled
def _judge_links(sources: np.ndarray, ends: np.ndarray, is_redirect: np.ndarray, tally: np.ndarray) -> int:
    """Count each link in its class, and move those that are kept to the front of both arrays.

    Args:
        sources: rows of pages, or codes.
        ends: where the links lead, as `_Targets` gives it; loses the mark `_VIA_REDIRECT`.
        is_redirect: of the pages.
        tally: counts of `LINK_CLASSES`, which grow.

    Returns:
        How many are kept.
    """
    kept = 0
    for position in range(len(sources)):
        source, end = sources[position], ends[position]
        if source < 0:
            tally[_FROM_OTHER if source == OTHER_NAMESPACE else _FROM_MISSING] += 1
        elif is_redirect[source]:
            tally[_FROM_REDIRECT] += 1
        elif end < 0:
            if end == OTHER_NAMESPACE or end <= _FIRST_CATEGORY:
                tally[_TO_OTHER] += 1
            elif end == UNKNOWN_NUMBER:
                tally[_NO_TARGET] += 1
            elif end == NOT_TEXT:
                tally[_TO_NO_TEXT] += 1
            else:
                tally[_TO_BROKEN if end == _BROKEN else _TO_MISSING] += 1
        elif end & (_VIA_REDIRECT - 1) == source:
            tally[_SELF] += 1
        else:
            tally[_THROUGH] += end >= _VIA_REDIRECT
            sources[kept] = source
            ends[kept] = end & (_VIA_REDIRECT - 1)
            kept += 1
    return kept
