"""What several tests of the data need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_server import Server

from gramrun.data import download


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Run a server, reach it without a proxy, and do not wait between attempts."""
    monkeypatch.setattr(download, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Server()
    yield running
    running.close()


@pytest.fixture
def wiki_fixtures() -> Path:
    """Give the folder of real dumps, which lies beside that of the raw files."""
    raw = os.environ.get("GRAMRUN_RAW")
    folder = Path(raw).parent / "wiki-fixtures" if raw else None
    if folder is None or not folder.is_dir():
        pytest.skip("no folder wiki-fixtures beside the one that GRAMRUN_RAW names")
    return folder
