"""What the graph is built from, whatever the format and year of the dump: batches of plain records.

MediaWiki names a page by namespace and title. Titles here are as the tables hold them: UTF-8, underscores
for blanks, without the namespace's name. A link names its target either by title (`ByTitle`; SQL until
2024) or by the number of a row of the table ``linktarget`` (`ByNumber`; SQL since 2024, and XML, whose
reader numbers the titles that it meets).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gramrun.data.byte_strings import ByteStrings

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
    titles: ByteStrings
    is_redirect: np.ndarray


@dataclass(frozen=True)
class ByTitle:
    """Targets by namespace (int64, shape (n,)) and title."""

    namespaces: np.ndarray
    titles: ByteStrings


@dataclass(frozen=True)
class ByNumber:
    """Targets by their number in `LinkTargets`: int64, shape (n,)."""

    numbers: np.ndarray


@dataclass(frozen=True)
class LinkTargets:
    """Rows of the table ``linktarget``: numbers and namespaces (int64, shape (n,)) and titles."""

    numbers: np.ndarray
    namespaces: np.ndarray
    titles: ByteStrings


@dataclass(frozen=True)
class Redirects:
    """Rows of the table ``redirect``.

    Attributes:
        sources: int64, shape (n,). page_id of the redirecting page.
        targets: where to.
        interwiki: bool, shape (n,). Whether the target lies in another wiki.
    """

    sources: np.ndarray
    targets: ByTitle
    interwiki: np.ndarray


@dataclass(frozen=True)
class Links:
    """Rows of the table ``pagelinks`` or ``categorylinks``.

    Attributes:
        sources: int64, shape (n,). page_id of the page that links, or that is in the category.
        targets: what it links to; for ``categorylinks`` the category, whose namespace is always 14.
    """

    sources: np.ndarray
    targets: ByTitle | ByNumber


class Wiki(Protocol):
    """The tables of one wiki; each method starts reading from the beginning, in batches."""

    name: str

    def pages(self) -> Iterator[Pages]:
        """All pages."""

    def redirects(self) -> Iterator[Redirects]:
        """Where redirecting pages lead."""

    def link_targets(self) -> Iterator[LinkTargets]:
        """The titles behind the numbers of `ByNumber`; nothing where all targets are `ByTitle`."""

    def links(self) -> Iterator[Links]:
        """Links between pages."""

    def category_links(self) -> Iterator[Links]:
        """Memberships in categories."""

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """page_ids (int64) of the category pages that readers do not see."""
