"""Whole real wikis and damaged real files through `gramrun prepare`, counted again by a literal reader."""

from __future__ import annotations

import gzip

import pytest
import sql_twin
from wiki_twin import ListWiki, expected, links_of, titles_of

from gramrun.data import shards
from gramrun.data.preparation import prepare_corpus
from gramrun.data.split import joined

COLUMNS = {
    "page": ["page_id", "page_namespace", "page_title", "page_is_redirect"],
    "redirect": ["rd_from", "rd_namespace", "rd_title", "rd_interwiki"],
    "pagelinks": ["pl_from", "pl_namespace", "pl_title"],
}
WIKIS = ("zuwiki", "vewiki", "crwiki", "ngwiki")  # of January 2016


def prepare(name, source, output, *settings):
    return prepare_corpus(name, output, source, settings)[0]


def read_literally(source, table):
    (path,) = source.glob(f"*-{table}.sql*")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return sql_twin.read(data, COLUMNS[table], table)


@pytest.mark.parametrize("wiki", [*WIKIS, pytest.param("miwiki", marks=pytest.mark.slow)])
def test_a_whole_wiki_of_2016(wiki, wiki_fixtures, tmp_path):
    source = wiki_fixtures / "mojcak-randomSearcher" / wiki
    settings = ["wikipedia.categories=false", "split.validation_fraction=0.5"]
    manifest = prepare("wikipedia-sql", source, tmp_path / "out", *settings)
    twin = expected(ListWiki(*(read_literally(source, table) for table in COLUMNS)))
    corpus = joined(shards.open_corpus(tmp_path / "out"))
    titles = titles_of(corpus, corpus.left)
    assert list(zip(corpus.vocabularies["page"]["page_id"].tolist(), titles, strict=True)) == twin.pages
    assert links_of(corpus) == twin.links
    assert {name: manifest["counts"][name] for name in twin.counts} == dict(twin.counts)


def test_what_is_known_of_miwiki(wiki_fixtures, tmp_path):
    source = wiki_fixtures / "mojcak-randomSearcher" / "miwiki"
    manifest = prepare("wikipedia-sql", source, tmp_path / "out", "wikipedia.categories=false")
    assert (manifest["counts"]["pages_read"], manifest["counts"]["links_read"]) == (12_615, 203_515)
    assert (manifest["corpus"]["pages"], manifest["corpus"]["links"]) == (7_092, 115_363)
