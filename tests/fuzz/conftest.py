"""The readers' slow twins on the path, and a fixture that measures the memory of `gramrun prepare`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
sys.path += [str(DATA), str(DATA / "wikipedia")]

# The peak memory of a forked child starts at its parent's, so a small process starts the command.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
open(sys.argv[1], "w").write(f"{process.returncode} {usage.ru_maxrss}")
"""


@pytest.fixture
def peak_of_prepare(tmp_path):
    """Run `gramrun prepare`, which must refuse in one line: its peak memory in bytes, and the line."""

    def run(corpus: str, source: Path, *settings: str, seconds: float = 120) -> tuple[int, str]:
        (tmp_path / "work").mkdir(exist_ok=True)
        command = [sys.executable, "-m", "gramrun", "prepare", corpus]
        command += ["--source", str(source), "--output", "out"]
        command += [part for setting in settings for part in ("--set", setting)]
        result = tmp_path / "result"
        done = subprocess.run(
            [sys.executable, "-S", "-c", MEASURE, str(result), *command],
            cwd=tmp_path / "work",
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stderr=subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=True,
        )
        code, kilobytes = map(int, result.read_text().split())
        lines = done.stderr.strip().splitlines()
        assert code == 2, lines
        assert len([line for line in lines if not line.startswith("WARNING")]) == 1, lines
        assert not any((tmp_path / "work").iterdir())
        return kilobytes << 10, lines[-1]

    return run
