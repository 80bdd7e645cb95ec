"""Tables of a dump from Wikimedia's own site, as it asks to be used: one connection, and a name to it.

The site keeps the last few dumps of each wiki, about two a month: ``/simplewiki/`` lists their dates, and a
dump that is still being made is listed too, so the newest *complete* one has to be looked for.

Reference: https://dumps.wikimedia.org (its rules: two or three connections at most),
https://foundation.wikimedia.org/wiki/Policy:User-Agent_policy.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import requests

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, NotThereError, fetch
from gramrun.data.wikipedia.files import TABLES, DumpFiles
from gramrun.data.wikipedia.published import (
    STATUS,
    Published,
    PublishedFile,
    judged,
    parse_status,
    parse_sums,
    read_published,
    sums_name,
)

SERVER = "https://dumps.wikimedia.org/"

_DATE = re.compile(rb"""href=["'](?:[^"']*/)?(\d{8})/?["']""")
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Listing:
    """One dump on the server.

    Attributes:
        published: what it says of the files.
        records: the texts that say so, by file name.
    """

    date: str
    published: Published
    records: Mapping[str, bytes]


@dataclass(frozen=True)
class _Site:
    """The dumps of one wiki on the server."""

    address: str  # with a slash at the end
    wiki: str
    user_agent: str

    def read(self, path: str, parse: Callable[[bytes], _T]) -> tuple[bytes, _T]:
        """Fetch and parse something small; what `parse` refuses is asked for once more."""
        with tempfile.TemporaryDirectory(prefix="gramrun-") as folder:
            file = Path(folder, "text")
            fetch(
                self.address + path,
                file,
                lambda part: parse(part.read_bytes()),
                progress=False,
                user_agent=self.user_agent,
            )
            text = file.read_bytes()
            return text, parse(text)

    def dates(self) -> list[str]:
        """The dates of all dumps, the newest first."""
        return self.read("", _parse_dates)[1]

    def listing(self, date: str) -> _Listing:
        """Ask what there is of one date.

        Raises:
            NotThereError: the server has nothing that says so.
        """
        published, records = None, {}
        sums = sums_name(self.wiki, date)
        for name, parse in ((STATUS, parse_status), (sums, parse_sums)):
            try:
                text, parsed = self.read(f"{date}/{name}", partial(parse, wiki=self.wiki, date=date))
            except NotThereError:
                if name == sums and published is None:
                    raise
                continue
            records[name] = text
            published = parsed if published is None else published.with_sums(parsed)
            if published.has_all_sums():
                break
        assert published is not None
        return _Listing(date, published, records)


def fetch_tables(
    wiki: str,
    date: str | None,
    folder: Path,
    *,
    server: str = SERVER,
    contact: str | None = None,
    tables: Sequence[str] = TABLES,
    progress: bool = True,
) -> DumpFiles:
    """Download tables of one dump to ``folder/WIKI/DATE/``; what lies there already is only checked.

    A download that broke off goes on from there, also in another process, and rather than a newer dump.

    Args:
        wiki: its database name, such as ``simplewiki``.
        date: of the dump, ``YYYYMMDD``; None for the newest that has all tables.
        folder: where dumps of all wikis are kept.
        server: the address that the dumps of all wikis lie under.
        contact: an address at which Wikimedia can reach whoever downloads.
        tables: which of `TABLES`; what the dump's year did not have yet is left out.
        progress: show progress bars, on a terminal only.

    Returns:
        The files. They are `verified` if a checksum is published for each.

    Raises:
        InputError: `date` or `contact` cannot be one.
        DownloadError: no such dump is complete there, or a file cannot be had or is wrong twice.
        RunError: the disk is too small, or cannot be written.
    """
    if date is not None and not re.fullmatch(r"\d{8}", date):
        raise InputError(f"dump.date={date}: is no date of a dump; write it as 20260101, or leave it out")
    site = _Site(f"{server.rstrip('/')}/{wiki}/", wiki, _user_agent(contact))
    listing = _of_date(site, date, tables) if date else _newest(site, folder / wiki, tables)
    place = folder / wiki / listing.date
    wanted = listing.published.of(tables)
    lacking = [file for file in wanted.values() if not _is_there(place / file.name, file)]
    _check_room(place, lacking)
    for name, text in listing.records.items():
        with new_file(place / name) as temporary:
            temporary.write_bytes(text)
    for file in lacking:
        address = f"{site.address}{listing.date}/{file.name}"
        fetch(address, place / file.name, file.check, progress=progress, user_agent=site.user_agent)
    files = {table: place / file.name for table, file in wanted.items()}
    return judged(DumpFiles(str(place), wiki, listing.date, files), listing.published)


def _newest(site: _Site, folder: Path, tables: Sequence[str]) -> _Listing:
    """The newest dump with all tables; before all others one whose download was begun."""
    reasons = []
    dates = site.dates()
    begun = [date for date in dates if _is_begun(folder / date, site.wiki, date, tables)]
    for date in dict.fromkeys([*begun, *dates]):
        try:
            listing = site.listing(date)
        except NotThereError:
            reasons.append(f"{date} says nothing of its files")
            continue
        lacking = listing.published.lacking(tables)
        if not lacking:
            return listing
        reasons.append(f"{date}: {lacking}")
    raise DownloadError(f"{site.address}: no dump there is complete ({'; '.join(reasons)}); try again later")


def _of_date(site: _Site, date: str, tables: Sequence[str]) -> _Listing:
    try:
        listing = site.listing(date)
    except NotThereError as error:
        raise DownloadError(
            f"{site.address}{date}/: there is no such dump; {site.wiki} has {', '.join(site.dates())}"
        ) from error
    lacking = listing.published.lacking(tables)
    if lacking:
        dates = ", ".join(site.dates())
        raise DownloadError(f"{site.address}{date}/: is not complete ({lacking}); {site.wiki} has {dates}")
    return listing


def _parse_dates(page: bytes) -> list[str]:
    dates = sorted({found.decode() for found in _DATE.findall(page)}, reverse=True)
    if not dates:
        raise InputError("it lists no dates")
    return dates


def _is_begun(folder: Path, wiki: str, date: str, tables: Sequence[str]) -> bool:
    """Whether a download of `tables` to `folder` was begun and not finished."""
    try:
        published = read_published(folder, wiki, date)
    except InputError:
        return False
    files = published.of(tables).values() if published else ()
    return any(not (folder / file.name).is_file() for file in files)


def _is_there(path: Path, file: PublishedFile) -> bool:
    if not path.is_file():
        return False
    try:
        file.check(path)
    except InputError as error:
        _logger.warning("%s; downloading it again", error)
        return False
    return True


def _check_room(place: Path, files: Sequence[PublishedFile]) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        RunError: says how much is missing.
    """
    parts = (place / f"{file.name}.part" for file in files)
    present = sum(part.stat().st_size for part in parts if part.is_file())
    needed = sum(file.size or 0 for file in files) - present
    existing = next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise RunError(
            f"{place}: the tables need {needed:,} more bytes and the disk has {free:,} left: "
            f"{needed - free:,} too few; make room, or keep the files elsewhere and name them with --source"
        )


def _user_agent(contact: str | None) -> str:
    """Client, contact and library, in the form that Wikimedia's policy gives."""
    try:
        client = f"gramrun/{metadata.version('gramrun')}"
    except metadata.PackageNotFoundError:  # run from its source without being installed
        client = "gramrun"
    library = f"requests/{requests.__version__}"
    if contact is None:
        _logger.warning(
            "Wikimedia asks who downloads from it to say how they can be reached: "
            "--set dump.contact=you@example.org"
        )
        return f"{client} (reproduction of arXiv:1807.07187) {library}"
    if not re.fullmatch(r"[!-'*-~]+(?: [!-'*-~]+)*", contact):
        raise InputError(f"dump.contact={contact!r}: write an address, such as you@example.org")
    return f"{client} ({contact}; arXiv:1807.07187) {library}"
