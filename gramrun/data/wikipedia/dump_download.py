"""The tables of a Wikipedia's dump: found on the disk, or fetched from Wikimedia's site.

The site keeps the last few dumps of each wiki, about two a month. ``/simplewiki/`` lists their dates, also of
dumps that are not finished.

Reference: https://dumps.wikimedia.org (its rules: at most two or three connections at a time),
https://foundation.wikimedia.org/wiki/Policy:User-Agent_policy.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import requests

from gramrun import __version__
from gramrun.base.capacity import check_capacity
from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, NotHereError, NotThereError, fetch, first_found
from gramrun.data.wikipedia.dump_files import (
    STATUS,
    TABLES,
    DumpFiles,
    Published,
    PublishedFile,
    find_tables,
    judged,
    parse_status,
    verify,
)

SERVER = "https://dumps.wikimedia.org/"
WIKIS: Mapping[str, str] = {
    "wikipedia-simple": "simplewiki",
    "wikipedia-fr": "frwiki",
    "wikipedia-en": "enwiki",
}

_DATE = re.compile(rb"""href=["'](?:[^"']*/)?(\d{8})/?["']""")
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


def locate_wikipedia(
    corpus: str,
    source: Path | None,
    raw_folders: Sequence[Path],
    downloads: Path,
    *,
    date: str | None = None,
    contact: str | None = None,
    tables: Sequence[str] = TABLES,
    server: str = SERVER,
) -> DumpFiles:
    """Find the tables of a Wikipedia's dump, downloading them if need be.

    Args:
        corpus: one of `WIKIS`.
        source: a folder as `find_tables` takes it. If given, no other place is searched.
        raw_folders: folders to search in order.
        downloads: the folder that keeps downloaded dumps, as ``WIKI/DATE/``.
        date: of the dump; None for the one that is there, or the newest complete one on the site.
        contact: as in `fetch_tables`.
        tables: as in `fetch_tables`.
        server: as in `fetch_tables`.

    Returns:
        The files. Local files without published checksums beside them have `verified` unset.

    Raises:
        InputError: `source` holds no such dump, there are several to choose from, or a table there is not
            the one that was published.
        RunError: no place has the dump; the message lists each place and its error.
    """
    wiki = WIKIS[corpus]
    if source is not None:
        return verify(find_tables(source, wiki, date), tables)

    def in_folder(folder: Path) -> DumpFiles:
        found = find_tables(folder, wiki, date)
        origin = Path(found.origin)
        if origin.resolve() != (downloads / wiki / found.date).resolve() or not (origin / STATUS).is_file():
            return verify(found, tables)
        try:
            files = verify(found, tables)
        except InputError as error:  # fetch the wrong file again
            raise NotHereError(str(error)) from error
        if not files.verified:
            raise NotHereError(f"{origin}: the download there is not finished ({files.note})")
        return files

    def on_server() -> DumpFiles:
        asked = None if date == "latest" else date
        return fetch_tables(wiki, asked, downloads, server=server, contact=contact, tables=tables)

    remedy = f"get the tables of {wiki} by other means and name their folder with --source FOLDER"
    return first_found(corpus, raw_folders, in_folder, [on_server], remedy)


def fetch_tables(
    wiki: str,
    date: str | None,
    folder: Path,
    *,
    server: str = SERVER,
    contact: str | None = None,
    tables: Sequence[str] = TABLES,
) -> DumpFiles:
    """Download tables of one dump to ``folder/WIKI/DATE/``; files that are there already are only checked.

    A download that broke off is resumed, also in another process, and before a newer dump is begun.

    Args:
        wiki: its database name, such as ``simplewiki``.
        date: of the dump, ``YYYYMMDD``; None for the newest that has all tables.
        folder: where dumps of all wikis are kept.
        server: the address of the folder with the dumps of all wikis.
        contact: an address at which Wikimedia can reach whoever downloads.
        tables: which of `TABLES`; those that the dump's year did not have yet are left out.

    Returns:
        The files, `verified` if a checksum is published for each.

    Raises:
        InputError: `date` or `contact` is malformed, or the disk is too small.
        DownloadError: no such dump is complete there, or a file is missing or wrong twice.
        RunError: the disk cannot be written.
    """
    if date is not None and not re.fullmatch(r"\d{8}", date):
        raise InputError(f"dump.date={date}: is no date of a dump; write it as 20260101, or leave it out")
    site, user_agent = f"{server.rstrip('/')}/{wiki}/", _user_agent(contact)

    date, status, published = _choose(site, wiki, date, folder / wiki, tables, user_agent)
    place = folder / wiki / date
    wanted = {table: file for table, file in published.files.items() if table in tables}
    lacking = [file for file in wanted.values() if not _is_there(place / file.name, file)]
    _check_free_space(place, lacking)
    with new_file(place / STATUS) as temporary:
        temporary.write_bytes(status)
    for file in lacking:
        address = f"{site}{date}/{file.name}"
        fetch(address, place / file.name, file.check, user_agent=user_agent)
    files = {table: place / file.name for table, file in wanted.items()}
    return judged(DumpFiles(str(place), wiki, date, files), published)


def _choose(
    site: str, wiki: str, date: str | None, folder: Path, tables: Sequence[str], user_agent: str
) -> tuple[str, bytes, Published]:
    """The dump to fetch: its date, its ``dumpstatus.json``, and what that says."""
    dates = [date] if date else _read(site, _parse_dates, user_agent)[1]
    begun = [day for day in dates if _is_begun(folder / day, wiki, day, tables)]
    reasons = []
    for day in dict.fromkeys([*begun, *dates]):
        try:
            status, published = _read(
                f"{site}{day}/{STATUS}", partial(parse_status, wiki=wiki, date=day), user_agent
            )
        except NotThereError:
            reasons.append(f"{day} has no {STATUS}")
            continue
        missing = published.missing(tables)
        if not missing:
            return day, status, published
        reasons.append(f"{day}: {missing}")
    raise DownloadError(
        f"{site}: no dump is complete ({'; '.join(reasons)}); choose a date listed there, or try again later"
    )


def _read(address: str, parse: Callable[[bytes], _T], user_agent: str) -> tuple[bytes, _T]:
    """Fetch and parse a small file."""
    with tempfile.TemporaryDirectory(prefix="gramrun-") as folder:
        file = Path(folder, "text")
        fetch(address, file, lambda part: parse(part.read_bytes()), progress=False, user_agent=user_agent)
        text = file.read_bytes()
        return text, parse(text)


def _parse_dates(page: bytes) -> list[str]:
    dates = sorted({found.decode() for found in _DATE.findall(page)}, reverse=True)
    if not dates:
        raise InputError("it lists no dates")
    return dates


def _is_begun(folder: Path, wiki: str, date: str, tables: Sequence[str]) -> bool:
    """Whether a download of `tables` to `folder` is not finished."""
    try:
        files = parse_status((folder / STATUS).read_bytes(), wiki, date).files
    except (OSError, InputError):
        return False
    return any(not (folder / file.name).is_file() for table, file in files.items() if table in tables)


def _is_there(path: Path, file: PublishedFile) -> bool:
    if not path.is_file():
        return False
    try:
        file.check(path)
    except InputError as error:
        _logger.warning("%s; downloading it again", error)
        return False
    return True


def _check_free_space(place: Path, files: Sequence[PublishedFile]) -> None:
    parts = (place / f"{file.name}.part" for file in files)
    present = sum(part.stat().st_size for part in parts if part.is_file())
    needed = sum(file.size or 0 for file in files) - present
    remedy = "make room, or keep the files elsewhere and name them with --source"
    check_capacity(needed, "disk", what="the missing tables", remedy=remedy, path=place)


def _user_agent(contact: str | None) -> str:
    """Client, contact and library, in the form of Wikimedia's policy."""
    client = f"gramrun/{__version__}"
    library = f"requests/{requests.__version__}"
    if contact is None:
        _logger.warning(
            "Wikimedia asks everyone who downloads to give a contact: --set dump.contact=you@example.org"
        )
        return f"{client} (reproduction of arXiv:1807.07187) {library}"
    if not re.fullmatch(r"[!-'*-~]+(?: [!-'*-~]+)*", contact):
        raise InputError(f"dump.contact={contact!r}: write an address, such as you@example.org")
    return f"{client} ({contact}; arXiv:1807.07187) {library}"
