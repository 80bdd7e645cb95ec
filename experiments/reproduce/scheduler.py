"""Run jobs on all cores, one thread each; skip those that are done and resume those that were interrupted.

Small runs are faster in parallel on one thread each. And a resumed run is equal bit for bit only on the same
number of threads.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tqdm import tqdm

from experiments.reproduce.jobs import Job, Script, Task, remember_failure, seconds_of, state_of
from gramrun.base.capacity import time_text
from gramrun.base.errors import RunError
from gramrun.base.files import write_json
from gramrun.base.provenance import provenance

_RUNNING: set[subprocess.Popen[str]] = set()
_FLAGS = {"new": [], "resume": ["--resume"], "failed": ["--resume"], "stale": ["--force"]}


class RunsFailed(RunError):
    """Some jobs failed; all others were run. `failures` says why each failed."""

    def __init__(self, failures: Mapping[Job, str]) -> None:
        """The message is the first failure's."""
        more = f" (and {len(failures) - 1} more failed)" if len(failures) > 1 else ""
        super().__init__(next(iter(failures.values())) + more)
        self.failures = dict(failures)


class Forecast:
    """Predicts the seconds of a job from finished jobs of the same settings or, failing that, config."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for job in jobs:
            self.learn(job)

    def learn(self, job: Job) -> None:
        """Learn from a job, if it has finished."""
        if (seconds := seconds_of(job)) is not None:
            for kind in _kinds(job):
                self._seconds[kind].append(seconds)

    def seconds(self, job: Job) -> float | None:
        """The predicted seconds of a job; None if no similar job has finished."""
        known = next((self._seconds[kind] for kind in _kinds(job) if kind in self._seconds), None)
        return statistics.fmean(known) if known else None


def _kinds(job: Job) -> list[tuple[str, ...]]:
    """The keys under which similar jobs are found, the most specific first."""
    if isinstance(job, Script):
        return [(job.module, *job.arguments), (job.module,)]
    dataset, config = job.config.parent.name, job.config.name
    length = [o for o in job.overrides if o.startswith(("train.steps=", "train.epochs="))]
    settings = [o for o in job.overrides if not o.startswith(("train.seed=", "baseline.seed="))]
    return [(job.command, dataset, config, *settings), (job.command, dataset, config, *length)]


def run_all(jobs: Sequence[Job]) -> None:
    """Run every job that is not done, the longest first, as many at once as there are cores.

    A failure is shown at once, and the other jobs go on.

    Raises:
        RunsFailed: at the end, when jobs have failed.
    """
    states = {job: state_of(job) for job in jobs}
    waiting = [job for job, state in states.items() if state != "done"]
    print(f"{len(states) - len(waiting)} of {len(states)} runs are done already", flush=True)
    forecast = Forecast(states)
    # The longest first, so that no core idles at the end; unknown jobs come before them.
    waiting.sort(key=lambda job: -(forecast.seconds(job) or math.inf))
    cores = os.cpu_count() or 1
    failures: dict[Job, str] = {}

    def run(job: Job) -> None:
        if isinstance(job, Task):
            make_run(job, *_FLAGS[states[job]])
        else:
            run_script(job)

    with ThreadPoolExecutor(cores) as pool, tqdm(total=len(waiting), unit="run", disable=None) as bar:
        futures = {pool.submit(run, job): job for job in waiting}
        pending: set[Future[None]] = set(futures)
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    job = futures[future]
                    try:
                        future.result()
                    except RunError as error:
                        failures[job] = str(error)
                        remember_failure(job, str(error))
                        tqdm.write(f"FAILED, and the others go on: {error}", file=sys.stderr)
                    else:
                        forecast.learn(job)
                left = _time_left([futures[future] for future in pending], forecast, cores)
                bar.set_postfix_str(left)
                bar.update(len(done))
                if bar.disable:
                    names = ", ".join("/".join(futures[future].output.parts[-2:]) for future in done)
                    print(f"[{len(waiting) - len(pending)}/{len(waiting)}] {names}; {left}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise RunsFailed(failures)


def _time_left(jobs: Sequence[Job], forecast: Forecast, cores: int) -> str:
    """The time left in words; jobs of unknown length count as the mean of the others."""
    known = [seconds for job in jobs if (seconds := forecast.seconds(job)) is not None]
    if jobs and not known:
        return "time left not known yet"
    return f"at most {time_text(statistics.fmean(known or [0]) * math.ceil(len(jobs) / cores))} left"


def terminate_all() -> None:
    """Ask every job at work to save its state and end; Ctrl-C reaches them without it."""
    for process in tuple(_RUNNING):
        process.terminate()


def gramrun(arguments: Sequence[str]) -> None:
    """Run one gramrun command on all cores, without output.

    Raises:
        RunError: it fails, with its own message.
    """
    _run("gramrun", arguments)


def make_run(task: Task, *flags: str) -> None:
    """Run a task on one thread.

    Raises:
        RunError: it fails, with its own message.
    """
    _run("gramrun", task.arguments(*flags), OMP_NUM_THREADS="1")


def run_script(script: Script) -> None:
    """Run a script on one thread, and stamp its file.

    Raises:
        RunError: it fails, with its own message, or has not written its file.
    """
    started = time.monotonic()
    script.stamp.unlink(missing_ok=True)  # a failing script must not leave a stamp
    script.output.parent.mkdir(parents=True, exist_ok=True)
    _run(script.module, [*script.arguments, "--output", str(script.output)], OMP_NUM_THREADS="1")
    if not script.output.exists():
        raise RunError(f"{script.module} has not written {script.output}")
    seconds = time.monotonic() - started
    made = {"module": script.module, "seconds": seconds, "provenance": provenance()}
    write_json(script.stamp, {**script.describe(), **made})


def _run(module: str, arguments: Sequence[str], **environment: str) -> None:
    """Run ``python -m MODULE`` without output; `environment` is set beside what is set here."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    ) as process:
        _RUNNING.add(process)
        try:
            errors = process.communicate()[1].strip().splitlines()
        except BaseException:  # an interrupt, which Popen does not hand on
            process.kill()
            raise
        finally:
            _RUNNING.remove(process)
    if process.returncode:  # the last line of a traceback names the error
        reason = f": {errors[-1]}" if errors else ""
        raise RunError(f"{module} {' '.join(arguments)} failed ({process.returncode}){reason}")
