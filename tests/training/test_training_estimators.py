"""The configuration reaches the estimators: a trainer's moments against an estimator that the test drives itself.

The estimators are proven in tests/gramian. Here each setting is given once to a `Trainer` and once to
`make_estimator`, by hand; both see the same batches, and their moments must be equal to the last bit after every step.
"""

import pytest
import torch

from gramrun.gramian import CacheOptions, make_estimator
from gramrun.gramian.batch import GramianBatch
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.model.towers import embed_in_chunks
from gramrun.training import gram_error
from gramrun.training.trainer import Trainer

STEPS = 7
ITEM = CacheOptions("item", rebuild_every=3)
PAIRS = ("train.gamma_left=1", "train.gamma_right=1")
# Settings of a run, and what make_estimator is to be given for them.
CASES = {
    "sampling": (("name=sampling",), {}),
    "alpha": (("name=sogram", "alpha=0.3"), {"schedule": AlphaSchedule(0.3)}),
    "debias": (("name=sogram", "alpha=0.3", "debias=true"), {"schedule": AlphaSchedule(0.3), "debias": True}),
    "exact start": (
        ("name=sogram", "alpha=0.3", "start=exact"),
        {"schedule": AlphaSchedule(0.3), "exact_start": True},
    ),
    "decaying": (
        ("name=sogram", "alpha=0.3", "alpha_schedule=decaying"),
        {"schedule": AlphaSchedule(0.3, "decaying")},
    ),
    "table": (
        ("name=sogram", "alpha_schedule={1: 1, 3: 0.2}"),
        {"schedule": AlphaSchedule(0.01, {1: 1.0, 3: 0.2})},
    ),
    "averaged caches": (
        ("name=sogram", "alpha=0.3", "cache=item", "rebuild_every=3"),
        {"schedule": AlphaSchedule(0.3), "cache": ITEM},
    ),
    "SAGA": (("name=sagram", "rebuild_every=3"), {"beta": "1", "cache": ITEM}),
    "SAG": (("name=sagram", "beta=1/n", "rebuild_every=3"), {"beta": "1/n", "cache": ITEM}),
    "never rebuilt": (("name=sagram", "rebuild_every=0"), {"beta": "1", "cache": CacheOptions("item")}),
    "bfloat16": (
        ("name=sagram", "cache_dtype=bfloat16", "rebuild_every=3"),
        {"beta": "1", "cache": CacheOptions("item", torch.bfloat16, rebuild_every=3)},
    ),
    "per pair": (
        ("name=sagram", "cache=pair", "rebuild_every=3"),
        {"beta": "1", "cache": CacheOptions("pair", rebuild_every=3)},
    ),
    "control variate unprojected": (
        ("name=control-variate", "alpha=0.3", "project=false"),
        {"schedule": AlphaSchedule(0.3), "project": False},
    ),
    "control variate with caches": (
        ("name=control-variate", "alpha=0.3", "cache=item", "rebuild_every=3"),
        {"schedule": AlphaSchedule(0.3), "cache": ITEM},
    ),
}


def all_items(side):
    return [
        GramianBatch(items, embed_in_chunks(side.embed, items))
        for items in torch.arange(side.items).split(50)
    ]


def by_hand(trainer, side, name, options):
    estimator = make_estimator(
        name,
        embedding_dim=trainer.config.model.embedding_dim,
        population=side.population,
        **options,
    )
    if estimator.needs_start:
        estimator.start(all_items(side))
    return estimator


def follow(make_config, corpus, case):
    """The moments of the trainer and of the estimator driven by hand, after each step, for both sides."""
    settings, options = CASES[case]
    config = make_config(
        *PAIRS, *(f"estimator.{setting}" for setting in settings), "estimator.gramian_batch_size=6"
    )
    trainer = Trainer(config, corpus)
    sides = ((trainer.left, trainer.left_estimator), (trainer.right, trainer.right_estimator))
    mine = [by_hand(trainer, side, config.estimator.name, options) for side, _ in sides]
    steps = trainer.steps()
    for step in range(STEPS):
        for (side, _), estimator in zip(sides, mine, strict=True):
            estimator.observe(side.draw(0, side.stream, step, 6))
            if estimator.looks_ahead:
                estimator.look_ahead(side.draw(0, side.stream, step + 1, 6))
        next(steps)
        for (_, theirs), estimator in zip(sides, mine, strict=True):
            yield theirs.moments.clone(), estimator.moments.clone()


@pytest.mark.parametrize("case", CASES)
def test_every_setting_reaches_its_estimator(make_config, corpus, case):
    for theirs, mine in follow(make_config, corpus, case):
        assert torch.equal(theirs, mine)


class Recorder:
    """Stands for an estimator that looks ahead, and notes the items that it is shown."""

    observes, looks_ahead = "batch", True

    def __init__(self):
        self.observed, self.ahead = [], []

    def observe(self, batch):
        self.observed.append(batch.items.tolist())

    def look_ahead(self, batch):
        self.ahead.append(batch.items.tolist())


def test_watchers_look_ahead_at_what_they_observe_next(make_config, corpus):
    watching = "gram_error.estimators=[{name: control-variate, gramian_batch_size: 9}, {name: sampling, gramian_batch_size: 20}]"
    trainer = Trainer(make_config(watching), corpus)
    observers = gram_error.Observers(trainer.config.gram_error.estimators, trainer)
    recorder = Recorder()
    observers.estimators[1][0] = recorder
    for trainer.step in range(4):
        observers.observe()
    assert recorder.ahead[:-1] == recorder.observed[1:]
    assert {len(items) for items in recorder.observed} == {9}
