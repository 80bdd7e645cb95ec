"""Dumps of every generation through the whole of `gramrun prepare`, against the literal twin."""

from __future__ import annotations

import bz2
import gzip
import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from helpers import values_of
from hostile_wiki import Size, hostile_wiki
from wiki_twin import expected, links_of, titles_of

from experiments.benchmarks.mysqldump import GENERATIONS, write_tables
from gramrun.data import shards
from gramrun.data.preparation import prepare_corpus
from gramrun.data.split import joined

SIZE = Size(pages=300, links=3_000, categories=12, minimum_count=10)
NAME = "hostilewiki-20260101-{}.sql.gz"


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """A folder of tables for each generation."""
    folder = tmp_path_factory.mktemp("dumps")
    wiki = hostile_wiki(SIZE)
    for generation in GENERATIONS:
        write_tables(wiki, folder / generation, generation)
    return folder


@pytest.fixture
def dump(dumps, tmp_path):
    """A copy that a test may damage, of the newest generation."""
    return Path(shutil.copytree(dumps / "2026", tmp_path / "dump"))


def prepare(source, output, *settings):
    return prepare_corpus("wikipedia-sql", output, source, settings)[0]


@pytest.fixture(scope="module")
def prepared(dumps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    return {g: prepare(dumps / g, folder / g) for g in GENERATIONS}, folder


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_corpus_is_that_of_the_literal_twin(prepared, generation):
    manifests, folder = prepared
    by_title = generation in ("2013", "2016", "2023")
    twin = expected(hostile_wiki(SIZE, unknown_targets=not by_title), min_ngrams=10, min_members=10)
    corpus = joined(shards.open_corpus(folder / generation))
    titles = titles_of(corpus, corpus.left)
    assert list(zip(corpus.vocabularies["page"]["page_id"].tolist(), titles, strict=True)) == twin.pages
    assert links_of(corpus) == twin.links and len(twin.links) == SIZE.links
    for name, of_page in (
        ("categories", {title: {key.decode() for key in twin.categories[title]} for title in titles}),
        ("ngrams", twin.ngrams),
    ):
        for title, found in zip(titles, values_of(corpus, corpus.left, name), strict=True):
            assert set(found) == of_page[title]
    counts = manifests[generation]["counts"]
    assert {name: counts[name] for name in twin.counts} == dict(twin.counts)
    assert sum(count > 0 for count in twin.counts.values()) > 20
    assert manifests[generation]["corpus"]["categories"] == SIZE.categories


def test_every_generation_gives_the_same_shards(prepared):
    hashes = {manifest["content_hash"] for manifest in prepared[0].values()}
    assert len(hashes) == 1


def test_the_names_of_columns_decide_and_not_their_order(dumps, prepared, tmp_path):
    """Old and new pagelinks have three columns each; here the new ones stand in another order too."""
    dump = Path(shutil.copytree(dumps / "2026", tmp_path / "dump"))
    file = dump / NAME.format("pagelinks")
    text = gzip.decompress(file.read_bytes()).decode("latin-1")
    columns = ["pl_from", "pl_from_namespace", "pl_target_id"]
    lines = [next(line for line in text.splitlines() if line.strip().startswith(f"`{c}`")) for c in columns]
    text = text.replace("\n".join(lines), "\n".join([lines[2], lines[0], lines[1]]))
    rows = text.split("VALUES ")
    for i in range(1, len(rows)):
        values, rest = rows[i].split(";", 1)
        turned = [",".join([c, a, b]) for a, b, c in (row.split(",") for row in values[1:-1].split("),("))]
        rows[i] = f"({'),('.join(turned)});{rest}"
    file.write_bytes(gzip.compress("VALUES ".join(rows).encode("latin-1")))
    assert prepare(dump, tmp_path / "out")["content_hash"] == prepared[0]["2026"]["content_hash"]


def test_a_half_migrated_table_is_read_row_by_row(dumps, prepared, tmp_path):
    """In 2023 new rows had a number and no title yet, where the writer was switched over first."""
    dump = Path(shutil.copytree(dumps / "2023", tmp_path / "dump"))
    file = dump / NAME.format("pagelinks")
    text = gzip.decompress(file.read_bytes()).decode("latin-1")
    head, body = text.split("VALUES ", 1)
    first, rest = re.split(r"\),\((?=\d)", body, maxsplit=1)  # some titles hold a bare "),("
    parts = first.split(",")
    assert parts[-1].isdigit()
    title = ",".join(parts[2:-2])
    assert title.startswith("'")
    file.write_bytes(
        gzip.compress(f"{head}VALUES {first.replace(title, repr(''), 1)}),({rest}".encode("latin-1"))
    )
    assert prepare(dump, tmp_path / "out")["content_hash"] == prepared[0]["2023"]["content_hash"]


def test_categories_can_be_done_without(dumps, dump, tmp_path):
    for table in ("categorylinks", "page_props"):
        (dump / NAME.format(table)).unlink()
    manifest = prepare(dump, tmp_path / "out", "wikipedia.categories=false")
    assert manifest["corpus"]["categories"] == 0
    assert [f["name"] for f in manifest["sides"]["left"]["features"]] == ["page", "ngrams"]
    assert manifest["corpus"]["links"] == SIZE.links


def rewrite(file, change):
    file.write_bytes(gzip.compress(change(gzip.decompress(file.read_bytes()))))


def swap(dump):
    page, links = (dump / NAME.format(table) for table in ("page", "pagelinks"))
    page.rename(dump / "x")
    links.rename(page)
    (dump / "x").rename(links)


def cut(dump):
    file = dump / NAME.format("pagelinks")
    file.write_bytes(file.read_bytes()[:-100])


def cut_text(dump):
    rewrite(dump / NAME.format("pagelinks"), lambda text: text[: len(text) // 2])


def other_wiki(dump):
    rewrite(dump / NAME.format("linktarget"), lambda text: text.replace(b",0,'", b",4,'"))


def null_namespace(dump):
    change = partial(re.sub, rb"\((\d+),0,", rb"(\1,NULL,", count=1)
    rewrite(dump / NAME.format("linktarget"), change)


def title_as_a_number(dump):
    change = partial(re.sub, rb"`lt_title` \w+\(\d+\)", b"`lt_title` int(8)")
    rewrite(dump / NAME.format("linktarget"), change)


def without(*tables):
    def remove(dump):
        for table in tables:
            (dump / NAME.format(table)).unlink()

    return remove


FAULTS = {
    "truncated gzip": (cut, "pagelinks.sql.gz"),
    "truncated text": (cut_text, "pagelinks.sql.gz"),
    "no linktarget": (without("linktarget"), "no table linktarget, which pagelinks of this year needs"),
    "no categorylinks": (without("categorylinks"), "no table categorylinks.*wikipedia.categories=false"),
    "no page_props": (without("page_props"), "no table page_props.*wikipedia.categories=false"),
    "swapped": (swap, "page.sql.gz"),
    "NULL": (null_namespace, "lt_namespace is NULL in a row of the table linktarget"),
    "a title that is a number": (
        title_as_a_number,
        "lt_title of the table linktarget holds integer, not bytes",
    ),
    "another wiki's targets": (other_wiki, "no link between articles is left"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_dump_is_one_line_and_leaves_nothing(gramrun, dump, tmp_path, fault):
    damage, message = FAULTS[fault]
    damage(dump)
    before = sorted(p.name for p in tmp_path.iterdir())
    code, _, error = gramrun("prepare", "wikipedia-sql", "--source", dump, "--output", tmp_path / "out")
    assert code == 2
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(message, error), error
    assert "Traceback" not in error
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_fault_leaves_the_corpus_that_was_there(gramrun, dump, dumps, tmp_path):
    manifest = prepare(dumps / "2026", tmp_path / "out")
    cut_text(dump)
    code, _, _ = gramrun(
        "prepare", "wikipedia-sql", "--source", dump, "--output", tmp_path / "out", "--force"
    )
    assert code == 2
    shards.open_corpus(tmp_path / "out")
    assert shards.read_manifest(tmp_path / "out") == manifest


def test_unchanged_tables_are_recognised(dumps, tmp_path):
    first = prepare_corpus("wikipedia-sql", tmp_path / "out", dumps / "2026", [])
    again = prepare_corpus("wikipedia-sql", tmp_path / "out", dumps / "2026", [])
    assert first[1]
    assert again == (first[0], False)


def test_a_row_with_a_number_and_no_title_needs_linktarget(gramrun, dumps, tmp_path):
    dump = Path(shutil.copytree(dumps / "2023", tmp_path / "dump"))
    (dump / NAME.format("linktarget")).unlink()
    command = ["prepare", "wikipedia-sql", "--source", dump, "--output", tmp_path / "out"]
    assert gramrun(*command)[0] == 0  # every row has a title
    rewrite(
        dump / NAME.format("pagelinks"),
        lambda text: re.sub(rb"(VALUES \(\d+,0,)'[^']*'", rb"\1''", text, count=1),
    )
    code, _, error = gramrun(*command, "--force")
    assert code == 2
    assert (
        "no table linktarget, which pagelinks needs, as some of its rows have a number and no title" in error
    )


def test_the_output_is_tried_before_anything_is_read(gramrun, dump, tmp_path):
    (tmp_path / "file").write_text("")
    for output, message in (
        (tmp_path / "file" / "out", "is no folder that can be written"),
        (dump, "holds the raw data"),
        (tmp_path, "holds the raw data"),
    ):
        code, _, error = gramrun("prepare", "wikipedia-sql", "--source", dump, "--output", output, "--force")
        assert code == 2
        assert message in error
    assert (dump / NAME.format("page")).exists()


def test_tables_come_in_any_packing(dump, prepared, tmp_path):
    zstandard = pytest.importorskip("zstandard")
    packers = {
        "page": (".bz2", bz2.compress),
        "linktarget": (".zst", zstandard.compress),
        "redirect": ("", bytes),
    }
    for table, (suffix, pack) in packers.items():
        file = dump / NAME.format(table)
        file.with_name(file.name.removesuffix(".gz") + suffix).write_bytes(
            pack(gzip.decompress(file.read_bytes()))
        )
        file.unlink()
    assert prepare(dump, tmp_path / "out")["content_hash"] == prepared[0]["2026"]["content_hash"]


def test_a_cut_off_xml_dump_is_taken_where_that_is_asked_for(gramrun, tmp_path):
    page = "<page><title>{}</title><ns>0</ns><id>{}</id><revision><id>1</id><text>[[A]] [[B]]</text></revision></page>"
    head = '<mediawiki version="0.11"><siteinfo><dbname>w</dbname><case>first-letter</case><namespaces>'
    head += '<namespace key="0" case="first-letter" /></namespaces></siteinfo>'
    (tmp_path / "w.xml").write_text(head + page.format("A", 1) + page.format("B", 2) + "<page><title>C")
    command = ["prepare", "wikipedia-xml", "--source", tmp_path / "w.xml", "--output", tmp_path / "out"]
    command += ["--set", "split.validation_fraction=0.5"]
    code, _, error = gramrun(*command)
    assert code == 2
    assert "cut off" in error
    code, output, error = gramrun(*command, "--set", "wikipedia.cut_off=true", "--set", "split.seed=1")
    assert code == 0, error
    assert "2 pairs, 1 train pairs, 1 validation pairs, 2 pages, 2 links" in output
