"""The tutorial, typed word for word on the real MovieLens 100K: it prints what the page shows, and draws its figures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pages
import pytest

RAW = os.environ.get("GRAMRUN_RAW")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# Another processor rounds otherwise, and a thousand steps make that visible: in the third digit, not in the second.
TOLERANCE = 0.03

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not RAW or not Path(RAW, "ml-100k.zip").exists(), reason="needs ml-100k.zip in GRAMRUN_RAW"
    ),
]


def told_apart(line: str) -> tuple[str, list[float]]:
    """A line without its numbers, and these."""
    numbers = [float(text.replace(",", "")) for text in NUMBER.findall(line)]
    return " ".join(NUMBER.sub("#", line).split()), numbers


def test_it_prints_what_the_page_shows(tmp_path):
    program = tmp_path / "bin" / "gramrun"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gramrun "$@"\n')
    program.chmod(0o755)
    (tmp_path / "configs").symlink_to(pages.ROOT / "configs")
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(pages.ROOT),
        "OMP_NUM_THREADS": "1",
    }
    ran = 0
    for block, shown in pairwise(pages.blocks("docs/tutorial.md")):
        if block.language != "sh":
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", block.text], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stderr}"
        assert shown.language == "text", "what it prints stands below each block of commands"
        printed, expected = done.stdout.splitlines(), shown.text.splitlines()
        assert len(printed) == len(expected), f"{block.page}:{block.line}\n{done.stdout}"
        for line, wanted in zip(printed, expected, strict=True):
            words, numbers = told_apart(line)
            wanted_words, wanted_numbers = told_apart(wanted)
            assert words == wanted_words, f"{block.page}:{block.line}"
            assert numbers == pytest.approx(wanted_numbers, rel=TOLERANCE), line
        ran += 1
    assert ran >= 6
    for name in ("map.png", "gram-error.png"):
        assert (tmp_path / "runs" / name).read_bytes().startswith(b"\x89PNG")
