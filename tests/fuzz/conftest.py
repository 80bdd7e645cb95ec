"""The slow twins of the readers live beside the readers' own tests."""

import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
sys.path += [str(DATA), str(DATA / "wikipedia")]
import os
import subprocess

import pytest


@pytest.fixture
def peak_of_prepare(tmp_path):
    """Run `gramrun prepare` on its own: the most memory that it held in bytes, and the line it ended with.

    It must refuse within two minutes, with one line, and leave nothing.
    """

    def run(corpus: str, source: Path, *settings: str, seconds: float = 120) -> tuple[int, str]:
        (tmp_path / "work").mkdir(exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "gramrun",
            "prepare",
            corpus,
            "--source",
            str(source),
            "--output",
            "out",
        ]
        command += [part for setting in settings for part in ("--set", setting)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with open(tmp_path / "stderr", "wb") as errors:
            process = subprocess.Popen(
                command, cwd=tmp_path / "work", env=environment, stdout=subprocess.DEVNULL, stderr=errors
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        lines = (tmp_path / "stderr").read_text().strip().splitlines()
        assert process.returncode == 2, lines
        assert len([line for line in lines if not line.startswith("WARNING")]) == 1, lines
        assert not any((tmp_path / "work").iterdir())
        return usage.ru_maxrss << 10, lines[-1]

    return run
