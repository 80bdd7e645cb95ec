"""Estimators from outside the package: what they are given, and that what they make is what is used."""

import sys
from types import ModuleType

import pytest
import torch

from gramrun.gramian import make_estimator
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import make_population
from gramrun.gramian.schedule import AlphaSchedule

POPULATION = make_population(torch.tensor([0, 0, 1, 2]), 3, 0.5)


class Own(GramianEstimator):
    """Keeps what it was made with."""

    def __init__(self, **given):
        super().__init__(given["embedding_dim"], given["companion_dim"])
        self.given = given

    def observe(self, batch):
        """Do nothing."""


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """`own.models`, as a user's package on Python's path would be."""
    models = ModuleType("own.models")
    models.Own = Own
    for name, imported in {"own": ModuleType("own"), "own.models": models}.items():
        monkeypatch.setitem(sys.modules, name, imported)


def test_it_is_given_the_sizes_the_population_and_the_schedule():
    schedule = AlphaSchedule(0.25)
    made = make_estimator(
        "own.models:Own", embedding_dim=3, population=POPULATION, schedule=schedule, companion_dim=2
    )
    assert type(made) is Own
    assert made.given == {
        "embedding_dim": 3,
        "population": POPULATION,
        "schedule": schedule,
        "companion_dim": 2,
    }
    assert (made.gramian.shape, made.cross.shape) == ((3, 3), (3, 2))


@pytest.mark.parametrize("name", ["own.models", "Own"])
def test_a_name_without_a_colon_is_none_from_outside(name):
    with pytest.raises(ValueError, match=f"no estimator is called '{name}'"):
        make_estimator(name, embedding_dim=1, population=POPULATION)
