"""The compiled and the static engine against the plain one, and the kernels against literal loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import pages_corpus
from hypothesis import given
from hypothesis import strategies as st

from gramrun.base.errors import ConfigError, InputError
from gramrun.base.processes import Processes
from gramrun.data.corpus import bags
from gramrun.data.split import split_corpus
from gramrun.model import bags as kernels
from gramrun.model.build import engine_name
from gramrun.model.engine import PlainEngine
from gramrun.model.static_engine import StaticEngine
from gramrun.training import trainer as training
from gramrun.training.checks import check_run
from gramrun.training.trainer import Trainer

STEPS = 60
ROUNDINGS = 64 * np.finfo(np.float32).eps  # of a sum of at most 45 terms, times their magnitudes


@pytest.fixture(scope="module")
def pages():
    return split_corpus(pages_corpus(), 0.1)


TOWERS = {
    "linear": ["model.hidden=[]", "model.bag=mean"],
    "hidden": ["model.hidden=[9, 5]", "model.input_dim=6"],
    "skip, means, relu": ["model.hidden=[9]", "model.input_dim=17", "model.skip=true", "model.bag=mean",
                          "model.output=relu"],
}  # fmt: skip
METHODS = {
    "sogram": ["estimator.name=sogram", "estimator.debias=true"],
    "sagram": ["estimator.name=sagram"],
    "control-variate": ["estimator.name=control-variate"],
    "previous batch": ["estimator.batch=previous", "estimator.gramian_batch_size=64"],
    "gradient batch": [
        "estimator.name=sampling",
        "estimator.batch=gradient",
        "estimator.gramian_batch_size=64",
    ],
    "taylor-softmax": ["train.objective=taylor-softmax", "train.gamma_left=1", "train.learning_rate=0.01"],
    # By descent: a shift of all right embeddings changes no softmax, and Adagrad would scale up that rounding.
    "batch-softmax": ["train.objective=batch-softmax", "estimator.name=none", "train.optimizer=sgd"],
}


def trained(config, corpus):
    trainer = Trainer(config, corpus)
    losses = [record.loss for record in trainer.steps()]
    return trainer, losses


@pytest.fixture
def threads():
    """Set PyTorch's threads for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


OPTIMIZERS = {
    "adagrad": ["train.optimizer=adagrad"],
    "adagrad from .1": ["train.optimizer=adagrad", "train.initial_accumulator=0.1"],
    "sgd on sums": ["train.optimizer=sgd", "train.learning_rate=0.002", "train.reduction=sum"],
    "sgd": ["train.optimizer=sgd"],
    "adam": ["train.optimizer=adam", "train.momentum=0.8"],
    "adam, no momentum": ["train.optimizer=adam", "train.momentum=0"],
    "adam, falling rates": ["train.optimizer=adam", "train.decay_from=0.25"],
    "sparse-adam": ["train.optimizer=sparse-adam"],
    "adagrad, l2": ["train.optimizer=adagrad", "train.l2=0.02", "train.dense_l2=0.001"],
    "sgd on sums, l2": ["train.optimizer=sgd", "train.learning_rate=0.002", "train.reduction=sum",
                        "train.l2=0.02", "train.l2_exponent=0", "train.dense_l2=0.01"],
    "sparse-adam, l2": ["train.optimizer=sparse-adam", "train.l2=0.02", "train.l2_exponent=0.5"],
    "sparse-adam, ids dropped": ["train.optimizer=sparse-adam", "train.id_dropout_right=0.4"],
    "no momentum": ["train.optimizer=sparse-adam", "train.momentum=0"],
    "falling rates": ["train.optimizer=sparse-adam", "train.decay_from=0.25"],
}  # fmt: skip
STATIC = {
    **{name: OPTIMIZERS[name] for name in ("adagrad from .1", "sgd")},
    **{name: OPTIMIZERS[name] for name in ("adam", "adam, falling rates")},
    "adagrad, falling rates": ["train.optimizer=adagrad", "train.decay_from=0.25"],
}  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("towers", TOWERS)
def test_compiled_steps_equal_plain_ones(make_config, pages, towers, optimizer):
    _compare(make_config, pages, *TOWERS[towers], *OPTIMIZERS[optimizer])


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_estimator_and_objective(make_config, pages, method):
    _compare(make_config, pages, *TOWERS["hidden"], *METHODS[method])


@pytest.mark.parametrize("optimizer", STATIC)
@pytest.mark.parametrize("towers", TOWERS)
def test_static_steps_equal_plain_ones(make_config, pages, towers, optimizer):
    """The captured step of a GPU, kernel by kernel on the CPU."""
    trainer = _compare(make_config, pages, *TOWERS[towers], *STATIC[optimizer], engine="static")
    assert isinstance(trainer.engine, StaticEngine)
    assert not any(table.gradient.any() for table in trainer.engine._tables.values())  # cleared


@pytest.mark.parametrize("towers", ["linear", "hidden"])
def test_a_column_without_a_value_adds_zeros(make_config, towers):
    """As where no page of a wiki has a category that is kept."""
    made = pages_corpus()
    features = bags("categories", "category", [[]] * made.left.items), *made.left.features
    side = replace(made.left, features=features)
    vocabularies = {**made.vocabularies, "category": made.vocabularies["word"]}
    corpus = split_corpus(replace(made, left=side, right=side, vocabularies=vocabularies), 0.1)
    for engine in ("compiled", "static"):
        _compare(make_config, corpus, *TOWERS[towers], engine=engine)


class Returned(Exception):
    """Carries what a gradient step returned."""


@pytest.mark.parametrize(
    ("towers", "method"),
    [
        ("linear", "sogram"),
        ("hidden", "previous batch"),
        ("skip, means, relu", "taylor-softmax"),
        ("hidden", "batch-softmax"),
    ],
)
def test_a_static_gradient_step_reads_no_value_from_its_device(
    make_config, pages, monkeypatch, towers, method
):
    """PyTorch's meta device has shapes and no numbers: reading a number fails, and so does mixing devices."""
    monkeypatch.setattr(training, "choose_device", lambda name: torch.device("meta"))
    settings = ("train.engine=static", *TOWERS[towers], *METHODS[method])
    trainer = Trainer(make_config(*settings, "train.optimizer=adagrad"), pages)
    gradient_step = trainer.gradient_step

    def returned(pairs):
        raise Returned(gradient_step(pairs))

    trainer.gradient_step = returned
    with pytest.raises(Returned) as done:
        next(trainer.steps())
    means, u, v = done.value.args[0]
    assert means.shape == (2,)
    assert u.shape == v.shape == (64, 8)
    assert {x.device.type for x in (means, u, v)} == {"meta"}


def _compare(make_config, pages, *settings, engine="compiled"):
    common = (f"train.steps={STEPS}", "train.gravity=0.5", "train.learning_rate=0.02", *settings)
    plain, expected = trained(make_config(*common, "train.engine=plain"), pages)
    fast, losses = trained(make_config(*common, f"train.engine={engine}"), pages)
    assert isinstance(plain.engine, PlainEngine)
    assert not isinstance(fast.engine, PlainEngine)
    assert losses == pytest.approx(expected, rel=2e-4, abs=1e-6)
    assert abs(expected[-1] - expected[0]) > 1e-3  # it did learn
    for (name, a), b in zip(fast.model.named_parameters(), plain.model.parameters(), strict=True):
        assert torch.linalg.norm(a - b) <= 1e-3 * torch.linalg.norm(b) + 1e-6, name
    return fast


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_two_threads_give_the_bits_of_one(make_config, pages, threads, optimizer):
    """One thread does all products of a tower, so no sum changes its order."""
    traces = []
    for count in (1, 2, 2):
        threads(count)
        config = make_config("train.steps=20", *TOWERS["hidden"], f"train.optimizer={optimizer}")
        trainer, losses = trained(config, pages)
        assert torch.get_num_threads() == count  # restored after every step
        traces.append((losses, [p.tolist() for p in trainer.model.parameters()]))
    assert traces[0] == traces[1] == traces[2]


def test_a_gradient_after_the_last_step_is_refused(make_config, pages):
    """The step of a row's last gradient is an index in compiled code."""
    trainer, _ = trained(make_config("train.steps=3", "train.optimizer=adam"), pages)
    state = trainer.state_dict()
    for damaged in (-1, 4):
        next(iter(state["optimizer"]["last"].values()))[0] = damaged
        with pytest.raises(InputError, match="its steps are damaged"):
            Trainer(trainer.config, pages).load_state_dict(state)


@pytest.mark.parametrize("engine", ["compiled", "plain"])
def test_rounded_products_stay_near_the_full_ones(make_config, pages, engine):
    """bfloat16 keeps 8 bits: embeddings and the step differ by a few 2⁻⁹, and not by nothing."""
    settings = (*TOWERS["hidden"], "train.optimizer=sgd", f"train.engine={engine}")
    items = torch.arange(pages.left.items)
    embeddings, changes = [], []
    for products in ("float32", "bfloat16"):
        trainer = Trainer(make_config(*settings, f"model.products={products}"), pages)
        embeddings.append(trainer.engine.embed("left", items))
        before = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        next(trainer.steps())
        changes.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]) - before)
    for full, rounded in (embeddings, changes):
        assert full.dtype == rounded.dtype == torch.float32
        assert 1e-4 < float(torch.linalg.norm(full - rounded) / torch.linalg.norm(full)) < 0.03


bag_lists = st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=6)


@given(bag_lists, st.lists(st.integers(0, 99), min_size=1, max_size=9), st.integers(1, 40), st.booleans())
def test_the_kernels_are_their_equations(lists, drawn, width, mean):
    """The equations of the module's docstring, by loops over bags, rows and entries."""
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

    decay, shrink = random.uniform(size=7).astype(np.float32), np.zeros(7, dtype=np.float32)
    kernels.add_decays(rows, decay, slots, shrink)
    for row, found in zip(met[:count].tolist(), shrink, strict=False):
        assert found == pytest.approx(rows.tolist().count(row) * decay[row])
    assert not shrink[count:].any()
    shrinks = shrink.astype(np.float64)

    def penalised(table):
        """The gradient of each touched row of a table."""
        return {
            row: buffer[j].astype(np.float64) + shrinks[j] * table[row].astype(np.float64)
            for j, row in enumerate(met[:count].tolist())
        }

    accumulated = random.uniform(size=table.shape).astype(np.float32)
    wanted, wanted_accumulated = table.astype(np.float64), accumulated.astype(np.float64)
    terms = wanted_accumulated.copy()  # what is added up, before the two parts of a gradient cancel
    for j, row in enumerate(met[:count].tolist()):
        terms[row] += (np.abs(buffer[j]) + np.abs(shrinks[j] * table[row])) ** 2
    for row, g in penalised(table).items():
        wanted_accumulated[row] += g**2
        wanted[row] -= 0.3 * g / (np.sqrt(wanted_accumulated[row]) + 1e-10)
    descended = table.copy()
    again = slots.copy()
    kernels.update_adagrad(table, accumulated, slots, met, buffer, shrink, count, 0.3)
    assert not shrink.any()  # cleared
    np.testing.assert_allclose(table, wanted, rtol=1e-6, atol=1e-6)
    assert (np.abs(accumulated - wanted_accumulated) <= ROUNDINGS * terms).all()
    assert (slots == -1).all()
    expected_descent = descended.astype(np.float64)
    for row, g in penalised(descended).items():
        expected_descent[row] -= 0.3 * g
    shrink[:] = shrinks
    kernels.update_sgd(descended, again, met, buffer, shrink, count, 0.3)
    np.testing.assert_allclose(descended, expected_descent, rtol=1e-6, atol=1e-5)
    assert (again == -1).all()
    assert not shrink.any()
    adapted, again = descended.copy(), slots.copy()
    again[met[:count]] = np.arange(count)
    momentum, squares = (random.uniform(size=table.shape).astype(np.float32) for _ in range(2))
    expected = [x.astype(np.float64) for x in (momentum, squares, adapted)]
    shrink[:] = shrinks
    for row, g in penalised(adapted).items():
        expected[0][row] = 0.9 * expected[0][row] + 0.1 * g
        expected[1][row] = 0.999 * expected[1][row] + 0.001 * g**2
        expected[2][row] -= 0.3 * expected[0][row] / (np.sqrt(expected[1][row]) + 1e-8)
    kernels.update_adam(adapted, momentum, squares, again, met, buffer, shrink, count, 0.3, 0.9, 0.999, 1.0)
    for found, wanted in zip((momentum, squares, adapted), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    assert (again == -1).all()
    assert not shrink.any()


@pytest.mark.parametrize(
    ("settings", "device", "engine"),
    [
        ((), "cpu", "compiled"),
        (("train.engine=plain",), "cpu", "plain"),
        (("train.engine=static",), "cpu", "static"),
        (("train.optimizer=adam",), "cpu", "compiled"),
        ((), "cuda", "plain"),
        (("train.engine=static",), "cuda", "static"),
    ],
)
def test_the_engine_of_a_run(make_config, settings, device, engine):
    assert engine_name(make_config(*settings), torch.device(device)) == engine


def test_what_the_static_engine_cannot_do_is_refused(make_config, corpus):
    for settings, processes, words in (
        (("train.optimizer=sparse-adam",), Processes(), "static has no sparse-adam"),
        ((), Processes(0, 2), "static trains in one process"),
        (("train.l2=0.1",), Processes(), "static has no L2 penalty"),
        (("train.dense_l2=0.1",), Processes(), "static has no L2 penalty"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_run(make_config("train.engine=static", *settings), corpus, processes)
