"""The pages of a wiki: numbers to rows, titles to rows, and where redirects end.

Page numbers of a wiki are dense, so a plain array finds a page's row: 4 bytes for each number up to the
largest, and one access to memory. Numbers far beyond what their count explains (a stray one in a damaged
file, a small part of a large wiki) are searched instead, so that memory is bounded by the rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.data.background import prefetch
from gramrun.data.byte_strings import ByteStrings, NotTextError
from gramrun.data.wikipedia.records import ARTICLES, CATEGORIES, Pages, Redirects
from gramrun.data.wikipedia.title_index import TitleIndex

# What stands for a row where there is none. A page number:
UNKNOWN_PAGE = -1
OTHER_NAMESPACE = -2
# A target, of a link or a redirect (OTHER_NAMESPACE too):
MISSING_TITLE = -3
UNKNOWN_NUMBER = -4
INTERWIKI = -5
NO_REDIRECT_ROW = -6
LOOP = -7
NOT_TEXT = -8

LARGEST_NUMBER = 2**31 - 1  # wikis are far from it (English: 10^8 pages)
# A plain array goes up to this number, or to so many numbers a row: English page_ids have 1.3, the articles
# alone 5. A row of a dump has 25 bytes at least, so the array is at most twice the unpacked dump.
_ALWAYS_PLAIN = 1 << 24
_NUMBERS_A_ROW = 16


class NumberMap:
    """An int32 for each number that came: most in one array, those far beyond the others in order, to search.

    First all are `set`, then `settle` is called once, then any thread may `get`.

    Args:
        default: what other numbers have; no number may be given it.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self._plain = np.full(0, default, dtype=np.int32)
        self._rows = 0
        self._late: list[tuple[np.ndarray, np.ndarray]] = []  # far numbers, not in order yet
        self._far = np.zeros(0, dtype=np.int64)
        self._far_values = np.zeros(0, dtype=np.int32)

    def set(
        self, numbers: np.ndarray, values: np.ndarray | int, what: str, chosen_from: int | None = None
    ) -> None:
        """Give numbers their values.

        Args:
            numbers: int64, shape (n,).
            values: int32.
            what: the column, for messages.
            chosen_from: how many rows the table has of which these are some; n by default.

        Raises:
            InputError: a number is negative or beyond `LARGEST_NUMBER`.
        """
        if not len(numbers):
            return
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < 0 or highest > LARGEST_NUMBER:
            wrong = lowest if lowest < 0 else highest
            raise InputError(
                f"{what} {wrong} is no number of a wiki (0 to {LARGEST_NUMBER:,}); check the file"
            )
        self._rows += len(numbers) if chosen_from is None else chosen_from
        if highest >= self._plain_end:
            given = np.broadcast_to(np.asarray(values, dtype=np.int32), numbers.shape)
            far = numbers >= self._plain_end
            self._late.append((numbers[far], given[far]))
            numbers, values = numbers[~far], given[~far]
        self._put(numbers, values)

    def settle(self) -> None:
        """Put what looked far in the beginning, and no longer does, into the array, and the rest in order."""
        if not self._late:
            return
        numbers = np.concatenate([self._far, *(part for part, _ in self._late)])
        values = np.concatenate([self._far_values, *(part for _, part in self._late)])
        self._late = []
        order = np.argsort(numbers, kind="stable")
        numbers, values = numbers[order], values[order]
        last = np.append(numbers[1:] != numbers[:-1], True)  # of one number the latest value
        numbers, values = numbers[last], values[last]
        near = numbers < self._plain_end
        new = near.copy()
        new[near] = look_up(self._plain, numbers[near], self._default) == self._default
        self._put(numbers[new], values[new])
        self._far, self._far_values = numbers[~near], values[~near]

    def get(self, numbers: np.ndarray) -> np.ndarray:
        """The int32 of each number, shape (n,); `default` for those that never came."""
        assert not self._late, "settle comes first"
        found = look_up(self._plain, numbers, self._default)
        if len(self._far):
            rest = np.flatnonzero(found == self._default)
            place = np.minimum(np.searchsorted(self._far, numbers[rest]), len(self._far) - 1)
            there = self._far[place] == numbers[rest]
            found[rest[there]] = self._far_values[place[there]]
        return found

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> NumberMap:
        """Another map of the same numbers, each with what `change` makes of its value."""
        assert not self._late, "settle comes first"
        other = NumberMap(self._default)
        other._plain, other._far = change(self._plain), self._far
        other._far_values = change(self._far_values)
        return other

    @property
    def _plain_end(self) -> int:
        return max(_ALWAYS_PLAIN, _NUMBERS_A_ROW * self._rows)

    def _put(self, numbers: np.ndarray, values: np.ndarray | int) -> None:
        highest = int(numbers.max(initial=-1))
        if highest >= len(self._plain):
            larger = np.full(max(highest + 1, len(self._plain) * 3 // 2), self._default, dtype=np.int32)
            larger[: len(self._plain)] = self._plain
            self._plain = larger
        self._plain[numbers] = values


@dataclass(frozen=True)
class PageTable:
    """The pages of namespace 0, articles and redirects, in ascending order of their numbers.

    Attributes:
        numbers: int64, shape (n,). page_id.
        titles: n titles, distinct, with a row's number in `index`.
        is_redirect: bool, shape (n,).
        row_of: for each page number the row, `OTHER_NAMESPACE` or `UNKNOWN_PAGE`.
        index: the titles' rows.
        category_numbers: int64, shape (c,). page_id of the category pages.
        category_titles: c titles.
        read: how many pages of all namespaces there are.
    """

    numbers: np.ndarray
    titles: ByteStrings
    is_redirect: np.ndarray
    row_of: NumberMap
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
    for batch in prefetch(batches):
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
    row_of.settle()
    return PageTable(
        numbers=joined,
        titles=all_titles,
        is_redirect=is_redirect,
        row_of=row_of,
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


def look_up(values: np.ndarray, numbers: np.ndarray, default: int) -> np.ndarray:
    """The int32 at each number, and `default` beyond the array: shape (n,)."""
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
