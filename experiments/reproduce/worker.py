"""Run ``python -m MODULE`` in a process forked from a server that has imported PyTorch and numba.

Most runs of `make reproduce` take seconds, and importing takes as long. The server itself computes nothing,
so each run starts from clean memory.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection
from pathlib import Path

import torch

# Other systems have no reliable fork: there each process imports for itself.
_PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
if sys.platform == "linux":
    _PROCESSES.set_forkserver_preload(
        [
            "gramrun.cli.training",
            "gramrun.training.loop",
            "gramrun.training.gram_error",
            "gramrun.evaluation.baselines.run",
            "torch._dynamo",  # torch.optim imports it when it is called
            "experiments.reproduce.pipeline",  # multiprocessing imports its parent's main module in children
        ]
    )
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_LOCK = threading.Lock()  # guards the environment and the polling of processes
_RUNNING: set[int] = set()  # the numbers of the processes at work


def run_module(module: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Run a module as the main program on one thread, in this folder and environment, without output.

    Several threads may call this at once.

    Returns:
        The exit code, negative where a signal ended it, and its standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder) / "stderr"
        with _LOCK:
            environment = {**os.environ, **_ONE_THREAD}
            target = (module, list(arguments), Path.cwd(), environment, errors)
            process = _PROCESSES.Process(target=_run, args=target)
            with _one_thread():
                process.start()
            assert process.pid is not None  # it has been started
            _RUNNING.add(process.pid)
        connection.wait([process.sentinel])
        # `start` polls all other processes, and the server reports each end only once.
        with _LOCK:
            _RUNNING.remove(process.pid)
            process.join()
        written = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    assert process.exitcode is not None  # it has been joined
    return process.exitcode, written


def terminate_all() -> None:
    """Ask every process at work to save its state and end; Ctrl-C reaches them without it."""
    for number in tuple(_RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Set one thread while the server starts: libraries read the number of threads when they are loaded."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ.update(_ONE_THREAD)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _run(
    module: str, arguments: list[str], folder: Path, environment: Mapping[str, str], errors: Path
) -> None:
    """Run in the new process, which starts with the server's folder and environment."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(silence, stream)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    searched = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys([str(folder), *filter(None, searched), *sys.path])
    torch.set_num_threads(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
