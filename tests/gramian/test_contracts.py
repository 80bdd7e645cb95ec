"""The contracts of `gramrun.gramian.contracts`, for every listed estimator and γ, with and without companions."""

import itertools

import contracts
import pytest
import torch

from gramrun.gramian import ESTIMATOR_NAMES
from gramrun.gramian.control_variate import ControlVariate
from gramrun.gramian.exact import ExactGramian
from gramrun.gramian.population import make_population
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.schedule import AlphaSchedule

PAIRS = torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6])  # item 3 has no pair
GAMMAS = [1.0, 0.5, 0.0]
CASES = [
    (name, gamma)
    for name, gamma in itertools.product(contracts.ESTIMATORS, GAMMAS)
    if contracts.ESTIMATORS[name].suits(gamma)
]


def population(gamma):
    return make_population(PAIRS, 7, gamma)


@pytest.mark.parametrize("companion_dim", [0, 2])
@pytest.mark.parametrize("check", contracts.CHECKS)
@pytest.mark.parametrize(("name", "gamma"), CASES)
def test_contract(name, check, gamma, companion_dim):
    contracts.CHECKS[check](contracts.ESTIMATORS[name], population(gamma), companion_dim)


@pytest.mark.parametrize("companion_dim", [0, 2])
@pytest.mark.parametrize(("name", "gamma"), CASES)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_agrees_with_cpu(name, gamma, companion_dim):
    cpu, cuda = (
        contracts.Trajectory(population(gamma), companion_dim, steps=8, batch=8, seed=6, device=device)
        for device in ("cpu", "cuda")
    )
    first = cpu.started(contracts.ESTIMATORS[name])
    second = cuda.start(contracts.ESTIMATORS[name].make(population(gamma), companion_dim).to("cuda"))
    for t in cpu.steps:
        moments = cuda.observe(second, t).cpu()
        torch.testing.assert_close(moments, cpu.observe(first, t), rtol=1e-4, atol=1e-5)


def test_every_estimator_is_listed():
    assert {listed.name for listed in contracts.ESTIMATORS.values()} == set(ESTIMATOR_NAMES)


@pytest.mark.parametrize("name", ["saga-item-unprojected", "control-variate-unprojected"])
def test_without_projection_the_cone_is_left(name):
    """Shows that the PSD checks of the projected forms can fail."""
    assert contracts.check_psd(contracts.ESTIMATORS[name], population(1.0), 0) < -1e-3


@pytest.mark.parametrize("name", contracts.ESTIMATORS)
def test_only_caches_grow_with_the_corpus(name):
    """The saved state is O(k²) numbers, and a cache entry for each item or pair."""
    listed = contracts.ESTIMATORS[name]
    small, large = (
        {
            key: value.shape
            for key, value in listed.make(make_population(pairs, n, 1.0), 2).state_dict().items()
        }
        for pairs, n in ((PAIRS, 7), (PAIRS.repeat(3), 21))
    )
    grown = {key.removeprefix("unbiased.") for key in small if small[key] != large[key]}
    has_caches = name.startswith("sag") or "caches" in name
    assert grown == ({"cache", "companion_cache"} if has_caches else set())


@pytest.mark.parametrize("gamma", [0.5, 0.0])
def test_caches_per_pair_under_another_gamma_are_refused(gamma):
    with pytest.raises(ValueError, match="caches per pair need gamma = 1"):
        contracts.ESTIMATORS["saga-pair"].make(population(gamma))


def test_caches_per_pair_refuse_a_batch_of_items():
    estimator = contracts.ESTIMATORS["saga-pair"].make(population(1.0))
    trajectory = contracts.Trajectory(population(0.0), 0, steps=1, batch=4, seed=0)
    trajectory.start(estimator)
    with pytest.raises(ValueError, match="drawn as pairs"):
        estimator.observe(trajectory.drawn(0, 0))


def test_defaults_of_classes_are_no_companions_and_a_projection():
    variate = ControlVariate(3, AlphaSchedule(0.1), Sampling(3))
    assert variate.project
    assert variate.cross.shape == ExactGramian(3, population(1.0)).cross.shape == (3, 0)
