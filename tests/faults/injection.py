"""Runs gramrun's `main` in processes that a test can kill or starve, and compares the files they leave.

The processes are forked from one that has imported torch, so that each starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from helpers import leaves

from gramrun import __main__ as program
from gramrun.base.files import read_json
from gramrun.data import shards

PROCESSES = multiprocessing.get_context("forkserver")
PRELOADED = (
    "gramrun.cli",
    "gramrun.training.loop",
    "gramrun.training.gram_error",
    "gramrun.evaluation.baselines.run",
    "gramrun.data.preparation",
    "gramrun.runs.figures",
    "torch._dynamo",
    "injection",
)
PROCESSES.set_forkserver_preload(list(PRELOADED))

# Keys whose values depend on the clock, the command or the state of the checkout.
_VOLATILE = ("git_commit", "second", "started", "finished", "stopped", "command", "files", "checksum")


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def one_line(self) -> str:
        """The single line on stderr, without the program's name."""
        assert self.err.endswith("\n") and self.err.count("\n") == 1, self.err
        assert self.err.startswith("gramrun: ")
        return self.err.removeprefix("gramrun: ").rstrip()


class Command:
    """A gramrun command in a process of its own.

    Args:
        folder: where it runs.
        arguments: its command line.
        before: called in its process before it starts.
    """

    def __init__(self, folder: Path, *arguments: object, before: Callable[[], None] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Pipes work where no file can be written.
        pipes = [PROCESSES.Pipe(duplex=False) for _ in range(3)]
        begun, *self.outputs = (here for here, _ in pipes)
        line = [str(argument) for argument in arguments]
        target = (folder, line, [there for _, there in pipes], before)
        self.process = PROCESSES.Process(target=_run, args=target)
        self.process.start()
        for _, there in pipes:
            there.close()
        begun.recv()
        begun.close()

    @property
    def number(self) -> int:
        """The process id."""
        return self.process.pid

    def running(self) -> bool:
        """Whether the process still runs."""
        return self.process.is_alive()

    def end(self) -> Outcome:
        """Wait for the end."""
        self.process.join(120)
        assert self.process.exitcode is not None, "it hangs"
        texts = [_drained(output) for output in self.outputs]
        return Outcome(self.process.exitcode, *texts)

    def kill(self, signal_number: int = signal.SIGKILL) -> bool:
        """Send a signal and wait; return whether the signal ended the process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal_number)
        return self.end().code == -signal_number

    def wait_for(self, happened: Callable[[], object]) -> None:
        """Poll until `happened()`; fail if the process ends first."""
        while not happened():
            assert self.running(), self.end()
            time.sleep(0.002)


def _drained(output: Connection) -> str:
    """All that an ended process wrote to a pipe."""
    with open(os.dup(output.fileno()), "rb") as file:
        return file.read().decode()


def _run(
    folder: Path, arguments: list[str], pipes: list[Connection], before: Callable[[], None] | None
) -> None:
    os.chdir(folder)
    begun, *outputs = pipes
    for descriptor, output in zip((1, 2), outputs, strict=True):
        os.dup2(output.fileno(), descriptor)
        output.close()
    # The fork server's stream objects belong to other files.
    sys.stdout, sys.stderr = (open(descriptor, "w", closefd=False) for descriptor in (1, 2))  # noqa: SIM115
    os.environ.pop("GRAMRUN_RAW", None)
    torch.set_num_threads(1)
    if before:
        before()
    sys.argv = ["gramrun", *arguments]
    begun.send(None)
    program.main()


def gramrun(folder: Path, *arguments: object, before: Callable[[], None] | None = None) -> Outcome:
    """Run a command to its end."""
    return Command(folder, *arguments, before=before).end()


def succeed(folder: Path, *arguments: object) -> None:
    """Run a command that must succeed."""
    outcome = gramrun(folder, *arguments)
    assert outcome.code == 0, outcome.err


def results(folder: Path) -> dict[str, Any]:
    """The content of every file of a folder by its path, without volatile values."""
    return {
        str(file.relative_to(folder)): _content(file) for file in sorted(folder.rglob("*")) if file.is_file()
    }


def assert_same(folder: Path, straight: dict[str, Any]) -> None:
    """Check that a folder equals the results of an undisturbed command; extra files fail."""
    found = results(folder)
    assert found.keys() == straight.keys(), found.keys() ^ straight.keys()
    different = {name: (found[name], straight[name]) for name in straight if found[name] != straight[name]}
    assert not different, different


def _stable(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {k: _stable(v) for k, v in value.items() if not any(word in k for word in _VOLATILE)}


def _content(file: Path) -> Any:
    match file.suffix:
        case ".json":
            return _stable(json.loads(file.read_text()))
        case ".jsonl":
            return [_stable(json.loads(line)) for line in file.read_text().splitlines()]
        case ".csv":
            with file.open() as rows:
                return [_stable(row) for row in csv.DictReader(rows)]
        case ".pt":
            return dict(leaves(torch.load(file, weights_only=True)))
        case _:
            return file.read_bytes()


def assert_whole(folder: Path) -> None:
    """Check that every file with a final name can be read."""
    for file in folder.rglob("*"):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue  # unfinished
        if file.name == shards.MANIFEST and (file.parent / "pairs").exists():
            shards.open_corpus(file.parent)
        elif file.suffix == ".json":
            read_json(file)
        elif file.suffix == ".pt":
            torch.load(file, weights_only=True)
