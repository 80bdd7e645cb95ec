"""Tables split by rows among processes: the trajectory of one process that holds whole tables."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
from helpers import FORMS, ROOT, pages_corpus
from split_tables import result

from gramrun.config.loading import dump_config
from gramrun.data import shards
from gramrun.data.shards import open_corpus
from gramrun.model.towers import TowerShape, initial_rows
from gramrun.training.trainer import Trainer

needs_torchrec = pytest.mark.skipif(
    importlib.util.find_spec("torchrec") is None, reason="TorchRec is not installed (make setup installs it)"
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

TOWERS = {
    "linear": ["model.hidden=[]", "model.embedding_dim=10", "model.bag=mean"],
    "hidden": ["model.hidden=[9, 5]", "model.input_dim=6"],
    "skip": ["model.hidden=[9]", "model.input_dim=8", "model.skip=true", "model.bag=mean",
             "train.dense_l2=0.01"],
}  # fmt: skip
OPTIMIZERS = {
    "adagrad": ["train.optimizer=adagrad", "train.dense_learning_rate=0.01"],
    "adagrad from .1": ["train.optimizer=adagrad", "train.initial_accumulator=0.1", "train.decay_from=0.25"],
    "sgd on sums": ["train.optimizer=sgd", "train.learning_rate=0.002", "train.reduction=sum",
                    "train.dense_learning_rate=0.0005"],
}  # fmt: skip
METHODS = {name: form for name, form in FORMS.items() if name not in ("batch softmax", "SAGA, on disk")}
DROPPED = ["train.id_dropout_left=0.3", "train.id_dropout_right=0.2"]


def _cases():
    """Every method, and every optimizer with every tower."""
    cases = {}
    for i, (name, method) in enumerate(METHODS.items()):
        towers, optimizer = list(TOWERS)[i % 3], list(OPTIMIZERS)[i // 3 % 3]
        dropped = DROPPED if i % 2 and name != "exact" else []
        case = [*TOWERS[towers], *OPTIMIZERS[optimizer], *dropped, *method]
        cases[f"{name}, {towers}, {optimizer}"] = case
    return cases


CASES = _cases()
CASES_OF = {1: list(CASES)[1::6], 2: list(CASES), 4: list(CASES)[::5]}


@pytest.fixture(scope="module")
def pages_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "pages"
    origin = {"fingerprint": "", "verified": True}
    shards.write_corpus(pages_corpus(), path, validation_fraction=0.1, split_seed=0, origin=origin)
    return path


@pytest.fixture(scope="module")
def configured(make_config, pages_path):
    """A function: the config of a case."""
    own = [f"data.path={pages_path}", "train.steps=100"]
    return lambda case, *more: make_config(*own, *CASES[case], *more)


@pytest.fixture(scope="module")
def alone(configured, pages_path):
    """A function: what one process with whole tables makes of a case."""
    made = {}

    def train(case):
        if case not in made:
            made[case] = result(Trainer(configured(case), open_corpus(pages_path)))
        return made[case]

    return train


@needs_torchrec
@pytest.mark.parametrize("processes", CASES_OF)
def test_processes_with_split_tables_equal_one_with_whole_tables(configured, alone, tmp_path, processes):
    cases = CASES_OF[processes]
    for number, case in enumerate(cases):
        (tmp_path / f"{number:02}.yaml").write_text(dump_config(configured(case, "train.tables=row-wise")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    script = [str(processes), str(ROOT / "tests" / "split_tables.py"), str(tmp_path)]
    done = subprocess.run([*command, *script], env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    for number, case in enumerate(cases):
        split, whole = torch.load(tmp_path / f"{number:02}.pt"), alone(case)
        for name, table in whole["start"].items():
            assert torch.equal(split["start"][name], table), case
        assert (whole["tables"]["table:page"] - whole["start"]["table:page"]).abs().max() > 0.005, case
        for name in ("losses", "moments", "tables", "dense"):
            torch.testing.assert_close(
                split[name], whole[name], rtol=1e-4, atol=2e-5, msg=lambda m, c=case: f"{c}: {m}"
            )


@pytest.mark.parametrize(
    ("rows", "width"), [(1, 3), (5, 3), (65_536, 3), (65_537, 3), (65_552, 2), (140_001, 5)]
)
def test_rows_drawn_in_parts_have_the_bits_of_one_draw(rows, width):
    shape = TowerShape(embedding_dim=width, input_dim=1, hidden=(), table_scale=0.1)
    one, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    whole = torch.empty(rows, width).normal_(0, 0.1, generator=one)
    parts = list(initial_rows(rows, shape, other))
    assert [start for start, _ in parts] == [
        0,
        *torch.tensor([len(r) for _, r in parts[:-1]]).cumsum(0).tolist(),
    ]
    assert torch.equal(torch.cat([part for _, part in parts]), whole)
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=other))
