"""The study of rankings: its solver against autograd and exact ALS, and the points that a search draws."""

import numpy as np
import pytest
import torch

from experiments.studies import conjugate_gradients, ranking
from experiments.studies.conjugate_gradients import Setting
from gramrun.config import BaselineConfig
from gramrun.config.loading import load_config
from gramrun.evaluation.baselines import exact_als
from gramrun.evaluation.baselines.run import exact_als_problem

SETTINGS = [
    Setting(gravity=3),
    Setting(gravity=3, gamma_left=1, gamma_right=0.5, l2=0.05, l2_exponent=0.5),
    Setting(gravity=1, l2=0.2, l2_exponent=0),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_solver_ends_where_the_objective_is_flat(corpus, setting):
    u, v = (
        torch.from_numpy(x).double().requires_grad_()
        for x in conjugate_gradients.fit(corpus, setting, embedding_dim=3, sweeps=200)
    )
    f = [torch.from_numpy(np.asarray(f)).double() for f in (corpus.left_frequency, corpus.right_frequency)]
    wl, wr = (
        exact_als.frequency_weights(f, gamma)
        for f, gamma in zip(f, (setting.gamma_left, setting.gamma_right), strict=True)
    )
    powers = [torch.where(f > 0, f**setting.l2_exponent, 0.0) for f in f]
    norm = 2 / sum(p.sum() for p in powers)
    left, right = corpus.train.left.astype(int), corpus.train.right.astype(int)
    gravity = ((u @ v.T).square() * wl[:, None] * wr).sum()
    penalty = sum((p * norm * x.square().sum(1)).sum() for p, x in zip(powers, (u, v), strict=True))
    loss = ((u[left] * v[right]).sum(1) - 1).square().mean()
    start = torch.autograd.grad(loss + setting.gravity * gravity + setting.l2 * penalty, (u, v))
    assert max(float(x.abs().max()) for x in start) < 2e-5


def test_without_a_penalty_it_is_exact_als(corpus):
    """Both reach one value of the objective."""
    options = ["data.path=x", "baseline.name=exact-als", "baseline.gravity=3", "baseline.gamma_left=1"]
    problem = exact_als_problem(load_config(BaselineConfig, None, options).baseline, corpus)
    setting = Setting(gravity=3, gamma_left=1)
    found = [
        torch.from_numpy(x).double()
        for x in conjugate_gradients.fit(corpus, setting, embedding_dim=3, sweeps=100)
    ]
    *_, last = exact_als.fit(problem, embedding_dim=3, sweeps=100)
    assert exact_als.objective(problem, *found) == pytest.approx(last.objective, rel=1e-3)


def test_a_search_narrows_in_on_its_best():
    points = ranking.draw("implicit-als", 12)
    point, drawn = next(points), []
    while True:
        drawn.append(point)
        try:
            point = points.send(-abs(np.log(point["regularization"] / 30)))
        except StopIteration:
            break
    assert len(drawn) == 12
    first, last = ([abs(np.log(p["regularization"] / 30)) for p in part] for part in (drawn[:6], drawn[-3:]))
    assert max(last) < max(first)
    assert all(p["sweeps"] == int(p["sweeps"]) for p in drawn)
