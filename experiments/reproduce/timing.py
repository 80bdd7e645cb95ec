"""Interleaved timing of contenders, shared by the benchmarks.

Each round times every contender for the same number of steps, in a new random order. Reports use ratios
within a round, so that a machine whose speed drifts favours none.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.report.runs import environment
from gramrun.base.files import write_json, write_text
from gramrun.base.provenance import provenance

STEPS = 40  # steps of one contender in one round, or fewer where they take longer than this:
LONGEST = 2.0  # seconds
RESULTS = Path("results") / "bench"


def measure(steppers: dict[str, Callable[[], object]], rounds: int) -> pd.DataFrame:
    """Milliseconds a step of every contender in every round."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(rounds + 1):
        for name in random.permutation(list(steppers)):
            started, done, seconds = time.perf_counter(), 0, 0.0
            while done < STEPS and seconds < LONGEST:
                steppers[name]()
                done, seconds = done + 1, time.perf_counter() - started
            rows.append((number, name, 1e3 * seconds / done))
        print(f"round {number} of {rounds}", flush=True)
    frame = pd.DataFrame(rows, columns=["round", "contender", "ms"])
    return frame[frame["round"] > 0].pivot(index="round", columns="contender", values="ms")  # 0 warms up


def table(
    frame: pd.DataFrame,
    title: str,
    reference: str,
    others: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """A Markdown table of times and of ratios to a reference.

    Args:
        frame: the result of `measure`.
        title: its heading.
        reference: the contender that ratios are taken to; it comes first.
        others: further columns, by heading: a cell for each contender.
    """
    others = others or {}
    lines = [
        f"### {title}",
        "",
        f"| step | ms, median (min–max) | ratio to {reference}, median (min–max) |"
        + "".join(f" {heading} |" for heading in others),
        "|---|---|---|" + "---|" * len(others),
    ]
    for name in sorted(frame, key=lambda n: (n != reference, n)):
        lines.append(
            f"| {name} | {frame[name].median():.2f} ({frame[name].min():.2f}–{frame[name].max():.2f}) "
            f"| {ratio(frame, name, reference)} |" + "".join(f" {cells[name]} |" for cells in others.values())
        )
    return "\n".join(lines)


def ratio(frame: pd.DataFrame, name: str, reference: str) -> str:
    """Median, minimum and maximum of the ratios within rounds."""
    ratios = (frame[name] / frame[reference]).tolist()
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def write(name: str, text: str, numbers: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Write and print a benchmark's tables, with command, commit and machine; and its numbers as JSON."""
    made = provenance()
    code = f"Code: commit `{made['git_commit']}`; {environment(made)}."
    told = f"`{made['command']}`\n\n{text.rstrip()}\n\n{code}\n"
    write_json(folder / f"{name}.json", {**made, **numbers})
    write_text(folder / f"{name}.md", told)
    print(f"{told}wrote {folder}/{name}.md")


def apart(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a new process with its own threads."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
