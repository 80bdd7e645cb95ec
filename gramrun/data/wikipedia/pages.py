"""The pages of namespace 0: articles and redirects, and the articles where redirects end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.data.threads import prefetch
from gramrun.data.wikipedia.byte_strings import NotTextError, text_of
from gramrun.data.wikipedia.lookups import NumberMap, TitleIndex
from gramrun.data.wikipedia.records import ARTICLES, CATEGORIES, Pages, Redirects

# Codes in place of a row. Of a page number:
UNKNOWN_PAGE = -1
OTHER_NAMESPACE = -2
# Of the target of a link or redirect (OTHER_NAMESPACE too):
MISSING_TITLE = -3
UNKNOWN_NUMBER = -4
INTERWIKI = -5
NO_REDIRECT_ROW = -6
LOOP = -7
NOT_TEXT = -8


@dataclass(frozen=True)
class PageTable:
    """The pages of namespace 0 in ascending order of their numbers.

    Attributes:
        numbers: int64, shape (n,). page_id.
        is_redirect: bool, shape (n,).
        index: the distinct titles' rows.
        row_of: the row of each page number, `OTHER_NAMESPACE` or `UNKNOWN_PAGE`.
        categories: the category pages.
        read: the number of pages of all namespaces.
    """

    numbers: np.ndarray
    is_redirect: np.ndarray
    index: TitleIndex
    row_of: NumberMap
    categories: Pages
    read: int

    def __len__(self) -> int:
        return len(self.numbers)


def read_pages(batches: Iterator[Pages]) -> PageTable:
    """Read the table ``page``.

    Raises:
        InputError: there is no article, two pages have one number or one title, or a title is not UTF-8.
    """
    row_of = NumberMap(UNKNOWN_PAGE)
    main, categories = [], []
    read = 0
    for batch in prefetch(batches):
        read += len(batch.numbers)
        row_of.set(batch.numbers, OTHER_NAMESPACE, "page_id")
        main.append(batch.select(np.flatnonzero(batch.namespaces == ARTICLES)))
        categories.append(batch.select(np.flatnonzero(batch.namespaces == CATEGORIES)))
    if not any(len(pages.numbers) for pages in main):
        raise InputError("the table page holds no page of namespace 0; check that it is a whole wiki's")
    pages = Pages.concatenate(main)
    main.clear()
    if (np.diff(pages.numbers) <= 0).any():  # the table is usually sorted by its primary key
        pages = pages.select(np.argsort(pages.numbers, kind="stable"))
    _refuse_double_numbers(pages)
    index = TitleIndex()
    rows = index.add(_require_text(pages), np.ones(len(pages.numbers), dtype=bool))
    if len(index) < len(rows):
        row = int((rows != np.arange(len(rows))).argmax())
        raise InputError(
            f"page_id {pages.numbers[row]} has the title of another page, {pages.titles[row].as_py()!r}; "
            "get the file again"
        )
    row_of.set(pages.numbers, np.arange(len(pages.numbers), dtype=np.int32), "page_id")
    row_of.settle()
    return PageTable(pages.numbers, pages.is_redirect, index, row_of, Pages.concatenate(categories), read)


def _refuse_double_numbers(pages: Pages) -> None:
    equal = np.flatnonzero(np.diff(pages.numbers) == 0)
    if len(equal):
        number = pages.numbers[equal[0]]
        raise InputError(f"page_id {number} stands twice in the table page; get the file again")


def _require_text(pages: Pages) -> pa.Array:
    try:
        text_of(pages.titles)
    except NotTextError as error:
        number = pages.numbers[error.row]
        raise InputError(
            f"the title of page_id {number}, {error}; the dump is damaged, or not in UTF-8: convert it first"
        ) from None
    return pages.titles


def resolve_redirects(pages: PageTable, batches: Iterator[Redirects]) -> tuple[np.ndarray, dict[str, int]]:
    """Find the article where each page of namespace 0 leads.

    Args:
        pages: the pages.
        batches: the table ``redirect``.

    Returns:
        int32, shape (n,): an article's own row; for a redirect the row of the article at the end of its
        chain, or the code for why there is none. And the counts.
    """
    following = np.where(pages.is_redirect, NO_REDIRECT_ROW, np.arange(len(pages))).astype(np.int32)
    ignored = 0
    for batch in batches:
        sources = pages.row_of.get(batch.sources)
        usable = sources >= 0
        usable[usable] = pages.is_redirect[sources[usable]]
        ignored += int((~usable).sum())
        to_articles = (batch.targets.namespaces == ARTICLES) & ~batch.interwiki
        targets = pages.index.find(batch.targets.titles, to_articles)
        targets[to_articles & (targets < 0)] = MISSING_TITLE
        targets[~to_articles] = OTHER_NAMESPACE
        targets[batch.interwiki] = INTERWIKI
        following[sources[usable]] = targets[usable]
    final = following.copy()
    _follow(following, pages.is_redirect, final)
    ends = final[pages.is_redirect]
    first = following[pages.is_redirect]
    chained = (ends >= 0) & pages.is_redirect[np.maximum(first, 0)]
    counts = {
        "redirects": len(ends),
        "redirects_resolved": int((ends >= 0).sum()),
        "redirects_chained": int(chained.sum()),
        "redirects_without_row": int((ends == NO_REDIRECT_ROW).sum()),
        "redirects_interwiki": int((ends == INTERWIKI).sum()),
        "redirects_to_other_namespaces": int((ends == OTHER_NAMESPACE).sum()),
        "redirects_to_missing_pages": int((ends == MISSING_TITLE).sum()),
        "redirects_in_loops": int((ends == LOOP).sum()),
        "redirect_rows_ignored": ignored,
    }
    return final, counts


@compiled
def _follow(following: np.ndarray, is_redirect: np.ndarray, final: np.ndarray) -> None:
    """Follow every chain to its end and write it to `final`; each page is visited once."""
    seen = np.zeros(len(following), dtype=np.int32)  # 0: not yet; -1: done; else the walk that visits it now
    for start in range(len(following)):
        if not is_redirect[start] or seen[start] != 0:
            continue
        walk = start + 1
        page = start
        while page >= 0 and is_redirect[page] and seen[page] == 0:
            seen[page] = walk
            page = following[page]
        if page < 0 or not is_redirect[page]:
            end = page
        elif seen[page] == walk:
            end = LOOP
        else:
            end = final[page]
        page = start
        while page >= 0 and is_redirect[page] and seen[page] == walk:
            seen[page] = -1
            final[page] = end
            page = following[page]
