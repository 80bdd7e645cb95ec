"""MovieLens files and RecBole's atomic files, in folders and zips: damaged, or any bytes.

What is read equals what a twin reads line by line with Python's own numbers.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fuzzing import Refused, budgets, changed, changes, command, inputs, outcome
from hypothesis import example, given
from hypothesis import strategies as st

from gramrun.data import atomic, movielens
from gramrun.data.corpus import Corpus
from gramrun.data.movielens import GENRES_100K, LAYOUTS
from gramrun.data.raw_files import RawFiles, read_files

FLAGS = "|".join("01"[genre in ("Comedy", "Drama")] for genre in GENRES_100K)
_RATINGS = [(1, 10, 4, 100), (1, 9, 3, 200), (2, 10, 5, 300), (2, 10, 2, 300), (3, 11, 1, 5), (3, 9, 4, 6)]
_MOVIES = [
    (9, "Amélie (2001)", "Comedy|Romance"),
    (10, 'Bed, "The" (1999)', "Drama"),
    (11, "C", "(no genres listed)"),
]


def _joined(rows, separator: str) -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def _csv(rows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


_CSV_FILES = {
    "ratings.csv": "userId,movieId,rating,timestamp\n" + _joined(_RATINGS, ","),
    "movies.csv": "movieId,title,genres\n" + _csv(_MOVIES),
}
_DAT_FILES = {"ratings.dat": _joined(_RATINGS, "::"), "movies.dat": _joined(_MOVIES, "::")}
FILES = {
    "movielens-100k": {
        "u.data": _joined(_RATINGS, "\t"),
        "u.item": "".join(f"{n}|{title}|01-Jan-1995||http://x|{FLAGS}\n" for n, title, _ in _MOVIES),
    },
    "movielens-1m": _DAT_FILES,
    "movielens-10m": _DAT_FILES,
    "movielens-small": _CSV_FILES,
    "movielens-32m": _CSV_FILES,
}
INTER = _joined([("user_id:token", "item_id:token", "rating:float", "timestamp:float")], "\t") + _joined(
    _RATINGS, "\t"
)
ITEM = "item_id:token\tclass:token_seq\tyear:float\tvector:float_seq\n9\ta b\t2001\t1 2\n10\tb\t1999.0\t\n11\t\t\t3\n"
USER = "user_id:token\tjob:token\n1\tx y\n2\tx y\n"
TOKENS = (
    b':: | , " 1 0 4.5 0.5 (1995) True nan +1 1_0 rating:float user_id:token class:token_seq : key'.split()
)
TOKENS += [b"\t", b"\x1f", b" ", b"\xc3\xa9", b"9" * 20]


def pairs(corpus: Corpus, left: str, right: str) -> dict:
    """What the corpus says of each pair, by keys."""
    lefts, rights = (corpus.vocabularies[name]["key"].tolist() for name in (left, right))
    targets = np.ones(len(corpus.pair_left)) if corpus.target is None else corpus.target
    rows = zip(corpus.pair_left.tolist(), corpus.pair_right.tolist(), targets.tolist(), strict=True)
    return {(lefts[a], rights[b]): target for a, b, target in rows}


def lines_of(data: bytes, encoding: str) -> list[str]:
    text = data.decode(encoding).removeprefix("\ufeff").replace("\r\n", "\n")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


def latest(rows) -> dict:
    """Of each pair the rating with the largest time, then the largest rating."""
    best: dict = {}
    for pair, rating, time in rows:
        best[pair] = max(best.get(pair, (time, rating)), (time, rating))
    return {pair: float(np.float32(rating)) for pair, (_, rating) in best.items()}


def movielens_twin(name: str, files: dict[str, bytes]) -> dict:
    layout = LAYOUTS[name]
    lines = lines_of(files[layout.ratings], layout.encoding)[layout.header :]
    rows = []
    for line in lines:
        user, movie, rating, time = line.split(layout.separator)
        rows.append(((str(whole(user)), str(whole(movie))), float(rating), whole(time)))
    return latest(rows)


def whole(text: str) -> int:
    value = float(text) if re.search("[.eE]", text) else int(text)
    assert value == int(value)
    return int(value)


@budgets(fast=25, slow=3_000)
def test_damaged_movielens_files_are_read_literally_or_refused(examples):
    @inputs(examples)
    @given(st.sampled_from(list(FILES)), st.sampled_from([0, 1]), changes(TOKENS))
    def check(name, which, made):
        layout = LAYOUTS[name]
        files = {file: text.encode(layout.encoding) for file, text in FILES[name].items()}
        damaged = list(files)[which]
        files[damaged] = changed(files[damaged], made)
        corpus = outcome(movielens.read, name, RawFiles("raw", files))
        if not isinstance(corpus, Refused):
            assert pairs(corpus, "user", "movie") == movielens_twin(name, files)
            assert len(corpus.vocabularies["genre"]) == corpus.vocabularies["genre"]["key"].nunique()

    check()


@budgets(fast=25, slow=3_000)
def test_damaged_atomic_files_are_read_literally_or_refused(examples):
    @inputs(examples)
    @given(st.dictionaries(st.sampled_from(["inter", "item", "user"]), changes(TOKENS), min_size=1))
    def check(damage):
        files = {"toy.inter": INTER.encode(), "toy.item": ITEM.encode(), "toy.user": USER.encode()}
        for suffix, made in damage.items():
            files[f"toy.{suffix}"] = changed(files[f"toy.{suffix}"], made)
        corpus = outcome(atomic.read, RawFiles("raw", files))
        if isinstance(corpus, Refused):
            return
        header, *lines = lines_of(files["toy.inter"], "utf-8")
        fields = dict(column.rsplit(":", 1) for column in header.split("\t"))
        tokens = [field for field, kind in fields.items() if kind == "token"]
        user, item = ("user_id", "item_id") if {"user_id", "item_id"} <= set(tokens) else tokens[:2]
        rows = [dict(zip(fields, line.split("\t"), strict=True)) for line in lines]
        floats = {field for field, kind in fields.items() if kind == "float"}
        expected = latest(
            (
                (row[user], row[item]),
                float(row["rating"]) if "rating" in floats else 1.0,
                float(row["timestamp"]) if "timestamp" in floats else 0.0,
            )
            for row in rows
        )
        assert pairs(corpus, "user", "item") == expected

    check()


@pytest.fixture(scope="module")
def archive() -> bytes:
    """A small zip with both files of MovieLens 1M, a folder and a comment."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.comment = b"comment"
        opened.writestr("ml-1m/", b"")
        for name, text in FILES["movielens-1m"].items():
            opened.writestr(f"ml-1m/{name}", text.encode("latin-1"))
    return packed.getvalue()


def directory(start: int, value: bytes):
    """Change bytes of the first entry of an archive's directory; its name begins at 46."""

    def change(archive: bytes) -> bytes:
        at = archive.index(b"PK\x01\x02") + start
        return archive[:at] + value + archive[at + len(value) :]

    return change


OF_ANOTHER_VERSION = [directory(6, b"\x50\x00")]  # that 8.0 is needed
WITHOUT_A_NAME = [directory(28, b"\x00\x00\x00\x00\x06\x00")]  # its six letters are the comment
WITH_A_NAME_THAT_IS_NO_UTF_8 = [directory(8, b"\x00\x08"), directory(46, b"\xff")]


@budgets(fast=25, slow=3_000)
def test_a_damaged_zip_gives_its_files_or_one_line(examples, archive, tmp_path):
    path = tmp_path / "ml-1m.zip"
    expected = {name: text.encode("latin-1") for name, text in FILES["movielens-1m"].items()}
    tokens = [b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"../", b"ratings.dat", b"\xff" * 4]
    tokens += [b"\x00\x00", b"\x08", b"\x63", b"\x01\x00"]

    @inputs(examples)
    @given(changes(tokens, most=4))
    @example(OF_ANOTHER_VERSION)
    @example(WITHOUT_A_NAME)
    @example(WITH_A_NAME_THAT_IS_NO_UTF_8)
    def check(made):
        path.write_bytes(changed(archive, made))
        files = outcome(read_files, path, ["ratings.dat"], ["movies.dat"])
        if not isinstance(files, Refused):  # each member has a CRC-32
            assert all(data == expected[name] for name, data in files.items())
        outcome(atomic.find, path)

    check()


@pytest.mark.parametrize("name", ["../ratings.dat", "/tmp/ratings.dat"])
def test_a_zip_writes_nothing_outside_its_folder(name, tmp_path):
    """Nothing is unpacked to the disk, whatever a member is called."""
    path, inside = tmp_path / "ml-1m.zip", tmp_path / "inside"
    inside.mkdir()
    with zipfile.ZipFile(path, "w") as opened:
        link = zipfile.ZipInfo("movies.dat")
        link.external_attr = 0o120777 << 16
        opened.writestr(link, "/etc/passwd")
        opened.writestr(name, FILES["movielens-1m"]["ratings.dat"])
    code, _, error = command("prepare", "movielens-1m", "--source", path, "--output", inside / "out")
    assert code == 2, error
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["inside", "ml-1m.zip"]
    assert not Path("/tmp/ratings.dat").exists()
