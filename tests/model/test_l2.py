"""The L2 penalty: its gradient over every batch, under every optimizer, and its weights by hand."""

import itertools

import numpy as np
import pytest
import torch
from helpers import made_corpus, made_side
from torch.nn.utils import parameters_to_vector

from gramrun.data.corpus import bags
from gramrun.data.split import split_corpus
from gramrun.model.l2 import importances, row_frequencies
from gramrun.model.towers import table_name
from gramrun.training.trainer import Trainer

EXPONENTS = [0.0, 0.5, 1.0]
TOWERS = {
    "linear": ["model.hidden=[]"],
    "hidden": ["model.hidden=[5]", "model.input_dim=4", "model.skip=true", "model.bag=mean"],
}


@pytest.fixture(scope="module")
def tiny():
    """Pages that link to pages: shared tables, an item without pairs, empty bags, a word twice in a bag."""
    words = [[0], [1, 1, 2], [], [0, 2], [3]]
    side = made_side("page", 5, bags("words", "word", words))
    pairs = np.array([[0, 1], [0, 2], [1, 0], [1, 1], [2, 3], [3, 1]]).T
    corpus = made_corpus(side, side, pairs, {"word": 5})
    split = split_corpus(corpus, 0.1, seed=0)
    assert len(split.train) == 5
    return split


def bag(side, item):
    """(vocabulary, row) of an item, feature by feature."""
    for f in side.features:
        for row in f.indices[f.offsets[item] : f.offsets[item + 1]].tolist():
            yield f.vocabulary, row


def literal_objective(model, corpus, l2, exponent, dense_l2):
    """f + R by its definition: loops over pairs and bags in Python, in float64, for autograd."""
    pairs = list(zip(corpus.train.left.tolist(), corpus.train.right.tolist(), strict=True))
    met = {}
    for x, y in pairs:
        for key in [*bag(corpus.left, x), *bag(corpus.right, y)]:
            met[key] = met.get(key, 0) + 1
    occurrences, powers = sum(met.values()), sum(f**exponent for f in met.values())
    tables = model.named_tables()
    penalty = 0.0
    for (vocabulary, row), f in met.items():
        weight = occurrences / len(pairs) * f**exponent / powers
        penalty = penalty + l2 * weight * tables[table_name(vocabulary)][row].double().square().sum()
    for parameter in model.dense_parameters():
        penalty = penalty + dense_l2 * parameter.double().square().sum()
    u, v = (
        embed(torch.tensor(ids)) for embed, ids in zip(
            (model.left_embeddings, model.right_embeddings), zip(*pairs, strict=True), strict=True
        )
    )  # fmt: skip
    return ((u * v).sum(1) - 1).square().mean() + penalty


def literal_gradient(model, corpus, *weights):
    """The gradient of `literal_objective`, as one vector."""
    parameters = list(model.parameters())
    loss = literal_objective(model, corpus, *weights)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat(
        [
            torch.zeros(p.numel()) if g is None else g.to_dense().flatten()
            for p, g in zip(parameters, found, strict=True)
        ]
    )


def settings(towers, engine, exponent, *more):
    return [
        *TOWERS[towers], f"train.engine={engine}", f"train.l2_exponent={exponent}", "train.l2=0.7",
        "train.dense_l2=0.3", "model.table_scale=1", "train.gravity=0", "estimator.name=none", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("engine", ["plain", "compiled"])
@pytest.mark.parametrize("towers", TOWERS)
def test_the_mean_step_over_every_batch_is_the_gradient(
    make_config, tiny, towers, engine, exponent, reduction
):
    """Batches with and without replacement: two pairs of five, as within an epoch and where two epochs meet."""
    rate = 0.25
    common = settings(towers, engine, exponent, "train.batch_size=2", "train.optimizer=sgd")
    more = (f"train.learning_rate={rate}", f"train.reduction={reduction}", "estimator.gramian_batch_size=2")
    trainer = Trainer(make_config(*common, *more), tiny)
    start = {name: p.clone() for name, p in trainer.model.state_dict().items()}
    expected = literal_gradient(trainer.model, tiny, 0.7, exponent, 0.3) * (2 if reduction == "sum" else 1)

    def mean_gradient(batches):
        found = []
        for pairs in batches:
            trainer.model.load_state_dict(start)
            before = parameters_to_vector(trainer.model.parameters()).detach().clone()
            trainer.gradient_step(torch.tensor(pairs))
            found.append((before - parameters_to_vector(trainer.model.parameters()).detach()) / rate)
        trainer.model.load_state_dict(start)
        return torch.stack(found).double().mean(0)

    every = range(len(tiny.train))
    for batches in (itertools.permutations(every, 2), itertools.product(every, repeat=2)):
        torch.testing.assert_close(mean_gradient(batches), expected.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("towers", TOWERS)
@pytest.mark.parametrize(
    ("optimizer", "engine"),
    [
        ("sgd", "compiled"),
        ("adagrad", "compiled"),
        ("adagrad", "plain"),
        ("adam", "compiled"),
        ("adam", "plain"),
        ("sparse-adam", "compiled"),
        ("sparse-adam", "plain"),
    ],
)
def test_the_optimizer_sees_one_gradient(make_config, tiny, towers, optimizer, engine):
    """Ten steps over all pairs are those of torch's optimizer on the literal objective, penalty included."""
    pairs = len(tiny.train)
    common = settings(towers, engine, 0.5, f"train.batch_size={pairs}", f"train.optimizer={optimizer}")
    more = ("train.steps=10", "train.learning_rate=0.01", f"estimator.gramian_batch_size={pairs}")
    trainer = Trainer(make_config(*common, *more, "train.dense_learning_rate=0.01"), tiny)
    twin = Trainer(make_config(*common, *more), tiny).model
    makers = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}  # with all pairs both Adams are one
    steps = makers.get(optimizer, torch.optim.Adam)(twin.parameters(), lr=0.01)
    start = parameters_to_vector(twin.parameters()).detach().clone()
    for _ in trainer.steps():
        gradient = literal_gradient(twin, tiny, 0.7, 0.5, 0.3)
        sizes = [p.numel() for p in twin.parameters()]
        for p, g in zip(twin.parameters(), gradient.split(sizes), strict=True):
            p.grad = g.view_as(p).float()
        steps.step()
    found, expected = (parameters_to_vector(m.parameters()).detach() for m in (trainer.model, twin))
    assert (found - start).abs().max() > 0.05
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_the_weights_by_hand(tiny):
    """Rows count as often as bags hold them; ν = 1 is 1 for every row, ν = 0 is inverse to the frequency."""
    frequencies = row_frequencies(tiny)
    x, y = tiny.train.left, tiny.train.right
    assert frequencies["page"].tolist() == np.bincount([*x, *y], minlength=5).tolist()
    words = [word for item in [*x, *y] for word in ([0], [1, 1, 2], [], [0, 2], [3])[item]]
    assert frequencies["word"].tolist() == np.bincount(words, minlength=5).tolist()
    met = {name: f > 0 for name, f in frequencies.items()}
    assert not all(m.all() for m in met.values())
    for exponent in EXPONENTS:
        a = importances(frequencies, exponent)
        assert all((a[name][~met[name]] == 0).all() for name in a)
        total = sum(f.sum() for f in frequencies.values())
        assert sum((f * a[name]).sum() for name, f in frequencies.items()) == pytest.approx(total)
        for name, f in frequencies.items():
            shape = (a[name] * f ** (1 - exponent))[met[name]]
            np.testing.assert_allclose(shape, shape[0], rtol=1e-12)


def test_rows_that_no_pair_meets_keep_their_start(make_config, tiny):
    for engine in ("compiled", "plain"):
        chosen = settings("linear", engine, 0, "train.batch_size=2", "estimator.gramian_batch_size=2")
        trainer = Trainer(make_config(*chosen, "train.steps=5"), tiny)
        before = {name: table.detach().clone() for name, table in trainer.model.named_tables().items()}
        assert len(list(trainer.steps())) == 5
        for name, frequency in row_frequencies(tiny).items():
            unmet = torch.from_numpy(frequency == 0)
            table = trainer.model.named_tables()[table_name(name)]
            assert torch.equal(table[unmet], before[table_name(name)][unmet])
