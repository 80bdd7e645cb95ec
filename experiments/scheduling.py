"""Running gramrun commands over the cores: one thread each, skipped where done, resumed where interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from gramrun import runs
from gramrun.config import RunConfig
from gramrun.config_loading import config_hash, load_config
from gramrun.data.shards import read_manifest
from gramrun.errors import GramrunError, RunError


@dataclass(frozen=True)
class Task:
    """One ``gramrun train`` or ``gramrun gram-error``.

    Attributes:
        command: ``train`` or ``gram-error``.
        config: the YAML file.
        overrides: ``--set`` settings.
        output: the run directory.
    """

    command: str
    config: Path
    overrides: tuple[str, ...]
    output: Path

    def arguments(self, *flags: str) -> list[str]:
        """The command line after ``gramrun``."""
        settings = [part for override in self.overrides for part in ("--set", override)]
        return [self.command, "--config", str(self.config), *settings, "--output", str(self.output), *flags]


def state_of(task: Task) -> str:
    """``done``, ``resume`` (same config and data, not finished), ``stale`` (other ones) or ``new``."""
    if not task.output.exists():
        return "new"
    try:
        run = runs.open_run(task.output)
        manifest = run.manifest
    except GramrunError:
        return "stale"
    wanted = load_config(RunConfig, task.config, task.overrides)
    data_hash = read_manifest(wanted.data.path)["content_hash"]
    if config_hash(run.config) != config_hash(wanted) or manifest["data_hash"] != data_hash:
        return "stale"
    return "done" if manifest["status"] == "finished" else "resume"


def run_all(tasks: Sequence[Task]) -> None:
    """Run every task that is not done, as many at once as there are cores; one line each as they finish.

    Raises:
        RunError: when a task fails; the others that are under way are finished first.
    """
    waiting = [task for task in tasks if state_of(task) != "done"]
    print(f"{len(tasks) - len(waiting)} of {len(tasks)} runs are done already", flush=True)
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        futures = {pool.submit(_run, task): task for task in waiting}
        try:
            for finished, future in enumerate(as_completed(futures), start=1):
                future.result()
                elapsed = time.monotonic() - started
                left = elapsed / finished * (len(waiting) - finished)
                print(
                    f"[{finished}/{len(waiting)}] {futures[future].output.name}: {elapsed:.0f} s so far, "
                    f"about {left:.0f} s left",
                    flush=True,
                )
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _run(task: Task) -> None:
    flags = {"new": [], "resume": ["--resume"], "stale": ["--force"]}[state_of(task)]
    gramrun(task.arguments(*flags), threads=1)


def gramrun(arguments: Sequence[str], *, threads: int | None = None, quiet: bool = True) -> None:
    """Run one gramrun command, on as many threads as it likes or as many as given; print nothing if `quiet`.

    Raises:
        RunError: when it fails, with its own message.
    """
    environment = dict(os.environ)
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(
        [sys.executable, "-m", "gramrun", *arguments],
        env=environment,
        capture_output=quiet,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = f": {done.stderr.strip()}" if quiet else ", see above"
        raise RunError(f"gramrun {' '.join(arguments)} failed ({done.returncode}){reason}")
