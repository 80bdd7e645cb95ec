"""What several tests of the data need."""

from __future__ import annotations

from collections.abc import Iterator

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
