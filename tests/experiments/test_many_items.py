"""The sizes and the traffic that docs/many-items.md tells, against a real model and a real step."""

from pathlib import Path

import pytest

from experiments.studies.many_items import (
    WORKLOADS,
    Workload,
    network_table,
    replica_traffic,
    split_traffic,
    table_bytes,
    tables,
)
from gramrun.base.processes import Processes
from gramrun.training.trainer import Trainer

DOCUMENT = Path(__file__).parents[2] / "docs" / "many-items.md"


class Counting(Processes):
    """Two processes of which the other is a mirror of this one: what it would send is counted."""

    received = 0

    def gather(self, rows):
        Counting.received += rows.nbytes
        return rows.repeat(2, *[1] * (rows.dim() - 1))

    def sum(self, tensor):
        Counting.received += tensor.nbytes
        return 2 * tensor


def workload(config, trainer):
    tables = trainer.model.named_tables().values()
    width = next(iter(tables)).shape[1]
    features = len(trainer.model.left.columns) + len(trainer.model.right.columns)
    if not config.model.hidden:
        features = 2  # the bags of a linear tower are summed: k inputs, however many features
    sizes = (config.train.batch_size, config.estimator.gramian_batch_size)
    k = config.model.embedding_dim
    return Workload(sum(len(t) for t in tables), width, features, 1.0, config.model.hidden, k, *sizes)


@pytest.mark.parametrize("hidden", ["[]", "[6]", "[6, 5]"])
def test_bytes_of_a_real_model_and_step(make_config, corpus, hidden):
    settings = ["estimator.name=sampling", "train.dense_learning_rate=0.01", f"model.hidden={hidden}"]
    config = make_config(*settings)
    trainer = Trainer(config, corpus, Counting(0, 2))
    work = workload(config, trainer)
    accumulated = trainer.engine.state_dict()["accumulated"].values()
    parameters = trainer.model.named_tables().values()
    assert table_bytes(work) == sum(t.nbytes for t in (*parameters, *accumulated))
    assert work.dense_parameters == sum(p.numel() for p in trainer.model.dense_parameters())
    Counting.received = 0
    next(trainer.steps())
    # With two processes a gathering brings the other half, and a sum as much as it holds; 8 more: the losses.
    assert Counting.received == pytest.approx(replica_traffic(work, 2) + 8)


def test_split_tables_move_less_the_more_processes_share_a_batch():
    for work in WORKLOADS.values():
        assert split_traffic(work, 32) < split_traffic(work, 8)
        assert replica_traffic(work, 32) > replica_traffic(work, 8)


def test_the_document_says_what_the_functions_give():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert tables() in text
    assert network_table() in text
