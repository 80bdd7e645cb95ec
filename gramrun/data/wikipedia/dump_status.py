"""What Wikimedia publishes about the files of a dump: which are finished, their sizes and checksums.

Beside the files of a dump is ``dumpstatus.json``:

    {"version": "0.8", "jobs": {"pagelinkstable": {"status": "done", "updated": "2026-01-02 03:04:05",
     "files": {"simplewiki-20260101-pagelinks.sql.gz": {"size": 1, "url": "/…", "md5": "…", "sha1": "…"}}}}}

A job is ``waiting``, ``in-progress``, ``done``, ``failed`` or ``skipped``; a dump older than a table has no
job for it. Tables on the disk may have ``simplewiki-20260101-sha1sums.txt`` beside them instead.

Reference: https://meta.wikimedia.org/wiki/Data_dumps/Status_format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.files import NEEDED, TABLES, DumpFiles

STATUS = "dumpstatus.json"

_SHA1 = re.compile(r"[0-9a-f]{40}")


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
    sums = folder / f"{files.wiki}-{files.date}-sha1sums.txt"
    try:
        if (folder / STATUS).is_file():
            published = parse_status((folder / STATUS).read_bytes(), files.wiki, files.date)
        elif sums.is_file():
            listed = [line.split() for line in sums.read_text("ascii", "replace").splitlines()]
            sha1 = {pair[1]: pair[0] for pair in listed if len(pair) == 2 and _SHA1.fullmatch(pair[0])}
            names = {table: _name(files.wiki, files.date, table) for table in TABLES}
            named = {t: PublishedFile(name, None, sha1[name]) for t, name in names.items() if name in sha1}
            published = Published(named, {})
        else:
            return replace(files, note=f"no {STATUS} and no sha1sums.txt lie beside the tables")
    except (OSError, InputError) as error:
        return replace(files, note=f"{folder / STATUS}: {error}; remove it or get it again")
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
