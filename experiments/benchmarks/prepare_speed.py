"""Time and memory of `gramrun prepare` on wikis of four sizes, against unpacking their tables with zcat.

    python -m experiments.benchmarks.prepare_speed [--sizes 1m simple-scale] [--generations 2016 2026]
    [--rounds 5]

The wikis are expansions of enwik8 (`gramrun.data.expansion`), of 1 to 142 million links, as tables of 2016,
where links name titles, and of 2026, where they name numbers. A round runs ``zcat TABLES > /dev/null`` and
the whole of ``gramrun prepare`` one after the other, in a new random order; what is reported are the ratios
within a round. Each prepare is a process of its own, from its start to its end, with parsing, joins,
features, split, shards and their checksums. Starting Python, importing and loading compiled code takes about
a second, whatever the wiki's size; so the work is timed alone too, as the second call in one process. Peak
memory is the first process's own, as the kernel counts it.

Goals: a ratio of at most 1.0 (accepted: 1.5); at most 1 GB at simple-scale and 5 GB at fr-scale.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from experiments.benchmarks.mysqldump import write_tables
from experiments.reproduce.timing import write
from gramrun.config import PrepareConfig
from gramrun.data.corpus import Corpus
from gramrun.data.expansion import PRESETS, Expansion, expand
from gramrun.data.registry import find
from gramrun.data.wikipedia.records import (
    ARTICLES,
    CATEGORIES,
    ByNumber,
    Links,
    LinkTargets,
    Pages,
    Redirects,
)

TABLES = Path("data/raw/expanded-wikis")
TIMED = ("2016", "2026")
# Between the two scales, links per page grow.
WIKIS = {
    "1m": Expansion(4, 4, 1, 1_000_000),
    "simple-scale": PRESETS["simple-scale"][1],
    "28m": Expansion(7, 7, 2, 28_000_000),
    "fr-scale": PRESETS["fr-scale"][1],
}
_LINKS_AT_ONCE = 1 << 19


# The work alone: the first call loads all code, and the second is timed.
_TWICE = """
import sys, time
from pathlib import Path
from gramrun.data.preparation import prepare_corpus
warm, tables, output = map(Path, sys.argv[1:])
prepare_corpus("wikipedia-sql", output, warm, [], force=True)
started = time.perf_counter()
prepare_corpus("wikipedia-sql", output, tables, [], force=True)
print(time.perf_counter() - started)
"""


@dataclass(frozen=True)
class CorpusWiki:
    """A corpus of pages as the tables of a wiki (`gramrun.data.wikipedia.records.Wiki`)."""

    name: str
    corpus: Corpus

    def pages(self) -> Iterator[Pages]:
        """Page p has the number p + 1."""
        titles = self._titles("page")
        items = len(titles)
        yield Pages(1 + np.arange(items), np.full(items, ARTICLES), titles, np.zeros(items, dtype=bool))

    def redirects(self) -> Iterator[Redirects]:
        """None."""
        return iter(())

    def link_targets(self) -> Iterator[LinkTargets]:
        """The pages, then the categories."""
        titles = pa.concat_arrays([self._titles("page"), self._titles("category")])
        namespaces = np.full(len(titles), CATEGORIES)
        namespaces[: self.corpus.left.items] = ARTICLES
        yield LinkTargets(1 + np.arange(len(titles)), namespaces, titles)

    def links(self) -> Iterator[Links]:
        """The links, in batches."""
        for start in range(0, len(self.corpus.pair_left), _LINKS_AT_ONCE):
            rows = slice(start, start + _LINKS_AT_ONCE)
            left, right = (
                column[rows].astype(np.int64) for column in (self.corpus.pair_left, self.corpus.pair_right)
            )
            yield Links(1 + left, ByNumber(1 + right))

    def category_links(self) -> Iterator[Links]:
        """The categories of all pages, in one batch."""
        (feature,) = (f for f in self.corpus.left.features if f.name == "categories")
        pages = 1 + np.repeat(np.arange(self.corpus.left.items), np.diff(feature.offsets))
        yield Links(pages, ByNumber(1 + self.corpus.left.items + feature.indices.astype(np.int64)))

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """None."""
        return iter(())

    def _titles(self, vocabulary: str) -> pa.Array:
        keys = self.corpus.vocabularies[vocabulary]["key"]
        return pa.array([key.replace(" ", "_").encode() for key in keys], pa.large_binary())


@dataclass(frozen=True)
class Cost:
    """Wall and processor seconds of a process, and its peak memory in bytes."""

    wall: float
    processor: float
    memory: int


def run(command: Sequence[str]) -> Cost:
    """Run a command and wait for it.

    Raises:
        RuntimeError: it failed.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} left with {process.returncode}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def work(warm: Path, tables: Path, output: Path) -> float:
    """Seconds of a second prepare in one process; the first, of the small wiki `warm`, loads everything."""
    command = [sys.executable, "-c", _TWICE, *map(str, (warm, tables, output))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(warm: Path, tables: Path, rounds: int) -> pd.DataFrame:
    """One row a round: seconds of zcat, prepare and its work, and memory; the first round warms up."""
    files = sorted(str(file) for file in tables.glob("*.sql.gz"))
    random = np.random.default_rng(0)
    rows = []
    with tempfile.TemporaryDirectory(dir=tables.parent) as folder:
        output = Path(folder) / "shards"
        prepare = [sys.executable, "-m", "gramrun", "prepare", "wikipedia-sql"]
        prepare += ["--source", str(tables), "--output", str(output), "--force"]
        tasks: dict[str, Callable[[], Cost | float]] = {
            "zcat": lambda: run(["zcat", *files]),
            "prepare": lambda: run(prepare),
            "work": lambda: work(warm, tables, output),
        }
        for number in range(rounds + 1):
            costs = {name: tasks[name]() for name in random.permutation(list(tasks))}
            zcat, whole = costs["zcat"], costs["prepare"]
            assert isinstance(zcat, Cost) and isinstance(whole, Cost)
            row = {
                "zcat": zcat.wall,
                "prepare": whole.wall,
                "work": costs["work"],
                "processor": whole.processor,
                "memory": whole.memory,
            }
            print(f"{tables.name} round {number} of {rounds}: {_line(row)}", flush=True)
            if number:
                rows.append(row)
    return pd.DataFrame(rows)


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"zcat {row['zcat']:.2f} s, prepare {row['prepare']:.2f} s, its work {row['work']:.2f} s, "
        f"{row['memory'] / 1e9:.2f} GB"
    )


def unpacked_bytes(tables: Path) -> int:
    """The size of all tables without compression."""
    files = sorted(str(file) for file in tables.glob("*.sql.gz"))
    with subprocess.Popen(["zcat", *files], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        return sum(len(piece) for piece in iter(lambda: process.stdout.read(1 << 20), b""))


def made(folder: Path, name: str, generation: str) -> Path:
    """The tables of a wiki, written if missing."""
    tables = folder / f"{name}-{generation}"
    # In a new process: a child's reported peak memory starts at its parent's.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(_write, name, tables, generation).result()
    return tables


def _write(name: str, tables: Path, generation: str) -> None:
    if not tables.exists():
        corpus = expand(name, find("enwik8", PrepareConfig(), None).read(tables.parent), WIKIS[name])
        write_tables(CorpusWiki("expandedwiki", corpus), tables, generation)


def row(name: str, generation: str, links: int, size: int, frame: pd.DataFrame) -> str:
    """A line of the Markdown table."""
    return (
        f"| {name} | {generation} | {links / 1e6:,.1f} | {size / 1e6:,.0f} | {frame['zcat'].median():.2f} "
        f"| {frame['prepare'].median():.2f} | {_ratio(frame, 'prepare')} | {frame['work'].median():.2f} "
        f"| {_ratio(frame, 'work')} | {frame['work'].median() / (links / 1e6):.3f} "
        f"| {frame['memory'].max() / 1e9:.2f} |"
    )


def _ratio(frame: pd.DataFrame, what: str) -> str:
    ratio = frame[what] / frame["zcat"]
    return f"{ratio.median():.2f} ({ratio.min():.2f}–{ratio.max():.2f})"


def main() -> None:
    """Time the wikis; write results/bench/prepare_speed.{json,md}."""
    parser = argparse.ArgumentParser(description="Time gramrun prepare against zcat, interleaved.")
    parser.add_argument("--sizes", nargs="+", choices=list(WIKIS), default=list(WIKIS))
    parser.add_argument("--generations", nargs="+", choices=TIMED, default=list(TIMED))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tables", type=Path, default=TABLES, help="folder of the made wikis")
    parser.add_argument("--keep", action="store_true", help="keep the tables of fr-scale, some gigabytes")
    arguments = parser.parse_args()
    lines = [
        "Goals: ratio 1.0 (accepted 1.5), 1 GB at simple-scale, 5 GB at fr-scale.",
        "",
        "| wiki | tables of | links, millions | SQL, MB | zcat, s | prepare, s "
        "| prepare / zcat, median (min–max) | its work, s | work / zcat, median (min–max) "
        "| work, s per million links | peak memory, GB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    numbers = {}
    warm = made(arguments.tables, "1m", TIMED[-1])
    for name in arguments.sizes:
        for generation in arguments.generations:
            tables = made(arguments.tables, name, generation)
            frame = measure(warm, tables, arguments.rounds)
            lines.append(row(name, generation, WIKIS[name].pairs, unpacked_bytes(tables), frame))
            numbers[f"{name}-{generation}"] = frame.to_dict(orient="list")
            if name == "fr-scale" and not arguments.keep:
                shutil.rmtree(tables)
    write("prepare_speed", "\n".join(lines), {"rounds": numbers})


if __name__ == "__main__":
    main()
