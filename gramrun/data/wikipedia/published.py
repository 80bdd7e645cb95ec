"""What Wikimedia publishes about the files of a dump: which are finished, their sizes and checksums.

Beside the files of a dump lies ``dumpstatus.json``:

    {"version": "0.8", "jobs": {"pagelinkstable": {"status": "done", "updated": "2026-01-02 03:04:05",
     "files": {"simplewiki-20260101-pagelinks.sql.gz": {"size": 1, "url": "/…", "md5": "…", "sha1": "…"}}}}}

where a job is ``waiting``, ``in-progress``, ``done``, ``failed`` or ``skipped``, and a dump older than a
table has no job for it. Older dumps, and mirrors, may have no such file, or one without checksums; then
``simplewiki-20260101-sha1sums.txt`` gives them, in lines of checksum, two blanks and name.

Reference: https://meta.wikimedia.org/wiki/Data_dumps/Status_format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.files import NEEDED, TABLES, DumpFiles

STATUS = "dumpstatus.json"

_JOBS = {table: f"{table.replace('_', '')}table" for table in TABLES}
_SHA1 = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class PublishedFile:
    """What is known of one file; None where it is not published.

    Attributes:
        name: such as ``simplewiki-20260101-page.sql.gz``.
        size: in bytes.
        sha1: 40 hexadecimal digits.
    """

    name: str
    size: int | None
    sha1: str | None

    def check(self, file: Path) -> None:
        """Hold a file against it.

        Raises:
            InputError: the file is another one, or cannot be read.
        """
        try:
            size = file.stat().st_size
            if self.size is not None and size != self.size:
                raise InputError(f"{file}: has {size:,} bytes, not {self.size:,}")
            if self.sha1 is not None:
                with file.open("rb") as opened:
                    sha1 = hashlib.file_digest(
                        opened, lambda: hashlib.sha1(usedforsecurity=False)
                    ).hexdigest()
                if sha1 != self.sha1:
                    raise InputError(f"{file}: sha1 is {sha1}, not {self.sha1}")
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from error


@dataclass(frozen=True)
class Published:
    """What is known of the files of one dump.

    Attributes:
        files: the finished ones by table.
        unfinished: the status of the others by table.
    """

    files: Mapping[str, PublishedFile]
    unfinished: Mapping[str, str]

    def lacking(self, tables: Sequence[str]) -> str:
        """Say what of `tables` is missing; empty where the dump has all that its year has."""
        lacking = [f"{table} is {self.unfinished[table]}" for table in tables if table in self.unfinished]
        known = {*self.files, *self.unfinished}
        return ", ".join(
            [
                *lacking,
                *(f"{table} is not in it" for table in tables if table in NEEDED and table not in known),
            ]
        )

    def of(self, tables: Sequence[str]) -> dict[str, PublishedFile]:
        """The finished files of `tables`."""
        return {table: file for table, file in self.files.items() if table in tables}

    def with_sums(self, sums: Published) -> Published:
        """Add the checksums of `sums` where there are none."""
        files = {
            table: file
            if file.sha1 or table not in sums.files
            else replace(file, sha1=sums.files[table].sha1)
            for table, file in self.files.items()
        }
        return replace(self, files=files)

    def has_all_sums(self) -> bool:
        """Say whether each file has a checksum."""
        return all(file.sha1 for file in self.files.values())


def sums_name(wiki: str, date: str) -> str:
    """The name of the file with the checksums of a dump."""
    return f"{wiki}-{date}-sha1sums.txt"


def parse_status(text: bytes, wiki: str, date: str) -> Published:
    """Read a ``dumpstatus.json``.

    Raises:
        InputError: it is none.
    """
    try:
        jobs = json.loads(text)["jobs"]
        files, unfinished = {}, {}
        for table in TABLES:
            job = jobs.get(_JOBS[table])
            if job is None:
                continue
            if job["status"] == "done":
                name = _name(wiki, date, table)
                files[table] = _published_file(name, job["files"][name])
            else:
                unfinished[table] = str(job["status"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        begin = text[:40].decode("ascii", "replace")
        raise InputError(f"it is no {STATUS} of {wiki} {date}: it begins with {begin!r}") from error
    return Published(files, unfinished)


def parse_sums(text: bytes, wiki: str, date: str) -> Published:
    """Read a ``sha1sums.txt``; what it does not name counts as not in the dump.

    Raises:
        InputError: it is none.
    """
    pairs = [line.split() for line in text.decode("ascii", "replace").splitlines()]
    if not pairs or not all(len(pair) == 2 and _SHA1.fullmatch(pair[0]) for pair in pairs):
        begin = text[:40].decode("ascii", "replace")
        raise InputError(f"holds no SHA-1 checksums: it begins with {begin!r}")
    sums = {name: sha1 for sha1, name in pairs}
    names = {table: _name(wiki, date, table) for table in TABLES}
    files = {t: PublishedFile(name, None, sums[name]) for t, name in names.items() if name in sums}
    return Published(files, {})


def read_published(folder: Path, wiki: str, date: str) -> Published | None:
    """Read what was published from the files that lie in `folder`; None where there are none.

    Raises:
        InputError: they are not what their names say, or cannot be read.
    """
    status, sums = folder / STATUS, folder / sums_name(wiki, date)
    found = None
    for file, parse in ((status, parse_status), (sums, parse_sums)):
        if file.is_file():
            try:
                parsed = parse(file.read_bytes(), wiki, date)
            except (OSError, InputError) as error:
                raise InputError(f"{file}: {error}; remove it or get it again") from error
            found = parsed if found is None else found.with_sums(parsed)
    return found


def verify(files: DumpFiles, tables: Sequence[str] = TABLES) -> DumpFiles:
    """Hold tables against the checksums that lie beside them.

    Returns:
        The files, `verified` if what was published of `tables` is all there and agrees, and nothing else is
        there; the note says why not.

    Raises:
        InputError: a table is not the one that was published.
    """
    folder = Path(files.origin)
    try:
        published = read_published(folder, files.wiki, files.date)
    except InputError as error:
        return replace(files, note=str(error))
    if published is None:
        return replace(files, note=f"no {STATUS} and no sha1sums.txt lie beside the tables")
    for table, file in published.of(tables).items():
        if files.tables.get(table) != folder / file.name:
            return replace(files, note=f"{file.name} was published and is not there")
        file.check(folder / file.name)
    return judged(files, published)


def judged(files: DumpFiles, published: Published) -> DumpFiles:
    """Say whether files that agree with what was published are thereby verified."""
    known = {table: published.files.get(table) for table in files.tables}
    unknown = [files.tables[table].name for table, file in known.items() if file is None or file.sha1 is None]
    if unknown:
        return replace(files, note=f"no published checksum for {', '.join(unknown)}")
    return replace(files, verified=True, note="each file agrees with the published SHA-1")


def _published_file(name: str, entry: Mapping[str, Any]) -> PublishedFile:
    size, sha1 = entry.get("size"), entry.get("sha1")
    return PublishedFile(
        name,
        size if isinstance(size, int) and size >= 0 else None,
        sha1 if isinstance(sha1, str) and _SHA1.fullmatch(sha1) else None,
    )


def _name(wiki: str, date: str, table: str) -> str:
    return f"{wiki}-{date}-{table}.sql.gz"
