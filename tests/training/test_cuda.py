"""Training on a GPU against training on the CPU: the same streams, so the same trajectory up to rounding."""

import pytest
import torch

from gramrun.base.errors import ConfigError
from gramrun.model.build import embed_all
from gramrun.training.trainer import Trainer

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch can use no GPU here")
STEPS = 60  # the static engine captures a step after a few, and replays it from then on

VARIANTS = {
    "sampling": ["estimator.name=sampling"],
    "sogram": ["estimator.name=sogram", "estimator.debias=true"],
    "sagram": ["estimator.name=sagram"],
    "control variate": ["estimator.name=control-variate"],
    "free batch": ["estimator.batch=previous", "estimator.gramian_batch_size=64"],
    "exact": ["estimator.name=exact"],
    "prior": ["train.prior.name=popularity"],
    "weighted": ["train.gamma_left=0.5", "train.gamma_right=0"],
    "taylor-softmax": ["train.objective=taylor-softmax", "train.gamma_left=1"],
    "hidden": ["model.hidden=[9]", "model.input_dim=6", "model.skip=true", "model.bag=mean"],
    "batch-softmax": ["train.objective=batch-softmax", "estimator.name=none"],
    "relu": ["model.output=relu", "model.hidden=[9]", "model.input_dim=6"],
    "sgd": ["train.optimizer=sgd"],
    "adam": ["train.optimizer=adam"],
    "falling rates": ["train.decay_from=0.25"],
}
ENGINES = ("plain", "static")


def test_a_gpu_that_is_not_there_is_one_line(make_config, corpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device is cuda, but torch finds no GPU"):
        Trainer(make_config("device=cuda"), corpus)
    assert Trainer(make_config("device=auto"), corpus).device.type == "cpu"


def test_caches_on_disk_stay_with_the_cpu(make_config, corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    with pytest.raises(ConfigError, match="cache_folder"):
        Trainer(
            make_config("estimator.name=sagram", "device=cuda", f"estimator.cache_folder={tmp_path}"), corpus
        )


@needs_cuda
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gpu_follows_the_cpu(make_config, corpus, variant, engine):
    settings = (*VARIANTS[variant], f"train.steps={STEPS}", "train.learning_rate=0.02")
    devices = ("device=cpu",), ("device=cuda", f"train.engine={engine}")
    cpu, gpu = (Trainer(make_config(*settings, *device), corpus) for device in devices)
    losses = [[record.loss for record in trainer.steps()] for trainer in (cpu, gpu)]
    assert losses[1] == pytest.approx(losses[0], rel=2e-3, abs=1e-5)
    for own, other in zip(embed_all(cpu.model, corpus), embed_all(gpu.model, corpus), strict=True):
        assert torch.allclose(own, other.cpu(), rtol=1e-2, atol=1e-3)
    assert torch.allclose(cpu.left_estimator.moments, gpu.left_estimator.moments.cpu(), rtol=1e-2, atol=1e-4)


@needs_cuda
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("variant", ["sogram", "sagram", "hidden", "adam"])
def test_a_run_goes_on_from_its_state(make_config, corpus, variant, engine, tmp_path):
    config = make_config(*VARIANTS[variant], f"train.steps={STEPS}", "device=cuda", f"train.engine={engine}")
    straight = Trainer(config, corpus)
    losses = [record.loss for record in straight.steps()]
    first = Trainer(config, corpus)
    for record in first.steps():
        if record.step == 23:
            break
    torch.save(first.state_dict(), tmp_path / "state.pt")
    resumed = Trainer(config, corpus)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True, map_location="cpu"))
    after = [record.loss for record in resumed.steps()]
    # Sums into shared rows have no fixed order on a GPU.
    assert after == pytest.approx(losses[23:], rel=1e-3, abs=1e-5)
