"""Download one file over HTTP: resumed after a break, checked, and put in place whole or not at all.

pooch's `HTTPDownloader` checks and retries but starts every attempt from the first byte and throws the
part away, which a 1 GB dump over a weak line never survives; hence these few lines on `requests`.

Reference: RFC 9110, sections 13.1.5 (If-Range) and 14 (Range requests).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
from tqdm import tqdm

from gramrun.base.errors import InputError, RunError
from gramrun.base.locks import locked

USER_AGENT = "gramrun (reproduction of arXiv:1807.07187)"
# Attempts in a row that bring no byte before a download is given up.
ATTEMPTS = 3
CONNECT_SECONDS = 10.0
STALL_SECONDS = 30.0  # without a single byte
FIRST_PAUSE_SECONDS = 1.0  # doubles after each attempt that brings nothing
LONGEST_PAUSE_SECONDS = 60.0

# urllib3 gives a chunk whole or not at all, so a break loses up to one chunk: keep it small.
_CHUNK_BYTES = 1 << 14
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}

_logger = logging.getLogger(__name__)


class DownloadError(RunError):
    """An address that gives no file, or a file that is not the right one."""


class NotThereError(DownloadError):
    """An address that the server knows nothing of (HTTP 404 or 410)."""


class _BrokenOffError(Exception):
    """An attempt that broke off; the next one may go on from where it stopped."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class _Session(requests.Session):
    """Follows a redirect to another host, or from https, only where the connection to it is encrypted."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        if target is not None:
            here, to = urlsplit(resp.url), urlsplit(urljoin(resp.url, target))
            if to.scheme not in ("http", "https"):
                raise DownloadError(f"{resp.url}: leads to {to.geturl()}, which is no web address")
            if here.scheme == "https" and to.scheme != "https":
                raise DownloadError(f"{resp.url}: leads out of https, to {to.geturl()}")
            if to.scheme != "https" and to.hostname != here.hostname:
                raise DownloadError(f"{resp.url}: leads to {to.geturl()}, another host without https")
        return target


def fetch(
    address: str,
    target: Path,
    check: Callable[[Path], object],
    *,
    progress: bool = True,
    user_agent: str = USER_AGENT,
) -> None:
    """Download `address` to `target`, which appears only once it is whole and right.

    Until then the bytes lie in ``<target>.part``. A later call, also of another process, goes on from
    there if the server confirms that the file is still the same.

    Args:
        address: an http or https address.
        target: the file to write; its folder is made.
        check: looks at the downloaded file and raises `InputError` if it is not the right one; it is
            then downloaded once more from scratch.
        progress: show a progress bar, on a terminal only.
        user_agent: what the server is told of who asks.

    Raises:
        NotThereError: the server says that there is no such file.
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
                    continue
                part.replace(target)
                _discard(part)
                return
    except OSError as error:  # of the disk: what the network raises became a DownloadError below
        raise RunError(f"{part}: cannot be written ({error.strerror}); check disk and rights") from error


def _complete(address: str, part: Path, user_agent: str, label: str, progress: bool) -> None:
    """Repeat attempts until `part` is whole.

    Raises:
        DownloadError: too many attempts in a row brought the part no further than it had ever been.
    """
    fruitless, furthest = 0, _size(part)
    while True:
        try:
            _attempt(address, part, user_agent, label, progress)
            return
        except _BrokenOffError as error:
            fruitless = 0 if _size(part) > furthest else fruitless + 1
            furthest = max(furthest, _size(part))
            if fruitless == ATTEMPTS:
                raise DownloadError(f"{address}: {error}") from error
            pause = max(error.pause, FIRST_PAUSE_SECONDS * 2.0 ** max(fruitless - 1, 0))
            _logger.info("%s: %s; trying again", address, error)
            time.sleep(min(pause, LONGEST_PAUSE_SECONDS))


def _attempt(address: str, part: Path, user_agent: str, label: str, progress: bool) -> None:
    """Ask once for what `part` lacks, and append it."""
    # Stored sizes are those of the file itself only without transparent compression.
    headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
    validator, present = _validator(part), _size(part)
    if present and validator.exists():
        headers |= {"Range": f"bytes={present}-", "If-Range": validator.read_text()}
    try:
        with (
            _Session() as session,
            session.get(
                address, headers=headers, stream=True, timeout=(CONNECT_SECONDS, STALL_SECONDS)
            ) as response,
        ):
            start = _start(response, part, present)
            if start == 0:
                _remember_version(response, validator)
            _write(response, part, start, label, progress)
    except requests.TooManyRedirects as error:  # again and again, however often it is asked
        raise DownloadError(f"{address}: leads in a circle, or through too many other addresses") from error
    except requests.RequestException as error:
        raise _BrokenOffError(_reason(error)) from error


def _start(response: requests.Response, part: Path, present: int) -> int:
    """Say at which byte the answer starts: at the end of the part, or at 0 where the server restarts."""
    if response.status_code in _TRY_AGAIN:
        after = response.headers.get("Retry-After", "")
        pause = float(after) if after.isdecimal() else 0.0
        raise _BrokenOffError(f"HTTP {response.status_code} {response.reason}", pause)
    if response.status_code == 206:
        if response.headers.get("Content-Range", "").startswith(f"bytes {present}-"):
            return present
        _discard(part)
        raise _BrokenOffError("the server sent another range than was asked for")
    if response.status_code == 416:
        _discard(part)
        raise _BrokenOffError("the part is no shorter than the file")
    if response.status_code != 200:
        kind = NotThereError if response.status_code in (404, 410) else DownloadError
        raise kind(f"{response.url}: HTTP {response.status_code} {response.reason}")
    return 0


def _write(response: requests.Response, part: Path, start: int, label: str, progress: bool) -> None:
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isdecimal() else None
    bar = tqdm(
        desc=label, total=total, initial=start, unit="B", unit_scale=True, disable=None if progress else True
    )
    with bar, part.open("ab" if start else "wb") as file:
        for chunk in response.iter_content(_CHUNK_BYTES):
            file.write(chunk)
            bar.update(len(chunk))
    if total is not None and _size(part) < total:
        raise _BrokenOffError(f"broke off after {_size(part):,} of {total:,} bytes")


def _remember_version(response: requests.Response, validator: Path) -> None:
    """Keep what identifies this version of the file; If-Range takes no weak entity tag (RFC 9110)."""
    tag = response.headers.get("ETag", "")
    version = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
    if version:
        validator.write_text(version)
    else:
        validator.unlink(missing_ok=True)


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"no answer for {STALL_SECONDS:g} s"
    if isinstance(error, requests.ConnectionError):
        return "cannot connect, or the connection broke"
    return f"{type(error).__name__}: {error}"


def _validator(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _validator(part).unlink(missing_ok=True)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
