"""Running gramrun commands over the cores: one thread each, skipped where done, resumed where interrupted.

Runs of these sizes are faster side by side on one thread each than one after another on all cores; and a run
that goes on with another number of threads would not have the same bits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tqdm import tqdm

from experiments.forecast import Forecast, in_words, together
from experiments.tasks import Task, state_of
from gramrun.errors import RunError

_REFRESH = 5  # seconds between two looks at the clock


def run_all(tasks: Sequence[Task]) -> None:
    """Run every task that is not done, the longest first, as many at once as there are cores.

    A bar, or a line a run where there is no terminal, says what is done and how long the rest will take.

    Raises:
        RunError: when a task fails; the others that are under way are finished first.
    """
    states = {task: state_of(task) for task in tasks}
    waiting = [task for task, state in states.items() if state != "done"]
    print(f"{len(states) - len(waiting)} of {len(states)} runs are done already", flush=True)
    forecast = Forecast(states)
    waiting.sort(key=lambda task: -(forecast.seconds(task) or 0))  # so that no core idles at the end
    cores = os.cpu_count() or 1
    began: dict[Task, float] = {}

    def run(task: Task) -> None:
        began[task] = time.monotonic()
        flags = {"new": [], "resume": ["--resume"], "stale": ["--force"]}[states[task]]
        gramrun(task.arguments(*flags), threads=1)

    with ThreadPoolExecutor(cores) as pool, tqdm(total=len(waiting), unit="run", disable=None) as bar:
        futures = {pool.submit(run, task): task for task in waiting}
        pending: set[Future[None]] = set(futures)
        try:
            while pending:
                done, pending = wait(pending, _REFRESH, FIRST_COMPLETED)
                for future in done:
                    future.result()
                    forecast.learn(futures[future])
                left = _time_left([t for f, t in futures.items() if f in pending], began, forecast, cores)
                bar.set_postfix_str(left)
                bar.update(len(done))
                if bar.disable and done:
                    names = ", ".join("/".join(futures[future].output.parts[-2:]) for future in done)
                    count = f"[{len(waiting) - len(pending)}/{len(waiting)}]"
                    print(f"{count} {names}; {left}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _time_left(tasks: Sequence[Task], began: Mapping[Task, float], forecast: Forecast, cores: int) -> str:
    """In words, for tasks that have begun or will, in this order."""
    known = {task: forecast.seconds(task) for task in tasks}
    if None in known.values():
        return "time left not known yet"
    now = time.monotonic()
    left = [max(0.0, (known[task] or 0.0) - (now - began.get(task, now))) for task in tasks]
    return f"about {in_words(together(left, cores))} left"


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
