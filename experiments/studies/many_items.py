"""Memory and network traffic of training on many items, with replicated tables and with tables split by rows.

    python -m experiments.studies.many_items            the tables of docs/many-items.md

The functions here compute sizes from shapes; `tests/experiments/test_many_items.py` compares them with a real
model and a real step. All tables together have V rows of width w, in float32 with Adagrad. There are N
processes, batches B' and B, L feature values an item, z inputs of both towers (features · w), and a = (N −
1)/N is the share of data on other processes:

    replicas        memory   8 V w in every process: a row and its accumulator
                    traffic  a · 4 B' z, the gradients of both sides' bags, and
                             2 a · 4 (D + 2 k²), sums of D dense gradients and of two Gramians
    split by rows   memory   8 V w / N, and 4 V / N for the slots of rows during an update
                    traffic  at most a · 4 w · 2 L (2 B' + B) / N: rows fetched for B' and B, and gradients of
                             rows returned for B'; a row counts as often as it occurs in a batch
                             at most a · 4 · 2 L (B' + B) / N: the numbers of the requested rows
                             2 a · 4 (D + 2 k²) as above

Traffic is the bytes that each process receives in a step.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

FLOAT, NUMBER = 4, 4  # bytes of a value and of a row's number


@dataclass(frozen=True)
class Workload:
    """A model and its batches.

    Attributes:
        rows: V, rows of all tables.
        width: w of a table.
        features: number of features of both sides, each with `width` tower inputs.
        values: L, feature values of an item, over all its features.
        hidden: widths of the hidden layers.
        embedding_dim: k.
        batch_size: B'.
        gramian_batch_size: B.
    """

    rows: int
    width: int
    features: int
    values: float
    hidden: tuple[int, ...]
    embedding_dim: int
    batch_size: int
    gramian_batch_size: int

    @property
    def dense_parameters(self) -> int:
        """D of both towers, biases included."""
        if not self.hidden:
            return 0
        layers = itertools.pairwise([*self.hidden, self.embedding_dim])
        first = self.features * self.width * self.hidden[0] + 2 * self.hidden[0]
        return first + 2 * sum(a * b + b for a, b in layers)


def table_bytes(work: Workload) -> int:
    """Rows and Adagrad's accumulators."""
    return 2 * FLOAT * work.rows * work.width


def replica_traffic(work: Workload, processes: int) -> float:
    """Bytes that each process receives in a step with replicated tables."""
    away = (processes - 1) / processes
    gradients = FLOAT * work.batch_size * work.features * work.width
    sums = FLOAT * (work.dense_parameters + 2 * work.embedding_dim**2)
    return away * (gradients + 2 * sums)  # a ring all-reduce sends twice as much as an all-gather


def split_traffic(work: Workload, processes: int) -> float:
    """An upper bound of the bytes that each process receives in a step with tables split by rows."""
    away = (processes - 1) / processes
    fetched = 2 * work.values * (work.batch_size + work.gramian_batch_size) / processes
    returned = 2 * work.values * work.batch_size / processes
    sums = FLOAT * (work.dense_parameters + 2 * work.embedding_dim**2)
    numbers = NUMBER * fetched
    return away * (FLOAT * work.width * (fetched + returned) + numbers + 2 * sums)


def processes_needed(work: Workload, memory: int) -> int:
    """Devices of `memory` bytes that split tables need, with a quarter of each left free."""
    return math.ceil(table_bytes(work) / (0.75 * memory))


WORKLOADS = {
    "5.3M pages": Workload(5_300_000 + 1_000_000, 50, 6, 12.0, (256,), 64, 1024, 1024),
    "100M items, ids only": Workload(100_000_000, 64, 2, 1.0, (256,), 64, 8192, 8192),
    "100M items, 10M further values": Workload(110_000_000, 64, 6, 12.0, (256,), 64, 8192, 8192),
}


def share_bytes(work: Workload, processes: int) -> float:
    """Bytes of split tables in one process: rows, accumulators, and the update's slots of 4 bytes a row."""
    return (table_bytes(work) + 4 * work.rows) / processes


def network_table(name: str = "100M items, ids only") -> str:
    """A Markdown table of memory, checkpoint and traffic of a process with split tables, by network speed."""
    work, speeds = WORKLOADS[name], (1, 10, 25, 100)
    lines = [
        "| N | memory | checkpoint | received in a step | "
        + " | ".join(f"at {speed} Gbit/s" for speed in speeds) + " |",
        "|" + "---|" * (4 + len(speeds)),
    ]  # fmt: skip
    for n in (4, 8, 16, 32):
        traffic = split_traffic(work, n)
        times = " | ".join(f"{8e3 * traffic / (speed * 1e9):.2f} ms" for speed in speeds)
        sizes = f"{share_bytes(work, n) / 1e9:.2f} GB | {table_bytes(work) / n / 1e9:.2f} GB"
        lines.append(f"| {n} | {sizes} | {traffic / 1e6:.2f} MB | {times} |")
    return "\n".join(lines) + "\n"


def tables() -> str:
    """The Markdown tables of docs/many-items.md."""
    counts = (2, 8, 32)
    heads = [f"{kind}, N = {n}" for kind in ("replicas", "split") for n in counts]
    lines = [
        "| | tables and Adagrad | on 24 GB | on 80 GB | " + " | ".join(heads) + " |",
        "|" + "---|" * (4 + len(heads)),
    ]
    for name, work in WORKLOADS.items():
        needed = [str(processes_needed(work, gigabytes * 10**9)) for gigabytes in (24, 80)]
        traffic = [f(work, n) / 1e6 for f in (replica_traffic, split_traffic) for n in counts]
        cells = [name, f"{table_bytes(work) / 1e9:.1f} GB", *needed, *(f"{t:.1f} MB" for t in traffic)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(tables(), network_table(), sep="\n", end="")
