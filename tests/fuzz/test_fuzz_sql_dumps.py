"""Damaged SQL tables of a wiki: what is read equals what the slow twins read, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import sql_twin
import wiki_twin
from fuzzing import Refused, budgets, changed, changes, inputs, outcome
from helpers import values_of
from hostile_wiki import Size, hostile_wiki
from hypothesis import given
from hypothesis import strategies as st

from experiments.benchmarks.mysqldump import GENERATIONS, write_tables
from gramrun.data.corpus import Corpus
from gramrun.data.wikipedia.dump_files import TABLES
from gramrun.data.wikipedia.sql_wiki import SqlWiki

WIKI = hostile_wiki(Size(pages=60, links=90, categories=4, minimum_count=2))
TOKENS = rb"""' " \ ` ( ) , ; ),( '),( /* */ -- # NULL 'a' '' 0x41 0 1 14 \'""".split()
TOKENS += [
    b"INSERT INTO `page` VALUES ",
    b"CREATE TABLE `page` (",
    b"DROP TABLE x;",
    b"UPDATE x;",
    b" int",
    b" blob",
]
TOKENS += [b"_binary 'x'", b"\n-- Dump completed\n", b"DELIMITER ;;\n"]
COLUMNS = {
    "page": ["page_id", "page_namespace", "page_title", "page_is_redirect"],
    "redirect": ["rd_from", "rd_namespace", "rd_title", "rd_interwiki"],
    "linktarget": ["lt_id", "lt_namespace", "lt_title"],
    "page_props": ["pp_page", "pp_propname"],
}
OPTIONAL = "rd_interwiki"  # the last of its table; not before 2010
# Why tables that both readers can read may still be no wiki.
NO_WIKI = ("no link between articles", "stands twice", "has the title of another", "is not UTF-8", "is no number of",
           "holds no page of namespace 0", "is NULL", "check that it is MediaWiki's", "linktarget", "holds no table")  # fmt: skip


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """The unpacked tables of each generation, by table."""
    folder = tmp_path_factory.mktemp("dumps")
    found = {}
    for generation in GENERATIONS:
        write_tables(WIKI, folder / generation, generation, suffix=".sql")
        files = {table: folder / generation / f"hostilewiki-20260101-{table}.sql" for table in TABLES}
        found[generation] = {table: file.read_bytes() for table, file in files.items() if file.is_file()}
    return found


def read_corpus(folder: Path, tables: dict[str, bytes], graph: str) -> Corpus:
    for table, data in tables.items():
        (folder / f"{table}.sql").write_bytes(data)
    files = {table: folder / f"{table}.sql" for table in tables}
    return wiki_twin.read_all(SqlWiki("w", str(folder), files), graph)


def seen(corpus: Corpus) -> tuple[set, dict]:
    """The links by titles, and the categories of each page."""
    found = values_of(corpus, corpus.left, "categories")
    named = zip(wiki_twin.titles_of(corpus, corpus.left), found, strict=True)
    return wiki_twin.links_of(corpus), {page: {key.encode() for key in keys} for page, keys in named}


def twin(tables: dict[str, bytes], graph: str) -> tuple[set, dict]:
    """The same by the literal readers: one byte at a time, dictionaries and sets."""
    rows = {}
    for table, names in COLUMNS.items():
        if table in tables:
            known = columns_of(tables[table], table)
            read = [name for name in names if name != OPTIONAL or name in known]
            rows[table] = [
                tuple(b"" if value is None else value for value in row) + (b"",) * (len(names) - len(read))
                for row in sql_twin.read(tables[table], read, table)
            ]
    targets = {number: (namespace, title) for number, namespace, title in rows.get("linktarget", [])}
    wiki = wiki_twin.ListWiki(
        page_rows=[(n, s, t, bool(r)) for n, s, t, r in rows["page"]],
        redirect_rows=[(s, n, t, bool(i)) for s, n, t, i in rows["redirect"]],
        link_rows=[(s, *t) for s, t in linked(tables, "pagelinks", "pl", targets)],
        member_rows=[(s, t[1]) for s, t in linked(tables, "categorylinks", "cl", targets) if t[0] == 14],
        hidden_numbers=[page for page, name in rows["page_props"] if name == b"hiddencat"],
    )
    if graph == "titles":
        wiki.link_rows = [row for row in wiki.link_rows if row[1] != 0 or is_text(row[2])]
    expected = wiki_twin.expected(wiki, titles=graph == "titles")
    # The corpus writes blanks for underscores, and no wiki's title has both.
    shown = {title: title.replace(b" ", b"_") for _, title in expected.pages}
    return (
        {(a.replace(b" ", b"_"), b.replace(b" ", b"_")) for a, b in expected.links},
        {shown[title]: set(expected.categories[title]) for title in shown},
    )


def linked(tables, table, prefix, targets):
    """Sources with namespace and title of what they link to; without those of unknown numbers."""
    data = tables[table]
    known = columns_of(data, table)
    named = ["pl_namespace", "pl_title"] if prefix == "pl" else ["cl_to"]
    number = f"{prefix}_target_id"
    has_title, has_number = set(named) <= set(known), number in known and "linktarget" in tables
    wanted = [f"{prefix}_from", *(named if has_title else []), *([number] if has_number else [])]
    for row in sql_twin.read(data, wanted, table):
        source = row[0]
        title = (row[1:3] if prefix == "pl" else (14, row[1])) if has_title else None
        if has_number and (title is None or not title[1]):
            title = targets.get(row[-1])
        if title is not None:
            yield source, title


def columns_of(data: bytes, table: str) -> list[str]:
    reader = sql_twin.Reader(data[data.index(b"CREATE TABLE") :])
    while reader.create() != table:
        reader.at = reader.data.index(b"CREATE TABLE", reader.at)
    return list(reader.tables[table])


def is_text(title: bytes) -> bool:
    try:
        title.decode()
    except UnicodeDecodeError:
        return False
    return True


@budgets(fast=25, slow=2_000)
def test_damaged_tables_are_read_as_the_twins_read_them_or_refused(examples, dumps, tmp_path):
    @inputs(examples)
    @given(
        st.sampled_from(list(GENERATIONS)),
        st.dictionaries(st.sampled_from(TABLES), changes(TOKENS, most=2), min_size=1, max_size=2),
        st.sampled_from(["pages", "titles"]),
    )
    def check(generation, damage, graph):
        tables = dict(dumps[generation])
        for table, made in damage.items():
            if table in tables:
                tables[table] = changed(tables[table], made)
        corpus = outcome(read_corpus, tmp_path, tables, graph)
        try:
            expected = twin(tables, graph)
        except (sql_twin.Refused, ValueError):
            expected = None
        if isinstance(corpus, Refused):
            assert expected is None or any(why in str(corpus) for why in NO_WIKI), (str(corpus), expected)
        else:
            assert seen(corpus) == expected

    check()
