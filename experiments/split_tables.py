"""Tables split by rows, measured: time, traffic and memory of a prototype step beside replicas.

    python -m experiments.split_tables [--rounds 7] [--groups ...]      results/bench/split_tables.{json,md}

What runs is the prototype of `experiments.split_step`, in 2 or 4 processes of one thread each that exchange
over gloo on this one machine, beside the replicas that `gramrun train` keeps (`CompiledLearner` and
`Processes`, the same towers and batches). Rows are drawn uniformly, the worst case for caches and for
merging, or by 1/rank (``zipf``), as links fall on pages. Every row and accumulator is written before anything
is timed, so all of the memory is resident, and every step has a batch of its own.

Contenders of a group are held by the same processes at the same time and timed in turns, in a new random
order each round; ratios are taken within a round. Parts are the first process's time, and waiting for the
other processes counts in the exchange where it happens; beside them what the exchanges alone should take, by
gloo's speed in the same processes. Bytes are counted where they are exchanged (payload),
and read from the kernel's count for the loopback (all that anyone sent there, with headers). Memory is that
of processes of their own, as the kernel counts it, beside

    split       a process with tables of 1,000 rows, measured, + (8 w + 4) V/N     rows, accumulators, slots
    replicas    the same                                       + (8 w + 4 + 12) V  and the ids' features

Not measured: several machines, GPUs, and more than four processes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch.multiprocessing as multiprocessing

from experiments.many_items import replica_traffic, split_traffic
from experiments.split_contenders import EXCHANGES, PARTS, Case, Group, run_group
from experiments.timing import RESULTS, table
from gramrun.base.files import write_json, write_text
from gramrun.base.provenance import provenance

MILLION = 10**6
IN_SERIES = (
    7  # exchanges of a step: counts, numbers, rows, gradients; sums of Gramians, dense gradients, loss
)
SMALL = 1000  # rows of the process whose memory is taken as that without tables
_IDS = (Case("split", MILLION), Case("split", 10 * MILLION), Case("replicas", MILLION))
GROUPS = {
    "rows": Group("Ids only, 64 wide, B = B' = 8192, N = 2", 2, _IDS),
    "replicas": Group(
        "Ids only, 64 wide, B = B' = 8192, N = 2, replicas of 10M", 2, (_IDS[0], replace(_IDS[2], rows=10**7))
    ),
    "four": Group("Ids only, 64 wide, B = B' = 8192, N = 4 on two cores", 4, _IDS),
    "all": Group(
        "100M items whole, but 8 wide, B = B' = 8192, N = 2",
        2,
        tuple(Case("split", n * MILLION, width=8) for n in (1, 10, 100)),
    ),
    "sixteenth": Group(
        "Two processes with what each of N = 16 has of 100M items, 64 wide: 6.25M rows, 512 of B = B' = 8192",
        2,
        tuple(Case("split", n, batch=1024) for n in (125_000, 12_500_000)),
    ),
    "values": Group(
        "6.3M rows 50 wide, 12 values in 3 features, B = B' = 1024, N = 2",
        2,
        tuple(Case("split", 6_300_000, 1024, 50, 6, 12, spread) for spread in ("uniform", "zipf")),
    ),
}
MEMORY = (  # processes, case
    (2, _IDS[1]),
    (4, _IDS[1]),
    (2, GROUPS["replicas"].cases[1]),
    (2, GROUPS["all"].cases[2]),
    (2, GROUPS["sixteenth"].cases[1]),
)


def start(group: Group, rounds: int) -> list[dict[str, Any]]:
    """Run a group in processes of its own: what each of them found."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run_group, (group, rounds, Path(folder)), nprocs=group.processes)  # type: ignore[no-untyped-call]
        return [json.loads((Path(folder) / f"{r}.json").read_text()) for r in range(group.processes)]


def report(group: Group, found: list[dict[str, Any]]) -> str:
    """The tables of a group: times and parts of the first process, bytes as means over the processes."""
    rows = pd.DataFrame(found[0]["rows"])
    reference = group.cases[0].name
    frame = rows.pivot(index="round", columns="contender", values="ms")
    frame = frame[[case.name for case in group.cases]]
    parts = pd.DataFrame(rows["parts"].tolist()).groupby(rows["contender"]).median()[list(PARTS)]
    parts["exchanges alone"] = [exchanges_alone(rows[rows["contender"] == c], found) for c in parts.index]
    lines = [
        table(frame, group.title, reference),
        "",
        "| part of a step, ms, median | " + " | ".join(parts) + " |",
        "|---" * (1 + len(parts.columns)) + "|",
        *(
            f"| {case.name} | " + " | ".join(f"{parts.loc[case.name, part]:.2f}" for part in parts) + " |"
            for case in group.cases
            if case.kind == "split"
        ),
        "",
        "| received by a process in a step | numbers of rows | rows | gradients | sums | all | bound "
        "| all / bound | loopback |",
        "|---" * 9 + "|",
        *(traffic_row(group, case, found) for case in group.cases),
    ]
    return "\n".join(lines)


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of a group: the first process's times, and every contender's parts and bytes."""
    rows = pd.concat([pd.DataFrame(process["rows"]) for process in found], keys=range(len(found)))
    first = rows.loc[0]

    def by_contender(frame: pd.DataFrame, column: str) -> dict[str, dict[str, float]]:
        values = pd.DataFrame(frame[column].tolist()).groupby(frame["contender"].to_numpy()).median()
        return {name: values.loc[name].dropna().round(4).to_dict() for name in values.index}

    return {
        "ms": {name: times.round(3).tolist() for name, times in first.groupby("contender")["ms"]},
        "parts": by_contender(first, "parts"),
        "received": by_contender(rows, "received"),
        "loopback": rows.groupby("contender")["loopback"].median().round().to_dict(),
        "gloo": found[0]["gloo"],
    }


def exchanges_alone(rows: pd.DataFrame, found: list[dict[str, Any]]) -> float:
    """Milliseconds that a step's exchanges would take if no process waited: n latencies, and bytes / rate."""
    times, largest = found[0]["gloo"], EXCHANGES[-1]
    rate = (len(found) - 1) * largest / times[str(largest)]  # bytes a millisecond
    received = sum(pd.DataFrame(rows["received"].tolist()).mean())
    return float(IN_SERIES * times[str(EXCHANGES[0])] + received / rate)


def traffic_row(group: Group, case: Case, found: list[dict[str, Any]]) -> str:
    """Bytes of one contender: what was counted, the formula's bound, and what the loopback carried."""
    rows = pd.concat([pd.DataFrame(process["rows"]) for process in found])
    rows = rows[rows["contender"] == case.name]
    kinds = pd.DataFrame(rows["received"].tolist()).mean()
    formula = split_traffic if case.kind == "split" else replica_traffic
    bound, everything = formula(case.work, group.processes), kinds.sum()
    by_kind = [
        kinds.get("counts", 0) + kinds.get("ids", 0),
        kinds.get("rows", 0),
        kinds.get("gradients", 0) + kinds.get("gathered", 0),
        kinds.get("summed", 0),
        everything,
        bound,
    ]
    cells = [f"{n / 1e6:.3f} MB" for n in by_kind]
    return (
        f"| {case.name} | " + " | ".join(cells)
        + f" | {everything / bound:.2f} | {rows['loopback'].median() / 1e6:.2f} MB |"
    )  # fmt: skip


def measure_memory() -> tuple[str, list[dict[str, Any]]]:
    """Peak memory of processes that hold one contender, beside the formula."""
    lines = [
        "### Peak memory of a process",
        "",
        "| | N | rows held | without tables | predicted | peak | predicted / peak |",
        "|---" * 7 + "|",
    ]
    numbers = []
    for processes, case in MEMORY:
        small, real = (
            max(process["peak"] for process in start(Group("", processes, (c,)), rounds=1))
            for c in (replace(case, rows=SMALL), case)
        )
        held = case.memory(processes)
        numbers.append(
            {"case": case.name, "processes": processes, "small": small, "held": held, "peak": real}
        )
        own = case.rows // processes if case.kind == "split" else case.rows
        lines.append(
            f"| {case.name} | {processes} | {own / 1e6:g}M | {small / 1e9:.2f} GB "
            f"| {(small + held) / 1e9:.2f} GB | {real / 1e9:.2f} GB | {(small + held) / real:.2f} |"
        )
    return "\n".join(lines), numbers


def gloo_table(speeds: dict[int, dict[str, float]]) -> str:
    """Milliseconds of exchanges, and the bytes a second that each process received."""
    lines = [
        "### gloo over the loopback: all-to-all exchanges alone, median of 20",
        "",
        "| N | from each other process | ms | received, GB/s a process |",
        "|---|---|---|---|",
    ]
    for processes, times in speeds.items():
        for size, ms in times.items():
            rate = (processes - 1) * int(size) / ms / 1e6
            lines.append(f"| {processes} | {int(size):,} bytes | {ms:.3f} | {rate:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure; write results/bench/split_tables.{json,md}."""
    parser = argparse.ArgumentParser(description="Measure tables split by rows.")
    parser.add_argument("--groups", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    sections, numbers, speeds = [], {}, {}
    for name in arguments.groups:
        group = GROUPS[name]
        found = start(group, arguments.rounds)
        numbers[name] = summary(found)
        speeds[group.processes] = found[0]["gloo"]
        sections.append(report(group, found))
        print(sections[-1], flush=True)
    memory, peaks = measure_memory()
    heading = (
        "`python -m experiments.split_tables`: a prototype, not what `gramrun train` runs; processes of one "
        f"thread on one machine of {os.cpu_count()} cores, {arguments.rounds} rounds."
    )
    text = "\n\n".join([heading, *sections, gloo_table(speeds), memory]) + "\n"
    write_json(RESULTS / "split_tables.json", {**provenance(), "groups": numbers, "memory": peaks})
    write_text(RESULTS / "split_tables.md", text)
    print(text)
    print(f"wrote {RESULTS}/split_tables.md")


if __name__ == "__main__":
    main()
