"""``python -m MODULE`` in a process that has imported already what takes a run seconds to import.

Most runs of `make reproduce` take seconds, and Python, PyTorch and numba take as many to start. Here each
process is forked from a server that has imported them once and computes nothing, so that none finds in its
memory what another left there.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# Elsewhere there is no fork, or none that the system's libraries stand: each process imports for itself.
_PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
_IMPORTED = [
    "gramrun.cli.training",
    "gramrun.fitting",
    "gramrun.gram_error",
    "gramrun.baseline",
    "torch._dynamo",  # which torch.optim imports when it is called
    "experiments.dry_run",  # and all that experiments.reproduce imports, since multiprocessing
    "experiments.section_files",  # executes its parent's main module in every child
]
if sys.platform == "linux":
    _PROCESSES.set_forkserver_preload(_IMPORTED)
_STARTING = threading.Lock()


def run_module(module: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Run a module as the main program, on one thread, in this folder and environment; print nothing.

    Returns:
        The exit code, negative where a signal ended it, and what it wrote to standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder) / "stderr"
        target = (module, list(arguments), Path.cwd(), {**os.environ, **_ONE_THREAD}, errors)
        process = _PROCESSES.Process(target=_run, args=target)
        _start(process)
        process.join()
        said = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    return process.exitcode or 0, said


_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def _start(process: multiprocessing.process.BaseProcess) -> None:
    """Start it; libraries that count their threads when they are loaded, here or in the server, have one."""
    with _STARTING:
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ.update(_ONE_THREAD)
        try:
            process.start()
        finally:
            del os.environ["OMP_NUM_THREADS"]
            if before is not None:
                os.environ["OMP_NUM_THREADS"] = before


def _run(
    module: str, arguments: list[str], folder: Path, environment: Mapping[str, str], errors: Path
) -> None:
    """What the new process does, which comes with the server's folder and environment."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(silence, stream)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    searched = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys([str(folder), *filter(None, searched), *sys.path])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
