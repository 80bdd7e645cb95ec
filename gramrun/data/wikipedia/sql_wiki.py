"""The tables of a wiki from SQL dumps of any year.

Between 2013 and 2026 ``pagelinks`` and ``categorylinks`` changed from titles to numbers of ``linktarget``;
the tables in between have both. Old and new tables have equally many columns, so the reader relies on the
names in CREATE TABLE.

Source: MediaWiki's manual pages of the six tables, mediawiki.org/wiki/Manual:Pagelinks_table and so on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.records import CATEGORIES, ByNumber, ByTitle, Links, LinkTargets, Pages, Redirects
from gramrun.data.wikipedia.sql_dump import Batch, read_schema, read_table

_PAGE = ("page_id", "page_namespace", "page_title", "page_is_redirect")
_LINKTARGET = ("lt_id", "lt_namespace", "lt_title")
_REDIRECT = ("rd_from", "rd_namespace", "rd_title")
_INTERWIKI = "rd_interwiki"  # since 2010
_PAGE_PROPS = ("pp_page", "pp_propname")
_HIDDEN = b"hiddencat"
# The columns that may be NULL. NULL reads as 0 or as empty, which in other columns would be a page or title.
_NULLABLE = {_INTERWIKI, "pl_target_id", "cl_target_id"}
# The kind of each column, as in `gramrun.data.wikipedia.sql_statements.Schema`.
_KINDS = {
    **dict.fromkeys(("page_id", "page_namespace", "page_is_redirect", "lt_id", "lt_namespace"), "integer"),
    **dict.fromkeys(("rd_from", "rd_namespace", "pl_from", "pl_namespace", "pl_target_id"), "integer"),
    **dict.fromkeys(("cl_from", "cl_target_id", "pp_page"), "integer"),
    **dict.fromkeys(("page_title", "lt_title", "rd_title", "rd_interwiki", "pl_title"), "bytes"),
    **dict.fromkeys(("cl_to", "pp_propname"), "bytes"),
}


class SqlWiki:
    """The tables of one wiki (`gramrun.data.wikipedia.records.Wiki`).

    Args:
        name: the corpus's name.
        origin: the place of the tables, for messages.
        tables: the file of each table by its name: ``page``, ``pagelinks``, ``redirect``; ``linktarget``
            if links have numbers; ``categorylinks`` and ``page_props`` for categories.
        categories: whether categories will be read.

    Raises:
        InputError: a table that this generation needs is missing, or lacks a column that every generation
            has; or a file holds another table.
    """

    def __init__(
        self,
        name: str,
        origin: str,
        tables: Mapping[str, Path],
        *,
        categories: bool = True,
    ) -> None:
        self.name = name
        self._origin = origin
        self._tables = tables
        self._has_numbers: dict[str, bool] = {}
        self._on_read: Callable[[int], object] | None = None
        self._columns = {
            "page": self._require("page", _PAGE),
            "pagelinks": self._require("pagelinks", ("pl_from",)),
            "redirect": self._require("redirect", _REDIRECT),
        }
        if categories:
            waive = ", or do without categories: --set wikipedia.categories=false"
            self._columns["categorylinks"] = self._require("categorylinks", ("cl_from",), waive)
            self._columns["page_props"] = self._require("page_props", _PAGE_PROPS, waive)
        self._links = self._link_columns("pagelinks", "pl_from", "pl_namespace", "pl_title", "pl_target_id")
        self._category_links = (
            self._link_columns("categorylinks", "cl_from", None, "cl_to", "cl_target_id")
            if categories
            else None
        )

    def watched(self, on_read: Callable[[int], object]) -> SqlWiki:
        """The same wiki; `on_read` is called with the number of bytes of a file read since its last call."""
        wiki = copy.copy(self)
        wiki._on_read = on_read
        return wiki

    @property
    def used(self) -> tuple[str, ...]:
        """The names of the tables that will be read."""
        return tuple(self._columns)

    def pages(self) -> Iterator[Pages]:
        """All rows of ``page``."""
        for batch in self._read("page", _PAGE):
            number, namespace, title, is_redirect = (batch.columns[name] for name in _PAGE)
            yield Pages(number, namespace, title, is_redirect != 0)

    def redirects(self) -> Iterator[Redirects]:
        """All rows of ``redirect``."""
        optional = (_INTERWIKI,) if _INTERWIKI in self._columns["redirect"] else ()
        for batch in self._read("redirect", (*_REDIRECT, *optional)):
            source, namespace, title = (batch.columns[name] for name in _REDIRECT)
            elsewhere = np.zeros(batch.rows, dtype=bool)
            for name in optional:
                elsewhere = pc.binary_length(batch.columns[name]).to_numpy() > 0
            yield Redirects(source, ByTitle(namespace, title), elsewhere)

    def link_targets(self) -> Iterator[LinkTargets]:
        """All rows of ``linktarget``, if links need it."""
        if "linktarget" in self._columns:
            for batch in self._read("linktarget", _LINKTARGET):
                number, namespace, title = (batch.columns[name] for name in _LINKTARGET)
                yield LinkTargets(number, namespace, title)

    def links(self) -> Iterator[Links]:
        """All rows of ``pagelinks``."""
        return self._links_of("pagelinks", self._links)

    def category_links(self) -> Iterator[Links]:
        """All rows of ``categorylinks``."""
        assert self._category_links is not None, "categories were waived"
        return self._links_of("categorylinks", self._category_links)

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """page_ids with the property ``hiddencat``."""
        for batch in self._read("page_props", _PAGE_PROPS):
            names = batch.columns["pp_propname"]
            yield batch.columns["pp_page"][pc.equal(names, _HIDDEN).to_numpy(zero_copy_only=False)]

    def _require(self, table: str, columns: Sequence[str], otherwise: str = "") -> tuple[str, ...]:
        """Return the columns of a table, after checking that it is there and has these."""
        if table not in self._tables:
            raise InputError(
                f"{self._origin}: holds no table {table}; put its dump (…-{table}.sql.gz) beside the "
                f"others{otherwise}"
            )
        found = read_schema(self._tables[table], table).columns
        for column in columns:
            if column not in found:
                raise InputError(
                    f"{self._tables[table]}: the table {table} has no column {column} (it has "
                    f"{', '.join(found)}); check that it is MediaWiki's"
                )
        for column, kind in found.items():
            if _KINDS.get(column, kind) != kind:
                raise InputError(
                    f"{self._tables[table]}: the column {column} of the table {table} holds {kind}, not "
                    f"{_KINDS[column]}; check that it is MediaWiki's"
                )
        return tuple(found)

    def _link_columns(
        self, table: str, source: str, namespace: str | None, title: str, number: str
    ) -> tuple[str, str | None, str | None, str | None]:
        """Choose the columns that name the target: title, number or both.

        In tables with both, some rows have only the number.
        """
        columns = self._columns[table]
        titled = title in columns and (namespace is None or namespace in columns)
        numbered = number in columns
        if not titled and not numbered:
            raise InputError(
                f"{self._tables[table]}: the table {table} has neither {title} nor {number} (it has "
                f"{', '.join(columns)}); check that it is MediaWiki's"
            )
        if numbered and not titled and "linktarget" not in self._tables:
            raise InputError(
                f"{self._origin}: holds no table linktarget, which {table} of this year needs (it has "
                f"{number} and no {title}); put its dump (…-linktarget.sql.gz) beside the others"
            )
        self._has_numbers[table] = numbered
        if numbered and "linktarget" in self._tables:
            self._columns["linktarget"] = self._require("linktarget", _LINKTARGET)
        else:
            numbered = False
        return source, namespace if titled else None, title if titled else None, number if numbered else None

    def _links_of(
        self, table: str, columns: tuple[str, str | None, str | None, str | None]
    ) -> Iterator[Links]:
        source, namespace, title, number = columns
        for batch in self._read(table, [column for column in columns if column]):
            sources = batch.columns[source]
            if title is None:
                assert number is not None
                yield Links(sources, ByNumber(_numbers(batch, number)))
                continue
            titles = batch.columns[title]
            namespaces = (
                batch.columns[namespace] if namespace else np.full(batch.rows, CATEGORIES, dtype=np.int64)
            )
            unnamed = pc.binary_length(titles).to_numpy() == 0
            if number is None and unnamed.any() and self._has_numbers[table]:
                raise InputError(
                    f"{self._origin}: holds no table linktarget, which {table} needs, as some of its rows "
                    "have a number and no title; put its dump (…-linktarget.sql.gz) beside the others"
                )
            if number is None or not unnamed.any():
                yield Links(sources, ByTitle(namespaces, titles))
                continue
            yield Links(sources[~unnamed], ByTitle(namespaces[~unnamed], titles.filter(pa.array(~unnamed))))
            yield Links(sources[unnamed], ByNumber(_numbers(batch, number)[unnamed]))

    def _read(self, table: str, columns: Sequence[str]) -> Iterator[Batch]:
        for batch in read_table(self._tables[table], columns, table, self._on_read):
            for column in batch.nulls.keys() - _NULLABLE:
                raise InputError(
                    f"{self._tables[table]}: {column} is NULL in a row of the table {table}, and never is in "
                    "MediaWiki's; the file is damaged"
                )
            yield batch


def _numbers(batch: Batch, column: str) -> np.ndarray:
    """Numbers of ``linktarget``; -1, which no row has, for NULL."""
    numbers = batch.columns[column]
    return np.where(batch.nulls[column], -1, numbers) if column in batch.nulls else numbers
