"""What several tests of the data need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session")  # before the fixture `gramrun` unsets GRAMRUN_RAW
def raw_file() -> Callable[..., Path]:
    """Give the first of some official files that is in the folder of raw files."""
    folder = Path(os.environ.get("GRAMRUN_RAW", "GRAMRUN_RAW is unset"))

    def find(*names: str) -> Path:
        for name in names:
            if (folder / name).is_file():
                return folder / name
        pytest.skip(f"needs the official file {folder / names[0]}")

    return find


@pytest.fixture(scope="session")
def wiki_fixtures() -> Path:
    """Give the folder of real dumps, which lies beside that of the raw files."""
    raw = os.environ.get("GRAMRUN_RAW")
    folder = Path(raw).parent / "wiki-fixtures" if raw else None
    if folder is None or not folder.is_dir():
        pytest.skip("no folder wiki-fixtures beside the one that GRAMRUN_RAW names")
    return folder
