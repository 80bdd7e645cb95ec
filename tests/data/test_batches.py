"""Batches are pure functions of seed, stream and step, on the host and on a device."""

import itertools
import tracemalloc
from functools import partial

import numpy as np
import pytest
import torch

from gramrun.data.batches import STEPS_AT_ONCE, IndexStream, ShuffledPairs, Stream
from gramrun.training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.mark.parametrize(("pairs", "size"), [(10, 3), (10, 10), (7, 5), (100, 1)])
def test_every_pair_once_an_epoch(pairs, size):
    stream = ShuffledPairs(pairs, size, seed=0)
    drawn = np.concatenate([stream.batch(step) for step in range(3 * pairs)])
    assert all(len(stream.batch(step)) == size for step in range(5))
    epochs = drawn[: len(drawn) // pairs * pairs].reshape(-1, pairs)
    assert (np.sort(epochs, axis=1) == np.arange(pairs)).all()
    assert pairs < 5 or not (epochs[0] == epochs[1]).all()


def test_batches_are_functions_of_the_step():
    straight = ShuffledPairs(50, 8, seed=1)
    expected = [straight.batch(step) for step in range(20)]
    jumping = ShuffledPairs(50, 8, seed=1)
    for step in (13, 2, 19, 0, 6):
        assert np.array_equal(jumping.batch(step), expected[step])


def test_a_stream_takes_the_memory_of_its_batch():
    """Half a billion pairs, any step of any epoch: no order of them is made."""
    stream = ShuffledPairs(490_000_000, 1024, seed=1)
    border = 490_000_000 // 1024  # its batch ends one epoch and starts the next
    stream.batch(0)  # compiles
    tracemalloc.start()
    drawn = [stream.batch(step) for step in (1, border, 1000 * border)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert all(len(np.unique(batch)) == 1024 and batch.max() < 490_000_000 for batch in drawn)


def test_seeds_and_epochs_have_orders_of_their_own():
    def order(seed, epoch):
        return ShuffledPairs(5000, 5000, seed).batch(epoch)

    orders = [order(0, 0), order(0, 1), order(1, 0), order(2**32 - 1, 0)]
    for one, other in itertools.combinations(orders, 2):
        assert np.count_nonzero(one == other) < 8  # Poisson(1) for independent orders


@pytest.mark.parametrize("size", [0, 11])
def test_impossible_batches_are_refused(size):
    with pytest.raises(ValueError, match="batch_size must lie in"):
        ShuffledPairs(10, size, seed=0)


def test_streams_keep_their_numbers():
    """They are part of every seed: a resumed run must draw from the same streams."""
    names = [
        "LEFT_GRAMIAN",
        "RIGHT_GRAMIAN",
        "PERMUTATION",
        "LEFT_OBSERVER",
        "RIGHT_OBSERVER",
        "LEFT_REFERENCE",
        "RIGHT_REFERENCE",
        "LEFT_IDS",
        "RIGHT_IDS",
        "LEFT_GRAMIAN_IDS",
        "RIGHT_GRAMIAN_IDS",
    ]
    assert [(stream.name, stream.value) for stream in Stream] == list(zip(names, range(11), strict=True))


class Drawing:
    """A batch of a step, and which steps were drawn."""

    def __init__(self):
        self.steps = []

    def __call__(self, step):
        self.steps.append(step)
        return np.random.default_rng((5, step)).integers(1000, size=6)


@pytest.mark.parametrize("steps_at_once", [1, 4, 7])
def test_blocks_hold_the_batches_of_their_steps(steps_at_once):
    """In any order: resumed in the midst of a block, and with the steps before and after."""
    stream = IndexStream(Drawing(), CPU, steps_at_once)
    for step in [0, 1, 2, 3, 4, 7, 6, 8, 7, 29, 28, 30, 0, 13]:
        batch = stream.batch(step)
        assert batch.dtype == torch.int64
        assert batch.tolist() == Drawing()(step).tolist()


def test_each_step_is_drawn_once_with_its_neighbours_in_use():
    """The control variate asks for the next step's batch as well, the free batch for the last one's."""
    drawing = Drawing()
    stream = IndexStream(drawing, CPU, 4)
    for step in range(20):
        stream.batch(step)
        stream.batch(step + 1)
    assert drawing.steps == list(range(24))


def test_a_device_gets_many_steps_in_one_copy():
    drawing = Drawing()
    stream = IndexStream(drawing, torch.device("meta"))
    batches = [stream.batch(step) for step in range(STEPS_AT_ONCE)]
    assert drawing.steps == list(range(STEPS_AT_ONCE))
    assert {(batch.device.type, batch.shape, batch.dtype) for batch in batches} == {
        ("meta", (6,), torch.int64)
    }
    assert len({batch.untyped_storage()._cdata for batch in batches}) == 1


@pytest.mark.parametrize(
    "settings",
    [
        ["estimator.name=sogram"],
        ["estimator.name=control-variate", "train.gamma_left=0.5", "train.gamma_right=0"],
        ["estimator.batch=previous", "estimator.gramian_batch_size=64"],
    ],
)
def test_training_on_blocks_is_training_step_by_step(make_config, corpus, monkeypatch, settings):
    config = make_config(*settings, "train.steps=12")
    losses = [record.loss for record in Trainer(config, corpus).steps()]
    monkeypatch.setattr("gramrun.training.side.IndexStream", partial(IndexStream, steps_at_once=5))
    assert [record.loss for record in Trainer(config, corpus).steps()] == losses
