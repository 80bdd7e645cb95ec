"""Dumps from a server that is complete, unfinished, broken, busy, wrong or gone."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from local_server import SENT, Server, rest, send, truncated, whole

from gramrun.base.capacity import size_text
from gramrun.base.errors import InputError, RunError
from gramrun.data.download import DownloadError
from gramrun.data.wikipedia.dump_download import fetch_tables, locate_wikipedia
from gramrun.data.wikipedia.dump_files import (
    TABLES,
    DumpFiles,
    find_tables,
    parse_status,
    verify,
)

NEW, OLD = "20260101", "20251201"
HTML = b"<!DOCTYPE html><html><body>Please log in to the network</body></html>"


def sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def content(date: str, table: str) -> bytes:
    return f"{date} {table} ".encode() * 6000


def name_of(date: str, table: str) -> str:
    return f"simplewiki-{date}-{table}.sql.gz"


def path_of(date: str, table: str) -> str:
    return f"/simplewiki/{date}/{name_of(date, table)}"


def status_of(date: str, tables: tuple[str, ...] = TABLES, **others: str) -> dict[str, Any]:
    """A dumpstatus.json in which all jobs are done but `others`."""
    jobs: dict[str, Any] = {"metacurrentdump": {"status": "waiting", "updated": ""}}
    for table in tables:
        data, name = content(date, table), name_of(date, table)
        facts = {"size": len(data), "url": path_of(date, table), "sha1": sha1(data), "md5": "0" * 32}
        job = {"status": "done", "updated": "2026-01-02 03:04:05", "files": {name: facts}}
        if table in others:
            job = {"status": others[table], "updated": ""}
        jobs[f"{table.replace('_', '')}table"] = job
    return {"version": "0.8", "jobs": jobs}


def publish(
    server: Server, date: str, status: dict[str, Any] | None, tables: tuple[str, ...] = TABLES
) -> None:
    if status is not None:
        server.routes[f"/simplewiki/{date}/dumpstatus.json"] = [whole(json.dumps(status).encode())]
    for table in tables:
        server.routes[path_of(date, table)] = [whole(content(date, table))]


@pytest.fixture
def site(server: Server) -> Server:
    """Serve two complete dumps."""
    links = "".join(f'<a href="{date}/">{date}/</a>  02-Jan-2026\n' for date in (OLD, NEW))
    index = f'<html><pre><a href="../">../</a>\n{links}<a href="latest/">latest/</a></pre></html>'
    server.routes["/simplewiki/"] = [whole(index.encode())]
    for date in (OLD, NEW):
        publish(server, date, status_of(date))
    return server


def fetched(site: Server, folder: Path, date: str | None = None, **options: Any) -> DumpFiles:
    """Fetch, and hold every file against what was served."""
    found = fetch_tables(
        "simplewiki",
        date,
        folder,
        server=site.address,
        contact=options.pop("contact", "me@example.org"),
        **options,
    )
    place = folder / "simplewiki" / found.date
    assert found.origin == str(place)
    for table, file in found.tables.items():
        assert file == place / name_of(found.date, table)
        assert file.read_bytes() == content(found.date, table)
    assert not list(place.glob("*.part*"))
    return found


def paths(site: Server) -> list[str]:
    return [path for path, _ in site.requests]


def asked(site: Server, table: str, date: str = NEW) -> list[dict[str, str]]:
    return [headers for path, headers in site.requests if path == path_of(date, table)]


# Which dump


def test_fetches_all_tables_of_the_newest_dump(site: Server, tmp_path: Path) -> None:
    found = fetched(site, tmp_path)
    assert (found.wiki, found.date, tuple(found.tables)) == ("simplewiki", NEW, TABLES)
    assert found.verified
    assert paths(site)[:2] == ["/simplewiki/", f"/simplewiki/{NEW}/dumpstatus.json"]
    assert Counter(paths(site)).most_common(1)[0][1] == 1, "nothing is asked for twice"
    assert site.most_open == 1, "one connection at a time"
    again = find_tables(tmp_path, "simplewiki")
    assert again.tables == found.tables
    assert verify(again) == found


@pytest.mark.parametrize("status", ["waiting", "failed", None])
def test_passes_by_a_dump_that_is_not_complete(status: str | None, site: Server, tmp_path: Path) -> None:
    if status is None:
        del site.routes[f"/simplewiki/{NEW}/dumpstatus.json"]
    else:
        publish(site, NEW, status_of(NEW, page_props=status))
    assert fetched(site, tmp_path).date == OLD
    assert not (tmp_path / "simplewiki" / NEW).exists()


def test_takes_the_date_asked_for(site: Server, tmp_path: Path) -> None:
    assert fetched(site, tmp_path, OLD).date == OLD
    assert "/simplewiki/" not in paths(site)
    with pytest.raises(DownloadError, match=r"20240101 has no dumpstatus\.json\); choose a date"):
        fetched(site, tmp_path, "20240101")
    publish(site, NEW, status_of(NEW, page="in-progress"))
    with pytest.raises(DownloadError, match=rf"\({NEW}: page is in-progress\)"):
        fetched(site, tmp_path, NEW)
    for date in ("latest", "../../etc"):
        with pytest.raises(InputError, match="is no date of a dump"):
            fetched(site, tmp_path, date)


def test_a_dump_older_than_a_table_is_whole_without_it(site: Server, tmp_path: Path) -> None:
    older = ("page", "pagelinks", "categorylinks", "redirect", "page_props")
    publish(site, NEW, status_of(NEW, older))
    found = fetched(site, tmp_path)
    assert found.verified
    assert tuple(found.tables) == older


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"jobs": {"pagetable": {}}}',
        b'{"jobs": {"pagetable": {"status": "done", "files": {"frwiki-20260101-page.sql.gz": {}}}}}',
    ],
)
def test_refuses_what_only_looks_like_a_status(text: bytes) -> None:
    with pytest.raises(InputError, match=r"it is no dumpstatus\.json of simplewiki 20260101"):
        parse_status(text, "simplewiki", NEW)


# Checksums


def test_without_a_published_checksum_nothing_is_verified(site: Server, tmp_path: Path) -> None:
    status = status_of(NEW)
    for job in status["jobs"].values():
        for facts in job.get("files", {}).values():
            facts["sha1"] = None
            del facts["size"]
    publish(site, NEW, status)
    found = fetched(site, tmp_path)
    assert not found.verified
    assert found.note.startswith("no published checksum for simplewiki-20260101-page.sql.gz, simplewiki-")


def test_takes_the_checksums_beside_tables_on_the_disk(tmp_path: Path) -> None:
    by_hand(tmp_path)
    lines = [f"{sha1(content(NEW, table))}  {name_of(NEW, table)}\n" for table in TABLES]
    (tmp_path / f"simplewiki-{NEW}-sha1sums.txt").write_text("".join(lines))
    assert verify(find_tables(tmp_path)).verified
    (tmp_path / name_of(NEW, "page")).write_bytes(b"other")
    with pytest.raises(InputError, match="page.sql.gz: sha1 is"):
        verify(find_tables(tmp_path))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [(content(NEW, "redirect")[:-1] + b"x", "sha1 is"), (HTML, f"has {len(HTML)} bytes, not")],
    ids=["one byte", "html"],
)
def test_a_file_that_is_wrong_twice_is_not_kept(
    wrong: bytes, reason: str, site: Server, tmp_path: Path
) -> None:
    site.routes[path_of(NEW, "redirect")] = [whole(wrong)]
    with pytest.raises(DownloadError, match=rf"redirect\.sql\.gz: gives a wrong file \(.*{reason}"):
        fetched(site, tmp_path)
    left = {file.name for file in (tmp_path / "simplewiki" / NEW).iterdir()}
    before = ("page", "pagelinks", "linktarget", "categorylinks")
    assert left == {"dumpstatus.json", *(name_of(NEW, table) for table in before)}
    site.routes[path_of(NEW, "redirect")] = [whole(content(NEW, "redirect"))]
    assert fetched(site, tmp_path).verified
    assert len(asked(site, "page")) == 1, "what is there and right is not fetched again"


def test_what_is_there_is_only_checked(site: Server, tmp_path: Path) -> None:
    found = fetched(site, tmp_path)
    found.tables["pagelinks"].write_bytes(b"damaged since")
    site.requests.clear()
    assert fetched(site, tmp_path) == found
    assert [path for path in paths(site) if path.endswith(".gz")] == [path_of(NEW, "pagelinks")]


# Connections


def test_completes_a_begun_download_rather_than_a_newer_dump(site: Server, tmp_path: Path) -> None:
    data = content(OLD, "pagelinks")
    site.routes[path_of(OLD, "pagelinks")] = [truncated(data), lambda request: send(request, 403, b"")]
    with pytest.raises(DownloadError, match=r"pagelinks\.sql\.gz: HTTP 403"):
        fetched(site, tmp_path, OLD)
    site.routes[path_of(OLD, "pagelinks")] = [rest(data)]
    assert fetched(site, tmp_path).date == OLD
    assert asked(site, "pagelinks", OLD)[-1]["Range"] == f"bytes={SENT}-"
    assert len(asked(site, "page", OLD)) == 1
    assert fetched(site, tmp_path).date == NEW, "once it is complete, the newest one is"


@pytest.mark.parametrize(
    ("contact", "agent"),
    [
        ("me@example.org", r"gramrun\S* \(me@example\.org; arXiv:1807\.07187\) requests/\d\S*"),
        (None, r"gramrun\S* \(reproduction of arXiv:1807\.07187\) requests/\d\S*"),
    ],
)
def test_says_who_asks(
    contact: str | None, agent: str, site: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fetched(site, tmp_path, contact=contact)
    (found,) = {headers["User-Agent"] for _, headers in site.requests}
    assert re.fullmatch(agent, found)
    assert ("--set dump.contact=you@example.org" in caplog.text) == (contact is None)
    with pytest.raises(InputError, match="dump.contact="):
        fetched(site, tmp_path, contact="a\r\nHost: b")


# The disk


def test_refuses_to_begin_what_the_disk_cannot_hold(
    site: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(len(content(NEW, table)) for table in TABLES)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1000))
    sizes = rf"need {size_text(needed)} of disk, {size_text(needed - 1000)} are available .*; make room"
    with pytest.raises(InputError, match=sizes):
        fetched(site, tmp_path)
    assert not list(tmp_path.iterdir())
    part = tmp_path / "simplewiki" / NEW / f"{name_of(NEW, 'page')}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content(NEW, "page")[:1000])
    assert fetched(site, tmp_path).verified, "what is there already needs no room"


# Where a dump is looked for


def locate(site: Server, downloads: Path, *raw: Path, **options: Any) -> DumpFiles:
    options = {"source": None, "server": site.address, "contact": "me@example.org", **options}
    source = options.pop("source")
    return locate_wikipedia("wikipedia-simple", source, [*raw, downloads], downloads, **options)


def by_hand(folder: Path, date: str = NEW, tables: tuple[str, ...] = TABLES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        (folder / name_of(date, table)).write_bytes(content(date, table))
    return folder


def test_downloads_what_is_nowhere_and_finds_it_again(site: Server, tmp_path: Path) -> None:
    found = locate(site, tmp_path / "downloads", tmp_path / "raw")
    assert found.verified
    site.requests.clear()
    assert locate(site, tmp_path / "downloads", tmp_path / "raw") == found
    assert not site.requests
    assert locate(site, tmp_path / "downloads", date=OLD).date == OLD


def test_takes_what_lies_on_the_disk(site: Server, tmp_path: Path) -> None:
    raw = by_hand(tmp_path / "raw")
    found = locate(site, tmp_path / "downloads", raw)
    assert (found.origin, found.verified) == (str(raw), False)
    assert found.note == "no dumpstatus.json and no sha1sums.txt lie beside the tables"
    (raw / "dumpstatus.json").write_text(json.dumps(status_of(NEW)))
    assert locate(site, tmp_path / "downloads", source=raw).verified
    (raw / name_of(NEW, "page_props")).write_bytes(b"other")
    for places in ({"source": raw}, {}):
        with pytest.raises(InputError, match=r"page_props\.sql\.gz: has 5 bytes, not"):
            locate(site, tmp_path / "downloads", raw, **places)
    (raw / name_of(NEW, "page_props")).unlink()
    assert locate(site, tmp_path / "downloads", raw).note.endswith(
        "page_props.sql.gz was published and is not there"
    )
    assert locate(site, tmp_path / "downloads", raw, tables=TABLES[:-1]).verified
    (raw / "dumpstatus.json").write_bytes(HTML)
    assert "dumpstatus.json: it is no dumpstatus.json of" in locate(site, tmp_path / "downloads", raw).note
    assert not site.requests


def test_an_unfinished_download_is_not_taken_for_a_dump(site: Server, tmp_path: Path) -> None:
    site.routes[path_of(NEW, "page_props")] = [lambda request: send(request, 403, b"")]
    with pytest.raises(
        RunError, match=r"^wikipedia-simple: not found in 2 places: .*page_props\.sql\.gz: HTTP 403"
    ):
        locate(site, tmp_path)
    with pytest.raises(
        RunError, match=r"not finished \(.*page_props\.sql\.gz was published and is not there"
    ):
        locate(site, tmp_path)
    publish(site, NEW, status_of(NEW))
    assert locate(site, tmp_path).verified
