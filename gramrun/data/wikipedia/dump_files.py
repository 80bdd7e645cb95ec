"""The files of a dump on the disk, and the sizes and checksums that Wikimedia publishes for them.

Wikimedia publishes ``simplewiki/20260101/simplewiki-20260101-pagelinks.sql.gz``, and the newest dump also as
``simplewiki/latest/simplewiki-latest-…``. Files may be unpacked, packed otherwise, or named ``page.sql.gz``.
Beside the files is ``dumpstatus.json``:

    {"version": "0.8", "jobs": {"pagelinkstable": {"status": "done", "updated": "2026-01-02 03:04:05",
     "files": {"simplewiki-20260101-pagelinks.sql.gz": {"size": 1, "url": "/…", "md5": "…", "sha1": "…"}}}}}

A job is ``waiting``, ``in-progress``, ``done``, ``failed`` or ``skipped``; a dump older than a table has no
job for it. Tables on the disk may have ``simplewiki-20260101-sha1sums.txt`` beside them instead.

Reference: https://meta.wikimedia.org/wiki/Data_dumps/Dump_format and /Status_format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gramrun.base.errors import InputError
from gramrun.data.download import NotHereError

TABLES = ("page", "pagelinks", "linktarget", "categorylinks", "redirect", "page_props")
NEEDED = ("page", "pagelinks", "redirect")  # in every year; the readers know which others a dump needs
STATUS = "dumpstatus.json"

_SHA1 = re.compile(r"[0-9a-f]{40}")
_DATE = re.compile(r"\d{8}|latest")
_TABLE = re.compile(
    rf"(?:(?P<wiki>\w+)-(?P<date>{_DATE.pattern})-)?(?P<table>{'|'.join(TABLES)})\.sql(?:\.(?:gz|bz2|zst))?"
)
_XML = re.compile(r".+\.xml(?:\.(?:gz|bz2|zst))?")
# Wikimedia's database names: language and project.
_WIKI = re.compile(r"\w+(?:wiki|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage|wiktionary)")


@dataclass(frozen=True)
class DumpFiles:
    """The files of one dump of one wiki.

    Attributes:
        origin: the folder of the files, for messages.
        wiki: its name, such as ``simplewiki``; empty if unknown.
        date: of the dump, ``YYYYMMDD`` or ``latest``; empty if unknown.
        tables: files by table: those of `NEEDED`, and the others of `TABLES` that are there.
        verified: all files agree with published checksums.
        note: how they were verified, or why not.
    """

    origin: str
    wiki: str
    date: str
    tables: Mapping[str, Path]
    verified: bool = False
    note: str = ""


def find_tables(source: Path, wiki: str | None = None, date: str | None = None) -> DumpFiles:
    """Find the tables of one dump in a folder.

    Args:
        source: a folder with files like ``simplewiki-20260101-page.sql.gz``, ``page.sql`` or
            ``simplewiki-latest-page.sql.zst``, or with folders ``WIKI/``, ``DATE/`` or ``WIKI/DATE/``
            of them.
        wiki: which wiki, if `source` holds several; files whose names do not tell match any.
        date: likewise.

    Returns:
        The files, not verified.

    Raises:
        NotHereError: there is no such dump in `source`, or needed tables are missing.
        InputError: `source` holds several such dumps, or a table twice, or cannot be read.
    """
    dumps = _dumps(source)
    complete = {
        dump: files
        for dump, files in dumps.items()
        if dump[0] in ("", wiki or dump[0])
        and dump[1] in ("", date or dump[1])
        and all(table in files for table in NEEDED)
    }
    if not complete:
        there = "; ".join(
            _label(dump) + "".join(f" without {table}" for table in NEEDED if table not in dumps[dump])
            for dump in sorted(dumps)
        )
        raise NotHereError(
            f"{source}: holds {there or 'no tables'}; needed are all of {', '.join(NEEDED)}, in files like "
            f"{wiki or 'simplewiki'}-{date or '20260101'}-page.sql.gz"
        )
    if len(complete) > 1:
        raise InputError(
            f"{source}: holds several dumps ({', '.join(map(_label, sorted(complete)))}); name the folder of "
            f"one of them, or choose one with --set dump.date={max(date for _, date in complete)}"
        )
    ((dump, files),) = complete.items()
    for table, places in files.items():
        if len(places) > 1:
            listed = ", ".join(str(place.relative_to(source)) for place in sorted(places))
            raise InputError(f"{source}: holds the table {table} more than once ({listed}); keep one of them")
    tables = {table: files[table][0] for table in TABLES if table in files}
    return DumpFiles(str(tables["page"].parent), dump[0] or wiki or "", dump[1] or date or "", tables)


def find_xml(source: Path) -> Path:
    """Find an XML export: `source` itself if it is a file, or the one ``*.xml[.bz2|.gz|.zst]`` in it.

    Raises:
        InputError: there is none, or more than one.
    """
    if source.is_file():
        return source
    found = [file for file in _listed(source) if file.is_file() and _XML.fullmatch(file.name)]
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise InputError(
            f"{source}: holds no single .xml, .xml.bz2, .xml.gz or .xml.zst ({names}); name the file"
        )
    return found[0]


def _dumps(source: Path) -> dict[tuple[str, str], dict[str, list[Path]]]:
    """The files by (wiki, date) and table; wiki and date are empty if neither file nor folder tells."""
    dumps: dict[tuple[str, str], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    below = [folder for folder in _listed(source) if folder.is_dir()]
    wikis = [folder for folder in below if _WIKI.fullmatch(folder.name)]
    inside = [folder for wiki in wikis for folder in _listed(wiki) if folder.is_dir()]
    dates = [folder for folder in (*below, *inside) if _DATE.fullmatch(folder.name)]
    for folder in (source, *wikis, *dates):
        for file in _listed(folder):
            named = _TABLE.fullmatch(file.name)
            if named and file.is_file():
                dump = (named["wiki"], named["date"]) if named["wiki"] else _dump_of(folder)
                dumps[dump][named["table"]].append(file)
    return dumps


def _dump_of(folder: Path) -> tuple[str, str]:
    """The wiki and date that a folder's path tells."""
    path = folder.absolute()
    wiki, date = (path.parent.name, path.name) if _DATE.fullmatch(path.name) else (path.name, "")
    return (wiki if _WIKI.fullmatch(wiki) else "", date)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotHereError(f"{folder}: is no folder; name the folder with the dump's files") from error
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error


def _label(dump: tuple[str, str]) -> str:
    return " ".join(filter(None, dump)) or "an unnamed dump"


@dataclass(frozen=True)
class PublishedFile:
    """A finished file of a dump: its name, and its size and SHA-1 (hexadecimal), or None if not published."""

    name: str
    size: int | None
    sha1: str | None

    def check(self, file: Path) -> None:
        """Compare a file with it.

        Raises:
            InputError: the file is another one, or cannot be read.
        """
        try:
            if self.size is not None and file.stat().st_size != self.size:
                raise InputError(f"{file}: has {file.stat().st_size:,} bytes, not {self.size:,}")
            with file.open("rb") as opened:
                sha1 = hashlib.file_digest(opened, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from error
        if self.sha1 not in (None, sha1):
            raise InputError(f"{file}: sha1 is {sha1}, not {self.sha1}")


@dataclass(frozen=True)
class Published:
    """The finished files of a dump by table, and the status of the unfinished tables."""

    files: Mapping[str, PublishedFile]
    unfinished: Mapping[str, str]

    def missing(self, tables: Sequence[str]) -> str:
        """What of `tables` is missing; empty if the dump has all tables of its year."""
        absent = [t for t in tables if t in NEEDED and not {t} & {*self.files, *self.unfinished}]
        unfinished = [f"{table} is {self.unfinished[table]}" for table in tables if table in self.unfinished]
        return ", ".join([*unfinished, *(f"{table} is not in it" for table in absent)])


def parse_status(text: bytes, wiki: str, date: str) -> Published:
    """Read a ``dumpstatus.json``.

    Raises:
        InputError: it is none.
    """
    try:
        jobs = json.loads(text)["jobs"]
        files, unfinished = {}, {}
        for table in TABLES:
            job = jobs.get(f"{table.replace('_', '')}table")
            if job is None:
                continue
            if job["status"] == "done":
                name = _name(wiki, date, table)
                size, sha1 = job["files"][name].get("size"), job["files"][name].get("sha1")
                known = isinstance(sha1, str) and _SHA1.fullmatch(sha1)
                files[table] = PublishedFile(
                    name, size if isinstance(size, int) else None, sha1 if known else None
                )
            else:
                unfinished[table] = str(job["status"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        begin = text[:40].decode("ascii", "replace")
        raise InputError(f"it is no {STATUS} of {wiki} {date}: it begins with {begin!r}") from error
    return Published(files, unfinished)


def verify(files: DumpFiles, tables: Sequence[str] = TABLES) -> DumpFiles:
    """Compare tables with the checksums that lie beside them.

    Returns:
        The files; `verified` if all published files of `tables` are there and agree, and nothing else is
        there. The note says why not.

    Raises:
        InputError: a table is not the one that was published.
    """
    folder = Path(files.origin)
    status, sums = folder / STATUS, folder / f"{files.wiki}-{files.date}-sha1sums.txt"
    source = status if status.is_file() else sums
    try:
        if source == status:
            published = parse_status(status.read_bytes(), files.wiki, files.date)
        elif sums.is_file():
            listed = [line.split() for line in sums.read_text("ascii", "replace").splitlines()]
            sha1 = {pair[1]: pair[0] for pair in listed if len(pair) == 2 and _SHA1.fullmatch(pair[0])}
            names = {table: _name(files.wiki, files.date, table) for table in TABLES}
            named = {t: PublishedFile(name, None, sha1[name]) for t, name in names.items() if name in sha1}
            published = Published(named, {})
        else:
            return replace(files, note=f"no {STATUS} and no sha1sums.txt lie beside the tables")
    except (OSError, InputError) as error:
        return replace(files, note=f"{source}: {error}; remove it or get it again")
    for table, file in published.files.items():
        if table in tables:
            if files.tables.get(table) != folder / file.name:
                return replace(files, note=f"{file.name} was published and is not there")
            file.check(folder / file.name)
    return judged(files, published)


def judged(files: DumpFiles, published: Published) -> DumpFiles:
    """Mark files that agree with what was published as verified, if each has a checksum."""
    checked = {table for table, file in published.files.items() if file.sha1 is not None}
    unknown = [file.name for table, file in files.tables.items() if table not in checked]
    if unknown:
        return replace(files, note=f"no published checksum for {', '.join(unknown)}")
    return replace(files, verified=True, note="each file agrees with the published SHA-1")


def _name(wiki: str, date: str, table: str) -> str:
    return f"{wiki}-{date}-{table}.sql.gz"
