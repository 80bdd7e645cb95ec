import contracts
import pytest
import torch

from gramrun.gramian import ESTIMATOR_NAMES
from gramrun.gramian.population import make_population

PAIRS = torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6])  # item 3 has no pair


@pytest.mark.parametrize("weighting", ["frequency", "uniform"])
@pytest.mark.parametrize("check", contracts.CHECKS)
@pytest.mark.parametrize("name", contracts.ESTIMATORS)
def test_contract(name, check, weighting):
    contracts.CHECKS[check](contracts.ESTIMATORS[name], make_population(PAIRS, 7, weighting))


@pytest.mark.parametrize("name", contracts.ESTIMATORS)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_agrees_with_cpu(name):
    population = make_population(PAIRS, 7, "frequency")
    contracts.check_device_moves(contracts.ESTIMATORS[name], population, torch.device("cuda"))


def test_every_estimator_is_listed():
    assert {listed.arguments["name"] for listed in contracts.ESTIMATORS.values()} == set(ESTIMATOR_NAMES)


def test_saga_without_projection_does_leave_the_cone():
    """Otherwise the PSD checks of its projected form would show nothing."""
    population = make_population(PAIRS, 7, "frequency")
    assert contracts.check_psd(contracts.ESTIMATORS["sagram-saga-unprojected"], population) < -1e-3


def test_unknown_estimator_is_refused():
    population = make_population(PAIRS, 7, "frequency")
    with pytest.raises(ValueError, match="no estimator is called 'sgd'"):
        contracts.Listed({"name": "sgd"}).make(population)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1])
def test_alpha_outside_its_range_is_refused(alpha):
    population = make_population(PAIRS, 7, "frequency")
    with pytest.raises(ValueError, match="alpha must lie in"):
        contracts.Listed({"name": "sogram", "alpha": alpha}).make(population)
