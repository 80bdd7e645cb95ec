"""Read MovieLens, in every official layout, into a `Corpus` of users, movies and ratings.

Left items are users with one feature, ``user``. Right items are movies with at least one rating; their
features are ``movie``, ``year`` (a bag of none or one) and ``genres`` (a bag). The target is the rating.

Source: F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, 2015,
doi 10.1145/2827872; the layouts are those of the README beside each data set.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from gramrun.base.errors import InputError
from gramrun.data.corpus import Corpus, Side, one_hot
from gramrun.data.raw_files import RawFiles
from gramrun.data.tables import (
    REMEDY,
    TextTable,
    bag_feature,
    clean_text,
    distinct_pairs,
    line_error,
    vocabulary,
)

# The order of the 19 flags at the end of each line of u.item (100K's README and u.genre).
# fmt: off
GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)
# fmt: on
NO_GENRE = {"(no genres listed)", "unknown", ""}

# "(1995)" at the end of a title, also as "(2006–2007)", "(2006– )", "(1995) (V)" and "(1989)(TV)".
_YEAR = re.compile(r"\(([0-9]{4})(?:[-–][0-9]{0,4})?\s*\)(?:\s*\([A-Z]+\))?\s*$")
_RELEASE_YEAR = re.compile(r"-([0-9]{4})$")
_UNIT_SEPARATOR = "\x1f"  # replaces "::": the parser takes one character
_RATING_COLUMNS = ("user id", "movie id", "rating", "timestamp")


class Movie(NamedTuple):
    """One line of a movies file; `year` is empty where it is not known."""

    line: int
    identifier: int
    title: str
    year: str
    genres: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """The file format of one family of MovieLens data sets.

    Attributes:
        ratings, movies: the names of the two files.
        encoding: of both files.
        separator: between the fields of the ratings.
        header: whether the first line names the columns.
        lowest: the lowest rating, and the step between ratings, up to 5.
        split_movie: splits one line of the movies file into id, title, genres joined by ``|``, and the
            release date; raises ValueError with the problem.
    """

    ratings: str
    movies: str
    encoding: str
    separator: str
    header: bool
    lowest: float
    split_movie: Callable[[str], tuple[str, str, str, str]]


def _split_u_item(line: str) -> tuple[str, str, str, str]:
    fields = _exactly(line.split("|"), 5 + len(GENRES_100K))
    flags = fields[5:]
    if set(flags) - {"0", "1"}:
        raise ValueError("a genre flag is neither 0 nor 1")
    genres = [genre for genre, flag in zip(GENRES_100K, flags, strict=True) if flag == "1"]
    return fields[0], fields[1], "|".join(genres), fields[2]


def _split_movies_dat(line: str) -> tuple[str, str, str, str]:
    identifier, title, genres = _exactly(line.split("::"), 3)
    return identifier, title, genres, ""


def _split_movies_csv(line: str) -> tuple[str, str, str, str]:
    try:
        identifier, title, genres = _exactly(next(csv.reader([line], strict=True), []), 3)
    except csv.Error as error:
        raise ValueError(f"is not valid CSV ({error})") from error
    return identifier, title, genres, ""


def _exactly(fields: list[str], count: int) -> list[str]:
    if len(fields) != count:
        raise ValueError(f"has {len(fields)} field{'s' * (len(fields) != 1)}, not {count}")
    return fields


_CSV = Layout("ratings.csv", "movies.csv", "utf-8", ",", True, 0.5, _split_movies_csv)
LAYOUTS: Mapping[str, Layout] = {
    "movielens-100k": Layout("u.data", "u.item", "latin-1", "\t", False, 1.0, _split_u_item),
    "movielens-1m": Layout("ratings.dat", "movies.dat", "latin-1", "::", False, 1.0, _split_movies_dat),
    "movielens-10m": Layout("ratings.dat", "movies.dat", "utf-8", "::", False, 0.5, _split_movies_dat),
    "movielens-25m": _CSV,
    "movielens-32m": _CSV,
    "movielens-small": _CSV,
    "movielens-latest": _CSV,
}
_HEADERS = {"ratings.csv": b"userId,movieId,rating,timestamp", "movies.csv": b"movieId,title,genres"}


def read(corpus_name: str, files: RawFiles) -> Corpus:
    """Read a MovieLens data set.

    If a user rated a movie twice, the latest rating counts, and the higher of two at the same second.
    Movies without a rating are left out.

    Args:
        corpus_name: one of `LAYOUTS`.
        files: the two files that the layout names.

    Returns:
        The corpus. Users and movies are in ascending order of their ids. `counts` has
        ``ratings_read``, ``duplicate_ratings`` and ``movies_never_rated`` and, of the movies kept,
        ``movies_without_year`` and ``movies_without_genres``.

    Raises:
        InputError: a file is missing, or a line does not follow the layout.
    """
    layout = LAYOUTS[corpus_name]
    ratings, table = _read_ratings(layout, files)
    movies = {movie.identifier: movie for movie in read_movies(layout, files)}

    user_codes, user_ids = pd.factorize(ratings["user id"].to_numpy(), sort=True)
    movie_codes, movie_ids = pd.factorize(ratings["movie id"].to_numpy(), sort=True)
    unknown = np.array([identifier not in movies for identifier in movie_ids.tolist()])
    if unknown.any():
        row = int(unknown[movie_codes].argmax())
        missing = ratings["movie id"][row]
        raise table.error(row, f"movie {missing} is rated and is not in {layout.movies}")
    rated = [movies[identifier] for identifier in movie_ids.tolist()]

    stars = ratings["rating"].to_numpy()
    left, right = user_codes.astype(np.int32), movie_codes.astype(np.int32)
    kept = distinct_pairs(left, right, [ratings["timestamp"].to_numpy(), stars])
    year, years = bag_feature("year", "year", [[movie.year] if movie.year else [] for movie in rated])
    genres, genre_names = bag_feature("genres", "genre", [movie.genres for movie in rated])
    return Corpus(
        name=corpus_name,
        left=Side("user", len(user_ids), (one_hot("user", "user", np.arange(len(user_ids))),)),
        right=Side("movie", len(rated), (one_hot("movie", "movie", np.arange(len(rated))), year, genres)),
        vocabularies={
            "user": vocabulary(user_ids),
            "movie": vocabulary(
                movie_ids,
                title=[movie.title for movie in rated],
                year=[movie.year for movie in rated],
                genres=["|".join(movie.genres) for movie in rated],
            ),
            "year": years,
            "genre": genre_names,
        },
        pair_left=left[kept],
        pair_right=right[kept],
        target=stars[kept].astype(np.float32),
        counts={
            "ratings_read": len(ratings),
            "duplicate_ratings": len(ratings) - len(kept),
            "movies_never_rated": len(movies) - len(rated),
            "movies_without_year": sum(not movie.year for movie in rated),
            "movies_without_genres": sum(not movie.genres for movie in rated),
        },
    )


def read_movies(layout: Layout, files: RawFiles) -> list[Movie]:
    """Read the movies file of a data set, in the order of its lines.

    Raises:
        InputError: the file is missing, a line does not follow the layout, or an id occurs twice.
    """
    place, body, first_line = _open(layout, files, layout.movies)
    movies: dict[int, Movie] = {}
    for number, line in enumerate(body.decode(layout.encoding).split("\n")[:-1], first_line):
        try:
            movie = _movie(number, *layout.split_movie(line))
        except ValueError as error:
            raise line_error(place, number, str(error) if line else "is empty") from error
        if movie.identifier in movies:
            earlier = movies[movie.identifier].line
            raise line_error(place, number, f"movie id {movie.identifier} already occurs in line {earlier}")
        movies[movie.identifier] = movie
    return list(movies.values())


def movie_table_sha256(layout: Layout, files: RawFiles) -> str:
    """Hash the content of the movies file, independent of its format.

    Mirrors keep title, year and genres but drop columns that no reader uses (100K's release dates and
    links), so equal contents may differ in bytes.

    Returns:
        The SHA-256, in hexadecimal, of one UTF-8 line per movie in ascending order of id: id, title
        without blanks at its ends, year and sorted genres joined by ``|``, all separated by tabs.
    """
    lines = (
        f"{movie.identifier}\t{movie.title}\t{movie.year}\t{'|'.join(sorted(movie.genres))}\n"
        for movie in sorted(read_movies(layout, files), key=lambda movie: movie.identifier)
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def content_sha256(corpus_name: str, files: RawFiles) -> dict[str, str]:
    """Hash what determines the corpus: the bytes of the ratings, and the content of the movies file.

    The official archive and a mirror have equal hashes, so a corpus of one is up to date for the other.
    """
    layout = LAYOUTS[corpus_name]
    return {
        layout.ratings: files.sha256[layout.ratings],
        layout.movies: movie_table_sha256(layout, files),
    }


def _movie(line: int, identifier: str, title: str, genres: str, release_date: str) -> Movie:
    if not re.fullmatch("[0-9]{1,18}", identifier):
        raise ValueError(f"movie id is {identifier!r}, not a whole number")
    year = _YEAR.search(title) or _RELEASE_YEAR.search(release_date)
    kept = tuple(genre for genre in genres.split("|") if genre not in NO_GENRE)
    return Movie(line, int(identifier), title.strip(), year[1] if year else "", kept)


def _read_ratings(layout: Layout, files: RawFiles) -> tuple[pd.DataFrame, TextTable]:
    place, body, first_line = _open(layout, files, layout.ratings)
    separator = layout.separator
    if len(separator) > 1:
        body = body.replace(separator.encode(), _UNIT_SEPARATOR.encode())
        separator = _UNIT_SEPARATOR
    table = TextTable(place, body, separator, _RATING_COLUMNS, first_line)
    ratings = table.read({"user id": int, "movie id": int, "rating": float, "timestamp": int})
    if ratings.empty:
        raise InputError(f"{place}: holds no ratings; get the file again")
    stars = ratings["rating"].to_numpy()
    on_scale = (stars >= layout.lowest) & (stars <= 5) & (stars % layout.lowest == 0)
    if not on_scale.all():
        row = int((~on_scale).argmax())
        raise table.error(
            row, f"rating {stars[row]:g} is not on the scale {layout.lowest:g} to 5 by {layout.lowest:g}"
        )
    return ratings, table


def _open(layout: Layout, files: RawFiles, name: str) -> tuple[str, bytes, int]:
    """The name of a file in messages, its lines after the header, and the number of the first one."""
    place = files.place(name)
    if name not in files.files:
        raise InputError(f"{place}: is missing; give the folder or zip that holds it")
    body = clean_text(place, files.files[name], layout.encoding)
    if not layout.header:
        return place, body, 1
    header, _, body = body.partition(b"\n")
    if header != _HEADERS[name]:
        raise line_error(
            place,
            1,
            f"the header is not {_HEADERS[name].decode()}",
            f"check that this is MovieLens; {REMEDY}",
        )
    return place, body, 2
