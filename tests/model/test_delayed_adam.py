"""Rows whose steps are taken when they are read, against PyTorch's Adam, which takes them all."""

import numpy as np
import pytest
import torch

from gramrun.model import bags
from gramrun.model.delayed_adam import AdamSteps, Delayed

ROWS, WIDTH, STEPS = 6, 5, 2500


@pytest.fixture(scope="module")
def gradients():
    """By step: the rows that have one, and their gradients. Row 0 has none, row 1 has two."""
    random = np.random.default_rng(0)
    often = np.array([0, 0, 0.004, 0.1, 0.5, 1])
    found = []
    for step in range(STEPS):
        rows = np.flatnonzero((random.random(ROWS) < often) | ((np.arange(ROWS) == 1) & (step in (40, 2300))))
        found.append((rows, random.normal(0, 0.01, (len(rows), WIDTH)).astype(np.float32)))
    assert len(AdamSteps(0.99, 0.999).first) < 2300 - 40  # longer than the steps taken after a gradient
    return found


def rate(step):
    """η falls, so that a step taken late must have the η of its time."""
    return 0.02 * (1 - step / STEPS)


def start():
    return np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)


def delayed(gradients, betas, read):
    """Train; after each step read all rows if ``read(step)``."""
    table, steps, own = start(), AdamSteps(*betas), Delayed(ROWS)
    momentum, accumulated = np.zeros_like(table), np.zeros_like(table)
    slots, shrink = np.full(ROWS, -1, dtype=np.int32), np.zeros(ROWS, dtype=np.float32)
    every = np.arange(ROWS, dtype=np.int32)
    for step, (rows, sums) in enumerate(gradients, 1):
        own.catch_up(rows.astype(np.int32), table, momentum, accumulated, steps, step - 1)
        steps.add(step, rate(step))
        own.decay(momentum, accumulated, rows, step, betas)
        touched = slots, rows, sums, shrink, len(rows), float(steps.rates[step])
        correction = float(steps.corrections[step])
        bags.update_adam(table, momentum, accumulated, *touched, *betas, correction)
        if read(step):
            own.catch_up(every, table, momentum, accumulated, steps, step)
    own.catch_up(every, table, momentum, accumulated, steps, STEPS)
    return table


@pytest.mark.parametrize("beta1", [0.0, 0.5, 0.9, 0.99])
def test_the_steps_are_those_of_torch(gradients, beta1):
    betas = beta1, 0.999
    parameter = torch.nn.Parameter(torch.from_numpy(start()).double())
    optimizer = torch.optim.Adam([parameter], betas=betas)
    for step, (rows, sums) in enumerate(gradients, 1):
        optimizer.param_groups[0]["lr"] = rate(step)
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad[rows] = torch.from_numpy(sums).double()
        optimizer.step()
    found = delayed(gradients, betas, read=lambda step: False)
    assert (found[0] == start()[0]).all()
    assert (np.abs(found - start())[1:].max(1) > 0.01).all()
    np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_reading_rows_changes_no_bit(gradients):
    once = delayed(gradients, (0.9, 0.999), read=lambda step: False)
    for read in (lambda step: True, lambda step: step % 7 == 0, lambda step: step == 450):
        assert (delayed(gradients, (0.9, 0.999), read) == once).all()
