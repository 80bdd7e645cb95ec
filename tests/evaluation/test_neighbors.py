"""Nearest items: the search against a literal one, titles as people type them, and the command."""

import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from helpers import CONFIG, made_corpus, made_side, settings
from hypothesis import given
from hypothesis import strategies as st

from gramrun.base.errors import InputError
from gramrun.data import shards
from gramrun.data.corpus import bags
from gramrun.evaluation import trained as embeddings
from gramrun.evaluation.neighbors import find_item, nearest
from gramrun.evaluation.trained import TrainedEmbeddings

TITLES = (
    ("1", "Toy Story (1995)"),
    ("2", "Toy Story 2 (1999)"),
    ("3", "GoldenEye (1995)"),
    ("4", "Usual Suspects, The (1995)"),
    ("5", "C++ [.*] \\d"),
    ("6", "Hamlet (1990)"),
    ("7", "Hamlet (1996)"),
    ("8", "Ünder the Sky"),
    ("9", "Heat (1995)"),
    ("10", "City Heat"),
    ("1995", "Twins"),
    ("12", "Twins"),
)


@pytest.fixture(scope="module")
def titles():
    ids, names = zip(*TITLES, strict=True)
    return pa.table({"id": pa.array(ids, pa.large_string()), "title": pa.array(names, pa.large_string())})


@pytest.mark.parametrize(
    ("sought", "identifier"),
    [
        ("Toy Story (1995)", "1"),  # as it is, though another title begins so
        ("toy story", "1"),  # without its year, and not Toy Story 2
        ("TOY STORY 2", "2"),
        ("Heat", "9"),
        ("golden", "3"),  # the only one that begins so
        ("suspects", "4"),  # the only one that holds it
        ("C++", "5"),
        ("[.*] \\D", "5"),  # no pattern, and no matter whether capital
        ("ÜNDER THE SKY", "8"),
        ("7", "7"),  # an id tells two Hamlets apart
        ("1995", "1995"),  # an id before a part of a title
    ],
)
def test_one_item_is_meant(titles, sought, identifier):
    assert TITLES[find_item(titles, sought, "movie", "")][0] == identifier


@pytest.mark.parametrize(
    ("sought", "words"),
    [
        ("Hamlet", ["matches 2 movie titles", "'Hamlet (1990)' (6)", "'Hamlet (1996)' (7)", "or an id"]),
        ("e", ["matches 7 movie titles", "and 2 more"]),
        ("Tpy Story", ["no movie is called 'Tpy Story'", "did you mean", "'Toy Story (1995)'"]),
        ("qqqqqq", ["no movie is called 'qqqqqq'"]),
        ("", ["the title is empty"]),
    ],
)
def test_none_or_several_are_meant(titles, sought, words):
    with pytest.raises(InputError) as raised:
        find_item(titles, sought, "movie", "--side searches the other side")
    message = str(raised.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def make_corpus(folder, items, *, same_items=False):
    """A corpus of this many right items; with `same_items`, pages that link to each other."""
    names = pd.DataFrame(
        {"key": [f"i{n}" for n in range(items)], "title": [f"Title {n:03}" for n in range(items)]}
    )
    right = made_side("movie", items, bags("tags", "tag", [[n % 2] for n in range(items)]))
    left = right if same_items else made_side("user", 4)
    pairs = np.divmod(np.arange(left.items * items), items)
    corpus = made_corpus(
        left, right, pairs, {"movie": names, "tag": 2, "user": pd.DataFrame({"key": list("abcd")})}
    )
    shards.write_corpus(corpus, folder, validation_fraction=0.2, split_seed=0, origin={"fingerprint": ""})
    return shards.open_corpus(folder)


def planted(corpus, left, right):
    tables = {"left": torch.tensor(left), "right": torch.tensor(right)}
    return TrainedEmbeddings(
        None, corpus, 0, tables["right"].shape[1], lambda side, items: tables[side][items]
    )


@pytest.fixture(scope="module")
def movies(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("movies") / "d", 25)


def literal(query, others, left_out, cosine):
    """Every score, one multiplication after the other, then sorted: (-score, item)."""
    ranked = []
    for item, other in enumerate(others):
        score = math.fsum(float(a) * float(b) for a, b in zip(query, other, strict=True))
        if cosine:
            lengths = math.hypot(*map(float, query)) * math.hypot(*map(float, other))
            score = score / lengths if lengths else 0.0
        if item != left_out:
            ranked.append((-score, item))
    return sorted(ranked)


# Whole numbers: products and sums are exact, so that ties are ties in both.
WHOLE = st.integers(-3, 3)


@given(data=st.data(), at_once=st.integers(1, 30), count=st.integers(1, 30))
def test_the_search_is_the_literal_one(movies, data, at_once, count):
    def table(rows):
        return np.array(
            data.draw(st.lists(st.lists(WHOLE, min_size=2, max_size=2), min_size=rows, max_size=rows)),
            dtype=np.float32,
        )

    left, right = table(4), table(25)
    trained = planted(movies, left, right)
    before, embeddings.ITEMS_AT_ONCE = embeddings.ITEMS_AT_ONCE, at_once
    try:
        items, scores = nearest(trained, "left", 2, "right", count)
        expected = literal(left[2], right, None, cosine=False)[:count]
        assert items.tolist() == [item for _, item in expected]
        assert scores.tolist() == [-score for score, _ in expected]
        items, scores = nearest(trained, "right", 7, "right", count, left_out=[7])
        expected = literal(right[7], right, 7, cosine=True)[:count]
        assert scores == pytest.approx([-score for score, _ in expected], abs=1e-12)
        assert 7 not in items and len(set(items)) == len(items) == min(count, 24)
        for item, score in zip(items, scores, strict=True):
            assert -score == pytest.approx(
                dict(map(reversed, literal(right[7], right, 7, cosine=True)))[item], abs=1e-12
            )
    finally:
        embeddings.ITEMS_AT_ONCE = before


SMALL = ("train.steps=20", "train.batch_size=16", "estimator.gramian_batch_size=16", "evaluation.every=0",
         "gram_error.estimators=[]")  # fmt: skip


def train(gramrun):
    code, _, err = gramrun("train", "--config", CONFIG, *settings(*SMALL, "data.path=d"), "--output", "r")
    assert code == 0, err


def test_movies_like_a_movie_and_movies_for_a_user(gramrun, tmp_path):
    make_corpus(tmp_path / "d", 25)
    train(gramrun)
    assert gramrun("export", "r", "--output", "movies.npy")[0] == 0
    assert gramrun("export", "r", "--output", "users.npy", "--side", "left")[0] == 0
    movies, users = np.load("movies.npy").astype(float), np.load("users.npy").astype(float)

    code, out, err = gramrun("neighbors", "r", "title 003", "--count", "4", "--json")
    found = json.loads(out)
    assert (code, err, found["to"], found["score"]) == (0, "", "right", "cosine")
    assert found["query"] == {"side": "right", "item": 3, "id": "i3", "title": "Title 003"}
    cosines = movies @ movies[3] / np.linalg.norm(movies, axis=1) / np.linalg.norm(movies[3])
    expected = [item for item in np.argsort(-cosines) if item != 3][:4]
    assert [row["item"] for row in found["neighbors"]] == expected
    assert [row["score"] for row in found["neighbors"]] == pytest.approx(cosines[expected])
    assert [row["id"] for row in found["neighbors"]] == [f"i{item}" for item in expected]

    code, out, _ = gramrun("neighbors", "r", "b", "--side", "left", "--to", "right", "--count", "3", "--json")
    found = json.loads(out)
    assert (code, found["score"]) == (0, "inner product")
    assert [row["item"] for row in found["neighbors"]] == np.argsort(-(movies @ users[1]))[:3].tolist()

    seen = shards.open_corpus(tmp_path / "d").train
    seen = set(seen.right[seen.left == 1].tolist())
    for options, left_out in (([], seen), (["--seen"], set())):
        code, out, _ = gramrun("recommend", "r", "b", "--count", "30", "--json", *options)
        expected = [item for item in np.argsort(-(movies @ users[1])).tolist() if item not in left_out]
        assert (code, [row["item"] for row in json.loads(out)["neighbors"]]) == (0, expected)
    assert seen

    code, out, err = gramrun("neighbors", "r", "Title", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "matches 25 movie titles" in err


def test_pages_show_what_they_may_link_to(gramrun, tmp_path):
    make_corpus(tmp_path / "d", 12, same_items=True)
    train(gramrun)
    code, out, _ = gramrun("neighbors", "r", "Title 005", "--json", "--count", "20")
    found = json.loads(out)
    assert (code, found["query"]["side"], found["to"]) == (0, "left", "right")
    assert found["score"] == "inner product"
    assert sorted(row["item"] for row in found["neighbors"]) == [n for n in range(12) if n != 5]
    code, out, _ = gramrun("neighbors", "r", "Title 005", "--side", "right", "--to", "right", "--json")
    assert (code, json.loads(out)["score"]) == (0, "cosine")
