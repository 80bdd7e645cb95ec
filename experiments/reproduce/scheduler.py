"""Running gramrun and scripts over the cores: one thread each, skipped where done, resumed where interrupted.

Runs of these sizes are faster side by side on one thread each than one after another on all cores; and a run
that goes on with another number of threads would not have the same bits.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tqdm import tqdm

from experiments.reproduce.forecast import Forecast, together
from experiments.reproduce.jobs import Job, Script, Task, remember_failure, state_of
from experiments.reproduce.worker import run_module
from gramrun.base.capacity import time_text
from gramrun.base.errors import RunError
from gramrun.base.files import write_json
from gramrun.base.provenance import provenance

_REFRESH = 5  # seconds between two looks at the clock
_FLAGS = {"new": [], "resume": ["--resume"], "failed": ["--resume"], "stale": ["--force"]}


class RunsFailed(RunError):
    """Some runs failed; all others were run.

    Attributes:
        failures: what each said.
    """

    def __init__(self, failures: Mapping[Job, str]) -> None:
        """The message is the first one's."""
        more = f" (and {len(failures) - 1} more failed)" if len(failures) > 1 else ""
        super().__init__(next(iter(failures.values())) + more)
        self.failures = dict(failures)


def run_all(tasks: Sequence[Job]) -> None:
    """Run every task that is not done, the longest first, as many at once as there are cores.

    A bar, or a line a run where there is no terminal, says what is done and how long the rest will take.
    What fails is told at once, and the others go on.

    Raises:
        RunsFailed: at the end, when tasks have failed.
    """
    states = {task: state_of(task) for task in tasks}
    waiting = [task for task, state in states.items() if state != "done"]
    print(f"{len(states) - len(waiting)} of {len(states)} runs are done already", flush=True)
    forecast = Forecast(states)
    # The longest first, so that no core idles at the end; what is not known may be the longest.
    waiting.sort(key=lambda task: -(forecast.seconds(task) or math.inf))
    cores = os.cpu_count() or 1
    began: dict[Job, float] = {}
    failures: dict[Job, str] = {}

    def run(task: Job) -> None:
        began[task] = time.monotonic()
        if isinstance(task, Task):
            make_run(task, *_FLAGS[states[task]])
        else:
            run_script(task)

    with ThreadPoolExecutor(cores) as pool, tqdm(total=len(waiting), unit="run", disable=None) as bar:
        futures = {pool.submit(run, task): task for task in waiting}
        pending: set[Future[None]] = set(futures)
        try:
            while pending:
                done, pending = wait(pending, _REFRESH, FIRST_COMPLETED)
                for future in done:
                    task = futures[future]
                    try:
                        future.result()
                    except RunError as error:
                        failures[task] = str(error)
                        remember_failure(task, str(error))
                        tqdm.write(f"FAILED, and the others go on: {error}", file=sys.stderr)
                    else:
                        forecast.learn(task)
                left = _time_left([t for f, t in futures.items() if f in pending], began, forecast, cores)
                bar.set_postfix_str(left)
                bar.update(len(done))
                if bar.disable and done:
                    names = ", ".join(_told(futures[future], failures) for future in done)
                    count = f"[{len(waiting) - len(pending)}/{len(waiting)}]"
                    print(f"{count} {names}; {left}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise RunsFailed(failures)


def _told(task: Job, failures: Mapping[Job, str]) -> str:
    return "/".join(task.output.parts[-2:]) + (" failed" if task in failures else "")


def _time_left(tasks: Sequence[Job], began: Mapping[Job, float], forecast: Forecast, cores: int) -> str:
    """In words, for tasks that have begun or will, in this order; unknown ones count as the others' mean."""
    forecasts = [forecast.seconds(task) for task in tasks]
    known = [seconds for seconds in forecasts if seconds is not None]
    if tasks and not known:
        return "time left not known yet"
    now = time.monotonic()
    left = [
        max(0.0, (statistics.fmean(known) if seconds is None else seconds) - (now - began.get(task, now)))
        for task, seconds in zip(tasks, forecasts, strict=True)
    ]
    return f"about {time_text(together(left, cores))} left"


def gramrun(arguments: Sequence[str], *, quiet: bool = True) -> None:
    """Run one gramrun command, on as many threads as it likes; print nothing if `quiet`.

    Raises:
        RunError: when it fails, with its own message.
    """
    done = subprocess.run(
        [sys.executable, "-m", "gramrun", *arguments], capture_output=quiet, text=True, check=False
    )
    _check("gramrun", arguments, done.returncode, done.stderr if quiet else None)


def make_run(task: Task, *flags: str) -> None:
    """Run a task on one thread.

    Raises:
        RunError: when it fails, with its own message.
    """
    arguments = task.arguments(*flags)
    _check("gramrun", arguments, *run_module("gramrun", arguments))


def run_script(script: Script) -> None:
    """Run a script on one thread, and stamp its file.

    Raises:
        RunError: when it fails, with its own message, or has not written its file.
    """
    started = time.monotonic()
    script.stamp.unlink(missing_ok=True)  # what a failing script leaves behind is nobody's
    script.output.parent.mkdir(parents=True, exist_ok=True)
    arguments = [*script.arguments, "--output", str(script.output)]
    _check(script.module, arguments, *run_module(script.module, arguments))
    if not script.output.exists():
        raise RunError(f"{script.module} has not written {script.output}")
    made = {"seconds": time.monotonic() - started, "provenance": provenance()}
    write_json(script.stamp, {**script.describe(), **made})


def _check(module: str, arguments: Sequence[str], code: int, said: str | None) -> None:
    """Raise where a program failed; `said` is None where the user has seen what it said."""
    if not code:
        return
    # Of a traceback the last line says what it is.
    lines = (said or "").strip().splitlines()
    reason = f": {lines[-1]}" if lines else ", see above" if said is None else ""
    raise RunError(f"{module} {' '.join(arguments)} failed ({code}){reason}")
