"""Finding the tables of a dump, however its files and folders are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from gramrun.base.errors import InputError
from gramrun.data.download import NotHereError
from gramrun.data.wikipedia.dump_files import find_tables, find_xml

NEEDED = ("page", "pagelinks", "redirect")


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def dump(
    folder: Path, pattern: str = "simplewiki-20260101-{}.sql.gz", tables: tuple[str, ...] = NEEDED
) -> Path:
    return put(folder, *(pattern.format(table) for table in tables))


@pytest.mark.parametrize(
    ("pattern", "wiki", "date"),
    [
        ("simplewiki-20260101-{}.sql.gz", "simplewiki", "20260101"),
        ("simplewiki-latest-{}.sql", "simplewiki", "latest"),
        ("be_x_oldwiki-20260101-{}.sql.bz2", "be_x_oldwiki", "20260101"),
        ("test-20240901-{}.sql.zst", "test", "20240901"),
        ("{}.sql.gz", "", ""),
    ],
)
def test_finds_tables_by_any_name(pattern: str, wiki: str, date: str, tmp_path: Path) -> None:
    tables = ("page", "pagelinks", "linktarget", "redirect", "page_props")
    put(dump(tmp_path, pattern, tables), "simplewiki-20260101-page_restrictions.sql.gz", "page.sql.gz.part")
    found = find_tables(tmp_path)
    assert (found.wiki, found.date, found.origin) == (wiki, date, str(tmp_path))
    assert found.tables == {table: tmp_path / pattern.format(table) for table in tables}
    assert not found.verified


@pytest.mark.parametrize("below", ["simplewiki", "20260101", "simplewiki/20260101"])
@pytest.mark.parametrize("pattern", ["simplewiki-20260101-{}.sql.gz", "{}.sql"])
def test_finds_tables_in_folders(below: str, pattern: str, tmp_path: Path) -> None:
    folder = dump(tmp_path / below, pattern)
    put(tmp_path / "other", "page.sql")
    found = find_tables(tmp_path, "simplewiki", "20260101")
    assert (found.wiki, found.date) == ("simplewiki", "20260101")
    assert set(found.tables.values()) == {folder / pattern.format(table) for table in NEEDED}


def test_takes_the_one_dump_that_is_whole(tmp_path: Path) -> None:
    dump(tmp_path, tables=("page", "pagelinks"))
    dump(tmp_path, "simplewiki-20251201-{}.sql.gz")
    assert find_tables(tmp_path).date == "20251201"


def test_several_dumps_are_for_the_user_to_choose_from(tmp_path: Path) -> None:
    dump(tmp_path)
    dump(tmp_path / "simplewiki" / "20251201", "simplewiki-20251201-{}.sql.gz")
    with pytest.raises(
        InputError,
        match=r"holds several dumps \(simplewiki 20251201, simplewiki 20260101\); .* --set dump\.date=20260101",
    ) as caught:
        find_tables(tmp_path, "simplewiki")
    assert not isinstance(caught.value, NotHereError), "the next place is no answer to it"
    assert find_tables(tmp_path, date="20251201").date == "20251201"
    dump(tmp_path, "frwiki-20251201-{}.sql.gz")
    with pytest.raises(InputError, match=r"\(frwiki 20251201, simplewiki 20251201\); name the folder"):
        find_tables(tmp_path, date="20251201")
    assert find_tables(tmp_path, "frwiki").wiki == "frwiki"


def test_a_table_twice_is_refused(tmp_path: Path) -> None:
    put(dump(tmp_path), "simplewiki-20260101-page.sql")
    with pytest.raises(
        InputError,
        match=r"page more than once \(simplewiki-20260101-page\.sql, simplewiki-20260101-page\.sql\.gz\)",
    ):
        find_tables(tmp_path)


def test_says_what_is_missing(tmp_path: Path) -> None:
    dump(tmp_path, tables=("page", "categorylinks"))
    with pytest.raises(NotHereError, match=r"holds simplewiki 20260101 without pagelinks without redirect; "):
        find_tables(tmp_path)
    with pytest.raises(NotHereError, match=r"holds simplewiki 20260101 .* simplewiki-20250101-page"):
        find_tables(tmp_path, "simplewiki", "20250101")
    with pytest.raises(NotHereError, match="absent: is no folder; name"):
        find_tables(tmp_path / "absent")
    with pytest.raises(NotHereError, match="is no folder; name"):
        find_tables(tmp_path / "simplewiki-20260101-page.sql.gz")


def test_finds_the_one_export(tmp_path: Path) -> None:
    put(tmp_path, "simplewiki-20260101-pages-articles.xml.bz2", "notes.txt")
    (file,) = tmp_path.glob("*.bz2")
    assert find_xml(tmp_path) == find_xml(file) == file
    put(tmp_path, "other.xml")
    with pytest.raises(InputError, match=r"\(other\.xml, simplewiki-"):
        find_xml(tmp_path)
    with pytest.raises(InputError, match=r"\(none\)"):
        find_xml(put(tmp_path / "empty"))
    with pytest.raises(InputError, match="is no folder"):
        find_xml(tmp_path / "absent")
