"""Pairs and features that are in memory already, as a `Corpus`: matrices, data frames and arrays.

Categories of features are compared as text: 1994, 1994.0 and "1994" are one category. Identifiers keep their
types.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from gramrun.base.capacity import check_capacity
from gramrun.base.errors import InputError
from gramrun.data.corpus import Corpus, Feature, Side, one_hot

SIDES = ("left", "right")
ID = "id"  # the feature that each side has, one value an item
LONGEST_NAME = 200  # of a feature, as a part of the names of files
_BYTES_PER_ID = 100  # of an identifier as text
_BAG = "bag"  # the name of a feature that is given as a matrix
_BAGS = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class Identified:
    """A corpus whose items have identifiers of any type.

    Attributes:
        corpus: the corpus; its sides and their vocabularies are called ``left`` and ``right``.
        left_ids, right_ids: the identifiers, in the order of item numbers.
    """

    corpus: Corpus
    left_ids: pd.Index
    right_ids: pd.Index


def read_pairs(
    pairs: Any, left_features: Any = None, right_features: Any = None, *, with_values: bool = True
) -> Identified:
    """Make a corpus of pairs and features.

    Args:
        pairs: a scipy.sparse matrix or array, whose stored entries other than 0 are pairs and their values
            targets; a DataFrame with the columns ``left``, ``right`` and, if wanted, ``value``; or a tuple of
            two arrays of identifiers.
        left_features: None; a DataFrame with a row for each item, indexed by identifier (for a matrix of
            pairs: in the order of its rows), whose columns are categories, or lists of categories; or a
            scipy.sparse matrix of zeros and ones, a row for each item. Missing values are no category.
        right_features: the same for right items (a matrix's columns).
        with_values: whether values are targets. Else a value of 0 is no pair, a negative one is refused,
            and a pair that is given again counts once.

    Raises:
        InputError: names what is wrong, and where.
    """
    given, values, shape = _columns(pairs, with_values)
    numbers: list[np.ndarray] = []
    ids: list[pd.Index] = []
    sides: list[Side] = []
    vocabularies: dict[str, pd.DataFrame] = {}
    for place, (name, features) in enumerate(zip(SIDES, (left_features, right_features), strict=True)):
        known = _identifiers(name, features, None if shape is None else shape[place])
        labels = given[place]
        if known is None:
            known = _distinct(labels)
        found = labels if shape is not None else _numbers(f"{name}_features", known, labels)
        numbers.append(np.asarray(found, dtype=np.int32))
        ids.append(known)
        vocabularies[name] = _vocabulary(known)
        encoded = encode(name, features, len(known))
        vocabularies |= {feature.vocabulary: keys for feature, keys in encoded}
        own = one_hot(ID, name, np.arange(len(known)))
        sides.append(Side(name, len(known), (own, *(feature for feature, _ in encoded))))
    left, right, values = _sorted(numbers[0], numbers[1], values, ids)
    corpus = Corpus("in-memory", sides[0], sides[1], vocabularies, left, right, values)
    return Identified(corpus, ids[0], ids[1])


def encode(
    side: str, features: Any, items: int, known: Mapping[str, pd.Index] | None = None
) -> list[tuple[Feature, pd.DataFrame]]:
    """Features as bags of categories, each with its vocabulary.

    Args:
        side: ``left`` or ``right``.
        features: as in `read_pairs`.
        items: how many rows they must have.
        known: the categories of each feature, where they are known already; others are left out then.

    Raises:
        InputError: when they have another number of rows or other columns, or hold numbers.
    """
    what = f"{side}_features"
    if features is None:
        return []
    if isinstance(features, pd.DataFrame):
        columns = {str(name): features.iloc[:, place] for place, name in enumerate(features.columns)}
        if not columns or len(columns) < features.shape[1] or ID in columns:
            raise InputError(f"{what}: must have columns with different names, none of them {ID!r}")
        for name in columns:
            if name.strip(".") == "" or len(urllib.parse.quote(name, safe="")) > LONGEST_NAME:
                raise InputError(f"{what}: {name!r:.60} is too long for a column's name, or too short")
    elif scipy.sparse.issparse(features) and features.ndim == 2:
        columns = {_BAG: features.tocsr()}
    else:
        raise InputError(f"{what}: must be a DataFrame or a scipy.sparse matrix, not {_kind(features)}")
    if features.shape[0] != items:
        raise InputError(f"{what}: has {features.shape[0]:,} rows for {items:,} items")
    names = {name: urllib.parse.quote(name, safe="") for name in columns}  # also names of files
    if known is not None and set(names.values()) != set(known):
        raise InputError(f"{what}: must have what the model was trained with: {', '.join(known)}")
    read = _read_matrix if scipy.sparse.issparse(features) else _read_column
    found = []
    for name, column in columns.items():
        place = f"{what}, column {name!r}" if isinstance(features, pd.DataFrame) else what
        rows, codes, keys = read(place, column, None if known is None else known[names[name]])
        if not len(keys):
            raise InputError(f"{place}: holds no category; leave it out")
        offsets = np.zeros(items + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=items), out=offsets[1:])
        feature = Feature(names[name], f"{side}.{names[name]}", offsets, codes.astype(np.int32))
        found.append((feature, pd.DataFrame({"key": keys})))
    return found


def _columns(pairs: Any, with_values: bool) -> tuple[list[Any], np.ndarray | None, tuple[int, int] | None]:
    """The two columns of pairs, their values, and the shape of a matrix."""
    columns: list[Any]
    shape = values = None
    if scipy.sparse.issparse(pairs):
        matrix = pairs.tocoo(copy=True)
        if matrix.ndim != 2:
            raise InputError(f"pairs: must be a matrix, not of {matrix.ndim} dimensions")
        for name, items in zip(("rows", "columns"), matrix.shape, strict=True):
            check_capacity(
                _BYTES_PER_ID * items,
                "memory",
                what=f"{items:,} {name} of pairs",
                remedy="number items from 0, or give two arrays of identifiers",
            )
        if matrix.dtype.kind in "iu":
            matrix = matrix.astype(np.float64)  # sums of small integers would wrap round
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        shape = matrix.shape
        columns, values = [pd.Series(np.asarray(x, dtype=np.int64)) for x in matrix.coords], matrix.data
    elif isinstance(pairs, pd.DataFrame):
        if pairs.columns.nlevels > 1:
            raise InputError("pairs: its columns have names of several levels; name them left and right")
        missing = [name for name in SIDES if name not in pairs.columns]
        if missing:
            raise InputError(f"pairs: has no column {missing[0]!r}; they are left, right and perhaps value")
        if not pairs.columns.is_unique:
            raise InputError("pairs: two columns have the same name")
        columns = [pairs[name] for name in SIDES]
        values = pairs["value"].to_numpy() if "value" in pairs.columns else None
    elif _is_two_columns(pairs):
        try:
            columns = [pd.Series(_objects(part)) for part in pairs]
        except ValueError:
            raise InputError("pairs: two arrays must have one dimension each") from None
        if len(columns[0]) != len(columns[1]):
            raise InputError(f"pairs: {len(columns[0]):,} left items beside {len(columns[1]):,} right ones")
    else:
        raise InputError(
            "pairs: must be a scipy.sparse matrix, a DataFrame with the columns left and right, or two "
            f"arrays (left, right), not {_kind(pairs)}"
        )
    if not len(columns[0]):
        raise InputError("pairs: holds none")
    if shape is None:
        for name, column in zip(SIDES, columns, strict=True):
            if (absent := np.flatnonzero(pd.isna(column))).size:
                raise InputError(f"pairs: {name} item {absent[0]:,} is missing (NaN); drop the row")
    if values is None:
        return columns, None, shape
    targets = _targets(values, columns)
    if with_values:
        return columns, targets, shape
    if (bad := np.flatnonzero(targets < 0)).size:
        raise InputError(
            f"pairs: the value of {_pair(columns, bad[0])} is {targets[bad[0]]:g}, but each is a pair; drop "
            "negative ones, or set target='value'"
        )
    kept = targets != 0
    if not kept.any():
        raise InputError("pairs: holds none whose value is not 0")
    return [column[kept].reset_index(drop=True) for column in columns], None, shape


def _is_two_columns(pairs: Any) -> bool:
    """Whether it is a tuple of two columns, or a list of two arrays; a list of two lists may be two pairs."""
    if not isinstance(pairs, tuple | list) or len(pairs) != 2:
        return False
    listed = (pd.api.types.is_list_like(part, allow_sets=False) for part in pairs)
    plain = (
        isinstance(part, Mapping | tuple) or (isinstance(pairs, list) and isinstance(part, list))
        for part in pairs
    )
    return all(listed) and not any(plain)


def _objects(part: Any) -> Any:
    """An array of bytes as bytes of Python, as pandas has no such type."""
    return part.astype(object) if isinstance(part, np.ndarray) and part.dtype.kind == "S" else part


def _pair(columns: Sequence[pd.Series], place: int) -> str:
    return ", ".join(repr(column.iloc[[place]].tolist()[0]) for column in columns)


def _targets(values: Any, columns: Sequence[pd.Series]) -> np.ndarray:
    try:
        targets = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError("pairs: their values must be numbers") from None
    if (bad := np.flatnonzero(~np.isfinite(targets))).size:
        raise InputError(
            f"pairs: the value of {_pair(columns, bad[0])} is {targets[bad[0]]}; drop it, or correct it"
        )
    return targets


def _identifiers(name: str, features: Any, items: int | None) -> pd.Index | None:
    """The identifiers that a matrix of pairs or features imply; None where the pairs have them."""
    if isinstance(features, pd.DataFrame):
        if items is not None and len(features) != items:
            raise InputError(f"{name}_features: has {len(features):,} rows for {items:,} items of pairs")
        if not features.index.is_unique or _plain_index(features.index).hasnans:
            raise InputError(f"{name}_features: its index must name every item once")
        index = _plain_index(features.index)
        if items is not None and pd.api.types.is_integer_dtype(index.dtype):
            numbers = index.to_numpy()
            if (np.sort(numbers) == np.arange(items)).all() and (np.diff(numbers) < 0).any():
                raise InputError(f"{name}_features: must be in the order of the matrix; sort_index() it")
        return index
    if items is None and scipy.sparse.issparse(features):
        items = features.shape[0]
    return None if items is None else pd.RangeIndex(items)


def _distinct(labels: pd.Series) -> pd.Index:
    """The distinct labels, sorted where they can be, else in the order of their first occurrence."""
    try:
        found = _plain_index(pd.Index(labels.unique()).infer_objects())
    except TypeError:
        raise InputError("pairs: identifiers must be hashable") from None
    with contextlib.suppress(TypeError):  # of types that have no order
        found = found.sort_values()
    return found


def _plain_index(index: pd.Index) -> pd.Index:
    """Categories as what they are categories of, and rows of several levels as tuples."""
    if isinstance(index, pd.CategoricalIndex):
        return index.astype(index.categories.dtype)
    return index.to_flat_index() if isinstance(index, pd.MultiIndex) else index


def _numbers(what: str, known: pd.Index, labels: pd.Series) -> np.ndarray:
    found = known.get_indexer(pd.Index(labels))
    if (unknown := np.flatnonzero(found < 0)).size:
        raise InputError(f"{what}: has no row for {labels.iloc[unknown[:1]].tolist()[0]!r}, which pairs hold")
    return np.asarray(found)


def _vocabulary(ids: pd.Index) -> pd.DataFrame:
    """Identifiers as text; whole numbers are kept as numbers too, so that they can be read back."""
    frame = pd.DataFrame({"key": [str(label) for label in ids]})
    if pd.api.types.is_integer_dtype(ids.dtype):
        frame[ID] = ids.to_numpy()
    return frame


def _sorted(
    left: np.ndarray, right: np.ndarray, values: np.ndarray | None, ids: Sequence[pd.Index]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Pairs in ascending order, each once."""
    order = np.lexsort((right, left))
    left, right = left[order], right[order]
    first = np.append(True, (np.diff(left) != 0) | (np.diff(right) != 0))
    if values is None:
        return left[first], right[first], None
    if not first.all():
        again = np.flatnonzero(~first)
        pair = [
            pd.Series(known[numbers[again[:1]]]) for known, numbers in zip(ids, (left, right), strict=True)
        ]
        raise InputError(
            f"pairs: {len(again):,} are given again, with a value, as {_pair(pair, 0)}; give each pair once"
        )
    return left, right, values[order]


def _read_matrix(
    what: str, matrix: Any, known: pd.Index | None
) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if (matrix.data != 1).any():
        raise InputError(f"{what}: its stored values must be 1; weights of categories are not supported")
    if known is not None and len(known) != matrix.shape[1]:
        raise InputError(f"{what}: has {matrix.shape[1]:,} columns; the model has {len(known):,}")
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows, matrix.indices, [str(column) for column in range(matrix.shape[1])]


def _read_column(
    what: str, column: pd.Series, known: pd.Index | None
) -> tuple[np.ndarray, np.ndarray, Sequence[str]]:
    """Rows, codes and keys of a column's categories; a row of a list of categories has several."""
    present = column.reset_index(drop=True).dropna().astype(object)  # a categorical maps unused categories
    odd = [value for value in present if not isinstance(value, _BAGS)]
    if len(odd) < len(present):
        if odd:
            raise InputError(f"{what}: holds lists, and {odd[0]!r}; make all of them lists")
        # The order of a set follows the hash seed of the process.
        lists = present.map(
            lambda bag: sorted(bag, key=str) if isinstance(bag, set | frozenset) else list(bag)
        )
        present = lists.explode().dropna()
    texts = present.map(lambda value: _category(what, value)).astype(object)
    repeated = pd.DataFrame({"row": texts.index, "text": texts.to_numpy()}).duplicated()
    texts = texts[~repeated.to_numpy()]
    keys = pd.Index(sorted(set(texts))) if known is None else known
    codes = keys.get_indexer(pd.Index(texts, dtype=object))
    kept = codes >= 0
    return texts.index.to_numpy()[kept], codes[kept], list(keys)


def _category(what: str, value: Any) -> str:
    if isinstance(value, (*_BAGS, dict)):
        raise InputError(f"{what}: {value!r:.60} is no category, but a list in a list")
    if isinstance(value, float | np.floating):
        if not np.isfinite(value) or value != int(value):
            raise InputError(f"{what}: {value!r} is no category; cut numbers into ranges first (pandas.cut)")
        value = int(value)
    return str(value)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
