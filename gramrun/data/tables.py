"""Strict reading of delimited text, and the parts of a corpus that every table reader builds alike.

Every refusal is one line that names the file, the line, what is wrong there and what to do. Counting
fields and parsing numbers are vectorised, since a ratings file has up to 34 million lines; only a file
that is refused is looked at line by line.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from csv import QUOTE_NONE
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gramrun.base.errors import InputError
from gramrun.data.corpus import Feature, bags

REMEDY = "mend that line or get the file again"
_BLOCK_BYTES = 1 << 25  # bounds the memory for counting fields, about 10 bytes a byte
_HTML = re.compile(rb"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_PATTERNS = {int: r"[0-9]{1,18}", float: r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"}
_NAMES = {int: "a whole number", float: "a number"}
_BOOLEANS = (b"True", b"TRUE", b"true", b"False", b"FALSE", b"false")
_EXACT_IN_FLOAT64 = 2**53


def line_error(place: str, line: int, problem: str, remedy: str = REMEDY) -> InputError:
    """Make the error for one bad line; `line` counts from 1."""
    return InputError(f"{place}, line {line}: {problem}; {remedy}")


def clean_text(place: str, data: bytes, encoding: str) -> bytes:
    r"""Check that `data` is a whole text file, and give it with plain ``\n`` line ends and no BOM.

    Args:
        place: what messages call the file.
        data: the file.
        encoding: ``utf-8`` or ``latin-1``.

    Raises:
        InputError: the file is empty, a web page, in another encoding, or ends within a line.
    """
    if not data.strip():
        raise InputError(f"{place}: is empty; get the file again")
    if _HTML.match(data[:1024]):
        raise InputError(f"{place}, line 1: is a web page (HTML), not data; get the file itself")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data:
        raise InputError(f"{place}, line 1: is UTF-16 or binary, not {encoding} text; convert it")
    if encoding == "utf-8":
        data = data.removeprefix(codecs.BOM_UTF8)
    if not data.isascii():
        _check_encoding(place, data, encoding)
    data = data.replace(b"\r\n", b"\n")
    if not data.endswith(b"\n"):
        # A cut inside the last number leaves a line that parses, and is wrong: refuse to guess.
        raise line_error(
            place,
            data.count(b"\n") + 1,
            "the file ends within this line, so it may be cut off",
            "get the file again, or add the line end if it is whole",
        )
    return data


def _check_encoding(place: str, data: bytes, encoding: str) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if encoding == "utf-8":
            line = data.count(b"\n", 0, error.start) + 1
            raise line_error(
                place, line, f"byte 0x{data[error.start]:02x} is not UTF-8", "convert the file to UTF-8"
            ) from error
        return
    # Any bytes are latin-1. But text with accents that is valid UTF-8 is practically never latin-1.
    if encoding == "latin-1":
        line = next(n for n, text in enumerate(data.split(b"\n"), 1) if not text.isascii())
        raise line_error(
            place, line, "is UTF-8 where the official file is latin-1", "convert the file to latin-1"
        )


@dataclass(frozen=True)
class TextTable:
    r"""The lines of a delimited text file without quoting.

    Attributes:
        place: what messages call the file.
        body: the lines after the header, each ended by ``\n``; any text in it that is wanted is UTF-8.
        separator: one ASCII character.
        columns: the names of the fields of every line.
        first_line: the number in the file of the first line of `body`.
    """

    place: str
    body: bytes
    separator: str
    columns: tuple[str, ...]
    first_line: int = 1

    def error(self, row: int, problem: str) -> InputError:
        """Make the error for row `row` of the body, counted from 0."""
        return line_error(self.place, self.first_line + row, problem)

    def read(self, types: Mapping[str, type]) -> pd.DataFrame:
        """Read columns, in the order of the file.

        Args:
            types: ``int`` (not negative), ``float`` (finite) or ``str`` for each column wanted.

        Raises:
            InputError: a line has another number of fields; a field is not of its type.
        """
        self._check_field_counts()
        try:
            frame = self._parse(types)
        except (ValueError, OverflowError):
            self._refuse_first_bad_number(types)
            raise  # a file that pandas refuses and we do not: a bug
        whole = [column for column, wanted in types.items() if wanted is int]
        inexact = any(frame[column].max() > _EXACT_IN_FLOAT64 for column in whole)
        if inexact or any(word in self.body for word in _BOOLEANS):
            # pandas takes a column of these words for ones and zeros, and one of 1.0 by way of float64.
            self._refuse_first_bad_number(types)
        for column, wanted in types.items():
            if wanted is str:
                continue
            bad = ~np.isfinite(frame[column]) if wanted is float else frame[column] < 0
            if bad.any():
                row = int(bad.to_numpy().argmax())
                raise self.error(row, f"{column} is {frame[column][row]}, not {_NAMES[wanted]}")
        return frame

    def _parse(self, types: Mapping[str, type]) -> pd.DataFrame:
        dtypes = {int: "int64", float: "float64", str: "str"}
        with np.errstate(invalid="ignore"):  # an infinite id is refused afterwards
            return pd.read_csv(
                io.BytesIO(self.body),
                sep=self.separator,
                header=None,
                names=list(self.columns),
                usecols=list(types),
                dtype={column: dtypes[wanted] for column, wanted in types.items()},
                quoting=QUOTE_NONE,
                lineterminator="\n",
                na_filter=False,
                skip_blank_lines=False,
                encoding="utf-8",
                encoding_errors="backslashreplace",  # a stray latin-1 byte among numbers, to be shown
                engine="c",
            )

    def _refuse_first_bad_number(self, types: Mapping[str, type]) -> None:
        text = self._parse(dict.fromkeys(types, str))
        first: tuple[int, str] | None = None
        for column, wanted in types.items():
            if wanted is str:
                continue
            bad = ~text[column].str.fullmatch(_PATTERNS[wanted]).to_numpy(dtype=bool)
            if bad.any() and (first is None or bad.argmax() < first[0]):
                row = int(bad.argmax())
                first = row, f"{column} is {text[column][row]!r}, not {_NAMES[wanted]}"
        if first is not None:
            raise self.error(*first)

    def _check_field_counts(self) -> None:
        """Refuse the first line whose number of fields is not ``len(columns)``.

        In a good file the sequence of separators and line ends repeats with period ``len(columns)``:
        all separators but for a line end at the end of each period.
        """
        period, row, start = len(self.columns), 0, 0
        separator, line_end = ord(self.separator), ord("\n")
        while start < len(self.body):
            end = self.body.index(b"\n", min(start + _BLOCK_BYTES, len(self.body)) - 1) + 1
            block = np.frombuffer(self.body, np.uint8, end - start, start)
            marks = np.flatnonzero((block == separator) | (block == line_end))
            ends_line = block[marks] == line_end
            expected = np.arange(len(marks)) % period == period - 1
            wrong = np.flatnonzero(ends_line != expected)
            if len(wrong):
                before = int(wrong[0]) // period
                line_start = start + (int(marks[before * period - 1]) + 1 if before else 0)
                line = self.body[line_start : self.body.index(b"\n", line_start)]
                fields = line.count(separator) + 1
                problem = f"has {fields} field{'s' * (fields != 1)}, not {period}" if line else "is empty"
                raise self.error(row + before, problem)
            row += len(marks) // period
            start = end


def distinct_pairs(left: np.ndarray, right: np.ndarray, preferences: Sequence[np.ndarray]) -> np.ndarray:
    """Choose one row for each distinct pair, whatever the order of the rows.

    Args:
        left: int32 codes that are not negative, shape (rows,).
        right: the same for the other side.
        preferences: columns of shape (rows,), the most important first. Of the rows with equal pairs
            the one with the largest values is kept.

    Returns:
        The rows kept, ordered by (left, right).
    """
    pair = left.astype(np.int64) << 32 | right
    order = np.lexsort((*reversed(preferences), pair))
    pair = pair[order]
    last_of_equals = np.ones(len(pair), dtype=bool)
    np.not_equal(pair[1:], pair[:-1], out=last_of_equals[:-1])
    return order[last_of_equals]


def vocabulary(keys: Iterable[object], **columns: Sequence[str]) -> pd.DataFrame:
    """Make a vocabulary frame: the column ``key`` as text, then columns for human eyes.

    Args:
        keys: the raw value of each row.
        columns: further columns by name, each as long as `keys`.
    """
    return pd.DataFrame({"key": [str(key) for key in keys]} | columns, dtype="str")


def bag_feature(name: str, terms: str, values: Sequence[Iterable[str]]) -> tuple[Feature, pd.DataFrame]:
    """Make a feature out of one bag of values per item, with its own vocabulary.

    Args:
        name: the feature's name.
        terms: the vocabulary's name.
        values: per item its values; repeats within one item count once.

    Returns:
        The feature, and its vocabulary sorted by value.
    """
    distinct = sorted({value for item in values for value in item})
    index = {value: position for position, value in enumerate(distinct)}
    feature = bags(name, terms, [sorted({index[value] for value in item}) for item in values])
    return feature, vocabulary(distinct)
