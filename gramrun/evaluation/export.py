"""``gramrun export``: write the embeddings of all items of a side to one file.

    .parquet   a row for each item: item (its number), id (in the raw data), the other columns of the
               vocabulary (title, year, ...), embedding (list of k float32); metadata ``gramrun``: the
               origin as JSON
    .npy       float32, shape (items, k), in the order of item numbers
    .npz       embeddings: the same array; ids: text, shape (items,); origin: JSON text
    .faiss     an exact faiss index of inner products; its numbers are item numbers; needs faiss

A file appears complete or not at all. Parquet and .npy files are written in chunks; .npz and .faiss need all
embeddings in memory.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from gramrun import __version__
from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.evaluation.trained import ITEMS_AT_ONCE, SideName, TrainedEmbeddings, open_embeddings
from gramrun.runs.directory import EMBEDDINGS


def export_embeddings(
    path: Path, output: Path, side: SideName = "right", *, data: Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Write the embeddings of a run's newest checkpoint, or of a baseline.

    Args:
        path: the run directory.
        output: a ``.parquet``, ``.npy``, ``.npz`` or ``.faiss`` file.
        side: whose items.
        data: the folder of the run's corpus, if it was moved.
        force: replace a file that is there.

    Returns:
        The origin, which Parquet and .npz files hold too: ``run``, ``method``, ``step``, ``side``,
        ``item`` (kind of item), ``items``, ``embedding_dim``, ``corpus``, ``config_hash``, ``data_hash``,
        ``gramrun`` (version); and ``output`` and ``bytes`` of the file.

    Raises:
        InputError: when the run or its corpus cannot be used, or `output` is occupied or of another format.
        RunError: when the file cannot be written.
    """
    write = _WRITERS.get(output.suffix)
    if write is None:
        raise InputError(f"{output}: end its name in {', '.join(_WRITERS)}")
    if output.is_dir() or (output.exists() and not force):
        raise InputError(f"{output}: exists already; choose another --output, or replace a file with --force")
    if output.suffix == ".faiss" and importlib.util.find_spec("faiss") is None:
        raise InputError(f"{output}: needs faiss, which is not installed; pip install faiss-cpu")
    trained = open_embeddings(path, data)
    assert trained.corpus.path is not None
    target = output.resolve()
    if target == (path / EMBEDDINGS).resolve() or trained.corpus.path.resolve() in target.parents:
        raise InputError(f"{output}: belongs to the run or its corpus; choose another --output")
    origin = _origin(trained, side)
    with new_file(output) as temporary:
        write(temporary, trained, side, origin)
    return {**origin, "output": str(output), "bytes": output.stat().st_size}


def _origin(trained: TrainedEmbeddings, side: SideName) -> dict[str, Any]:
    return {
        "run": str(trained.run.path),
        "method": trained.run.method,
        "step": trained.step,
        "side": side,
        "item": trained.side(side).item,
        "items": trained.side(side).items,
        "embedding_dim": trained.dim,
        "corpus": trained.corpus.name,
        "config_hash": trained.run.manifest["config_hash"],
        "data_hash": trained.run.manifest["data_hash"],
        "gramrun": __version__,
    }


def _write_parquet(file: Path, trained: TrainedEmbeddings, side: SideName, origin: Mapping[str, Any]) -> None:
    with pq.ParquetFile(trained.vocabulary_file(side)) as vocabulary:
        known = vocabulary.schema_arrow
        own = {"item": pa.int32(), "id": known.field("key").type}
        # A vocabulary column with the name of an exported column is left out.
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
    shape = (trained.side(side).items, trained.dim)
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)),
        "fortran_order": False,
        "shape": shape,
    }
    with file.open("wb") as opened:
        np.lib.format.write_array_header_1_0(opened, header)
        for embeddings in trained.chunks(side):
            opened.write(embeddings.numpy().tobytes())


def _write_npz(file: Path, trained: TrainedEmbeddings, side: SideName, origin: Mapping[str, Any]) -> None:
    embeddings = torch.cat(list(trained.chunks(side))).numpy()
    ids = pq.read_table(trained.vocabulary_file(side), columns=["key"])["key"].to_pylist()
    text = json.dumps(origin, ensure_ascii=False)
    with file.open("wb") as opened:  # by name, numpy would append a suffix
        np.savez_compressed(opened, embeddings=embeddings, ids=np.array(ids), origin=np.array(text))


def _write_faiss(file: Path, trained: TrainedEmbeddings, side: SideName, origin: Mapping[str, Any]) -> None:
    import faiss

    index = faiss.IndexFlatIP(trained.dim)
    for embeddings in trained.chunks(side):
        index.add(embeddings.numpy())
    file.write_bytes(faiss.serialize_index(index).data)  # its own writer overlooks a full disk


_WRITERS = {".faiss": _write_faiss, ".parquet": _write_parquet, ".npy": _write_npy, ".npz": _write_npz}
