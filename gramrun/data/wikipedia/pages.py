"""The pages of a wiki: numbers to rows, titles to rows, and where redirects end.

Page numbers of a wiki are dense, so a plain array finds a page's row: 4 bytes for each number up to the
largest, and one access to memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gramrun.compiled import compiled
from gramrun.data.background import in_background
from gramrun.data.byte_strings import ByteStrings, NotTextError
from gramrun.data.wikipedia.records import ARTICLES, CATEGORIES, Pages, Redirects
from gramrun.data.wikipedia.title_index import TitleIndex
from gramrun.errors import InputError

# What stands for a row where there is none. A page number:
UNKNOWN_PAGE = -1
OTHER_NAMESPACE = -2
# A target, of a link or a redirect (OTHER_NAMESPACE too):
MISSING_TITLE = -3
UNKNOWN_NUMBER = -4
INTERWIKI = -5
NO_REDIRECT_ROW = -6
LOOP = -7

# A plain array of 4 bytes a number stays below 8 GiB; wikis are far from it (English: 10^8 pages).
LARGEST_NUMBER = 2**31 - 1


class NumberMap:
    """An int32 for each number that came, in one array that grows with the largest of them.

    Args:
        default: what other numbers have.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self.values = np.full(0, default, dtype=np.int32)

    def set(self, numbers: np.ndarray, values: np.ndarray | int, what: str) -> None:
        """Give numbers (int64, shape (n,)) their values (int32).

        Raises:
            InputError: a number is negative or beyond `LARGEST_NUMBER`; `what` names it in the message.
        """
        if not len(numbers):
            return
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < 0 or highest > LARGEST_NUMBER:
            wrong = lowest if lowest < 0 else highest
            raise InputError(
                f"{what} {wrong} is no number of a wiki (0 to {LARGEST_NUMBER:,}); check the file"
            )
        if highest >= len(self.values):
            larger = np.full(max(highest + 1, len(self.values) * 3 // 2), self._default, dtype=np.int32)
            larger[: len(self.values)] = self.values
            self.values = larger
        self.values[numbers] = values


@dataclass(frozen=True)
class PageTable:
    """The pages of namespace 0, articles and redirects, in ascending order of their numbers.

    Attributes:
        numbers: int64, shape (n,). page_id.
        titles: n titles, distinct, with a row's number in `index`.
        is_redirect: bool, shape (n,).
        row_of: int32, one for each page number up to the largest: the row, `OTHER_NAMESPACE` or
            `UNKNOWN_PAGE`.
        index: the titles' rows.
        category_numbers: int64, shape (c,). page_id of the category pages.
        category_titles: c titles.
        read: how many pages of all namespaces there are.
    """

    numbers: np.ndarray
    titles: ByteStrings
    is_redirect: np.ndarray
    row_of: np.ndarray
    index: TitleIndex
    category_numbers: np.ndarray
    category_titles: ByteStrings
    read: int

    def __len__(self) -> int:
        return len(self.numbers)


def read_pages(batches: Iterator[Pages]) -> PageTable:
    """Gather the table ``page``.

    Raises:
        InputError: there is no article, two pages have one number or one title, or a title is not UTF-8.
    """
    row_of = NumberMap(UNKNOWN_PAGE)
    numbers, titles, redirects = [], [], []
    category_numbers, category_titles = [], []
    read = 0
    for batch in in_background(batches):
        read += len(batch.numbers)
        row_of.set(batch.numbers, OTHER_NAMESPACE, "page_id")
        rows = batch.namespaces == ARTICLES
        numbers.append(batch.numbers[rows])
        titles.append(batch.titles.take(rows))
        redirects.append(batch.is_redirect[rows])
        rows = batch.namespaces == CATEGORIES
        category_numbers.append(batch.numbers[rows])
        category_titles.append(batch.titles.take(rows))
    if not sum(map(len, numbers)):
        raise InputError("the table page holds no page of namespace 0; check that it is a whole wiki's")
    joined = np.concatenate(numbers)
    all_titles, is_redirect = ByteStrings.concatenate(titles), np.concatenate(redirects)
    if (np.diff(joined) <= 0).any():  # the table is sorted by its primary key, as a rule
        order = np.argsort(joined, kind="stable")
        joined, all_titles, is_redirect = joined[order], all_titles.take(order), is_redirect[order]
        if (np.diff(joined) == 0).any():
            twice = joined[int((np.diff(joined) == 0).argmax())]
            raise InputError(f"page_id {twice} stands twice in the table page; get the file again")
    try:
        all_titles.text()
    except NotTextError as error:
        raise InputError(
            f"the title of page_id {joined[error.row]}, {error}; the dump is damaged, or not in UTF-8: "
            "convert it first"
        ) from None
    index = TitleIndex(all_titles)
    if len(index) < len(joined):
        row = int((index.find(all_titles) != np.arange(len(joined))).argmax())
        raise InputError(
            f"page_id {joined[row]} has the title of another page, {all_titles[row]!r}; get the file again"
        )
    row_of.set(joined, np.arange(len(joined), dtype=np.int32), "page_id")
    return PageTable(
        numbers=joined,
        titles=all_titles,
        is_redirect=is_redirect,
        row_of=row_of.values,
        index=index,
        category_numbers=np.concatenate(category_numbers),
        category_titles=ByteStrings.concatenate(category_titles),
        read=read,
    )


def resolve_redirects(pages: PageTable, batches: Iterator[Redirects]) -> tuple[np.ndarray, dict[str, int]]:
    """Find where each page of namespace 0 leads in the end.

    Args:
        pages: the pages.
        batches: the table ``redirect``.

    Returns:
        int32, shape (n,): an article's own row; for a redirect the article where its chain ends, or the
        reason why it ends at none. And the counts.
    """
    following = np.where(pages.is_redirect, NO_REDIRECT_ROW, np.arange(len(pages))).astype(np.int32)
    ignored = 0
    for batch in batches:
        sources = look_up(pages.row_of, batch.sources, UNKNOWN_PAGE)
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


def look_up(values: np.ndarray, numbers: np.ndarray, default: int) -> np.ndarray:
    """The int32 of each number, and `default` beyond the map: shape (n,)."""
    found = np.empty(len(numbers), dtype=np.int32)
    _look_up(values, numbers, found, default)
    return found


@compiled
def _look_up(values: np.ndarray, numbers: np.ndarray, found: np.ndarray, default: int) -> None:
    for position in range(len(numbers)):
        number = numbers[position]
        found[position] = values[number] if 0 <= number < len(values) else default


@compiled
def _follow(following: np.ndarray, is_redirect: np.ndarray, final: np.ndarray) -> None:
    """Follow every chain to its end, each page once: 0 is not yet seen, else the walk that saw it."""
    seen = np.zeros(len(following), dtype=np.int32)
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
