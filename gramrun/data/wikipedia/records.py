"""The tables of a wiki as batches of plain records, whatever the format and year of its dump.

MediaWiki names a page by namespace and title. Titles are as in the tables: UTF-8, underscores for blanks,
without the namespace's name. A link names its target by title (`ByTitle`: SQL until 2024) or by a number of
the table ``linktarget`` (`ByNumber`: SQL since 2024, and XML, whose reader numbers the titles it meets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

ARTICLES = 0  # the namespace of articles
CATEGORIES = 14  # the namespace of category pages


@dataclass(frozen=True)
class Pages:
    """Rows of the table ``page``, of all namespaces.

    Attributes:
        numbers: int64, shape (n,). page_id.
        namespaces: int64, shape (n,).
        titles: n titles.
        is_redirect: bool, shape (n,).
    """

    numbers: np.ndarray
    namespaces: np.ndarray
    titles: pa.Array
    is_redirect: np.ndarray

    def select(self, rows: np.ndarray) -> Pages:
        """The pages at `rows`: integers."""
        return Pages(
            self.numbers[rows],
            self.namespaces[rows],
            self.titles.take(pa.array(rows)),
            self.is_redirect[rows],
        )

    @classmethod
    def concatenate(cls, batches: Sequence[Pages]) -> Pages:
        """Join at least one batch."""
        if len(batches) == 1:
            return batches[0]
        numbers, namespaces, is_redirect = (
            np.concatenate([getattr(batch, name) for batch in batches])
            for name in ("numbers", "namespaces", "is_redirect")
        )
        return cls(numbers, namespaces, pa.concat_arrays([b.titles for b in batches]), is_redirect)


@dataclass(frozen=True)
class ByTitle:
    """Targets by namespace (int64, shape (n,)) and title."""

    namespaces: np.ndarray
    titles: pa.Array


@dataclass(frozen=True)
class ByNumber:
    """Targets by their number in `LinkTargets`: int64, shape (n,)."""

    numbers: np.ndarray


@dataclass(frozen=True)
class LinkTargets:
    """Rows of the table ``linktarget``: numbers and namespaces (int64, shape (n,)) and titles."""

    numbers: np.ndarray
    namespaces: np.ndarray
    titles: pa.Array


@dataclass(frozen=True)
class Redirects:
    """Rows of the table ``redirect``.

    Attributes:
        sources: int64, shape (n,). page_id of the redirecting page.
        targets: n targets.
        interwiki: bool, shape (n,). Whether the target is in another wiki.
    """

    sources: np.ndarray
    targets: ByTitle
    interwiki: np.ndarray


@dataclass(frozen=True)
class Links:
    """Rows of the table ``pagelinks`` or ``categorylinks``.

    Attributes:
        sources: int64, shape (n,). page_id of the page that links, or that is in the category.
        targets: n targets; for ``categorylinks`` the categories, whose namespace is always 14.
    """

    sources: np.ndarray
    targets: ByTitle | ByNumber

    def __len__(self) -> int:
        return len(self.sources)


class Wiki(Protocol):
    """The tables of one wiki; each method reads a table from its beginning, in batches."""

    name: str

    def pages(self) -> Iterator[Pages]:
        """All pages."""

    def redirects(self) -> Iterator[Redirects]:
        """The targets of redirecting pages."""

    def link_targets(self) -> Iterator[LinkTargets]:
        """The titles behind the numbers of `ByNumber`; empty if all targets are `ByTitle`."""

    def links(self) -> Iterator[Links]:
        """Links between pages."""

    def category_links(self) -> Iterator[Links]:
        """Memberships in categories."""

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """page_ids (int64) of the pages of hidden categories."""
