"""Small inputs that would take much memory, and settings that name absurd sizes or hide a line of a request."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import sql_twin
from fuzzing import command
from hostile_wiki import Size, clean_wiki

from experiments.benchmarks.mysqldump import write_tables

BOUND = 700 << 20  # bytes; the program alone takes 250 MB


@pytest.fixture
def dump(tmp_path) -> Path:
    """Unpacked tables of a small wiki."""
    return write_tables(
        clean_wiki(Size(pages=40, links=90, categories=4)), tmp_path / "dump", "2026", suffix=".sql"
    )


CREATE = (
    b"CREATE TABLE `page` (`page_id` int, `page_namespace` int, `page_title` blob, `page_is_redirect` int);\n"
)
ROWS = CREATE + b"INSERT INTO `page` VALUES (1,0,'"
# The first bytes, 1 MiB that is repeated 600 times, and the message.
BOMBS = {
    "zeros": (b"\0", bytes(1 << 20), "no statement of mysqldump"),
    "a string": (ROWS, b"x" * (1 << 20), "is larger than 64 MiB"),
    "columns": (b"CREATE TABLE page (a int", b",b int" * 150_000, "no statement of mysqldump"),
}


@pytest.mark.parametrize(
    "name", [name if name == "a string" else pytest.param(name, marks=pytest.mark.slow) for name in BOMBS]
)
def test_a_packed_table_of_gigabytes_is_refused_in_little_memory(name, dump, peak_of_prepare):
    head, fill, message = BOMBS[name]
    file = dump / "hostilewiki-20260101-page.sql"
    file.unlink()
    with gzip.open(f"{file}.gz", "wb", compresslevel=1) as packed:
        packed.write(head)
        for _ in range(600):
            packed.write(fill)
        packed.write(b");\n" if name == "columns" else b"")
    peak, line = peak_of_prepare("wikipedia-sql", dump)
    assert message in line
    assert peak < BOUND, f"{peak >> 20} MiB"


def test_a_red_link_that_is_no_text_is_dropped_and_counted(dump, tmp_path):
    file = dump / "hostilewiki-20260101-linktarget.sql"
    text = file.read_bytes()
    page = dump / "hostilewiki-20260101-pagelinks.sql"
    links = page.read_bytes()
    columns = ["page_id", "page_namespace", "page_is_redirect"]
    rows = sql_twin.read((dump / "hostilewiki-20260101-page.sql").read_bytes(), columns)
    article = next(number for number, namespace, redirects in rows if not namespace and not redirects)
    file.write_bytes(text.replace(b" VALUES (", b" VALUES (999999,0,'caf\xe9'),(", 1))
    page.write_bytes(links.replace(b" VALUES (", b" VALUES (%d,0,999999),(" % article, 1))
    arguments = ["prepare", "wikipedia-sql", "--source", dump, "--output", tmp_path / "out"]
    code, out, error = command(*arguments, "--set", "wikipedia.graph=titles")
    assert code == 0, error
    assert "links to titles not utf8: 1\n" in out


SETTINGS = [
    ("synthetic", "synthetic.left_items=4000000000"),
    ("synthetic", "split.validation_fraction=1e-300"),
    ("simple-scale", "expansion.left_blocks=4000000000"),
]


@pytest.mark.parametrize(("corpus", "setting"), SETTINGS)
def test_settings_beyond_all_use_are_one_line(corpus, setting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = command("prepare", corpus, "--output", tmp_path / "out", "--set", setting)
    assert code in (1, 2), error
