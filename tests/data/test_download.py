"""Downloads that break off, stall, restart, or bring the wrong file."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from local_server import CONTENT, SENT, Answer, Server, busy, not_found, rest, send, stalled, truncated, whole

from gramrun.base.errors import InputError, RunError
from gramrun.base.locks import locked
from gramrun.data import download
from gramrun.data.download import DownloadError, fetch


def is_content(file: Path) -> None:
    if file.read_bytes() != CONTENT:
        raise InputError(f"{file}: is not the content")


def fetch_content(server: Server, folder: Path) -> Path:
    target = folder / "new" / "file.bin"
    fetch(f"{server.address}file.bin", target, is_content)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target], "nothing else is left"
    return target


OTHER_RANGE = {"Content_Range": f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}"}
BREAKS = {
    # The answers in order, and the first byte that each request asks for.
    "none": ([whole()], [0]),
    "truncated": ([truncated(), rest()], [0, SENT]),
    "stalled": ([stalled, rest()], [0, SENT]),
    "another version, or no ranges": ([truncated(bytes(len(CONTENT))), whole(tag='"2"')], [0, SENT]),
    "only a weak validator": ([truncated(tag='W/"1"'), whole()], [0, 0]),
    "the part is too long": ([truncated(), lambda request: send(request, 416, b""), whole()], [0, SENT, 0]),
    "another range": (
        [truncated(), lambda request: send(request, 206, CONTENT[5:], **OTHER_RANGE), whole()],
        [0, SENT, 0],
    ),
    "busy": ([busy, busy, whole()], [0, 0, 0]),
    "moved": ([lambda request: send(request, 302, b"", Location="/moved"), whole()], [0, 0]),
}


@pytest.mark.parametrize("name", BREAKS)
def test_completes_a_download(
    name: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "STALL_SECONDS", 0.2)
    answers, starts = BREAKS[name]
    server.answers = list(answers)
    fetch_content(server, tmp_path)
    assert server.ranges() == [f"bytes={start}-" if start else None for start in starts]
    for (_, headers), start in zip(server.requests, starts, strict=True):
        assert headers["User-Agent"].startswith("gramrun ")
        assert headers.get("If-Range") == ('"1"' if start else None)


def test_resumes_what_another_process_left(server: Server, tmp_path: Path) -> None:
    server.answers = [truncated(), not_found]
    with pytest.raises(DownloadError):
        fetch_content(server, tmp_path)
    server.answers = [rest()]
    fetch_content(server, tmp_path)
    assert server.ranges()[-1] == f"bytes={SENT}-"


def test_a_whole_part_that_was_not_checked_yet_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    def stopped(_: Path) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "new" / "file.bin"
    server.answers = [
        whole(),
        lambda request: send(request, 416, b"", Content_Range=f"bytes */{len(CONTENT)}"),
    ]
    with pytest.raises(KeyboardInterrupt):
        fetch(f"{server.address}file.bin", target, stopped)
    fetch_content(server, tmp_path)
    assert server.ranges() == [None, f"bytes={len(CONTENT)}-"]


def test_waits_as_long_as_the_server_asks(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    server.answers = [lambda request: send(request, 503, b"", Retry_After="7"), whole()]
    fetch_content(server, tmp_path)
    assert pauses == [7.0]


@pytest.mark.parametrize(("answer", "reason"), [(busy, "HTTP 503"), (not_found, "HTTP 404")])
def test_gives_up_on_a_busy_server_and_at_once_on_a_missing_file(
    answer: Answer, reason: str, server: Server, tmp_path: Path
) -> None:
    server.answers = [answer]
    with pytest.raises(DownloadError, match=reason):
        fetch_content(server, tmp_path)
    assert len(server.requests) == (download.ATTEMPTS if answer is busy else 1)


def test_wrong_content_is_tried_once_more_and_never_kept(server: Server, tmp_path: Path) -> None:
    server.answers = [whole(b"wrong"), whole()]
    fetch_content(server, tmp_path)
    server.answers = [whole(b"wrong")]
    with pytest.raises(DownloadError, match="gives a wrong file"):
        fetch(f"{server.address}again", tmp_path / "again", is_content)
    assert not list(tmp_path.glob("again*"))


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/file", "file:///etc/passwd"])
def test_follows_no_redirect_to_another_scheme(server: Server, tmp_path: Path, target: str) -> None:
    server.answers = [lambda request: send(request, 302, b"", Location=target)]
    with pytest.raises(DownloadError, match="cannot be followed"):
        fetch(f"{server.address}file", tmp_path / "file", is_content)
    assert len(server.requests) == 1
    assert not any(tmp_path.iterdir())


def test_follows_no_redirect_out_of_https() -> None:
    """Also on the same host: what comes then may be anybody's."""
    answer = requests.Response()
    answer.status_code, answer.url = 302, "https://example.org/file"
    for target, allowed in (
        ("http://example.org/file", False),
        ("https://other.org/file", True),
        ("/other", True),
        ("//other.org/file", True),
    ):
        answer.headers["Location"] = target
        if allowed:
            assert download._Session().get_redirect_target(answer) == target
        else:
            with pytest.raises(DownloadError, match="leads out of https, to http://example.org/file"):
                download._Session().get_redirect_target(answer)


def test_one_download_of_a_file_at_a_time(server: Server, tmp_path: Path) -> None:
    """Two would write one part."""
    server.answers = [whole()]
    with locked(tmp_path / "file"), pytest.raises(InputError, match="is being written by process"):
        fetch(f"{server.address}file", tmp_path / "file", is_content)
    assert not server.requests
    fetch(f"{server.address}file", tmp_path / "file", is_content)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_unreachable_server_and_unwritable_folder(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="cannot connect"):
        fetch("http://127.0.0.1:1/file", tmp_path / "file", is_content)
    (tmp_path / "file").write_text("")
    (tmp_path / "full.part").symlink_to("/dev/full")  # every write fails as on a full disk
    server.answers = [whole()]
    for target in (tmp_path / "file" / "below", tmp_path / "full"):
        with pytest.raises(RunError, match="cannot be written") as caught:
            fetch(f"{server.address}file", target, is_content)
        assert not isinstance(caught.value, DownloadError), "another server would not help"
