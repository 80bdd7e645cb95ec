"""Time, exchanges and memory of 1, 2 and 4 processes: whole tables against tables split by rows.

    python -m experiments.benchmarks.row_wise [--rows 1000000 10000000] [--alone 100000000] [--rounds 5]

The corpora have two sides of ids, so `rows` is the number of items of both, with random pairs; towers are
linear. A round starts 1, 2 and 4 processes in a random order, each of which times both forms of tables in a
random order. Bytes are those of the machine's loopback interface by process, so nothing else may use it.
``--rounds 0`` measures memory alone and keeps the rounds of the last results/bench/row_wise.json.
Peaks are the kernel's, of ``gramrun train`` with an evaluation and a checkpoint, of ``gramrun evaluate`` of
what it trained, in one process, and for `alone` of tables without a corpus.

What larger machines take is computed, not measured: a process of N holds 8 · rows · width / N bytes of tables
and Adagrad's sums, and half as much again while it writes a checkpoint of two equal tables. A step looks up
the bags of B of each side and of B' of both, each time with a place for the bags of both sides. For its
|B| / N items a process receives from each other process their partial sums, twice with gloo, and for B' the
gradients of their bags: with |B| = |B'| in all

    (3 · 2 · 2 + 2) · (N − 1) / N · |B| · 4 · width      bytes

The start is that of `alone` by rows and width, as every process draws the values of all rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments.benchmarks.growth import peak_of, peak_of_training, predicted_peak, together
from experiments.reproduce.timing import RESULTS, apart, write
from gramrun.base.processes import Processes, joined
from gramrun.config import ModelSection, RunConfig
from gramrun.config.loading import load_config
from gramrun.data import shards
from gramrun.data.corpus import Corpus, Side, one_hot
from gramrun.data.shards import open_corpus
from gramrun.model.optimizers import OptimizerOptions
from gramrun.model.row_wise import RowWiseTables
from gramrun.model.towers import initial_rows
from gramrun.training.trainer import Trainer

CONFIG = Path("configs/movielens-1m/sogram.yaml")
TABLES = ("replicated", "row-wise")
COUNTS, EIGHT = (1, 2, 4), 8
WIDTH, BATCH = 64, 8192
SETTINGS = (
    f"train.batch_size={BATCH}", f"estimator.gramian_batch_size={BATCH}",
    "train.optimizer=adagrad", "train.initial_accumulator=0.1", "train.epochs=null", "device=cpu",
    "evaluation.every=0", "evaluation.left_items=5000", "evaluation.splits=[validation]",
)  # fmt: skip
STEPS = 20  # timed at once, and of a run whose memory is measured: the sums are written at the start
NARROW, ALONE_WIDTH = 16, 8  # of the larger corpora whose memory is measured, and of tables alone
MACHINES = {"128 GB, 10 Gbit/s": (128e9, 10e9), "512 GB, 25 Gbit/s": (512e9, 25e9)}
USABLE = 0.8  # of a machine's memory


def write_ids(folder: Path, rows: int) -> None:
    """Write a corpus of `rows` items, half on each side, with as many pairs, whose features are their ids."""
    random = np.random.default_rng(0)
    items = rows // 2
    sides = [Side(name, items, (one_hot(name, name, np.arange(items)),)) for name in ("user", "item")]
    pairs = np.unique(random.integers(items, size=rows) * items + random.integers(items, size=rows))
    left, right = np.divmod(pairs, items)
    keys = pd.DataFrame({"key": np.arange(items)})
    corpus = Corpus(
        name="ids",
        left=sides[0],
        right=sides[1],
        vocabularies={"user": keys, "item": keys},
        pair_left=left.astype(np.int32),
        pair_right=right.astype(np.int32),
    )
    shards.write_corpus(corpus, folder, validation_fraction=0.01, split_seed=0, origin={})


def loopback() -> int:
    """The bytes that all processes of this machine have received from one another; Linux only."""
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if "lo:" in line)
    return int(line.split()[1])


def settings_of(folder: Path, tables: str, width: int, steps: int) -> list[str]:
    """The settings of a run."""
    own = [f"data.path={folder}", f"train.tables={tables}", f"model.embedding_dim={width}"]
    return [*own, f"train.steps={steps}", *SETTINGS]


def time_steps(
    folder: Path, forms: Sequence[str], width: int, steps: int, processes: Processes
) -> dict[str, Any]:
    """Milliseconds and received bytes a step, and the seconds of a start, of these forms of tables."""
    found = {}
    for tables in forms:
        started = time.perf_counter()
        settings = settings_of(folder, tables, width, steps=10**9)
        trainer = Trainer(load_config(RunConfig, CONFIG, settings), open_corpus(folder), processes)
        start = time.perf_counter() - started
        records = trainer.steps()
        for _ in range(3):
            next(records)
        processes.wait()
        before, started = loopback(), time.perf_counter()
        for _ in range(steps):
            next(records)
        ms = 1e3 * (time.perf_counter() - started) / steps
        processes.wait()
        received = (loopback() - before) // steps // processes.count
        found[tables] = {"ms": ms, "start": start, "bytes": received}
    return found


def tables_alone(rows: int, width: int, steps: int, processes: Processes) -> dict[str, Any]:
    """Fill one table of `rows` rows, gather and update some; the peak of the largest process in bytes."""
    before = _peak()
    started = time.perf_counter()
    optimizer = OptimizerOptions("adagrad", 0.1, 0.1, 0.1)
    tables = RowWiseTables(
        {"table": rows},
        {"left": ["table"]},
        width,
        mean=False,
        optimizer=optimizer,
        processes=processes,
    )
    shape = ModelSection(embedding_dim=width)
    for start, drawn in initial_rows(rows, shape, torch.Generator().manual_seed(0)):
        tables.fill("table", start, drawn)
    seconds = time.perf_counter() - started
    for _ in range(steps):
        chosen = torch.randint(rows, (BATCH // processes.count,))
        (bags,) = tables.look_up({"left": [(chosen, torch.ones_like(chosen))]})["left"]
        bags.sum().backward()
    peaks = processes.gather_objects({"before": before, "peak": _peak()})
    largest = max(peaks, key=lambda found: found["peak"])
    return {**largest, "start": seconds, "tables": 8 * rows * width // processes.count}


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def worker(task: str, argument: str, width: int) -> None:
    """What torchrun starts: print the record of the first process."""
    with joined() as processes:
        if task == "alone":
            found = tables_alone(int(argument), width, STEPS, processes)
        else:
            found = time_steps(Path(argument), task.split(","), width, STEPS, processes)
        if processes.first:
            print(json.dumps(found), flush=True)


def start(processes: int, task: str, argument: object, width: int) -> dict[str, Any]:
    """Run `worker` in so many processes."""
    module = "experiments.benchmarks.row_wise"
    command = [*together(processes), module, "--worker", task, str(argument), str(width)]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(shown.stdout.splitlines()[-1]))


def exchanged(processes: int, width: int) -> float:
    """The bytes that a process receives in a step by the formula above."""
    return 14 * (processes - 1) / processes * BATCH * 4 * width


def computed(rows: float, width: int, memory: float, bits: float) -> str:
    """A line of the table of larger machines: how many hold the tables, and what a step receives."""
    held = 12 * rows * width
    machines = max(1, int(-(-held // (USABLE * memory))))
    step = exchanged(machines, width)
    return f"{machines} | {held / machines / 1e9:.0f} GB | {step / 1e6:.1f} MB | {8e3 * step / bits:.1f}"


def report(
    timed: pd.DataFrame, memory: Sequence[Mapping[str, Any]], alone: Sequence[Mapping[str, Any]]
) -> str:
    """The Markdown tables."""
    lines = [
        f"{timed['round'].nunique()} rounds, processes of one thread on a machine of {os.cpu_count()} cores; "
        f"width {WIDTH}, B = B' = {BATCH}; median (min–max).",
        "",
        "| processes | tables | ms a step | row-wise / replicated | received in a step, MB | start, s |",
        "|---|---|---|---|---|---|",
    ]
    for count in sorted(timed["processes"].unique()):
        here = timed[timed["processes"] == count].pivot(index="round", columns="tables")
        for tables in TABLES:
            ms, mb = here["ms"][tables], here["bytes"][tables] / 1e6
            ratio = here["ms"]["row-wise"] / here["ms"]["replicated"] if tables == "row-wise" else None
            lines.append(
                f"| {count} | {tables} | {_spread(ms)} | {'' if ratio is None else _spread(ratio, 2)} "
                f"| {mb.median():.2f} | {_spread(here['start'][tables])} |"
            )
    lines += [
        "",
        "`gramrun train` with an evaluation and a checkpoint, the largest process; and `gramrun evaluate` "
        "of it, in one process, which holds the tables once:",
        "",
        "| rows | width | tables | processes | predicted, GB | peak, GB | predicted / peak | start, s "
        "| tables, GB | peak of `evaluate`, GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for found in memory:
        predicted, peak = found["predicted"], found["peak"]
        lines.append(
            f"| {found['rows']:,} | {found['width']} | {found['tables']} | {found['processes']} "
            f"| {predicted / 1e9:.2f} | {peak / 1e9:.2f} | {predicted / peak:.2f} | {found['start']:.1f} "
            f"| {4e-9 * found['rows'] * found['width']:.2f} | {found['evaluate'] / 1e9:.2f} |"
        )
    lines += [
        "",
        f"Tables alone, of width {ALONE_WIDTH} with Adagrad's sums; the largest process:",
        "",
        "| rows | processes | tables and sums, GB | peak less the process, GB | start, s |",
        "|---|---|---|---|---|",
    ]
    for found in alone:
        lines.append(
            f"| {found['rows']:,} | {found['processes']} | {found['tables'] / 1e9:.2f} "
            f"| {(found['peak'] - found['before']) / 1e9:.2f} | {found['start']:.1f} |"
        )
    lines += [
        "",
        f"Computed, not measured: width {WIDTH}, Adagrad, B = B' = {BATCH}, one process a machine, "
        f"{USABLE:.0%} of its memory for tables.",
        "",
        "| items | machine | machines | most in each | received in a step by each | ms at its rate "
        "| start, min |",
        "|---|---|---|---|---|---|---|",
    ]
    # Every process draws the values of all rows.
    draw = [found["start"] / (found["rows"] * ALONE_WIDTH) for found in alone]
    for rows in (1e8, 1e9):
        start = f"{rows * WIDTH * max(draw) / 60:.0f}" if draw else ""
        for name, (size, bits) in MACHINES.items():
            lines.append(f"| {int(rows):,} | {name} | {computed(rows, WIDTH, size, bits)} | {start} |")
    return "\n".join(lines) + "\n"


def _spread(values: pd.Series[float], digits: int = 1) -> str:
    return f"{values.median():.{digits}f} ({values.min():.{digits}f}–{values.max():.{digits}f})"


def main() -> None:
    """Measure; write results/bench/row_wise.{json,md}."""
    parser = argparse.ArgumentParser(description="Time, exchanges and memory of tables split by rows.")
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 10_000_000])
    parser.add_argument("--alone", nargs="*", type=int, default=[100_000_000])
    parser.add_argument("--rounds", type=int, default=5, help="0: memory alone")
    parser.add_argument("--folder", type=Path, help="where the corpora lie or are put, and stay")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        task, argument, width = arguments.worker
        worker(task, argument, int(width))
        os._exit(0)  # as `gramrun.__main__` leaves, and why
    with tempfile.TemporaryDirectory() as temporary:
        place = arguments.folder or Path(temporary)
        folders = {rows: place / f"ids-{rows}" for rows in arguments.rows}
        for rows, folder in folders.items():
            if not folder.exists():
                apart(write_ids, folder, rows)
        if arguments.rounds:
            timed = time_rounds(folders[arguments.rows[0]], arguments.rounds)
        else:
            timed = pd.DataFrame(json.loads((RESULTS / "row_wise.json").read_text())["rounds"])
        memory = []
        for rows, folder in folders.items():
            first = rows == arguments.rows[0]
            width = WIDTH if first else NARROW
            forms = itertools.product(TABLES if first else TABLES[1:], COUNTS)
            for tables, count in [*forms, (TABLES[1], EIGHT)]:
                found = measure_memory(folder, tables, width, count, Path(temporary) / "run")
                memory.append({"rows": rows, "width": width, "tables": tables, "processes": count, **found})
                print(memory[-1], flush=True)
        alone = [
            {"rows": rows, "processes": count, **start(count, "alone", rows, ALONE_WIDTH)}
            for rows, count in itertools.product(arguments.alone, COUNTS)
        ]
    numbers = {"rounds": timed.to_dict(orient="list"), "memory": memory, "alone": alone}
    write("row_wise", report(timed, memory, alone), numbers)


def time_rounds(folder: Path, rounds: int) -> pd.DataFrame:
    """Both forms of tables in 1, 2 and 4 processes, interleaved: a row for each round and contender."""
    random, rows = np.random.default_rng(0), []
    for number in range(rounds):
        for count in random.permutation(COUNTS):
            for tables, found in start(
                int(count), ",".join(random.permutation(TABLES)), folder, WIDTH
            ).items():
                rows.append({"round": number, "processes": int(count), "tables": tables, **found})
                print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def measure_memory(folder: Path, tables: str, width: int, count: int, output: Path) -> dict[str, float]:
    """Predicted and measured peak of training, that of ``gramrun evaluate``, in bytes; seconds of a start."""
    settings = settings_of(folder, tables, width, STEPS)
    return {
        "predicted": predicted_peak(CONFIG, settings, count),
        "peak": peak_of_training(CONFIG, settings, output, count),
        "evaluate": peak_of([*together(1), "gramrun", "evaluate", str(output)]),
        "start": start(count, tables, folder, width)[tables]["start"],
    }


if __name__ == "__main__":
    main()
