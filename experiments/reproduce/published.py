"""Published measurements: what finished runs measured, in one Parquet file.

    python -m experiments.reproduce.published    add the tables of studies and benchmarks in results/reference

A row is a small file of a run directory (manifest, configuration, metrics, Gramian errors, inner products,
evaluations, AP@10 of each left item on the validation split) or of a script, the manifest of a corpus, or a
table of a study or benchmark; no checkpoint and no embedding. `restore` writes the files back, and the report
is drawn from run directories as ever. A run whose configuration is not what a profile asks for is run again
(`jobs.state_of`), so a measurement cannot pass for one of another configuration. It can for one of other
code: what is published stays (`add`).

    path       text     relative to the root, as results/runs/enwik8/paper-sogram-seed0/metrics.jsonl
    content    binary   the file
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from experiments.reproduce.corpora import DATASETS
from experiments.reproduce.jobs import Job, Script, kept_manifest, stamp_of, state_of
from gramrun.base.errors import InputError
from gramrun.base.files import disk_errors, new_file
from gramrun.base.locks import locked
from gramrun.data.manifest import UNREADABLE
from gramrun.data.shards import MANIFEST
from gramrun.runs import directory

FILE = Path("results") / "reference" / "measurements.parquet"


def read(file: Path = FILE) -> dict[str, bytes]:
    """The published files by path; empty where nothing is published.

    Raises:
        InputError: when the file is damaged.
    """
    if not file.exists():
        return {}
    try:
        frame = pd.read_parquet(file)
        return dict(zip(frame["path"], frame["content"], strict=True))
    except UNREADABLE as error:
        raise InputError(f"{file}: damaged ({error}); take it from the repository again") from None


def add(jobs: Sequence[Job], file: Path = FILE) -> int:
    """Add finished jobs and the manifests of their corpora.

    What is published already stays: a run of the same configuration and data with the same files, a corpus of
    the same content. Otherwise the files of a run are replaced.

    Returns:
        How many files are published now.
    """
    own = {path.as_posix(): source.read_bytes() for path, source in _files(jobs)}
    with locked(file, wait_seconds=60):
        return _add(own, file)


def _add(own: Mapping[str, bytes], file: Path) -> int:
    before = read(file)
    runs = {path.rpartition("/")[0] for path in own if path.endswith(f"/{directory.MANIFEST}")}
    kept = {folder for folder in runs if _is_published(_inside(own, folder), _inside(before, folder))}
    corpora = (path for path in own if path.startswith("results/corpora") and path in before)
    kept |= {path for path in corpora if _hash(own[path]) == _hash(before[path])}
    every = {path: content for path, content in before.items() if path.rpartition("/")[0] not in runs - kept}
    every |= {path: content for path, content in own.items() if not {path, path.rpartition("/")[0]} & kept}
    if every != before:
        _write(every, file)
    return len(every)


def _write(every: Mapping[str, bytes], file: Path) -> None:
    """A row group for each folder, such as a corpus's runs: git then stores anew only those that changed."""
    frame = pd.DataFrame(sorted(every.items()), columns=["path", "content"])
    schema = pa.schema({"path": pa.string(), "content": pa.binary()})
    folders = frame["path"].str.split("/").str[:3].str.join("/")
    with new_file(file) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for _, rows in frame.groupby(folders, sort=False):
            writer.write_table(pa.Table.from_pandas(rows, schema, preserve_index=False))


def tables(folder: Path = FILE.parent) -> dict[str, bytes]:
    """The tables of studies and benchmarks by path: those of `folder` that no report wrote there."""
    reports = folder.rglob("published.txt")  # by `make reference`: what a report consists of
    drawn = {own.parent / name for own in reports for name in own.read_text(encoding="utf-8").split()}
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in (".csv", ".md"))
    return {path.as_posix(): path.read_bytes() for path in found if path not in drawn}


def add_tables(file: Path = FILE) -> None:
    """Publish the `tables` beside `file` instead of those that it has."""
    with locked(file, wait_seconds=60):
        folder = f"{file.parent.as_posix()}/"
        runs = {path: content for path, content in read(file).items() if not path.startswith(folder)}
        _write(runs | tables(file.parent), file)


def _inside(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    found = (path.rpartition("/") for path in files)
    return {name: files[f"{parent}/{name}"] for parent, _, name in found if parent == folder}


def _is_published(own: Mapping[str, bytes], before: Mapping[str, bytes]) -> bool:
    """Whether a run is published with all of its files, of the same data and, where it has them, keys."""
    if not set(own) <= set(before):
        return False
    data = [json.loads(run[directory.MANIFEST])["data_hash"] for run in (own, before)]
    configs = [yaml.safe_load(run[directory.CONFIG]) for run in (own, before)]
    return data[0] == data[1] and _has(*configs)


def _has(values: Any, older: Any) -> bool:
    """Whether a configuration has every key of an older one, with its value."""
    if not isinstance(older, dict):
        return bool(values == older)
    return isinstance(values, dict) and all(_has(values.get(key), value) for key, value in older.items())


def _hash(manifest: bytes) -> str:
    return str(json.loads(manifest)["content_hash"])


def restore(file: Path = FILE) -> int:
    """Write the published files that are not here; return how many.

    A run that has a manifest here and a script's file that has a stamp are left alone, whatever their state.
    """
    found = {Path(path): content for path, content in read(file).items()}
    lasts = {path: _last(path, found) for path in found}
    absent = [path for path in found if not lasts[path].exists()]
    for path in absent:
        if path != lasts[path]:
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found[path])
    if absent:
        os.sync()  # once: to sync thousands of files one by one takes a minute
    for path in absent:
        if path == lasts[path]:
            with new_file(path) as temporary:
                temporary.write_bytes(found[path])
    return len(absent)


def _last(path: Path, found: Mapping[Path, bytes]) -> Path:
    """The file that says that a published file is here whole: its run's manifest, its stamp, or itself."""
    marks = (path.with_name(directory.MANIFEST), stamp_of(path))
    return next((mark for mark in marks if mark in found), path)


def _files(jobs: Sequence[Job]) -> Iterator[tuple[Path, Path]]:
    """Published paths and the files behind them."""
    corpora = set()
    for job in jobs:
        if state_of(job) != "done":
            continue
        if isinstance(job, Script):
            yield from ((path, path) for path in (job.output, job.stamp))
        else:
            unpublished = (directory.EMBEDDINGS, directory.ITEM_WEIGHTS, directory.per_item("train"))
            files = (path for path in sorted(job.output.iterdir()) if path.is_file())
            yield from ((path, path) for path in files if path.name not in unpublished)
            corpora.add(job.output.parent.name)
    for folder in (DATASETS[name].path for name in sorted(corpora & set(DATASETS))):
        if (manifest := folder / MANIFEST).exists():
            yield kept_manifest(folder), manifest


if __name__ == "__main__":
    add_tables()
