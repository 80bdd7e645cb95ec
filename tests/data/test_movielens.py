"""MovieLens readers: every layout, what is mended, and what is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import values_of

from gramrun.base.errors import InputError
from gramrun.data.corpus import Corpus
from gramrun.data.movielens import GENRES_100K, LAYOUTS, movie_table_sha256, read
from gramrun.data.raw_files import RawFiles, read_files

RATINGS_1M = b"2::10::4::100\n1::10::5::100\n1::9::3::100\n"
MOVIES_1M = "9::Amélie (2001)::Comedy|Romance\n10::Bed (1999)::Drama\n11::Never Seen (1990)::War\n".encode(
    "latin-1"
)


def flags(*genres: str) -> str:
    return "|".join(str(int(genre in genres)) for genre in GENRES_100K)


def read_1m(ratings: bytes = RATINGS_1M, movies: bytes = MOVIES_1M) -> Corpus:
    return read("movielens-1m", RawFiles("raw", {"ratings.dat": ratings, "movies.dat": movies}))


def read_csv(ratings: str, movies: str, name: str = "movielens-small") -> Corpus:
    files = {"ratings.csv": ratings.encode(), "movies.csv": movies.encode()}
    return read(name, RawFiles("raw", files))


BAD_FLAG = f"1|A (1995)||||{flags().replace('0', '2', 1)}\n".encode()


def refusal(name: str, ratings: bytes, movies: bytes) -> str:
    files = {LAYOUTS[name].ratings: ratings, LAYOUTS[name].movies: movies}
    with pytest.raises(InputError) as caught:
        read(name, RawFiles("raw", files))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_reads_1m() -> None:
    corpus = read_1m()
    assert corpus.vocabularies["user"]["key"].tolist() == ["1", "2"]
    movies = corpus.vocabularies["movie"]
    assert list(movies.columns) == ["key", "title", "year", "genres"]
    assert movies["key"].tolist() == ["9", "10"], "ids sort as numbers, and unrated movies are left out"
    assert movies["title"].tolist() == ["Amélie (2001)", "Bed (1999)"]
    assert movies["genres"].tolist() == ["Comedy|Romance", "Drama"]
    assert corpus.pair_left.tolist() == [0, 0, 1]
    assert corpus.pair_right.tolist() == [0, 1, 1]
    assert corpus.target is not None
    assert corpus.target.tolist() == [3, 5, 4]
    assert values_of(corpus, corpus.right, "movie") == [["9"], ["10"]]
    assert values_of(corpus, corpus.right, "year") == [["2001"], ["1999"]]
    assert values_of(corpus, corpus.right, "genres") == [["Comedy", "Romance"], ["Drama"]]
    assert corpus.counts == {
        "ratings_read": 3,
        "duplicate_ratings": 0,
        "movies_never_rated": 1,
        "movies_without_year": 0,
        "movies_without_genres": 0,
    }


def test_reads_100k() -> None:
    movies = [
        f"1|Caf\xe9 (1995) |01-Feb-1996||http://x|{flags('Comedy', 'Drama')}",
        f"2|Dinosaurs (1995) (V)|||http://x|{flags('Animation')}",
        f"3|No Year|04-Feb-1971||http://x|{flags('unknown')}",
        f"4|unknown||||{flags('unknown')}",
    ]
    files = {
        "u.data": b"1\t1\t5\t10\n1\t2\t4\t10\n1\t3\t3\t10\n1\t4\t2\t10\n",
        "u.item": "".join(f"{movie}\n" for movie in movies).encode("latin-1"),
    }
    corpus = read("movielens-100k", RawFiles("raw", files))
    assert values_of(corpus, corpus.right, "year") == [["1995"], ["1995"], ["1971"], []]
    assert values_of(corpus, corpus.right, "genres") == [["Comedy", "Drama"], ["Animation"], [], []]
    assert corpus.vocabularies["movie"]["title"][0] == "Café (1995)"
    assert corpus.counts["movies_without_year"] == 1
    assert corpus.counts["movies_without_genres"] == 2


def test_reads_10m_in_utf8_with_half_stars() -> None:
    files = {
        "ratings.dat": b"1::7::0.5::3\n1::8::5::3\n",
        "movies.dat": "7::Été (2000)::X\n8::B (2001)::IMAX\n".encode(),
    }
    corpus = read("movielens-10m", RawFiles("raw", files))
    assert corpus.target is not None
    assert corpus.target.tolist() == [0.5, 5.0]
    assert corpus.vocabularies["movie"]["title"][0] == "Été (2000)"


@pytest.mark.parametrize("name", ["movielens-32m", "movielens-small"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_reads_csv(name: str, line_end: str) -> None:
    ratings = "userId,movieId,rating,timestamp\n1,2,4.0,9\n1,3,3.5,9\n".replace("\n", line_end)
    movies = 'movieId,title,genres\n2,"American ""P"", The (1995)",Drama\n3,Babylon 5,(no genres listed)\n'
    corpus = read_csv("\ufeff" + ratings, movies.replace("\n", line_end), name)
    assert corpus.vocabularies["movie"]["title"].tolist() == ['American "P", The (1995)', "Babylon 5"]
    assert values_of(corpus, corpus.right, "year") == [["1995"], []]
    assert values_of(corpus, corpus.right, "genres") == [["Drama"], []]
    assert corpus.target is not None
    assert corpus.target.tolist() == [4.0, 3.5]


@pytest.mark.parametrize(
    ("title", "year"),
    [
        ("Toy Story (1995)", "1995"),
        ("Associate, The (L'Associe)(1982)", "1982"),
        ("Land Before Time III (1995) (V)", "1995"),
        ("Fawlty Towers (1975-1979)", "1975"),
        ("1984", ""),
        ("Long number (12345)", ""),
    ],
)
def test_takes_the_year_from_the_end_of_the_title(title: str, year: str) -> None:
    corpus = read_1m(b"1::1::5::1\n", f"1::{title}::Drama\n".encode("latin-1", "replace").replace(b"?", b"-"))
    assert corpus.vocabularies["movie"]["year"].tolist() == [year]


def test_keeps_the_latest_of_duplicate_ratings_and_the_higher_of_ties() -> None:
    corpus = read_1m(b"1::9::2::200\n1::9::5::100\n1::10::3::100\n1::10::4::100\n1::10::1::50\n")
    assert corpus.target is not None
    assert corpus.target.tolist() == [2, 4]
    assert corpus.counts["ratings_read"] == 5
    assert corpus.counts["duplicate_ratings"] == 3


@pytest.mark.parametrize(
    ("ratings", "place"),
    [
        (b"1::9::3::5\n1::9::3\n", "2: has 3 fields, not 4"),
        (b"1::9::3::5\n\n2::9::3::5\n", "2: is empty"),
        (b"1::9::3::5\n2::9::3::5", "2: the file ends within this line"),
        (b"1::9::3::5\nx::9::3::5\n", "2: user id is 'x', not a whole number"),
        (b"1::99999999999999999999::3::5\n", "1: movie id is '99999999999999999999'"),
        (b"1::9::nan::5\n", "1: rating is 'nan', not a number"),
        (b"1::9::3::5\n1::10::6::5\n", "2: rating 6 is not on the scale 1 to 5"),
        (b"1::9::3::5\n1::10::3.5::5\n", "2: rating 3.5 is not on the scale"),
        (b"1::9::3::5\n1::12::3::5\n", "2: movie 12 is rated and is not in movies.dat"),
        (b"\n<!DOCTYPE html><html>login</html>\n", "1: is a web page (HTML)"),
        ("1::9::3::5\n".encode("utf-16"), "1: is UTF-16 or binary"),
    ],
)
def test_refuses_bad_ratings(ratings: bytes, place: str) -> None:
    message = refusal("movielens-1m", ratings, MOVIES_1M)
    assert message.startswith(f"raw/ratings.dat, line {place}")
    assert "; " in message, "says what to do"


RATINGS_CSV = b"userId,movieId,rating,timestamp\n"
MOVIES_CSV = b"movieId,title,genres\n"


@pytest.mark.parametrize(
    ("name", "ratings", "movies", "start"),
    [
        ("1m", b"", b"9::A (2000)::X\n9::B (2000)::X\n", "movies.dat, line 2: movie id 9 already occurs in"),
        ("1m", b"", b"9::A (2000)::Drama\n10::B (2000)\n", "movies.dat, line 2: has 2 fields, not 3"),
        ("1m", b"", "9::Am\u00e9lie (2001)::X\n".encode(), "movies.dat, line 1: is UTF-8 where the official"),
        ("100k", b"1\t1\t5\t10\n", BAD_FLAG, "u.item, line 1: a genre flag is neither 0 nor 1"),
        (
            "small",
            b"1,1,3.25,1\n",
            b"1,A,B\n",
            "ratings.csv, line 2: rating 3.25 is not on the scale 0.5 to 5",
        ),
        ("small", b"1,1,3,1\n", b'1,"A,B\n2,C,D\n', "movies.csv, line 2: is not valid CSV"),
        ("small", b"1,1,3,1\n", b"1,A, The,D\n", "movies.csv, line 2: has 4 fields, not 3"),
        ("small", b"", b"1,A,B\n", "ratings.csv: holds no ratings"),
    ],
)
def test_refuses_bad_files(name: str, ratings: bytes, movies: bytes, start: str) -> None:
    if name == "small":
        ratings, movies = RATINGS_CSV + ratings, MOVIES_CSV + movies
    message = refusal(f"movielens-{name}", ratings or RATINGS_1M, movies)
    assert message.startswith(f"raw/{start}")


def test_names_a_bad_line_beyond_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gramrun.data.tables._BLOCK_BYTES", 16)
    message = refusal("movielens-1m", b"1::9::3::5\n" * 20 + b"1::9\n", MOVIES_1M)
    assert message.startswith("raw/ratings.dat, line 21: has 2 fields")
    assert read_1m(b"1::9::3::5\n" * 20).counts["duplicate_ratings"] == 19


def test_movie_table_hash_sees_contents_only() -> None:
    def digest(lines: str) -> str:
        return movie_table_sha256(LAYOUTS["movielens-1m"], RawFiles("raw", {"movies.dat": lines.encode()}))

    original = digest("1::A (2000)::Drama|War\n2::B (2001)::War\n")
    assert digest("2::B (2001) ::War\n1::A (2000)::War|Drama\n") == original
    assert digest("1::A (2000)::Drama\n2::B (2001)::War\n") != original


@pytest.mark.parametrize(
    ("corpus_name", "users", "movies", "ratings", "histogram"),
    [
        ("movielens-100k", 943, 1682, 100_000, [6110, 11370, 27145, 34174, 21201]),
        ("movielens-1m", 6040, 3706, 1_000_209, [56174, 107557, 261197, 348971, 226310]),
    ],
)
def test_reads_the_real_data(
    corpus_name: str, users: int, movies: int, ratings: int, histogram: list[int], raw_file
) -> None:
    archive = raw_file(f"ml-{corpus_name.split('-')[1]}.zip")
    layout = LAYOUTS[corpus_name]
    files = RawFiles(str(archive), read_files(archive, [layout.ratings, layout.movies]))
    corpus = read(corpus_name, files)
    assert (corpus.left.items, corpus.right.items, len(corpus.pair_left)) == (users, movies, ratings)
    assert corpus.counts["duplicate_ratings"] == 0
    assert corpus.target is not None
    assert np.bincount(corpus.target.astype(int))[1:].tolist() == histogram
