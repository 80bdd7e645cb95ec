"""Training ends at the minimum that ALS knows exactly, and with a wrong gradient it does not."""

from dataclasses import replace

import pytest
import torch

from experiments.reproduce.items import known_optimum
from experiments.reproduce.items.known_optimum import ESTIMATORS, Setting
from experiments.reproduce.jobs import state_of
from experiments.reproduce.plans import Plan
from gramrun.gramian.estimator import NoGramian
from gramrun.training.trainer import Trainer

UNEVEN = ("train.gamma_left=0.5", "train.gamma_right=0")
PAPER, WEIGHTED = Setting("γ = 1"), Setting("γ = 0.5 left, 0 right", UNEVEN)
PRIOR = Setting("prior", (*UNEVEN, "train.target=value", "train.prior.name=svd", "train.prior.rank=2"))
K = 2
SMALL = (
    f"model.embedding_dim={K}",
    "train.batch_size=32",
    "estimator.gramian_batch_size=32",
    "train.learning_rate=0.3",
    "train.epochs=40",
)


def exchanged_importance(batch):
    return replace(batch, left_importance=batch.right_importance, right_importance=batch.left_importance)


def without_importance(batch):
    return replace(batch, left_importance=None, right_importance=None)


def scaled(terms, factor):
    return terms[0], factor * terms[1]


# Each takes the right function and its arguments: the gradient batch and the two estimators.
MISTAKES = {
    "λ doubled": lambda terms, batch, left, right: scaled(terms(batch, left, right), 2),
    "½ in the surrogate": lambda terms, batch, left, right: scaled(terms(batch, left, right), 0.5),
    "gravity on the right items left out": lambda terms, batch, left, right: terms(
        batch, NoGramian(left.embedding_dim, left.cross.shape[1]), right
    ),
    "importance dropped": lambda terms, batch, left, right: terms(without_importance(batch), left, right),
    "importance exchanged": lambda terms, batch, left, right: terms(exchanged_importance(batch), left, right),
    "Gramians exchanged": lambda terms, batch, left, right: terms(batch, right, left),
}
# Too small for F, which is a minimum, to show; not too small for its gradient.
SUBTLE = {
    "λ a tenth too large": lambda terms, batch, left, right: scaled(terms(batch, left, right), 1.1),
    "importance a tenth too large on the left": lambda terms, batch, left, right: terms(
        replace(batch, left_importance=1.1 * batch.left_importance), left, right
    ),
}


def mistaken(trainer, mistake):
    terms = trainer.objective.terms
    trainer.objective.terms = lambda *arguments: {**MISTAKES, **SUBTLE}[mistake](terms, *arguments)
    return trainer


@pytest.fixture(scope="module")
def one_hot():
    return known_optimum.one_hot_corpus(left_items=80, right_items=40)


@pytest.fixture(scope="module")
def optima(one_hot):
    """F* of the two settings; each is one value whatever the start, or this fails."""
    return {
        setting: known_optimum.optimum(small_config(one_hot, "sampling", setting), one_hot)
        for setting in (PAPER, WEIGHTED)
    }


def trained(config, corpus, mistake=None):
    trainer = Trainer(config, corpus)
    if mistake:
        mistaken(trainer, mistake)
    for _ in trainer.steps():
        pass
    return trainer


def small_config(corpus, name, setting):
    return known_optimum.make_config(corpus, ESTIMATORS[name], setting, *SMALL)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("sampling", PAPER),
        ("exact Gramian", WEIGHTED),
        ("sampling", WEIGHTED),
        ("SOGram α=0.1", WEIGHTED),
        ("control variate α=0.1", WEIGHTED),
        ("SAGram β=1, per item", WEIGHTED),
        ("SAGram β=1/n, per item", WEIGHTED),
    ],
)
def test_training_ends_within_one_percent_of_the_optimum(one_hot, optima, setting, name):
    config = small_config(one_hot, name, setting)
    trainer = trained(config, one_hot)
    problem = known_optimum.make_problem(config, one_hot)
    excess = known_optimum.excess(trainer, one_hot, problem, optima[setting])
    assert -1e-6 < excess < 0.01  # below F* would mean that F* is none


def first_change(corpus, setting, mistake=None):
    """How far one gradient step of size 1 over all pairs leaves the minimiser: ‖Δθ‖, the gradient's norm.

    The minimiser is taken as (A u, A⁻ᵀ v), at which F is the same and its gradient 0 for every A.
    """
    n = len(corpus.train)
    whole = (
        f"train.batch_size={n}",
        "train.optimizer=sgd",
        "train.learning_rate=1",
        "train.epochs=null",
        "train.steps=1",
    )
    fixed = [*setting.overrides, f"model.embedding_dim={K}", *whole, "train.epochs=null"]
    config = known_optimum.make_config(corpus, ESTIMATORS["exact Gramian"], Setting("", tuple(fixed)))
    trainer = Trainer(config, corpus)
    if mistake:
        mistaken(trainer, mistake)
    minimum = known_optimum.minimiser(config, corpus, seed=0)
    stretch = torch.diag(torch.tensor([2.0, 0.5], dtype=torch.double))
    tables = [
        next(table for table in trainer.model.table_parameters() if len(table) == len(rows))
        for rows in (minimum.left, minimum.right)
    ]
    with torch.no_grad():
        tables[0].copy_(minimum.left @ stretch)
        tables[1].copy_(minimum.right @ stretch.inverse())
    before = [table.detach().clone() for table in tables]
    next(trainer.steps())
    return sum(float((table.detach() - old).norm()) for table, old in zip(tables, before, strict=True))


@pytest.mark.parametrize("setting", [PAPER, WEIGHTED, PRIOR], ids=lambda setting: setting.title)
def test_the_gradient_is_zero_at_every_representative_of_the_optimum(one_hot, setting):
    assert first_change(one_hot, setting) < 1e-4


@pytest.mark.parametrize("setting", [WEIGHTED, PRIOR], ids=lambda setting: setting.title)
@pytest.mark.parametrize("mistake", [*MISTAKES, *SUBTLE])
def test_with_a_mistake_the_gradient_is_not_zero_there(one_hot, setting, mistake):
    assert first_change(one_hot, setting, mistake) > 1e-2


def test_starts_that_disagree_are_refused(one_hot):
    """At k = 3 this corpus has two local minima, 0.2 % apart."""
    config = known_optimum.make_config(one_hot, ESTIMATORS["sampling"], PAPER, "model.embedding_dim=3")
    with pytest.raises(ValueError, match="starts of ALS end at different values"):
        known_optimum.optimum(config, one_hot)


@pytest.mark.slow
def test_from_the_script_to_the_section(tmp_path, monkeypatch):
    """One objective, two estimators, one epoch: no run arrives, and the section says so."""
    monkeypatch.chdir(tmp_path)
    names = ["exact Gramian", "sampling"]
    options = {
        "objectives": [known_optimum.SETTINGS[3].title],
        "estimators": names,
        "learning_rate": 0.3,
        "epochs": 1,
    }
    plan = Plan("known_optimum", (), (0, 1), options, tmp_path)
    plan.folder.mkdir(parents=True)
    (script,) = known_optimum.tasks(plan)
    assert state_of(script) == "new"
    monkeypatch.setattr("sys.argv", ["known_optimum", *script.arguments, "--output", str(script.output)])
    known_optimum.main()
    section = known_optimum.section(plan)
    assert section.summary == "0 of 4 runs end within 1% of F*."
    assert section.tables[0].frame["epochs"].tolist() == ["never (never to never)"] * 2
    changed = {**ESTIMATORS, "sampling": ("name=sampling", "gramian_batch_size=9")}
    monkeypatch.setattr(known_optimum, "ESTIMATORS", changed)
    assert known_optimum.tasks(plan)[0].settings != script.settings


def test_methods_that_a_setting_cannot_have():
    paper, small_batch, _, uniform, *_ = known_optimum.SETTINGS
    pair = ESTIMATORS["SAGram β=1, per pair"]
    free = ESTIMATORS["SOGram α=0.1, debiased, previous batch"]
    assert known_optimum.possible(pair, paper) and not known_optimum.possible(pair, uniform)
    assert known_optimum.possible(free, uniform) and not known_optimum.possible(free, small_batch)
