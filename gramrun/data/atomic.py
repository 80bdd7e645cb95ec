"""Read RecBole atomic files (``NAME.inter``, ``NAME.user``, ``NAME.item``) into a `Corpus`.

An atomic file is tab-separated UTF-8 text without quoting whose header types every field:
``user_id:token``, ``class:token_seq``, ``rating:float``, ``embedding:float_seq``.

Source: RecBole, "Atomic Files", recbole.io/docs/user_guide/data/atomic_files.html.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from gramrun.base.errors import InputError
from gramrun.data.corpus import Corpus, Feature, Side, one_hot
from gramrun.data.raw_files import RawFiles, file_names, read_files
from gramrun.data.tables import (
    TextTable,
    bag_feature,
    clean_text,
    distinct_pairs,
    line_error,
    vocabulary,
)

SUFFIXES = (".inter", ".user", ".item")
TYPES = ("token", "token_seq", "float", "float_seq")
# A whole-number column with fewer values than this is a category, such as a year of release.
MAXIMUM_CATEGORIES = 1000
# A column with distinct values for more than this share of the items (titles, addresses) names them, and
# adds nothing to the id.
READABLE_SHARE = 0.5

_logger = logging.getLogger(__name__)


def find(source: Path) -> RawFiles:
    """Read the raw files of one data set.

    Args:
        source: a folder or a zip with the files.

    Returns:
        ``NAME.inter`` and, where there are such, ``NAME.user`` and ``NAME.item``.

    Raises:
        InputError: there is no ``.inter``, more than one, or it cannot be read.
    """
    names = [file.removesuffix(".inter") for file in file_names(source) if file.endswith(".inter")]
    if not names:
        raise InputError(f"{source}: holds no NAME.inter; give the folder or zip that does")
    if len(names) > 1:
        raise InputError(f"{source}: holds several .inter files ({', '.join(names)}); keep one to a folder")
    inter, user, item = (f"{names[0]}{suffix}" for suffix in SUFFIXES)
    note = "atomic files have no published checksum"
    return RawFiles(str(source), read_files(source, [inter], [user, item]), note=note)


def read(files: RawFiles) -> Corpus:
    """Read a data set of atomic files.

    Pairs: the user and the item are the fields ``user_id`` and ``item_id`` of ``.inter`` or, without
    these, its first two token fields. The target is ``rating:float``, or None without one. Of equal
    pairs the one with the latest ``timestamp:float`` counts, then the one with the highest rating.

    Features: the id; each ``token`` field (a bag of none or one) and each ``token_seq`` field (a bag,
    separated by blanks) of ``.user`` and ``.item``. A ``float`` field is taken as a token where all
    its values are whole numbers with fewer than `MAXIMUM_CATEGORIES` distinct ones, as in
    ``release_year:float``; any other, and each ``float_seq`` field, is left out with a warning. A
    token or token_seq field with distinct texts for more than `READABLE_SHARE` of the items, such as a
    title, is no feature but a column of the vocabulary for human eyes.

    Ids are sorted as numbers where all are whole numbers, else as text. Users and items that do not
    occur in ``.inter`` are left out.

    Args:
        files: what `find` gives.

    Returns:
        The corpus, named as the files are, with sides ``user`` and ``item``, vocabularies ``user``,
        ``item`` and one per field, such as ``item.class``. `counts` has ``interactions_read`` and
        ``duplicate_interactions`` and, for each side with a file of fields, as of ``item``:
        ``items_without_row``, ``items_without_interaction`` and ``item_fields_ignored``.

    Raises:
        InputError: a file is missing, or a line does not follow its header.
    """
    name = next(file for file in files.files if file.endswith(".inter")).removesuffix(".inter")
    inter = _table(files, f"{name}.inter")
    user_field, item_field = _pair_fields(inter)
    types: dict[str, type] = {user_field: str, item_field: str}
    types |= {field: float for field in ("rating", "timestamp") if inter.types.get(field) == "float"}
    frame = inter.text.read(types)
    if frame.empty:
        raise InputError(f"{inter.text.place}: holds no interactions; get the file again")

    left, left_keys = _encode(inter, frame, user_field)
    right, right_keys = _encode(inter, frame, item_field)
    if "rating" in frame:
        too_large = frame["rating"].abs().to_numpy() > np.finfo(np.float32).max
        if too_large.any():
            raise inter.text.error(int(too_large.argmax()), "rating is beyond the range of a 32-bit float")
    kept = distinct_pairs(left, right, [frame[f].to_numpy() for f in ("timestamp", "rating") if f in frame])
    users = _side(files, f"{name}.user", "user", user_field, left_keys)
    items = _side(files, f"{name}.item", "item", item_field, right_keys)
    return Corpus(
        name=name,
        left=users[0],
        right=items[0],
        vocabularies=users[1] | items[1],
        pair_left=left[kept],
        pair_right=right[kept],
        target=frame["rating"].to_numpy()[kept].astype(np.float32) if "rating" in frame else None,
        counts={
            "interactions_read": len(frame),
            "duplicate_interactions": len(frame) - len(kept),
            **users[2],
            **items[2],
        },
    )


class _Table:
    """One atomic file: its typed header and its lines."""

    def __init__(self, place: str, data: bytes) -> None:
        header, _, body = clean_text(place, data, "utf-8").partition(b"\n")
        self.types: dict[str, str] = {}
        for column in header.decode().split("\t"):
            field, _, kind = column.rpartition(":")
            if not field or kind not in TYPES:
                raise line_error(place, 1, f"{column!r} is not FIELD:TYPE with a type of {', '.join(TYPES)}")
            if field in self.types:
                raise line_error(place, 1, f"the field {field!r} occurs twice", "rename one of them")
            self.types[field] = kind
        self.text = TextTable(place, body, "\t", tuple(self.types), first_line=2)


def _table(files: RawFiles, file: str) -> _Table:
    return _Table(files.place(file), files.files[file])


def _pair_fields(inter: _Table) -> tuple[str, str]:
    tokens = [field for field, kind in inter.types.items() if kind == "token"]
    if {"user_id", "item_id"} <= set(tokens):
        return "user_id", "item_id"
    if len(tokens) < 2:
        raise line_error(
            inter.text.place,
            1,
            "has no two token fields for user and item",
            "add user_id:token and item_id:token, separated by a tab",
        )
    return tokens[0], tokens[1]


def _encode(table: _Table, frame: pd.DataFrame, field: str) -> tuple[np.ndarray, list[str]]:
    """Number the ids of a column: int32 codes, shape (rows,), and the ids in order."""
    codes, found = pd.factorize(frame[field])
    keys = [str(key) for key in found]
    if "" in keys:
        raise table.text.error(int((frame[field] == "").to_numpy().argmax()), f"{field} is empty")
    order = _sorted_rows(keys)
    rank = np.empty(len(keys), dtype=np.int32)
    rank[order] = np.arange(len(keys), dtype=np.int32)
    return rank[codes], [keys[row] for row in order]


def _sorted_rows(keys: Sequence[str]) -> list[int]:
    if all(re.fullmatch("-?[0-9]{1,18}", key) for key in keys):
        return sorted(range(len(keys)), key=lambda row: (int(keys[row]), keys[row]))
    return sorted(range(len(keys)), key=lambda row: keys[row])


def _side(
    files: RawFiles, file: str, item: str, id_field: str, keys: list[str]
) -> tuple[Side, dict[str, pd.DataFrame], dict[str, int]]:
    """Build one side out of its ids and, where there is one, its file of fields.

    Returns:
        The side, its vocabularies and its counts.
    """
    features: list[Feature] = [one_hot(item, item, np.arange(len(keys)))]
    if file not in files.files:
        return Side(item, len(keys), tuple(features)), {item: vocabulary(keys)}, {}
    table = _table(files, file)
    rows, counts = _rows_of(table, item, id_field, keys)

    vocabularies: dict[str, pd.DataFrame] = {}
    readable: dict[str, list[str]] = {}
    ignored: list[str] = []
    for field in (field for field in table.types if field != id_field):
        kind = table.types[field]
        values: list[str] | None = rows[field].tolist()
        if kind == "float":
            values = _categories(table, field, rows[field])
        if values is None or kind == "float_seq":
            ignored.append(field)
        elif kind != "float" and len(set(values) - {""}) > READABLE_SHARE * len(keys):
            readable[field] = values
        else:
            terms = _file_name(table, item, field, taken=vocabularies)
            # A token may hold blanks; an empty one is missing.
            split = str.split if kind == "token_seq" else lambda value: [value] if value else []
            feature, vocabularies[terms] = bag_feature(terms, terms, [split(value) for value in values])
            features.append(feature)
    if ignored:
        _logger.warning("%s: left out the numeric fields %s", table.text.place, ", ".join(ignored))
    if "key" in readable:
        raise line_error(table.text.place, 1, "'key' cannot name a field of unique values", "rename it")
    counts[f"{item}_fields_ignored"] = len(ignored)
    vocabularies[item] = vocabulary(keys, **readable)
    return Side(item, len(keys), tuple(features)), vocabularies, counts


def _rows_of(table: _Table, item: str, id_field: str, keys: list[str]) -> tuple[pd.DataFrame, dict[str, int]]:
    """The fields of each of `keys`, in their order, as text; empty text for a key without a row."""
    if id_field not in table.types:
        raise line_error(
            table.text.place, 1, f"has no field {id_field!r} as .inter has", "rename the id field"
        )
    frame = table.text.read(dict.fromkeys(table.types, str))
    repeated = frame[id_field].duplicated().to_numpy()
    if repeated.any():
        row = int(repeated.argmax())
        raise table.text.error(row, f"{id_field} {frame[id_field][row]!r} occurs in an earlier line too")
    # Check numbers before rows are dropped and reordered, so that an error knows its line.
    for field in (field for field, kind in table.types.items() if kind == "float"):
        _check_float(table, field, frame[field])
    frame = frame.set_index(id_field)
    present = frame.index.isin(keys)
    counts = {
        f"{item}s_without_row": len(keys) - int(present.sum()),
        f"{item}s_without_interaction": len(frame) - int(present.sum()),
    }
    return frame.reindex(keys, fill_value=""), counts


def _check_float(table: _Table, field: str, values: pd.Series[str]) -> None:
    numbers = pd.to_numeric(values, errors="coerce")
    bad = (~np.isfinite(numbers) & (values != "")).to_numpy()
    if bad.any():
        row = int(bad.argmax())
        raise table.text.error(row, f"{field} is {values[row]!r}, not a number")


def _categories(table: _Table, field: str, values: pd.Series[str]) -> list[str] | None:
    """Whole numbers as text, or None if these numbers are no categories."""
    numbers = pd.to_numeric(values, errors="coerce")
    present = numbers.dropna()
    exact = (present % 1 == 0) & (present.abs() < 2**53)  # larger integers are not exact in float64
    if not exact.all() or present.nunique() >= MAXIMUM_CATEGORIES:
        return None
    return ["" if np.isnan(number) else str(int(number)) for number in numbers]


def _file_name(table: _Table, item: str, field: str, taken: dict[str, pd.DataFrame]) -> str:
    """A name for a field's vocabulary that is a valid file name on every system."""
    name = f"{item}.{re.sub(r'[^A-Za-z0-9_-]', '_', field)}"
    # Some file systems ignore case.
    if name.lower() in {other.lower() for other in taken}:
        raise line_error(table.text.place, 1, f"{field!r} and another field would share a file", "rename one")
    return name
