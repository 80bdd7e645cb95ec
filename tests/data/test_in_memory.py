"""Pairs and features in memory: equal corpora from every form, and one line for what cannot be used."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from gramrun.base.errors import InputError
from gramrun.data.in_memory import read_pairs

LEFT, RIGHT = [2, 0, 1, 0], [1, 0, 2, 1]
MATRIX = sp.csr_array((np.ones(4), (LEFT, RIGHT)), shape=(3, 3))
FRAME = pd.DataFrame({"left": LEFT, "right": RIGHT})
FEATURES = pd.DataFrame({"genre": [["crime", "war"], [], ["war"]], "year": [1994, None, 2001]})


@pytest.mark.parametrize(
    "pairs",
    [
        MATRIX,
        MATRIX.tocoo(),
        sp.csc_matrix(MATRIX),
        FRAME,
        FRAME.sample(frac=1, random_state=0),
        pd.concat([FRAME, FRAME]),  # without values a pair may be given again
        (LEFT, np.array(RIGHT)),
    ],
)
def test_every_form_gives_the_same_pairs(pairs):
    found = read_pairs(pairs)
    assert found.corpus.pair_left.tolist() == [0, 0, 1, 2]
    assert found.corpus.pair_right.tolist() == [0, 1, 2, 1]
    assert list(found.left_ids) == list(found.right_ids) == [0, 1, 2]


def test_a_matrix_has_items_without_pairs_and_values():
    matrix = sp.coo_array(([1.0, 2.0, 0.0, 3.0], ([1, 1, 0, 1], [0, 0, 0, 2])), shape=(3, 4))
    corpus = read_pairs(matrix).corpus
    assert (corpus.left.items, corpus.right.items) == (3, 4)
    assert corpus.pair_left.tolist() == [1, 1] and corpus.pair_right.tolist() == [0, 2]
    assert corpus.target.tolist() == [3, 3]  # scipy adds what is given twice; a stored 0 is no pair


def test_identifiers_keep_their_types_and_their_features():
    ids = [("a", 1), frozenset("b"), 3.5]
    index = pd.Index(ids[::-1], tupleize_cols=False)
    features = pd.DataFrame({"kind": ["x", None, "y"]}, index=index)
    found = read_pairs(pd.DataFrame({"left": list("ppq"), "right": ids, "value": [1, 2, 4]}), None, features)
    assert list(found.right_ids) == ids[::-1] and list(found.left_ids) == ["p", "q"]
    assert [ids[::-1][item] for item in found.corpus.pair_right] == [ids[1], ids[0], ids[2]]
    assert found.corpus.target.tolist() == [2, 1, 4]
    kind = found.corpus.right.features[1]
    assert kind.offsets.tolist() == [0, 1, 1, 2]
    assert found.corpus.vocabularies["right.kind"]["key"].tolist() == ["x", "y"]


def test_values_that_are_no_targets_only_say_what_is_a_pair():
    for pairs in (FRAME.assign(value=[1, 0, 2, 0.5]), sp.coo_array(([1, 2, 0.5], ([2, 1, 0], [1, 2, 1])))):
        corpus = read_pairs(pairs, with_values=False).corpus
        assert corpus.pair_left.tolist() == [0, 1, 2] and corpus.target is None


def test_columns_of_objects_keep_whole_numbers_and_bytes():
    found = read_pairs((np.array([7, 5], dtype=object), np.array([b"x", b"y"])))
    assert found.left_ids.dtype == np.int64 and list(found.right_ids) == [b"x", b"y"]


def test_small_integers_do_not_wrap_round():
    plays = sp.coo_array(
        (np.ones(259, np.int8), ([0] * 256 + [0, 1, 2], [0] * 256 + [1, 1, 2])), shape=(3, 3)
    )
    assert read_pairs(plays).corpus.target.tolist() == [256, 1, 1, 1]


def test_several_levels_are_tuples_and_categories_are_what_they_name():
    index = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])
    pairs = pd.DataFrame({"left": pd.Categorical([3, 5]), "right": [("b", 2), ("a", 1)]})
    found = read_pairs(pairs, None, pd.DataFrame({"g": ["x", "y"]}, index=index))
    assert list(found.right_ids) == [("a", 1), ("b", 2)]
    assert found.left_ids.dtype == np.int64


def test_categories_are_text_and_lists_are_bags():
    genre, year = read_pairs(MATRIX, FEATURES).corpus.left.features[1:]
    assert genre.offsets.tolist() == [0, 2, 2, 3] and genre.indices.tolist() == [0, 1, 1]
    assert year.offsets.tolist() == [0, 1, 1, 2]
    assert read_pairs(MATRIX, FEATURES).corpus.vocabularies["left.year"]["key"].tolist() == ["1994", "2001"]


def test_the_order_of_a_set_does_not_follow_the_hash_seed():
    words = {f"word {number}" for number in range(10, 40)}
    bag = read_pairs(MATRIX, pd.DataFrame({"words": [words, frozenset(words), set()]})).corpus.left.features[
        1
    ]
    assert bag.indices.tolist() == [*range(30), *range(30)]


def test_a_matrix_of_features_is_one_bag():
    bag = read_pairs(MATRIX, None, sp.csr_array(np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]]))).corpus.right
    assert bag.features[1].offsets.tolist() == [0, 2, 2, 3]
    assert bag.features[1].indices.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(3),), "pairs: must be a scipy.sparse matrix, a DataFrame .* not a ndarray"),
        ((sp.csr_array((3, 3)),), "pairs: holds none"),
        (([1, 2, 3],), "pairs: must be .* not a list"),
        ((([1, 2], [1]),), "pairs: 2 left items beside 1 right ones"),
        (((["a", None], [1, 2]),), "pairs: left item 1 is missing"),
        ((pd.DataFrame({"user": [1]}),), "pairs: has no column 'left'"),
        ((sp.csr_array(np.array([[1, np.nan]])),), "pairs: the value of 0, 1 is nan"),
        ((FRAME.assign(value="much"),), "pairs: their values must be numbers"),
        ((pd.concat([FRAME, FRAME]).assign(value=1.0),), "pairs: 4 are given again, with a value, as "),
        ((pd.concat({"a": FRAME}, axis=1),), "pairs: its columns have names of several levels"),
        ((MATRIX, FEATURES.rename(columns=lambda name: "..")), "left_features: must have columns with|is too"),
        ((MATRIX, FEATURES[::-1]), "left_features: must be in the order of the matrix; sort_index"),
        ((FRAME.set_axis(["left", "left"], axis=1),), "has no column 'right'"),
        ((pd.DataFrame({"left": [[1]], "right": [2]}),), "pairs: identifiers must be hashable"),
        ((MATRIX, pd.DataFrame({"g": ["a", ["a", "b"], "c"]})), "column 'g': holds lists, and 'a'"),
        ((MATRIX, pd.DataFrame({"g": [[["a"]], [], []]})), "column 'g': .* is no category, but a list in a list"),
        ((MATRIX, FEATURES[:2]), "left_features: has 2 rows for 3 items"),
        ((FRAME, FEATURES[:2]), "left_features: has no row for 2, which pairs hold"),
        ((FRAME, FEATURES.set_axis([0, 1, 1])), "left_features: its index must name every item once"),
        ((FRAME, sp.csr_array((2, 5))), "left_features: has no row for 2"),
        ((MATRIX, None, np.eye(3)), "right_features: must be a DataFrame or a scipy.sparse matrix, not a ndarray"),
        ((MATRIX, None, sp.csr_array(2 * np.eye(3))), "right_features: its stored values must be 1"),
        ((MATRIX, None, sp.csr_array(np.eye(2))), "right_features: has 2 rows for 3 items"),
        ((MATRIX, pd.DataFrame({"price": [1.5, 2, 3]})), "column 'price': .*1.5.* is no category; cut numbers"),
        ((MATRIX, pd.DataFrame({"tags": [["a"], "b", None]})), "column 'tags': holds lists, and 'b'"),
        ((MATRIX, pd.DataFrame({"empty": [None] * 3})), "column 'empty': holds no category"),
        ((MATRIX, pd.DataFrame({"id": [1, 2, 3]})), "none of them 'id'"),
        ((MATRIX, pd.DataFrame(index=range(3))), "must have columns"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(arguments, message):
    with pytest.raises(InputError, match=message) as refused:
        read_pairs(*arguments)
    assert "\n" not in str(refused.value)
