"""The package `implicit` behind one function: its objective is the stated one, and it keeps quiet."""

from types import SimpleNamespace

import numpy as np
import torch

from gramrun.config import BaselineSection
from gramrun.data.corpus import Pairs
from gramrun.evaluation.baselines import implicit_als

LEFT = np.array([0, 0, 1, 2, 2, 3, 3, 4], dtype=np.int32)
RIGHT = np.array([0, 1, 1, 0, 2, 3, 2, 3], dtype=np.int32)


def fit(seed=0, iterations=400):
    section = BaselineSection(
        name="implicit-als", embedding_dim=2, regularization=0.3, confidence=4.0, sweeps=iterations, seed=seed
    )
    left, right = SimpleNamespace(items=5), SimpleNamespace(items=4)
    return implicit_als.fit(section, SimpleNamespace(left=left, right=right, train=Pairs(LEFT, RIGHT, None)))


def stated_objective(u, v):
    """The double sum of the module's docstring."""
    observed = torch.zeros(5, 4, dtype=torch.double)
    observed[LEFT, RIGHT] = 1
    confidence = 1 + 3 * observed
    loss = (confidence * (u @ v.T - observed).square()).sum()
    return loss + 0.3 * (u.square().sum() + v.square().sum())


def test_it_ends_where_the_stated_objective_is_stationary():
    embeddings = [e.double().requires_grad_() for e in fit()]
    gradients = torch.autograd.grad(stated_objective(*embeddings), embeddings)
    assert max(float(g.abs().max()) for g in gradients) < 1e-4  # float32
    assert min(float(e.detach().abs().max()) for e in embeddings) > 0.1


def test_shapes_types_and_seeds(capfd):
    (left, right), again, other = fit(), fit(), fit(seed=1, iterations=1)
    assert (left.shape, right.shape) == ((5, 2), (4, 2))
    assert left.dtype == right.dtype == torch.float32
    assert torch.equal(left, again[0])
    assert not torch.equal(fit(iterations=1)[0], other[0])
    assert capfd.readouterr() == ("", "")
