"""Strict reading of delimited text, and the parts of a corpus that every table reader builds alike.

Every error is one line that names the file, the line, the problem and the remedy. Arrow splits the lines,
since a ratings file has up to 34 million of them; numbers must match a pattern before they are converted.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pa_csv

from gramrun.base.errors import InputError
from gramrun.data.corpus import Feature, bags

REMEDY = "mend that line or get the file again"
_BLOCK_BYTES = 1 << 25  # of lines at once; no line may be longer
_HTML = re.compile(rb"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_PATTERNS = {int: r"^[0-9]{1,18}$", float: r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"}
_ARROW_TYPES = {int: pa.int64(), float: pa.float64()}
_DIGITS = b"0123456789.\n"
_NAMES = {int: "a whole number", float: "a number"}


def line_error(place: str, line: int, problem: str, remedy: str = REMEDY) -> InputError:
    """The error for one bad line; `line` counts from 1."""
    return InputError(f"{place}, line {line}: {problem}; {remedy}")


def clean_text(place: str, data: bytes, encoding: str) -> bytes:
    r"""Check that `data` is a whole text file; return it with ``\n`` line ends and no byte order mark.

    Args:
        place: the name of the file in messages.
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
    if b"\r" in data:
        line = data.count(b"\n", 0, data.index(b"\r")) + 1
        raise line_error(place, line, "a carriage return stands within the line")
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
        place: the name of the file in messages.
        body: the lines after the header, each ended by ``\n``.
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
        """The error for row `row` of the body, counted from 0."""
        return line_error(self.place, self.first_line + row, problem)

    def read(self, types: Mapping[str, type]) -> pd.DataFrame:
        """Read columns, in the order of the file.

        Args:
            types: ``int`` (not negative), ``float`` (finite) or ``str`` for each column wanted.

        Raises:
            InputError: a line has another number of fields; a field is not of its type.
        """
        if str not in types.values() and not self.body.translate(None, _DIGITS + self.separator.encode()):
            with contextlib.suppress(InputError):  # otherwise the line is found below
                numbers = self._parse({name: _ARROW_TYPES[wanted] for name, wanted in types.items()})
                return pd.DataFrame({name: numbers[name].to_numpy() for name in types})
        texts = self._parse(dict.fromkeys(types, pa.binary()))
        columns = {}
        for name, wanted in types.items():
            text = texts[name]
            if wanted is str:
                columns[name] = text.cast(pa.string()).to_pandas().astype("str")
                continue
            valid = pc.match_substring_regex(text, _PATTERNS[wanted])
            values = text.filter(valid).cast(pa.string()).cast(_ARROW_TYPES[wanted]).to_numpy()
            if len(values) < len(text):
                self._refuse(name, wanted, text, valid.to_numpy(zero_copy_only=False))
            if not np.isfinite(values).all():
                self._refuse(name, wanted, text, np.isfinite(values))
            columns[name] = values
        return pd.DataFrame(columns)

    def _refuse(self, name: str, wanted: type, text: pa.ChunkedArray, valid: np.ndarray) -> NoReturn:
        row = int((~valid).argmax())
        value = text[row].as_py().decode("utf-8", "backslashreplace")
        raise self.error(row, f"{name} is {value!r}, not {_NAMES[wanted]}")

    def _parse(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        if not self.body:
            return pa.table({name: pa.array([], kind) for name, kind in types.items()})
        if self.body.startswith(b"\n") or b"\n\n" in self.body:  # Arrow takes an empty line for empty fields
            self._check_lines()
        try:
            return pa_csv.read_csv(
                pa.py_buffer(self.body),
                pa_csv.ReadOptions(column_names=list(self.columns), block_size=_BLOCK_BYTES),
                pa_csv.ParseOptions(delimiter=self.separator, quote_char=False, ignore_empty_lines=False),
                pa_csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
            )
        except pa.ArrowInvalid as error:
            self._check_lines()
            raise InputError(f"{self.place}: {error}; {REMEDY}") from error

    def _check_lines(self) -> None:
        for row, line in enumerate(self.body.split(b"\n")[:-1]):
            fields = line.count(self.separator.encode()) + 1
            if fields != len(self.columns):
                number = f"{fields} field{'s' * (fields != 1)}, not {len(self.columns)}"
                raise self.error(row, f"has {number}" if line else "is empty")


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


def vocabulary(keys: Iterable[object], /, **columns: Sequence[str]) -> pd.DataFrame:
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
