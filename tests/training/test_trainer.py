"""A training step against its literal gradient, training against the exact objective, and what is refused."""

import numpy as np
import pytest
import torch

from gramrun.base.errors import ConfigError, RunError
from gramrun.data.permutation import permuted, round_keys
from gramrun.gramian.sampling import Sampling
from gramrun.training.checks import check_run
from gramrun.training.trainer import Trainer


def test_another_seed_gives_another_run(make_config, corpus):
    one, other = (Trainer(make_config(f"train.seed={seed}"), corpus) for seed in (0, 1))
    assert [r.loss for r in one.steps()] != [r.loss for r in other.steps()]


@pytest.mark.parametrize("gamma", [1, 0.5, 0])
def test_one_step_is_its_literal_gradient(make_config, corpus, gamma):
    """θ − η ∇[mean (⟨u,v⟩ − 1)² + λ ĝ] with Gramians from the batch B, all written out."""
    config = make_config(
        "train.optimizer=sgd",
        "train.learning_rate=0.5",
        "estimator.name=sampling",
        f"train.gamma_left={gamma}",
        f"train.gamma_right={gamma}",
    )
    trainer = Trainer(config, corpus)
    expected = Trainer(config, corpus)
    gramians = []
    for side in (expected.left, expected.right):
        items, _ = side.population.draw(np.random.default_rng((0, side.stream, 0)), 32)
        rows = [side.embed(item[None])[0].detach() for item in items]
        gramians.append(sum(torch.outer(e, e) for e in rows) / len(rows))
    keys = round_keys((0, 2, 0), len(corpus.train))
    pairs = permuted(np.arange(64), len(corpus.train), keys)
    total = 0
    for pair in pairs:
        left, right = int(corpus.train.left[pair]), int(corpus.train.right[pair])
        u = expected.model.left_embeddings(torch.tensor([left]))[0]
        v = expected.model.right_embeddings(torch.tensor([right]))[0]
        wu, wv = (
            f[x] ** gamma
            / sum(float(f[y]) ** gamma for y in range(len(f)) if f[y])
            / (f[x] / len(corpus.train))
            for f, x in ((corpus.left_frequency, left), (corpus.right_frequency, right))
        )
        gravity = wu * (u @ gramians[1] @ u) + wv * (v @ gramians[0] @ v)
        total = total + ((u @ v - 1) ** 2 + config.train.gravity * gravity) / len(pairs)
    total.backward()
    next(iter(trainer.steps()))
    for got, start in zip(trainer.model.parameters(), expected.model.parameters(), strict=True):
        want = start.detach() - 0.5 * (start.grad.to_dense() if start.grad.is_sparse else start.grad)
        torch.testing.assert_close(got.detach(), want, rtol=1e-4, atol=1e-6)


def test_a_falling_rate_shortens_each_step(make_config, corpus):
    """From the same θ each step is η_t/η times that with a constant η; η_t falls on a line to 0 after the last step."""
    settings = "train.optimizer=sgd", "train.learning_rate=0.5", "estimator.name=sampling", "train.steps=8"
    falling, constant = (
        Trainer(make_config(*settings, "model.hidden=[6]", f"train.decay_from={share}"), corpus)
        for share in (0.25, 1)
    )
    steps = zip(falling.steps(), constant.steps(), strict=True)
    for factor in (1, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6):
        before = [p.detach().clone() for p in falling.model.parameters()]
        constant.model.load_state_dict(falling.model.state_dict())
        next(steps)
        for start, short, whole in zip(
            before, falling.model.parameters(), constant.model.parameters(), strict=True
        ):
            torch.testing.assert_close(short - start, factor * (whole - start), rtol=1e-4, atol=1e-6)


def test_an_objective_that_is_not_finite_leaves_the_parameters(make_config, corpus):
    trainer = Trainer(make_config("train.optimizer=sgd", "train.learning_rate=1e12"), corpus)
    steps = trainer.steps()
    with pytest.raises(RunError, match="the objective is"):
        while True:
            before = [p.detach().clone() for p in trainer.model.parameters()]
            next(steps)
    assert all(torch.equal(p, start) for p, start in zip(trainer.model.parameters(), before, strict=True))


def test_gramian_batches_do_not_touch_the_gradient_batches(make_config, corpus):
    small, large = (
        Trainer(make_config("train.gravity=0", f"estimator.gramian_batch_size={b}"), corpus) for b in (8, 128)
    )
    assert [r.loss for r in small.steps()] == [r.loss for r in large.steps()]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.batch_size=100000", r"train.batch_size is 100000, but .* has only [\d,]+ training pairs"),
        ("estimator.gramian_batch_size=100000", "estimator.gramian_batch_size is 100000, but"),
        (
            "gram_error.estimators.1.gramian_batch_size=100000",
            "gram_error.estimators.1.gramian_batch_size is",
        ),
        ("train.target=value", "carry no target; set train.target: one"),
    ],
)
def test_what_does_not_fit_the_corpus_is_refused(make_config, corpus, setting, words):
    config = make_config(setting)
    with pytest.raises(ConfigError, match=words):
        check_run(config, corpus, observers=config.gram_error.estimators)
    if setting.startswith("gram_error"):
        check_run(config, corpus)  # `gramrun train` makes no observers
    if setting.startswith("estimator"):
        check_run(make_config(setting, "estimator.name=exact"), corpus)  # which draws no batch


def test_an_estimator_cannot_look_ahead_to_a_batch_that_is_not_drawn_yet(make_config, corpus, monkeypatch):
    monkeypatch.setattr(Sampling, "looks_ahead", True)
    previous = "estimator.name=sampling", "estimator.batch=previous", "estimator.gramian_batch_size=64"
    with pytest.raises(ConfigError, match="sampling looks ahead .* set batch: drawn"):
        Trainer(make_config(*previous, "train.batch_size=64"), corpus)
