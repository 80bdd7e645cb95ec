"""Small inputs that would take much memory or name absurd sizes and paths, and a server that answers anything."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from fuzzing import command
from literal_sql import read_table
from local_server import Server, whole

from experiments.benchmarks.mysqldump import write_tables
from gramrun.base.errors import GramrunError
from gramrun.data import movielens_files
from gramrun.data.wikipedia.synthetic import SyntheticWiki
from gramrun.data.wikipedia.synthetic_links import WikiSize

BOUND = 700 << 20  # bytes; the program alone takes 250 MB
SIZE = WikiSize(pages=40, links=90, words=10, categories=4, topics=1, minimum_count=1)


@pytest.fixture
def dump(tmp_path) -> Path:
    """Unpacked tables of a small wiki."""
    return write_tables(SyntheticWiki("smallwiki", SIZE), tmp_path / "dump", "2026", suffix=".sql")


def gz(path: Path):
    return gzip.open(path, "wb", compresslevel=1)


def zst(path: Path):
    return zstandard.open(path, "wb")


CREATE = (
    b"CREATE TABLE `page` (`page_id` int, `page_namespace` int, `page_title` blob, `page_is_redirect` int);\n"
)
ROWS = CREATE + b"INSERT INTO `page` VALUES (1,0,'"
# Compressor, suffix, the first bytes, 1 MiB that is repeated 2,000 times, and the message.
BOMBS = {
    "zeros": (gz, ".gz", b"\0", bytes(1 << 20), "no statement of mysqldump"),
    "blanks": (zst, ".zst", b"\n", b" " * (1 << 20), "has no CREATE TABLE"),
    "a string": (gz, ".gz", ROWS, b"x" * (1 << 20), "is larger than 64 MiB"),
    "a comment": (gz, ".gz", b"/*", b"x" * (1 << 20), "no statement of mysqldump"),
    "columns": (gz, ".gz", b"CREATE TABLE page (a int", b",b int" * 150_000, "no statement of mysqldump"),
}


@pytest.mark.parametrize(
    "name", [name if name == "a string" else pytest.param(name, marks=pytest.mark.slow) for name in BOMBS]
)
def test_a_packed_table_of_gigabytes_is_refused_in_little_memory(name, dump, peak_of_prepare):
    pack, suffix, head, fill, message = BOMBS[name]
    file = dump / "smallwiki-20260101-page.sql"
    file.unlink()
    with pack(file.with_name(file.name + suffix)) as packed:
        packed.write(head)
        for _ in range(2_000):
            packed.write(fill)
        packed.write(b");\n" if name == "columns" else b"")
    peak, line = peak_of_prepare("wikipedia-sql", dump)
    assert message in line
    assert peak < BOUND, f"{peak >> 20} MiB"


def test_stray_numbers_cost_nothing(dump, tmp_path, peak_of_prepare):
    """A page and a target near 2^31 in a wiki of forty pages; the second run ends at a cut-off table."""
    for table, row in {
        "page": b"(2147483647,0,'Stray',0,0,0.5,'20260101000000',NULL,1,1,'wikitext',NULL)",
        "linktarget": b"(2147483646,0,'Stray')",
    }.items():
        file = dump / f"smallwiki-20260101-{table}.sql"
        text = file.read_bytes()
        file.write_bytes(text.replace(b" VALUES (", b" VALUES " + row + b",(", 1))
    command_line = ["prepare", "wikipedia-sql", "--source", dump, "--output", tmp_path / "out"]
    code, _, error = command(*command_line)
    assert code == 0, error
    file = dump / "smallwiki-20260101-page_props.sql"
    file.write_bytes(file.read_bytes()[:-30])
    peak, line = peak_of_prepare("wikipedia-sql", dump)
    assert "cut off" in line
    assert peak < BOUND, f"{peak >> 20} MiB"


def test_a_red_link_that_is_no_text_is_dropped_and_counted(dump, tmp_path):
    file = dump / "smallwiki-20260101-linktarget.sql"
    text = file.read_bytes()
    page = dump / "smallwiki-20260101-pagelinks.sql"
    links = page.read_bytes()
    rows = read_table(dump / "smallwiki-20260101-page.sql")
    article = next(row["page_id"] for row in rows if not (row["page_namespace"] or row["page_is_redirect"]))
    file.write_bytes(text.replace(b" VALUES (", b" VALUES (999999,0,'caf\xe9'),(", 1))
    page.write_bytes(links.replace(b" VALUES (", b" VALUES (%d,0,999999),(" % article, 1))
    arguments = ["prepare", "wikipedia-sql", "--source", dump, "--output", tmp_path / "out"]
    code, out, error = command(*arguments, "--set", "wikipedia.graph=titles")
    assert code == 0, error
    assert "links to titles not utf8: 1\n" in out


def test_nothing_but_the_named_files_is_fetched(tmp_path, monkeypatch):
    """Whatever the server answers: an archive of other members, a page with links, nothing."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    allowed = {"ml-1m.zip", "ml-latest-small.zip", "ml-latest-small.zip.md5", "ml-10m.zip"}
    bodies = [b"<a href='http://127.0.0.1/evil'>x</a>", b"PK\x05\x06" + bytes(18), b"", b"0" * 32]
    for body in bodies:
        server = Server()
        try:
            server.answers = [whole(body)]
            for corpus in ("movielens-1m", "movielens-small", "movielens-10m"):
                with pytest.raises(GramrunError):
                    movielens_files.locate(
                        corpus,
                        None,
                        [],
                        tmp_path / "downloads",
                        server=server.address,
                        mirrors={},
                        progress=False,
                    )
            assert {path.lstrip("/") for path, _ in server.requests} <= allowed
        finally:
            server.close()
    kept = {path.name for path in (tmp_path / "downloads").rglob("*")}
    assert kept <= allowed | {f"{name}.part" for name in allowed} | {
        f"{name}.part.version" for name in allowed
    }


SETTINGS = [
    ("synthetic", "synthetic.left_items=4000000000"),
    ("synthetic", "synthetic.right_items=4000000000"),
    ("synthetic", "synthetic.rank=4000000000"),
    ("synthetic", "synthetic.popularity_exponent=1e308"),
    ("synthetic", "split.validation_fraction=1e-300"),
    ("simple-scale", "planted.pages=4000000000"),
    ("simple-scale", "planted.topics=4000000000"),
    ("simple-scale", "planted.words=4000000000"),
    ("synthetic", "dump.contact='a\\r\\nX: y'"),
]


@pytest.mark.parametrize(("corpus", "setting"), SETTINGS)
def test_settings_beyond_all_use_are_one_line(corpus, setting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = command("prepare", corpus, "--output", tmp_path / "out", "--set", setting)
    assert code in (1, 2) or "contact" in setting, error


def test_paths_that_no_system_takes_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long, deep = "a" * 5_000, "a/" * 5_000
    config = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"
    for name in (long, deep):
        for arguments in (
            ["prepare", "synthetic", "--output", name],
            ["prepare", "movielens-1m", "--output", "out", "--source", name],
            ["prepare", "wikipedia-sql", "--output", "out", "--source", name],
            ["prepare", "wikipedia-xml", "--output", "out", "--source", name],
            ["train", "--config", name],
            ["train", "--config", config, "--set", f"data.path={name}"],
            ["evaluate", name],
            ["plot", "map", name, "--output", "x.png"],
        ):
            code, _, error = command(*arguments)
            assert code in (1, 2), (arguments, error)
