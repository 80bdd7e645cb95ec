"""Tables → the page graph: which article links to which, and which categories it is in.

The paper's corpora (Section 4.1): x links to y if the page of x has a link to y, redirects resolved. Articles
are the pages of namespace 0 that are no redirects. Every row of ``pagelinks`` is either kept or falls into
exactly one class of `LINK_CLASSES`, whose counts are reported: its source is judged first, then the namespace
of its target, then the target.

Joins are array look-ups: a page number or a target number is an index, and only titles are hashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.data.background import prefetch, start_thread
from gramrun.data.byte_strings import ByteStrings
from gramrun.data.sparse_rows import RowBuilder, SparseRows
from gramrun.data.wikipedia.pages import (
    MISSING_TITLE,
    NOT_TEXT,
    OTHER_NAMESPACE,
    UNKNOWN_NUMBER,
    NumberMap,
    PageTable,
    read_pages,
    resolve_redirects,
)
from gramrun.data.wikipedia.records import ARTICLES, CATEGORIES, ByNumber, ByTitle, Links, LinkTargets, Wiki
from gramrun.data.wikipedia.title_index import TitleIndex

LINK_CLASSES = (
    "links_from_other_namespaces",
    "links_from_redirects",
    "links_from_missing_pages",
    "links_to_other_namespaces",
    "links_without_target",
    "links_to_missing_pages",
    "links_to_broken_redirects",
    "links_to_titles_not_utf8",  # only where missing pages are kept; else these are links to such
    "self_links",
    "links_through_redirects",  # these are kept: the one class that drops nothing
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
_BROKEN = -100  # the end of a target that is a redirect to no article
_VIA_REDIRECT = 1 << 30  # added to the row where a redirect ends; rows are below


@dataclass(frozen=True)
class PageGraph:
    """What a wiki says, before anything rare is left out.

    Rows are pages of namespace 0 in ascending order of their numbers, redirects too, whose rows are empty.

    Attributes:
        pages: these pages.
        targets: the titles that `links` point to: those of the pages and, where missing pages are kept,
            after them the titles of these.
        links: columns are rows of `targets`.
        categories: columns are rows of `category_names`.
        category_names: every category with a member or a page.
        hidden: bool, one for each category.
        counts: what was read, dropped and resolved.
    """

    pages: PageTable
    targets: ByteStrings
    links: SparseRows
    categories: SparseRows
    category_names: ByteStrings
    hidden: np.ndarray
    counts: dict[str, int]


def read_graph(wiki: Wiki, *, categories: bool = True, missing_pages: bool = False) -> PageGraph:
    """Read a wiki's tables into its graph.

    Args:
        wiki: the tables.
        categories: read categories; without, no page has any.
        missing_pages: keep links to titles of namespace 0 that no page has, as targets of their own.

    Raises:
        InputError: a table is missing, damaged, or contradicts itself.
    """
    pages = read_pages(wiki.pages())
    final, redirect_counts = resolve_redirects(pages, wiki.redirects())
    index = TitleIndex(pages.titles) if missing_pages else pages.index
    category_index = TitleIndex(pages.category_titles if categories else None)
    target_of, category_of = _number_targets(wiki.link_targets(), index, category_index, grow=missing_pages)

    memberships = start_thread(
        lambda: _read_categories(wiki, pages, category_index, category_of, wanted=categories)
    )
    links, link_counts = _read_links(wiki, pages, final, index, target_of, grow=missing_pages)
    category_rows, category_counts = memberships()
    hidden = np.zeros(len(category_index), dtype=bool)
    if categories:
        hidden[_hidden(wiki, pages, category_index)] = True
    articles = len(pages) - redirect_counts["redirects"]
    return PageGraph(
        pages=pages,
        targets=index.titles,
        links=links,
        categories=category_rows,
        category_names=category_index.titles,
        hidden=hidden,
        counts={
            "pages_read": pages.read,
            "pages_of_other_namespaces": pages.read - len(pages),
            "articles": articles,
            **redirect_counts,
            **link_counts,
            **category_counts,
            "hidden_categories": int(hidden.sum()),
        },
    )


def _number_targets(
    batches: Iterator[LinkTargets], index: TitleIndex, category_index: TitleIndex, *, grow: bool
) -> tuple[NumberMap, NumberMap]:
    """For each number of ``linktarget`` the row of its title, and the row of its category."""
    target_of, category_of = NumberMap(UNKNOWN_NUMBER), NumberMap(UNKNOWN_NUMBER)
    for batch in prefetch(batches):
        targets = _rows_of_titles(ByTitle(batch.namespaces, batch.titles), index, grow=grow)
        target_of.set(batch.numbers, targets, "lt_id")
        rows = batch.namespaces == CATEGORIES
        categories = category_index.add(batch.titles, rows)[rows]
        category_of.set(batch.numbers[rows], categories, "lt_id", chosen_from=len(rows))
    target_of.settle()
    category_of.settle()
    return target_of, category_of


def _rows_of_titles(targets: ByTitle, index: TitleIndex, *, grow: bool) -> np.ndarray:
    """Rows of titles of namespace 0 (int32, shape (n,)), or why there is none."""
    rows = targets.namespaces == ARTICLES
    if grow:  # no page has such a title, and as an item of its own it would have no key
        text = targets.titles.are_text()
        found = index.add(targets.titles, rows & text)
        found[rows & ~text] = NOT_TEXT
    else:
        found = index.find(targets.titles, rows)
        found[rows & (found < 0)] = MISSING_TITLE
    found[~rows] = OTHER_NAMESPACE
    return found


def _read_links(
    wiki: Wiki, pages: PageTable, final: np.ndarray, index: TitleIndex, target_of: NumberMap, *, grow: bool
) -> tuple[SparseRows, dict[str, int]]:
    tally = np.zeros(len(LINK_CLASSES), dtype=np.int64)
    builder = RowBuilder(len(pages))
    end_of = target_of.changed(lambda targets: follow_redirects(targets, final, grow))
    read = 0
    for batch in prefetch(wiki.links()):
        read += len(batch.sources)
        # One random access a pass: the processor then has many of them under way at once.
        sources = pages.row_of.get(batch.sources)
        if isinstance(batch.targets, ByNumber):
            ends = end_of.get(batch.targets.numbers)
        else:
            ends = follow_redirects(_rows_of_titles(batch.targets, index, grow=grow), final, grow)
        kept = judge_links(sources, ends, pages.is_redirect, tally)
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
    wiki: Wiki, pages: PageTable, index: TitleIndex, category_of: NumberMap, *, wanted: bool
) -> tuple[SparseRows, dict[str, int]]:
    builder = RowBuilder(len(pages))
    counts = {"category_rows_read": 0, "category_rows_dropped_source": 0, "category_rows_without_target": 0}
    for batch in prefetch(wiki.category_links()) if wanted else ():
        sources = pages.row_of.get(batch.sources)
        categories = _categories_of(batch, index, category_of)
        from_article = sources >= 0
        from_article[from_article] = ~pages.is_redirect[sources[from_article]]
        known = from_article & (categories >= 0)
        counts["category_rows_read"] += len(sources)
        counts["category_rows_dropped_source"] += int((~from_article).sum())
        counts["category_rows_without_target"] += int((from_article & ~known).sum())
        builder.add(sources[known], categories[known])
    return builder.build(), counts


def _categories_of(batch: Links, index: TitleIndex, category_of: NumberMap) -> np.ndarray:
    if isinstance(batch.targets, ByNumber):
        return category_of.get(batch.targets.numbers)
    return index.add(batch.targets.titles)


def _hidden(wiki: Wiki, pages: PageTable, index: TitleIndex) -> np.ndarray:
    """Rows of the categories whose page says that they are hidden."""
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *wiki.hidden_categories()])
    found = index.find(pages.category_titles, np.isin(pages.category_numbers, numbers))
    return found[found >= 0]


@compiled
def follow_redirects(targets: np.ndarray, final: np.ndarray, missing_pages: bool) -> np.ndarray:
    """Where targets lead in the end: a row, plus `_VIA_REDIRECT` if not their own; or why to none.

    Args:
        targets: rows or codes, int32.
        final: of `resolve_redirects`.
        missing_pages: a redirect to no article is a target of its own, like a title without a page.
    """
    ends = targets.copy()
    for position in range(len(targets)):
        target = targets[position]
        if 0 <= target < len(final) and final[target] != target:
            if final[target] >= 0:
                ends[position] = final[target] + _VIA_REDIRECT
            elif not missing_pages:
                ends[position] = _BROKEN
    return ends


@compiled
def judge_links(sources: np.ndarray, ends: np.ndarray, is_redirect: np.ndarray, tally: np.ndarray) -> int:
    """Count each link in its class, and move those that are kept to the front of both arrays.

    Args:
        sources: rows of pages, or codes.
        ends: what `follow_redirects` gives.
        is_redirect: of `PageTable`.
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
            if end == OTHER_NAMESPACE:
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
