import copy
import re

import numpy as np
import pytest
import torch

from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.data.permutation import permuted, round_keys
from gramrun.gramian.surrogate import GravitySide, gravity_surrogate
from gramrun.model.build import embed_all
from gramrun.training.checks import check_run
from gramrun.training.trainer import Trainer

PAIRS = ["train.gamma_left=1", "train.gamma_right=1"]
VARIANTS = {
    "sampling": ["estimator.name=sampling"],
    "sogram": ["estimator.name=sogram"],
    "sogram-debiased": ["estimator.name=sogram", "estimator.debias=true"],
    "sogram-exact-start": ["estimator.name=sogram", "estimator.start=exact"],
    "sogram-table": ["estimator.name=sogram", "estimator.alpha_schedule={1: 1, 5: 0.1}"],
    "free-batch": ["estimator.batch=previous", "estimator.gramian_batch_size=64", "estimator.alpha=0.1"],
    "sag": ["estimator.name=sagram", "estimator.beta=1/n", *PAIRS, "estimator.cache=pair"],
    "saga": ["estimator.name=sagram", "estimator.beta=1", *PAIRS, "estimator.cache=pair"],
    "saga-items": ["estimator.name=sagram", "estimator.cache_dtype=bfloat16", "estimator.rebuild_every=7"],
    "control-variate": ["estimator.name=control-variate", "estimator.alpha=0.1"],
    "control-variate-saga": ["estimator.name=control-variate", "estimator.cache=item"],
    "between": ["train.gamma_left=0.5", "train.gamma_right=0.25"],
    "taylor-softmax": ["train.objective=taylor-softmax", "train.gamma_left=1", "train.gravity=1"],
    "taylor-softmax-saga": [
        "train.objective=taylor-softmax",
        "train.gamma_left=1",
        "train.gravity=1",
        "estimator.name=sagram",
    ],
    "batch-softmax": ["train.objective=batch-softmax", "estimator.name=none"],
    "exact": ["estimator.name=exact"],
    "hidden": ["model.hidden=[6]", "model.skip=true", "train.dense_learning_rate=0.01"],
    "adam": ["train.optimizer=adam", "train.learning_rate=0.01"],
}


def parameters(trainer):
    return [p.detach().clone() for p in trainer.model.parameters()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_seed_same_bits(make_config, corpus, variant):
    first, second = (Trainer(make_config(*VARIANTS[variant]), corpus) for _ in range(2))
    records = [[(r.step, r.epoch, r.loss) for r in t.steps()] for t in (first, second)]
    assert records[0] == records[1]
    assert all(torch.equal(a, b) for a, b in zip(parameters(first), parameters(second), strict=True))
    other = Trainer(make_config(*VARIANTS[variant], "train.seed=1"), corpus)
    assert [r.loss for r in other.steps()] != [r[2] for r in records[0]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_runs_equal_straight_ones_bit_for_bit(make_config, corpus, variant, tmp_path):
    config = make_config(*VARIANTS[variant])
    straight = Trainer(config, corpus)
    losses = [r.loss for r in straight.steps()]
    for cut in (1, 17, 39):
        first = Trainer(config, corpus)
        before = []
        for record in first.steps():
            before.append(record.loss)
            if record.step == cut:
                break
        torch.save(first.state_dict(), tmp_path / "state.pt")
        resumed = Trainer(config, corpus)
        resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        after = [r.loss for r in resumed.steps()]
        assert before + after == losses
        assert all(torch.equal(a, b) for a, b in zip(parameters(straight), parameters(resumed), strict=True))


def test_training_lowers_the_exact_objective(make_config, corpus):
    """f + λ⟨G_u, G_v⟩ over the whole training split, before and after, for every estimator."""

    def objective(trainer):
        u, v = embed_all(trainer.model, corpus)
        pairs = (u[corpus.train.left] * v[corpus.train.right]).sum(1)
        gramians = trainer.left.exact_gramian(), trainer.right.exact_gramian()
        gravity = float((gramians[0] * gramians[1]).sum())
        return float((pairs - 1).square().mean()) + trainer.config.train.gravity * gravity

    for variant in (
        "sampling",
        "sogram-debiased",
        "free-batch",
        "sag",
        "saga-items",
        "control-variate-saga",
        "exact",
        "between",
        "hidden",
    ):
        trainer = Trainer(make_config(*VARIANTS[variant], "train.steps=300"), corpus)
        start = objective(trainer)
        for _ in trainer.steps():
            pass
        assert objective(trainer) < 0.8 * start


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


def test_ratings_can_be_the_target(make_config, corpus):
    with pytest.raises(ConfigError, match="carry no target; set train.target: one"):
        Trainer(make_config("train.target=value"), corpus)


def test_gramian_batches_do_not_touch_the_gradient_batches(make_config, corpus):
    small, large = (
        Trainer(make_config("train.gravity=0", f"estimator.gramian_batch_size={b}"), corpus) for b in (8, 128)
    )
    assert [r.loss for r in small.steps()] == [r.loss for r in large.steps()]


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("train.batch_size=100000", "train.batch_size is 100000"),
        ("estimator.gramian_batch_size=100000", "estimator.gramian_batch_size is 100000"),
    ],
)
def test_batches_larger_than_the_corpus_are_refused(make_config, corpus, override, key):
    with pytest.raises(ConfigError, match=f"{key}.* has only {len(corpus.train):,} training pairs"):
        Trainer(make_config(override), corpus)


def test_estimators_that_would_watch_are_no_reason_not_to_train(make_config, corpus):
    """`gramrun train` makes none of them; `gramrun gram-error` does."""
    config = make_config("gram_error.estimators.1.gramian_batch_size=100000")
    assert Trainer(config, corpus).total_steps > 0
    with pytest.raises(ConfigError, match=r"gram_error\.estimators\.1\.gramian_batch_size is 100000"):
        check_run(config, corpus, observers=config.gram_error.estimators)


def test_a_diverging_run_stops_with_its_reason(make_config, corpus):
    trainer = Trainer(
        make_config("train.optimizer=sgd", "train.learning_rate=1e6", "train.steps=200"), corpus
    )
    with pytest.raises(RunError, match=r"step \d+: the objective is (nan|inf).*lower train.learning_rate"):
        for _ in trainer.steps():
            pass


def test_a_checkpoint_of_another_model_is_refused(make_config, corpus):
    state = Trainer(make_config(), corpus).state_dict()
    for override in ("model.embedding_dim=9", "estimator.name=sagram", "model.hidden=[4]"):
        with pytest.raises(InputError, match="belongs to another model or method"):
            Trainer(make_config(override), corpus).load_state_dict(state)


OTHER_VALUES = (None, "x", -1, [], {}, torch.zeros(()), torch.zeros(3), torch.zeros(2, 3, dtype=torch.int64))


def parts_of(state, path=()):
    """Where each part of a state stands, those of parts included."""
    inner = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return [path, *(place for key, part in inner for place in parts_of(part, (*path, key)))]


@pytest.mark.parametrize(
    "overrides",
    [
        ["train.engine=compiled", "estimator.batch=previous", "estimator.gramian_batch_size=64"],
        ["train.engine=plain", "model.hidden=[4]"],
        ["train.engine=plain", "train.optimizer=adam"],
        ["train.engine=plain", "train.optimizer=sgd"],
    ],
    ids=["compiled", "plain", "adam", "sgd"],
)
def test_any_state_is_refused_or_can_be_trained_from(make_config, corpus, overrides):
    """A part that is gone or another thing never breaks a step later on."""
    config = make_config("train.steps=3", *overrides)
    trainer = Trainer(config, corpus)
    next(trainer.steps())
    saved = trainer.state_dict()
    refusals = []
    read = [place for place in parts_of(saved) if place and place[1:2] != ("param_groups",)]
    for place in read:  # rates and the like come from the configuration
        for value in (*OTHER_VALUES, "remove"):
            state = copy.deepcopy(saved)
            holder = state
            for key in place[:-1]:
                holder = holder[key]
            if isinstance(value, str) and value == "remove":
                del holder[place[-1]]
            else:
                holder[place[-1]] = value
            if not isinstance(state.get("step"), int) or state["step"] < 0:
                continue  # these two are the file's: checkpoints.load
            if not isinstance(state.get("train_seconds"), int | float):
                continue
            try:
                trainer.load_state_dict(state)
            except InputError as error:
                refusals.append(str(error))
            else:
                next(trainer.steps())
    assert len(refusals) > len(OTHER_VALUES)
    assert not [line for line in refusals if re.search(r"<class|NoneType|object at|: '\w+'$", line)]
    trainer.load_state_dict(saved)
    assert trainer.step == 1


def test_surrogate_takes_its_gramians_as_constants():
    u, v = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    gramian = torch.eye(3, requires_grad=True)
    gravity_surrogate(GravitySide(u), GravitySide(v), gramian, gramian).backward()
    assert gramian.grad is None
    torch.testing.assert_close(u.grad, 2 * u.detach() / 4)


def test_evaluation_does_not_disturb_training(make_config, corpus):
    watched, alone = (Trainer(make_config(), corpus) for _ in range(2))
    losses = []
    for record in watched.steps():
        embed_all(watched.model, corpus)
        torch.rand(3)
        losses.append(record.loss)
    assert losses == [r.loss for r in alone.steps()]
