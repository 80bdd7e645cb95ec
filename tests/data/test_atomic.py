"""RecBole atomic files: what becomes a feature, what is mended, and what is refused in one line."""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

import pytest
from helpers import values_of

from gramrun.base.errors import InputError
from gramrun.data.atomic import find, read
from gramrun.data.corpus import Corpus
from gramrun.data.raw_files import RawFiles

INTER = (
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\nu1\t10\t4\t1\nu2\t9\t3.5\t2\nu2\t10\t1\t3\n"
)


def read_tables(inter: str = INTER, **others: str) -> Corpus:
    files = {"toy.inter": inter} | {f"toy.{suffix}": text for suffix, text in others.items()}
    return read(RawFiles("raw", {name: text.encode() for name, text in files.items()}))


def refusal(files: dict[str, bytes]) -> str:
    with pytest.raises(InputError) as caught:
        read(RawFiles("raw", files))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_reads_pairs_and_targets(line_end: str) -> None:
    corpus = read_tables(INTER.replace("\n", line_end))
    assert (corpus.name, corpus.left.item, corpus.right.item) == ("toy", "user", "item")
    assert corpus.vocabularies["user"]["key"].tolist() == ["u1", "u2"]
    assert corpus.vocabularies["item"]["key"].tolist() == ["9", "10"], "whole numbers sort as numbers"
    assert corpus.pair_left.tolist() == [0, 1, 1]
    assert corpus.pair_right.tolist() == [1, 0, 1]
    assert corpus.target is not None
    assert corpus.target.tolist() == [4, 3.5, 1]
    assert corpus.counts == {"interactions_read": 3, "duplicate_interactions": 0}


def test_keeps_the_latest_duplicate_or_the_highest_without_times() -> None:
    timed = (
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\na\tb\t5\t1\na\tb\t2\t9\na\tb\t1\t9\n"
    )
    untimed = "user_id:token\titem_id:token\trating:float\na\tb\t2\na\tb\t5\na\tb\t1\n"
    for text, target in ((timed, 2), (untimed, 5)):
        corpus = read_tables(text)
        assert corpus.target is not None
        assert corpus.target.tolist() == [target]
        assert corpus.counts["duplicate_interactions"] == 2


def test_turns_fields_into_features(caplog: pytest.LogCaptureFixture) -> None:
    inter = "user_id:token\titem_id:token\n" + "".join(f"a\t{item}\n" for item in range(1, 7))
    head = (
        "item_id:token\tname:token_seq\tclass:token_seq\tkind:token\tyear:float\tprice:float\tv:float_seq\n"
    )
    rows = [
        "2\tThe B\tx y x\tk\t1999\t1.5\t1 2\n",
        "1\tThe A\ty\tk\t\t2\t1 2\n",
        "3\tThe C\t\t\t2001\t3\t1 2\n",
        "4\tThe D\ty\tbig one\t2001.0\t4\t1 2\n",
        "5\tThe E\tx y x\tk\t2001\t5\t1 2\n",
        "99\tUnseen\tz\tz\t2020\t6\t1 2\n",
    ]
    with caplog.at_level(logging.WARNING):
        corpus = read_tables(inter, item=head + "".join(rows))
    assert [f.name for f in corpus.right.features] == ["item", "item.class", "item.kind", "item.year"]
    assert values_of(corpus, corpus.right, "item.class") == [["y"], ["x", "y"], [], ["y"], ["x", "y"], []]
    assert values_of(corpus, corpus.right, "item.kind") == [["k"], ["k"], [], ["big one"], ["k"], []]
    assert values_of(corpus, corpus.right, "item.year") == [[], ["1999"], ["2001"], ["2001"], ["2001"], []]
    items = corpus.vocabularies["item"]
    assert list(items.columns) == ["key", "name"]
    assert items["name"].tolist() == ["The A", "The B", "The C", "The D", "The E", ""]
    assert corpus.counts["items_without_row"] == 1
    assert corpus.counts["items_without_interaction"] == 1
    assert corpus.counts["item_fields_ignored"] == 2
    assert "raw/toy.item: left out the numeric fields price, v" in caplog.text


def test_vocabulary_names_are_file_names() -> None:
    corpus = read_tables(user="user_id:token\tage / sex:token\nu1\tx\nu2\tx\n")
    assert "user.age___sex" in corpus.vocabularies
    same = b"user_id:token\ta b:token\ta/b:token\nu1\tx\tx\nu2\tx\tx\n"
    assert "would share a file" in refusal({"toy.inter": INTER.encode(), "toy.user": same})


def test_quotes_and_na_are_ordinary_text() -> None:
    corpus = read_tables('user_id:token\titem_id:token\n"a\tNA\nnan\tnull\n')
    assert corpus.vocabularies["user"]["key"].tolist() == ['"a', "nan"]
    assert corpus.vocabularies["item"]["key"].tolist() == ["NA", "null"]


@pytest.mark.parametrize(
    ("suffix", "data", "start"),
    [
        ("inter", b"user_id\titem_id:token\na\tb\n", ", line 1: 'user_id' is not FIELD:TYPE"),
        ("inter", b"a:token\ta:token\nx\ty\n", ", line 1: the field 'a' occurs twice"),
        ("inter", b"user_id:token\trating:float\na\t1\n", ", line 1: has no two token fields"),
        ("inter", b"user_id:token\titem_id:token\na\tb\na\n", ", line 3: has 1 field, not 2"),
        ("inter", b"user_id:token\titem_id:token\na\tb\n\tb\n", ", line 3: user_id is empty"),
        ("inter", b"user_id:token\titem_id:token\na\tb\na\tb", ", line 3: the file ends within this line"),
        ("inter", b"user_id:token\titem_id:token\trating:float\na\tb\tinf\n", ", line 2: rating is"),
        ("inter", b"user_id:token\titem_id:token\nx\t\xe9\n", ", line 2: byte 0xe9 is not UTF-8"),
        ("inter", b"<html><body>404</body></html>\n", ", line 1: is a web page (HTML)"),
        ("inter", b"", ": is empty"),
        ("inter", b"user_id:token\titem_id:token\n", ": holds no interactions"),
        ("item", b"item_id:token\tyear:float\n9\t1999\n9\t2000\n", ", line 3: item_id '9' occurs in"),
        ("item", b"item_id:token\tyear:float\n9\tlate\n", ", line 2: year is 'late', not a number"),
        ("item", b"id:token\tyear:float\n9\t1999\n", ", line 1: has no field 'item_id'"),
    ],
)
def test_refuses_bad_files(suffix: str, data: bytes, start: str) -> None:
    message = refusal({"toy.inter": INTER.encode(), f"toy.{suffix}": data})
    assert message.startswith(f"raw/toy.{suffix}{start}")


def test_finds_files_in_folders_and_zips(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "toy.inter").write_text(INTER)
    (folder / "toy.item").write_text("item_id:token\n9\n")
    archive = tmp_path / "any.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(folder / "toy.inter", "deep/toy.inter")
        opened.write(folder / "toy.item", "deep/toy.item")
    for files in (find(folder), find(archive)):
        assert set(files.files) == {"toy.inter", "toy.item"}
        assert read(files).name == "toy"


def test_refuses_places_without_one_data_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no NAME\.inter"):
        find(tmp_path)
    with pytest.raises(InputError, match="is neither a folder nor a zip"):
        find(tmp_path / "absent")
    for name in ("a.inter", "b.inter"):
        (tmp_path / name).write_text(INTER)
    with pytest.raises(InputError, match=r"holds several .inter files \(a, b\)"):
        find(tmp_path)
