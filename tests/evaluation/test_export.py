"""`gramrun export`: what is in the files is what the model says, whole or not at all."""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import faiss
import helpers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import BASELINE, CONFIG, made_corpus, made_side, settings

from gramrun import runs
from gramrun.data import shards
from gramrun.data.shards import open_corpus
from gramrun.evaluation import export as exporting
from gramrun.evaluation import trained as embeddings
from gramrun.evaluation.trained import load_model
from gramrun.model.build import embed_all
from gramrun.runs import checkpoints

SMALL = (*helpers.SMALL, "train.steps=20", "evaluation.every=0")


@pytest.fixture
def library(gramrun, tmp_path):
    """A trained run `r` over books that have ids, titles, a genre and a column called as one of the export's."""
    (tmp_path / "mine").mkdir()
    pairs = "".join(f"reader-{i % 23}\tbook-{i % 31}\t{1 + i % 5}\n" for i in range(600))
    (tmp_path / "mine" / "mine.inter").write_text("user_id:token\titem_id:token\trating:float\n" + pairs)
    rows = "".join(f"book-{i}\tThe Bók, part {i}\t{'crime' if i % 2 else ''}\tx{i}\n" for i in range(31))
    header = "item_id:token\ttitle:token\tgenre:token\tembedding:token\n"
    (tmp_path / "mine" / "mine.item").write_text(header + rows, encoding="utf-8")
    assert gramrun("prepare", "atomic", "--source", "mine", "--output", "d")[0] == 0
    code, _, err = gramrun("train", "--config", CONFIG, *settings(*SMALL, "data.path=d"), "--output", "r")
    assert code == 0, err
    run, corpus = runs.open_run(Path("r")), open_corpus(Path("d"))
    left, right = embed_all(load_model(run, corpus)[0], corpus)
    return {"left": left.detach().numpy(), "right": right.detach().numpy()}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_run_of_a_gpu_is_read_without_one(library, monkeypatch):
    run = runs.open_run(Path("r"))
    own = checkpoints.identities(run)
    monkeypatch.setattr(checkpoints, "identities", lambda run: own)
    made = replace(run, config=run.config.model_copy(update={"device": "cuda"}))
    assert load_model(made, open_corpus(Path("d")))[0].device.type == "cpu"


def test_parquet_holds_ids_titles_embeddings_and_their_origin(gramrun, library, monkeypatch):
    for module in (embeddings, exporting):
        monkeypatch.setattr(module, "ITEMS_AT_ONCE", 7)  # 31 = 4 · 7 + 3
    code, out, _ = gramrun("export", "r", "--output", "items.parquet")
    assert (code, out) == (0, "wrote items.parquet: 31 right items (item), 8 dimensions, step 20\n")
    table = pq.read_table("items.parquet")
    assert table.column_names == ["item", "id", "title", "embedding"]
    assert table.schema.field("item").type == pa.int32()
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 8)
    frame = table.to_pandas()
    assert frame["item"].tolist() == list(range(31))
    assert all(
        f"The Bók, part {id.split('-')[1]}" == title
        for id, title in zip(frame["id"], frame["title"], strict=True)
    )
    assert (np.stack(frame["embedding"]) == library["right"]).all()
    origin = json.loads(table.schema.metadata[b"gramrun"])
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert origin["config_hash"] == manifest["config_hash"]
    assert origin["data_hash"] == manifest["data_hash"] == open_corpus(Path("d")).content_hash
    assert (origin["run"], origin["step"], origin["side"], origin["items"]) == ("r", 20, "right", 31)
    assert origin["gramrun"] == manifest["versions"]["gramrun"]


def test_the_other_formats_and_side(gramrun, library):
    assert gramrun("export", "r", "--output", "left.npy", "--side", "left")[0] == 0
    array = np.load("left.npy", mmap_mode="r")
    assert (array.dtype, array.shape) == (np.dtype("float32"), (23, 8))
    assert (array == library["left"]).all()
    assert gramrun("export", "r", "--output", "right.faiss")[0] == 0
    index = faiss.read_index("right.faiss")
    assert (index.metric_type, index.ntotal) == (faiss.METRIC_INNER_PRODUCT, 31)
    assert (index.reconstruct_n(0, 31) == library["right"]).all()
    assert gramrun("export", "r", "--output", "right.npz")[0] == 0
    with np.load("right.npz") as stored:
        assert (stored["embeddings"] == library["right"]).all()
        assert stored["ids"].tolist() == sorted(f"book-{i}" for i in range(31))
        assert json.loads(str(stored["origin"]))["side"] == "right"
    assert gramrun("export", "r", "--output", "left.parquet", "--side", "left")[0] == 0
    assert pq.read_schema("left.parquet").names == ["item", "id", "embedding"]  # readers have no title


def test_a_baseline(gramrun, library):
    exact = ("--config", BASELINE, *settings("data.path=d"))
    assert gramrun("baseline", *exact, "--output", "b")[0] == 0
    code, out, _ = gramrun("export", "b", "--output", "b.npy", "--json")
    assert (code, json.loads(out)["method"]) == (0, "exact ALS λ=10 γ=0,0")
    with np.load("b/embeddings.npz") as fitted:
        assert (np.load("b.npy") == fitted["right"]).all()
    before = Path("b/embeddings.npz").read_bytes()
    code, out, err = gramrun("export", "b", "--output", "b/embeddings.npz", "--force")
    assert (code, "b/embeddings.npz: belongs to the run or its corpus" in err) == (2, True)
    assert Path("b/embeddings.npz").read_bytes() == before


def test_what_is_refused_leaves_everything_as_it_was(gramrun, library, tmp_path):
    (tmp_path / "kept.npy").write_text("mine")
    frequency = Path("d/right/frequency.npy")
    before = frequency.read_bytes()
    for arguments, message in (
        (["r", "--output", "kept.npy"], "kept.npy: exists already"),
        (["r", "--output", "x.csv"], "x.csv: end its name in .faiss, .parquet, .npy, .npz"),
        (["r", "--output", frequency, "--force"], "belongs to the run or its corpus"),
        (["nowhere", "--output", "x.npy"], "nowhere: not a run directory"),
    ):
        code, out, err = gramrun("export", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert message in err
    assert Path("kept.npy").read_text() == "mine"
    assert frequency.read_bytes() == before
    assert not Path("x.npy").exists()
    assert gramrun("export", "r", "--output", "kept.npy", "--force")[0] == 0
    assert np.load("kept.npy").shape == (31, 8)


def test_a_disk_that_fills_leaves_the_file_that_was_there(gramrun, library):
    """A file size limit is a disk that fills at that size."""
    assert gramrun("export", "r", "--output", "items.npy")[0] == 0
    before = Path("items.npy").read_bytes()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("items.npy", "items.parquet", "items.npz", "items.faiss"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, unlimited[1]))
        try:
            code, _, err = gramrun("export", "r", "--output", name, "--force")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert (code, err.count("\n")) == (1, 1), err
        assert err.startswith(f"gramrun: {name}: cannot be written: ")
    assert Path("items.npy").read_bytes() == before
    assert not list(Path().glob("*items.parquet*")) and not list(Path().glob(".items*"))


MEMORY = """
import resource, sys
import torch
from pathlib import Path
from gramrun.evaluation import export as exporting
from gramrun.data.shards import open_corpus
from gramrun.evaluation.trained import TrainedEmbeddings

class NoRun:
    path, method, manifest = Path("run"), "made", {"config_hash": "", "data_hash": ""}

corpus = open_corpus(Path(sys.argv[1]))
trained = TrainedEmbeddings(NoRun(), corpus, 0, 128, lambda side, items: items[:, None] * torch.ones(128))
exporting.open_embeddings = lambda path, data: trained
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
exporting.export_embeddings(Path("run"), Path(sys.argv[2]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_memory_does_not_grow_with_the_number_of_items(tmp_path, suffix):
    """A million items, 128 wide, are 512 MB of embeddings; the export takes less than half of that."""
    items = 1_000_000
    pairs = np.divmod(np.arange(200), 100)
    corpus = made_corpus(made_side("user", 2), made_side("movie", items), pairs)
    shards.write_corpus(
        corpus, tmp_path / "d", validation_fraction=0.2, split_seed=0, origin={"fingerprint": ""}
    )
    output = tmp_path / f"items.{suffix}"
    answer = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "d"), str(output)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert output.stat().st_size > 500_000 if suffix == "parquet" else output.stat().st_size > 512_000_000
    assert int(answer.stdout) < 256_000_000
