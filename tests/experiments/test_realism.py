"""The study of realism: its statistics by enumeration, and its table end to end."""

import itertools

import numpy as np
import pandas as pd
import pytest
from helpers import ROOT
from small_wiki import write_wiki

from experiments.studies import realism
from gramrun.config.prepare import WikipediaSection
from gramrun.data import shards
from gramrun.data.wikipedia.features import read
from gramrun.data.wikipedia.xml_wiki import XmlWiki


@pytest.fixture(scope="module")
def wiki(tmp_path_factory):
    return read(XmlWiki("w", write_wiki(tmp_path_factory.mktemp("wiki") / "wiki.xml")), WikipediaSection())


def test_the_statistics_are_those_of_an_enumeration(wiki):
    found = realism.graph(wiki, 100_000) | realism.spectrum(wiki)
    links = set(zip(wiki.pair_left.tolist(), wiki.pair_right.tolist(), strict=True))
    assert found["reciprocity"] == pytest.approx(np.mean([(y, x) in links for x, y in links]))
    closed = [
        (y, z) in links or (z, y) in links
        for x in range(wiki.left.items)
        for y, z in itertools.permutations([b for a, b in links if a == x], 2)
    ]
    assert found["transitivity"] == pytest.approx(np.mean(closed), abs=5 * 0.5 / 100_000**0.5)
    matrix = np.zeros((wiki.left.items, wiki.right.items))
    matrix[wiki.pair_left, wiki.pair_right] = 1
    values = np.linalg.svd(matrix, compute_uv=False)[: realism.SINGULAR_VALUES]
    assert found["decay"] == pytest.approx(values[-1] / values[0], rel=1e-2)
    assert found["top share"] == pytest.approx(matrix.sum(axis=0).max() / matrix.sum())


def test_the_table_has_a_column_for_each_corpus(wiki, tmp_path):
    pytest.importorskip("implicit")
    for name in ("a", "b"):
        shards.write_corpus(wiki, tmp_path / name, validation_fraction=0.1, split_seed=0, origin={})
        realism.main([str(tmp_path / name), "--output", str(tmp_path / "out"), "--wedges", "1000"])
    frame = pd.read_csv(tmp_path / "out" / "realism.csv")
    assert frame["corpus"].tolist() == ["a", "b"]
    assert frame["exact ALS"].between(0, 1).all()
    assert (tmp_path / "out" / "realism.md").read_text().startswith("| | a | b |")
    config = str(ROOT / "configs" / "enwik8" / "paper-sampling.yaml")
    small = ["--set", "train.batch_size=500", "--set", "estimator.gramian_batch_size=500"]
    realism.main([str(tmp_path / "b"), "--output", str(tmp_path / "out"), "--towers", config, *small])
    again = pd.read_csv(tmp_path / "out" / "realism.csv")
    assert np.isnan(again["towers"][0]) and 0 < again["towers"][1] <= 1
    pd.testing.assert_frame_equal(again.drop(columns="towers"), frame)
    realism.main(
        [str(tmp_path / "a"), "--output", str(tmp_path / "links"), "--links-only", "--wedges", "1000"]
    )
    links = pd.read_csv(tmp_path / "links" / "realism.csv")
    pd.testing.assert_frame_equal(links, frame.loc[[0], links.columns])
    assert {"transitivity", "popularity"} < set(links) < set(frame)
