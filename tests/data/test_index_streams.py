"""Batches brought to a device many steps at a time are those that are drawn one by one."""

from functools import partial

import numpy as np
import pytest
import torch

from gramrun.data.index_stream import STEPS_AT_ONCE, IndexStream
from gramrun.training import side
from gramrun.training import trainer as training
from gramrun.training.trainer import Trainer

CPU = torch.device("cpu")


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
    for module in (training, side):
        monkeypatch.setattr(module, "IndexStream", partial(IndexStream, steps_at_once=5))
    assert [record.loss for record in Trainer(config, corpus).steps()] == losses
