"""The prototype of tables split by rows, over two real processes, against the step that `gramrun train` takes."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from experiments.many_items import Workload, split_traffic
from experiments.split_step import Bags, CountedProcesses, SplitStep, TableShare
from gramrun.gramian.surrogate import GravitySide, gravity_surrogate
from gramrun.model import bags
from gramrun.model.compiled_learner import CompiledLearner
from gramrun.model.learners import BatchItems
from gramrun.model.losses import squared_error
from gramrun.model.towers import FeatureColumn, TowerShape, TwoTower, table_name

STEPS, ITEMS, BATCH, MEMBERS, GRAVITY = 20, (40, 30), 16, 24, 0.3
SIZES = {"shared": 23, "words": 11, "ids": 40}
FEATURES = (("shared", "words", "ids"), ("shared", "words"))
RATES = {"table_learning_rate": 0.2, "dense_learning_rate": 0.05}
VARIANTS = {"linear": ((), "sum"), "hidden": ((7,), "mean")}


def make_model(hidden, bag):
    """The same model in every process: bags of 0 to 4 values, the ids one-hot, tables shared by the sides."""
    random = torch.Generator().manual_seed(3)

    def column(name, items):
        lengths = (
            torch.ones(items, dtype=torch.long)
            if name == "ids"
            else torch.randint(5, (items,), generator=random)
        )
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
        indices = torch.randint(SIZES[name], (int(offsets[-1]),), generator=random, dtype=torch.int32)
        return FeatureColumn(name, offsets, indices)

    sides = [[column(name, n) for name in names] for names, n in zip(FEATURES, ITEMS, strict=True)]
    return TwoTower(*sides, SIZES, TowerShape(6, 4, hidden, bag=bag), seed=1)


def batches():
    random = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        yield [[torch.randint(n, (size,), generator=random) for n in ITEMS] for size in (BATCH, MEMBERS)]


def train_whole(hidden, bag):
    """By the compiled learner in one process: its tables stacked, its dense layers, its losses."""
    model = make_model(hidden, bag)
    learner = CompiledLearner(model, "adagrad", *RATES.values(), mean=bag == "mean", threads=1)
    losses = []
    for (left, right), members in batches():
        rows = [learner.embed(side, items) for side, items in zip(("left", "right"), members, strict=True)]
        gramians = [e.T @ e / len(e) for e in rows]

        def terms(batch, u, v, gramians=gramians):
            pull = gravity_surrogate(GravitySide(u), GravitySide(v), *gramians)
            return squared_error(u, v, 1.0), GRAVITY * pull

        learner.take("left", left)
        learner.take("right", right)
        losses.append(float(learner.descend(BatchItems(torch.arange(BATCH), left, right), terms).loss))
    return [*stacked(model), *(p.detach() for p in model.dense_parameters()), torch.tensor(losses)]


def stacked(model):
    return [torch.cat([model.named_tables()[table_name(name)].detach() for name in sorted(SIZES)])]


def list_bags(model, side, items):
    """The bags of `items`, by rows of the stacked table."""
    tower = (model.left, model.right)[side]
    first = dict(zip(sorted(SIZES), np.cumsum([0, *(SIZES[name] for name in sorted(SIZES))]), strict=False))
    found = []
    for position, c in enumerate(tower.columns):
        csr = (c.offsets.numpy(), c.indices.numpy(), items.numpy())
        rows = np.empty(bags.count_rows(*csr)[0], dtype=np.int32)
        ends = np.empty(len(items), dtype=np.int64)
        bags.list_rows(*csr, rows, ends)
        start = 0 if tower.output is None else 4 * position
        found.append(Bags(rows.astype(np.int64) + first[c.vocabulary], ends, start))
    return found


def train_split(rank, count, folder):
    """One of `count` processes: trains every variant, and the first keeps what all have together."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    for name, (hidden, bag) in VARIANTS.items():
        processes = CountedProcesses(rank, count)
        model = make_model(hidden, bag)
        table = stacked(model)[0]
        share = TableShare.of(table[rank::count].numpy().copy())
        towers = (model.left, model.right)
        learner = SplitStep(
            towers, share, len(table), processes, gravity=GRAVITY, mean=bag == "mean", **RATES
        )
        losses = []
        for halves in batches():
            listed = [
                tuple(list_bags(model, side, processes.share(items)) for side, items in enumerate(part))
                for part in halves
            ]
            losses.append(learner.step(*listed))
        shares = processes.gather_uneven(torch.from_numpy(share.weight))
        whole = torch.empty_like(table)
        sizes = [len(range(r, len(table), count)) for r in range(count)]
        for r, rows in enumerate(shares.split(sizes)):
            whole[r::count] = rows
        if rank == 0:
            dense = [p.detach() for p in model.dense_parameters()]
            kept = {"parameters": [whole, *dense, torch.tensor(losses)], "received": dict(processes.received)}
            torch.save(kept, folder / f"{name}.pt")
    dist.destroy_process_group()
    os._exit(0)  # as `gramrun.__main__` leaves, and why


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    multiprocessing.spawn(train_split, (2, folder), nprocs=2)
    return {name: torch.load(folder / f"{name}.pt") for name in VARIANTS}


@pytest.mark.parametrize("name", VARIANTS)
def test_split_tables_train_as_one_process_does(split, name):
    hidden, bag = VARIANTS[name]
    expected = train_whole(hidden, bag)
    start = make_model(hidden, bag)
    assert not torch.allclose(expected[0], stacked(start)[0], atol=0.1)  # it did train
    for mine, one in zip(split[name]["parameters"], expected, strict=True):
        torch.testing.assert_close(mine, one, rtol=1e-4, atol=1e-5)


def distinct_rows(model, part, rank):
    """Of the stacked table, of one process's part of a batch."""
    listed = [
        b for side in (0, 1) for b in list_bags(model, side, CountedProcesses(rank, 2).share(part[side]))
    ]
    return np.unique(np.concatenate([b.rows for b in listed]))


def test_a_row_travels_once_however_often_it_stands_in_a_batch(split):
    model = make_model(*VARIANTS["hidden"])
    fetched = asked = returned = 0
    for gradient, members in batches():  # what the first process receives: it owns the even rows
        mine = np.union1d(distinct_rows(model, gradient, 0), distinct_rows(model, members, 0))
        others = np.union1d(distinct_rows(model, gradient, 1), distinct_rows(model, members, 1))
        fetched += int((mine % 2 == 1).sum())
        asked += int((others % 2 == 0).sum())
        returned += int((distinct_rows(model, gradient, 1) % 2 == 0).sum())
    received = split["hidden"]["received"]
    assert received["rows"] == 4 * 4 * fetched  # float32, 4 wide
    assert received["ids"] == 4 * asked
    assert received["gradients"] == 4 * 4 * returned
    dense = sum(p.numel() for p in model.dense_parameters())
    assert received["summed"] == STEPS * 4 * (dense + 2 * 6**2 + 1)  # two processes: as much as it holds
    assert received["counts"] == STEPS * 8


def test_split_traffic_is_what_a_step_moves_where_no_row_stands_twice():
    work = Workload(0, 4, 2, 1.0, (7,), 6, BATCH, MEMBERS)
    sums = 2 * 4 * (work.dense_parameters + 2 * 6**2)
    rows = 2 * (BATCH + MEMBERS) / 2  # of a process's part: left and right items
    assert split_traffic(work, 2) == (4 * 4 * (rows + BATCH) + 4 * rows + sums) / 2
