"""The compiled learner against torch's own: kernels by literal loops, whole trainings by the plain learner."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gramrun.data import shards
from gramrun.data.corpus import Corpus, Side, bags, one_hot
from gramrun.model import bags as kernels
from gramrun.model.build import learner_kind, make_learner
from gramrun.model.learners import PlainLearner
from gramrun.model.static_learner import StaticLearner
from gramrun.training import trainer as training
from gramrun.training.trainer import Trainer

STEPS = 100
ROUNDINGS = 64 * np.finfo(np.float32).eps  # of a sum of at most 45 terms, times their magnitudes


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages that link to pages: every table shared by both sides, bags empty, long and with repeated rows."""
    random = np.random.default_rng(0)
    count = 90
    words = [random.integers(12, size=random.integers(0, 7)).tolist() for _ in range(count)]
    features = (one_hot("page", "page", np.arange(count)), bags("words", "word", words))
    pairs = np.unique(random.integers(count, size=1600) * count + random.integers(count, size=1600))
    left, right = np.divmod(pairs, count)
    corpus = Corpus(
        name="pages",
        left=Side("page", count, features),
        right=Side("page", count, features),
        vocabularies={
            name: pd.DataFrame({"key": np.arange(n).astype(str)})
            for name, n in (("page", count), ("word", 12))
        },
        pair_left=left.astype(np.int32),
        pair_right=right.astype(np.int32),
    )
    path = tmp_path_factory.mktemp("learners") / "pages"
    origin = {"fingerprint": "", "verified": True}
    shards.write_corpus(corpus, path, validation_fraction=0.1, split_seed=0, origin=origin)
    return shards.open_corpus(path)


TOWERS = {
    "linear": ["model.hidden=[]"],
    "hidden": ["model.hidden=[9, 5]", "model.input_dim=6"],
    "skip, means, relu": [
        "model.hidden=[9]",
        "model.input_dim=17",
        "model.skip=true",
        "model.bag=mean",
        "model.output=relu",
    ],
    "linear means": ["model.hidden=[]", "model.bag=mean"],
}
METHODS = {
    "sogram": ["estimator.name=sogram", "estimator.debias=true"],
    "sagram": ["estimator.name=sagram"],
    "control-variate": ["estimator.name=control-variate"],
    "previous batch": ["estimator.batch=previous", "estimator.gramian_batch_size=64"],
    "taylor-softmax": ["train.objective=taylor-softmax", "train.gamma_left=1", "train.learning_rate=0.01"],
    # By descent: a shift of all right embeddings changes no softmax, and Adagrad would scale up that rounding.
    "batch-softmax": ["train.objective=batch-softmax", "estimator.name=none", "train.optimizer=sgd"],
}


def trained(config, corpus):
    trainer = Trainer(config, corpus)
    losses = [record.loss for record in trainer.steps()]
    return trainer, losses


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
@pytest.mark.parametrize("towers", TOWERS)
def test_a_hundred_steps_equal_torchs_own(make_config, pages, towers, optimizer, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        _compare(make_config, pages, *TOWERS[towers], f"train.optimizer={optimizer}")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("method", METHODS)
def test_with_every_kind_of_estimator_and_objective(make_config, pages, method):
    _compare(make_config, pages, *TOWERS["hidden"], *METHODS[method])


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
@pytest.mark.parametrize("towers", TOWERS)
def test_the_step_in_fixed_shapes_equals_torchs_own(make_config, pages, monkeypatch, towers, optimizer):
    """The GPU's learner, kernel by kernel on the CPU."""
    monkeypatch.setattr(training, "make_learner", static_learner)
    fast = _compare(make_config, pages, *TOWERS[towers], f"train.optimizer={optimizer}")
    assert isinstance(fast.learner, StaticLearner)
    assert not any(table.gradient.any() for table in fast.learner._tables.values())  # cleared


def static_learner(config, model, processes):
    if config.train.engine == "plain":
        return make_learner(config, model, processes)
    rates = (config.train.learning_rate, config.train.dense_learning_rate or config.train.learning_rate)
    return StaticLearner(model, config.train.optimizer, *rates, mean=config.model.bag == "mean")


@pytest.mark.parametrize("method", ["sogram", "previous batch", "taylor-softmax", "batch-softmax"])
@pytest.mark.parametrize("towers", TOWERS)
def test_a_step_in_fixed_shapes_asks_its_device_nothing(make_config, pages, monkeypatch, towers, method):
    """On torch's meta device, which has shapes and no numbers: whatever must know a number there fails.

    So does whatever mixes devices. What a CUDA graph captures is a step that passes this. (Caches look for
    distinct items, and projections for a negative eigenvalue: they ask, outside of what is captured.)
    """
    monkeypatch.setattr(training, "choose_device", lambda name: torch.device("meta"))
    config = make_config(f"data.path={pages.path}", *TOWERS[towers], *METHODS[method])
    monkeypatch.setattr(training, "make_learner", lambda config, model, _: OnMeta(config, model))
    trainer = Trainer(config, pages)
    with pytest.raises(Replayed) as done:
        next(trainer.steps())
    loss, objective, u, v = done.value.args[0]
    assert loss.shape == objective.shape == () and u.shape == v.shape == (64, 8)
    assert {x.device.type for x in done.value.args[0]} == {"meta"}


class Replayed(Exception):
    """Carries what a whole step gave."""


class OnMeta(StaticLearner):
    """Stops where the host reads the objective."""

    def __init__(self, config, model):
        super().__init__(model, "adagrad", 0.1, 0.1, mean=config.model.bag == "mean")

    def _descend(self, batch, terms):
        raise Replayed(super()._descend(batch, terms))


def _compare(make_config, pages, *settings):
    common = (
        f"data.path={pages.path}",
        f"train.steps={STEPS}",
        "train.gravity=0.5",
        "train.learning_rate=0.02",
        *settings,
    )
    plain, expected = trained(make_config(*common, "train.engine=plain"), pages)
    fast, losses = trained(make_config(*common), pages)
    assert isinstance(plain.learner, PlainLearner) and not isinstance(fast.learner, PlainLearner)
    assert losses == pytest.approx(expected, rel=2e-4, abs=1e-6)
    assert abs(expected[-1] - expected[0]) > 1e-3  # it did learn
    for (name, a), b in zip(fast.model.named_parameters(), plain.model.parameters(), strict=True):
        assert torch.linalg.norm(a - b) <= 1e-3 * torch.linalg.norm(b) + 1e-6, name
    return fast


def test_both_sides_at_work_give_the_bits_of_one_after_the_other(make_config, pages):
    """A tower's products are done by one thread in both cases, so nothing is summed in another order."""
    before = torch.get_num_threads()
    traces = []
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            config = make_config(f"data.path={pages.path}", "train.steps=60", *TOWERS["hidden"])
            trainer, losses = trained(config, pages)
            assert torch.get_num_threads() == threads  # given back after every step
            traces.append((losses, [p.tolist() for p in trainer.model.parameters()]))
    finally:
        torch.set_num_threads(before)
    assert traces[0] == traces[1] == traces[2]


@pytest.mark.parametrize("engine", ["compiled", "plain"])
def test_rounded_products_stay_near_the_full_ones(make_config, pages, engine):
    """bfloat16 keeps 8 bits: embeddings and the step differ by a few 2⁻⁹, and not by nothing."""
    settings = (f"data.path={pages.path}", *TOWERS["hidden"], "train.optimizer=sgd", f"train.engine={engine}")
    items = torch.arange(pages.left.items)
    embeddings, changes = [], []
    for products in ("float32", "bfloat16"):
        trainer = Trainer(make_config(*settings, f"model.products={products}"), pages)
        embeddings.append(trainer.learner.embed("left", items))
        before = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        next(trainer.steps())
        changes.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]) - before)
    for full, rounded in (embeddings, changes):
        assert full.dtype == rounded.dtype == torch.float32
        assert 1e-4 < float(torch.linalg.norm(full - rounded) / torch.linalg.norm(full)) < 0.03


def test_adam_changes_every_row_and_stays_with_torch(make_config, corpus):
    config = make_config("train.optimizer=adam")
    assert isinstance(Trainer(config, corpus).learner, PlainLearner)


bag_lists = st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=6)


@given(bag_lists, st.lists(st.integers(0, 99), min_size=1, max_size=9), st.integers(1, 40), st.booleans())
def test_the_kernels_are_their_equations(lists, drawn, width, mean):
    """gather, gradient and Adagrad of the module's docstring, by loops over bags, rows and entries."""
    random = np.random.default_rng(0)
    feature = bags("f", "v", lists)
    items = np.array([d % len(lists) for d in drawn])
    table = random.normal(size=(7, width)).astype(np.float32)
    rows = np.empty(kernels.count_rows(feature.offsets, feature.indices, items)[0], dtype=np.int32)
    ends = np.empty(len(items), dtype=np.int64)
    kernels.list_rows(feature.offsets, feature.indices, items, rows, ends)
    assert rows.tolist() == [row for item in items for row in lists[item]]

    start = 3
    inputs = np.ones((len(items), start + width + 1), dtype=np.float32)
    expected = inputs.astype(np.float64)
    magnitude = np.abs(expected)
    scales = [1 / len(lists[i]) if mean and lists[i] else 1.0 for i in items]
    for b, item in enumerate(items):
        for row in lists[item]:
            expected[b, start : start + width] += scales[b] * table[row].astype(np.float64)
            magnitude[b, start : start + width] += np.abs(table[row])
    kernels.gather_bags(rows, ends, table, mean, inputs, start)
    assert (np.abs(inputs - expected) <= ROUNDINGS * magnitude).all()

    gradient = random.normal(size=inputs.shape).astype(np.float32)
    sums, magnitudes = {}, {}
    for b, item in enumerate(items):
        for row in lists[item]:
            share = scales[b] * gradient[b, start : start + width].astype(np.float64)
            sums[row] = sums.get(row, 0) + share
            magnitudes[row] = magnitudes.get(row, 0) + np.abs(share)
    slots = np.full(7, -1, dtype=np.int32)
    met, buffer = np.empty(7, dtype=np.int64), np.empty((7, width), dtype=np.float32)
    count, _ = kernels.sum_gradients(rows, ends, gradient, start, mean, slots, met, buffer, 0)
    assert met[:count].tolist() == list(sums)  # in the order in which they were met
    for row, found in zip(met[:count].tolist(), buffer, strict=False):
        assert (np.abs(found - sums[row]) <= ROUNDINGS * magnitudes[row]).all()

    accumulated = random.uniform(size=table.shape).astype(np.float32)
    wanted, wanted_accumulated = table.astype(np.float64), accumulated.astype(np.float64)
    gradients = dict(zip(met[:count].tolist(), buffer[:count].astype(np.float64), strict=True))
    for row, g in gradients.items():
        wanted_accumulated[row] += g**2
        wanted[row] -= 0.3 * g / (np.sqrt(wanted_accumulated[row]) + 1e-10)
    descended = table.copy()
    again = slots.copy()
    kernels.update_adagrad(table, accumulated, slots, met, buffer, count, 0.3)
    np.testing.assert_allclose(table, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(accumulated, wanted_accumulated, rtol=1e-6)
    assert (slots == -1).all()
    expected_descent = descended.astype(np.float64)
    for row, g in gradients.items():
        expected_descent[row] -= 0.3 * g
    kernels.update_sgd(descended, again, met, buffer, count, 0.3)
    np.testing.assert_allclose(descended, expected_descent, rtol=1e-6, atol=1e-5)
    assert (again == -1).all()


@pytest.mark.parametrize(
    ("settings", "device", "longest", "processes", "kind"),
    [
        ((), "cpu", 10**9, 1, "compiled"),
        ((), "cpu", 1, 2, "compiled"),
        (("train.engine=plain",), "cpu", 1, 1, "plain"),
        (("train.optimizer=adam",), "cpu", 1, 1, "plain"),
        ((), "cuda", 1, 1, "static"),
        ((), "cuda", 1, 2, "plain"),
        ((), "cuda", 10**6, 1, "plain"),
        (("train.engine=plain",), "cuda", 1, 1, "plain"),
        (("train.optimizer=adam",), "cuda", 1, 1, "plain"),
    ],
)
def test_which_learner_a_run_has(make_config, settings, device, longest, processes, kind):
    assert learner_kind(make_config(*settings), torch.device(device), [longest], processes) == kind
