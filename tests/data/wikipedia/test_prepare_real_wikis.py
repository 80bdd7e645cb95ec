"""Whole real wikis and damaged real files through `gramrun prepare`, counted again by a literal reader."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from literal_sql import read_table
from wiki_twin import ListWiki, expected

from gramrun.data import shards
from gramrun.data.preparation import prepare_corpus

RAW = os.environ.get("GRAMRUN_RAW")
FIXTURES = Path(RAW).parent / "wiki-fixtures" if RAW else None
pytestmark = pytest.mark.skipif(
    FIXTURES is None or not FIXTURES.is_dir(),
    reason="no folder wiki-fixtures beside the one that GRAMRUN_RAW names",
)
TABLES = ("page", "pagelinks", "redirect")
WIKIS = ("miwiki", "zuwiki", "vewiki", "crwiki", "ngwiki")  # of January 2016


def prepare(name, source, output, *settings):
    return prepare_corpus(name, output, source, settings)[0]


@pytest.mark.parametrize("wiki", WIKIS)
def test_a_whole_wiki_of_2016(wiki, tmp_path):
    source = FIXTURES / "mojcak-randomSearcher" / wiki
    settings = ["wikipedia.categories=false", "split.validation_fraction=0.5"]
    manifest = prepare("wikipedia-sql", source, tmp_path / "out", *settings)
    page, links, redirect = (read_table(next(source.glob(f"*-{table}.sql*"))) for table in TABLES)
    twin = expected(
        ListWiki(
            [tuple(r[f"page_{c}"] for c in ("id", "namespace", "title", "is_redirect")) for r in page],
            [tuple(r[f"rd_{c}"] for c in ("from", "namespace", "title", "interwiki")) for r in redirect],
            [tuple(r[f"pl_{c}"] for c in ("from", "namespace", "title")) for r in links],
        )
    )
    corpus = shards.open_corpus(tmp_path / "out")
    titles = [key.replace(" ", "_").encode() for key in corpus.vocabularies["page"]["key"]]
    assert list(zip(corpus.vocabularies["page"]["page_id"].tolist(), titles, strict=True)) == twin.pages
    pairs = {
        (titles[a], titles[b])
        for split in (corpus.train, corpus.validation)
        for a, b in zip(split.left, split.right, strict=True)
    }
    assert pairs == twin.links
    assert {name: manifest["counts"][name] for name in twin.counts} == dict(twin.counts)


def test_a_closed_wiki_without_a_link_between_articles_is_told_so(gramrun, tmp_path):
    source = FIXTURES / "mojcak-randomSearcher" / "krwiki"
    command = ["prepare", "wikipedia-sql", "--source", source, "--output", tmp_path / "out"]
    code, _, error = gramrun(*command, "--set", "wikipedia.categories=false")
    assert code == 2
    assert "no link between articles is left of" in error


def test_what_is_known_of_miwiki(tmp_path):
    source = FIXTURES / "mojcak-randomSearcher" / "miwiki"
    manifest = prepare("wikipedia-sql", source, tmp_path / "out", "wikipedia.categories=false")
    assert manifest["counts"]["pages_read"] == 12_615
    assert manifest["counts"]["links_read"] == 203_515
    assert manifest["corpus"]["pages"] == 7_092
    assert manifest["corpus"]["links"] == 115_363


@pytest.mark.parametrize(
    ("folder", "settings", "message"),
    [
        ("mojcak-randomSearcher/miwiki", [], "no table categorylinks.*wikipedia.categories=false"),
        ("mojcak-randomSearcher", ["wikipedia.categories=false"], "several dumps .crwiki 20160111, krwiki"),
        ("dkpro-jwpl", ["wikipedia.categories=false"], "aawiki 20260101 without page without redirect"),
        ("Gaareth-WikiStats", ["wikipedia.categories=false"], "test 20240901 without redirect"),
        (
            "gitPratikSingh-WikiPageRankApplication",
            ["wikipedia.categories=false"],
            "simplewiki 20170901 without redirect",
        ),
    ],
)
def test_a_folder_that_is_no_whole_dump_is_one_line(gramrun, tmp_path, folder, settings, message):
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    code, _, error = gramrun(
        "prepare", "wikipedia-sql", "--source", FIXTURES / folder, "--output", tmp_path / "out", *arguments
    )
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert re.search(message, error), error
    assert not (tmp_path / "out").exists()


def refused_with_another_wikis_pages(gramrun, folder):
    """What is said of link tables whose page and redirect come from another wiki, to get as far as the links."""
    for table in ("page", "redirect"):
        source = FIXTURES / "mojcak-randomSearcher" / "krwiki" / f"krwiki-20160111-{table}.sql.gz"
        shutil.copy(source, folder / f"{table}.sql.gz")
    command = ["prepare", "wikipedia-sql", "--source", folder, "--output", folder / "out"]
    code, _, error = gramrun(*command, "--set", "wikipedia.categories=false")
    assert code == 2
    return error


def test_aawiki_of_2026_lacks_linktarget_and_is_told_so(gramrun, tmp_path):
    """Its pagelinks has numbers only; page and redirect come from another wiki here, to get that far."""
    folder = tmp_path / "dump"
    folder.mkdir()
    for table in ("pagelinks", "categorylinks"):
        shutil.copy(FIXTURES / "dkpro-jwpl" / f"aawiki-20260101-{table}.sql.gz", folder / f"{table}.sql.gz")
    error = refused_with_another_wikis_pages(gramrun, folder)
    assert (
        "no table linktarget, which pagelinks of this year needs (it has pl_target_id and no pl_title)"
        in error
    )


@pytest.mark.parametrize(
    "sample", ["dewiki-20240901-pagelinks-small.sql", "dewiki-20240901-linktarget-small.sql"]
)
def test_a_cut_off_sample_is_refused(gramrun, tmp_path, sample):
    folder = tmp_path / "dump"
    folder.mkdir()
    shutil.copy(
        FIXTURES / "Gaareth-WikiStats" / "dewiki-20240901-pagelinks-small.sql", folder / "pagelinks.sql"
    )
    if "linktarget" in sample:
        (folder / "pagelinks.sql").write_text(
            "CREATE TABLE `pagelinks` (`pl_from` int, `pl_from_namespace` int, `pl_target_id` bigint);\n"
            "INSERT INTO `pagelinks` VALUES (1,0,1);\n"
        )
        shutil.copy(FIXTURES / "Gaareth-WikiStats" / sample, folder / "linktarget.sql")
    else:
        (folder / "linktarget.sql").write_text(
            "CREATE TABLE `linktarget` (`lt_id` bigint, `lt_namespace` int, `lt_title` varbinary(255));\n"
            "INSERT INTO `linktarget` VALUES (1,0,'A');\n"
        )
    error = refused_with_another_wikis_pages(gramrun, folder)
    assert re.search(rf"{sample.split('-')[2]}\.sql: .*(cut off|ends within)", error), error


def test_an_xml_dump(tmp_path):
    (source,) = (FIXTURES / "xml").glob("*shortened.bz2")
    manifest = prepare("wikipedia-xml", source, tmp_path / "out", "wikipedia.graph=titles")
    assert manifest["name"] == "wikipedia-xml"
    assert manifest["counts"]["pages_read"] == 206
    pairs = np.load(tmp_path / "out" / "pairs" / "train_left.npy")
    assert len(pairs) == manifest["corpus"]["train_pairs"]
