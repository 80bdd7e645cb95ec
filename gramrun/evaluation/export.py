"""``gramrun export``: the embeddings of all items of a side in one file, for an index or another program.

    .parquet   a row for each item: item (its number), id (as in the raw data), what else the corpus knows of
               it (title, year, ...), embedding (list of k float32); the origin is JSON in the metadata
               under the key ``gramrun``
    .npy       float32, shape (items, k), in the order of item numbers
    .npz       embeddings: the same; ids: text, shape (items,); origin: JSON text

Items are embedded and written some at a time. A file appears whole or not at all.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.base.provenance import provenance
from gramrun.evaluation.baseline_run import EMBEDDINGS
from gramrun.evaluation.embeddings import (
    ITEMS_AT_ONCE,
    SideName,
    TrainedEmbeddings,
    open_embeddings,
    vocabulary_file,
)


def export_embeddings(
    path: Path, output: Path, side: SideName = "right", *, data: Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Write the embeddings of a run's newest checkpoint, or of a baseline.

    Args:
        path: the run directory.
        output: a ``.parquet``, ``.npy`` or ``.npz`` file.
        side: whose items.
        data: where the run's corpus lies, if not where it was.
        force: replace a file that is there.

    Returns:
        The origin, which Parquet and .npz files hold too: ``run``, ``method``, ``step``, ``side``,
        ``item`` (what one is), ``items``, ``embedding_dim``, ``corpus``, ``config_hash``, ``data_hash``,
        ``gramrun`` (the version); and the file: ``output`` and ``bytes``.

    Raises:
        InputError: when the run or its corpus cannot be used, or `output` is occupied or of another kind.
        RunError: when the file cannot be written.
    """
    write = _WRITERS.get(output.suffix)
    if write is None:
        raise InputError(f"{output}: end its name in {', '.join(_WRITERS)}")
    if output.is_dir():
        raise InputError(f"{output}: is a folder; choose another --output")
    if output.exists() and not force:
        raise InputError(f"{output}: exists already; replace it with --force or choose another --output")
    trained = open_embeddings(path, data)
    _check_is_no_source(output, trained)
    origin = _origin(trained, side)
    with new_file(output) as temporary:
        write(temporary, trained, side, origin)
    return {**origin, "output": str(output), "bytes": output.stat().st_size}


def _check_is_no_source(output: Path, trained: TrainedEmbeddings) -> None:
    """Not even --force may replace what the embeddings are made of."""
    target, corpus = output.resolve(), trained.corpus.path
    in_corpus = corpus is not None and corpus.resolve() in target.parents
    if in_corpus or target == (trained.run.path / EMBEDDINGS).resolve():
        raise InputError(f"{output}: belongs to the run or its corpus; choose another --output")


def _origin(trained: TrainedEmbeddings, side: SideName) -> dict[str, Any]:
    return {
        "run": str(trained.run.path),
        "method": trained.method,
        "step": trained.step,
        "side": side,
        "item": trained.side(side).item,
        "items": trained.side(side).items,
        "embedding_dim": trained.dim,
        "corpus": trained.corpus.name,
        "config_hash": trained.run.manifest["config_hash"],
        "data_hash": trained.run.manifest["data_hash"],
        "gramrun": provenance()["versions"]["gramrun"],
    }


def _write_parquet(file: Path, trained: TrainedEmbeddings, side: SideName, origin: Mapping[str, Any]) -> None:
    with pq.ParquetFile(vocabulary_file(trained.corpus, trained.side(side))) as vocabulary:
        known = vocabulary.schema_arrow
        own = {"item": pa.int32(), "id": known.field("key").type}
        # A column of the raw data that has the name of one of ours is left out.
        others = [name for name in known.names if name not in ("key", "embedding", *own)]
        columns = own | {name: known.field(name).type for name in others}
        schema = pa.schema(
            [*columns.items(), ("embedding", pa.list_(pa.float32(), trained.dim))],
            metadata={"gramrun": json.dumps(origin, ensure_ascii=False)},
        )
        start = 0
        with pq.ParquetWriter(file, schema, use_dictionary=others) as writer:
            for names in vocabulary.iter_batches(ITEMS_AT_ONCE):
                items = np.arange(start, start + len(names))
                embeddings = trained.rows(side, torch.from_numpy(items)).numpy()
                values = [
                    pa.array(items.astype(np.int32)),
                    *(names[name] for name in ("key", *others)),
                    pa.FixedSizeListArray.from_arrays(pa.array(embeddings.ravel()), trained.dim),
                ]
                writer.write_batch(pa.record_batch(values, schema=schema), row_group_size=ITEMS_AT_ONCE)
                start += len(names)


def _write_npy(file: Path, trained: TrainedEmbeddings, side: SideName, origin: Mapping[str, Any]) -> None:
    with file.open("wb") as opened:
        _write_embeddings(opened, trained, side)


def _write_npz(file: Path, trained: TrainedEmbeddings, side: SideName, origin: Mapping[str, Any]) -> None:
    # Texts are padded to the longest, and packed; numbers would not get smaller.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open(zipfile.ZipInfo("embeddings.npy"), "w", force_zip64=True) as member:
            _write_embeddings(member, trained, side)
        with archive.open("ids.npy", "w", force_zip64=True) as member:
            _write_ids(member, vocabulary_file(trained.corpus, trained.side(side)))
        with archive.open("origin.npy", "w") as member:
            np.lib.format.write_array(member, np.array(json.dumps(origin, ensure_ascii=False)))


def _write_embeddings(file: IO[bytes], trained: TrainedEmbeddings, side: SideName) -> None:
    _write_header(file, np.dtype(np.float32), (trained.side(side).items, trained.dim))
    for embeddings in trained.chunks(side):
        file.write(embeddings.numpy().tobytes())


def _write_ids(file: IO[bytes], vocabulary: Path) -> None:
    longest, count = 1, 0
    for keys in _keys(vocabulary):
        longest = max(longest, pc.max(pc.utf8_length(keys)).as_py())
        count += len(keys)
    _write_header(file, np.dtype(f"<U{longest}"), (count,))
    for keys in _keys(vocabulary):
        file.write(np.array(keys.to_pylist(), dtype=f"<U{longest}").tobytes())


def _keys(vocabulary: Path) -> Iterator[pa.Array]:
    with pq.ParquetFile(vocabulary) as opened:
        for batch in opened.iter_batches(ITEMS_AT_ONCE, columns=["key"]):
            yield batch.column(0)


def _write_header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


_WRITERS = {".parquet": _write_parquet, ".npy": _write_npy, ".npz": _write_npz}
