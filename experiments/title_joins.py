"""How the tables of a dump are best joined: gramrun's arrays and hash table beside DuckDB and polars.

    python -m experiments.title_joins [--sizes simple-scale 28m] [--rounds 5]

needs the extra ``bench``. The wikis are made (`gramrun.data.wikipedia.planted`), as tables of 2026, and read
as `gramrun prepare` reads them; the joins of `experiments.join_contenders` start from the parsed columns. A
round does each join by each way, in a new random order and each in a process of its own; ratios are taken
within a round. All must come to the same arrays. Memory is what the process grows by during the join.

"DuckDB, little memory" may take 12 bytes for each row of ``pagelinks``, less than the links themselves; what
it then writes to the disk is in the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.join_contenders import GRAMRUN, SPILLING, TASKS, THREADS, WAYS, Columns
from experiments.prepare_speed import TABLES
from experiments.prepare_speed import WIKIS as MADE
from experiments.timing import RESULTS
from gramrun.base.files import write_json, write_text
from gramrun.base.provenance import provenance
from gramrun.data.byte_strings import ByteStrings
from gramrun.data.wikipedia.files import find_tables
from gramrun.data.wikipedia.pages import read_pages, resolve_redirects
from gramrun.data.wikipedia.planted import PlantedWiki, write_tables
from gramrun.data.wikipedia.records import ARTICLES, ByNumber, Wiki
from gramrun.data.wikipedia.sql_wiki import SqlWiki

GENERATION = "2026"
LITTLE_MEMORY = 12  # bytes for each row of pagelinks
LEAST_MEMORY = 48 << 20  # bytes: with less, DuckDB gives up instead of spilling


def columns_of(wiki: Wiki) -> Columns:
    """Read the tables of a wiki whose links name numbers."""
    pages = read_pages(wiki.pages())
    final, _ = resolve_redirects(pages, wiki.redirects())
    target_ids, titles = [], []
    for batch in wiki.link_targets():
        rows = batch.namespaces == ARTICLES
        target_ids.append(batch.numbers[rows])
        titles.append(batch.titles.take(rows))
    target_titles = ByteStrings.concatenate(titles)
    sources, targets = [], []
    for links in wiki.links():
        assert isinstance(links.targets, ByNumber)
        sources.append(links.sources)
        targets.append(links.targets.numbers)
    return Columns(
        page_ids=pages.numbers,
        page_title_offsets=pages.titles.offsets,
        page_title_data=pages.titles.data,
        is_redirect=pages.is_redirect,
        final=final,
        target_ids=np.concatenate(target_ids),
        target_title_offsets=target_titles.offsets,
        target_title_data=target_titles.data,
        target_rows=pages.index.find(target_titles),
        link_sources=np.concatenate(sources),
        link_targets=np.concatenate(targets),
    )


def write_columns(wiki: PlantedWiki, tables: Path, path: Path) -> None:
    """Make a wiki, if need be, and write the columns of its tables."""
    write_tables(wiki, tables, generation=GENERATION)
    files = find_tables(tables)
    columns_of(SqlWiki(files.wiki, files.origin, files.tables, categories=False)).save(path)


def measure(columns: Path, rounds: int, memory_limit: int) -> pd.DataFrame:
    """One row a round, task and way; a round before warms up.

    Raises:
        RuntimeError: a join failed, or two ways differ in what comes out.
    """
    random = np.random.default_rng(0)
    jobs = [(task, way) for task in TASKS for way in WAYS]
    rows = []
    for number in range(rounds + 1):
        for task, way in random.permutation(jobs).tolist():
            rows.append(
                {"round": number, "task": task, "way": way, **_join(columns, way, task, memory_limit)}
            )
            print(f"round {number} of {rounds}: {task}, {way}, {rows[-1]['wall']:.2f} s", flush=True)
    frame = pd.DataFrame(rows)
    require_equal_results(frame)
    return frame[frame["round"] > 0]


def require_equal_results(frame: pd.DataFrame) -> None:
    """Hold the digests of each task's results against one another.

    Raises:
        RuntimeError: they differ.
    """
    for task, results in frame.groupby("task"):
        if results["digest"].nunique() != 1:
            ways = ", ".join(str(group["way"].unique().tolist()) for _, group in results.groupby("digest"))
            raise RuntimeError(f"{task}: results differ: {ways}")


def _join(columns: Path, way: str, task: str, memory_limit: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "taken.json"
        command = [sys.executable, "-m", "experiments.join_contenders", str(columns), way, task, str(output)]
        command += ["--memory-limit", str(memory_limit)]
        if subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode:
            raise RuntimeError(f"{' '.join(command)} failed")
        return dict(json.loads(output.read_text(encoding="utf-8")))


def rows_of(name: str, links: int, frame: pd.DataFrame) -> list[str]:
    """Lines of the Markdown table."""
    lines = []
    for task in TASKS:
        walls = frame[frame["task"] == task].pivot(index="round", columns="way", values="wall")
        for way in WAYS:
            seconds, ratio = walls[way], walls[way] / walls[GRAMRUN]
            taken = frame[(frame["task"] == task) & (frame["way"] == way)]
            lines.append(
                f"| {name} | {links / 1e6:.1f} | {task} | {way} "
                f"| {seconds.median():.3f} ({seconds.min():.3f}–{seconds.max():.3f}) "
                f"| {ratio.median():.2f} ({ratio.min():.2f}–{ratio.max():.2f}) "
                f"| {taken['processor'].median():.3f} | {taken['memory'].median() / 1e6:,.0f} "
                f"| {taken['spilled'].median() / 1e6:,.0f} |"
            )
    return lines


def main() -> None:
    """Time the joins; write results/bench/title_joins.{json,md}."""
    parser = argparse.ArgumentParser(description="Time joins of a dump's tables, interleaved.")
    parser.add_argument("--sizes", nargs="+", choices=list(MADE), default=["simple-scale", "28m"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tables", type=Path, default=TABLES, help="where the made wikis lie or are put")
    arguments = parser.parse_args()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("duckdb", "polars"))
    lines = [
        f"`python -m experiments.title_joins --sizes {' '.join(arguments.sizes)} "
        f"--rounds {arguments.rounds}`, {os.cpu_count()} cores, {versions} with {THREADS} threads, gramrun "
        f"with one. All results are equal. {SPILLING}: {LITTLE_MEMORY} bytes a link.",
        "",
        "| wiki | rows of pagelinks, millions | join | way | s, median (min–max) "
        "| ratio to gramrun, median (min–max) | processor, s | memory, MB | spilled, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    numbers = {}
    for name in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "columns.npz"
            tables = arguments.tables / f"{name}-{GENERATION}"
            # A process of its own, whose memory is free again before any join is timed.
            maker = multiprocessing.get_context("spawn").Process(
                target=write_columns, args=(MADE[name], tables, path)
            )
            maker.start()
            maker.join()
            if maker.exitcode:
                raise RuntimeError(f"{name}: the tables could not be made or read")
            with np.load(path) as arrays:
                links = len(arrays["link_sources"])
            frame = measure(path, arguments.rounds, max(LEAST_MEMORY, LITTLE_MEMORY * links))
        lines += rows_of(name, links, frame)
        numbers[name] = frame.to_dict(orient="list")
    write_json(RESULTS / "title_joins.json", {**provenance(), "libraries": versions, "joins": numbers})
    write_text(RESULTS / "title_joins.md", "\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"wrote {RESULTS}/title_joins.md")


if __name__ == "__main__":
    main()
