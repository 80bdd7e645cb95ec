"""A run that was interrupted equals one that was not, to the last bit: parameters, optimizer, estimators, metrics.

Interruptions are of three kinds: a signal after which the state is saved, a crash after which it is not, and a real
SIGKILL of a real process before each single thing that it does to its files. `tests/faults/test_kills.py` has others.
"""

import itertools
import multiprocessing
import os
import signal
import sys
import zlib

import numpy as np
import pytest
import torch
from helpers import FOLDER, FORMS, PREVIOUS, leaves, restored, start, train

from gramrun.base.errors import InputError
from gramrun.base.interruption import Interrupted
from gramrun.data import shards
from gramrun.runs import checkpoints
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer

INTERRUPTIONS = 3
OPTIMIZERS = {
    "adagrad": ("train.optimizer=adagrad",),
    "sgd": ("train.optimizer=sgd", "train.learning_rate=0.05"),
    "adam": ("train.optimizer=adam", "train.learning_rate=0.01"),
    "adam, plain": ("train.optimizer=adam", "train.learning_rate=0.01", "train.engine=plain"),
    "sparse-adam": ("train.optimizer=sparse-adam", "train.learning_rate=0.01", "train.decay_from=0.2"),
    "adagrad, l2": (
        "train.optimizer=adagrad",
        "train.l2=0.02",
        "train.l2_exponent=0.5",
        "train.dense_l2=0.01",
    ),
    "adam, static": (
        "train.optimizer=adam",
        "train.learning_rate=0.01",
        "train.decay_from=0.2",
        "train.engine=static",
    ),
    "sparse-adam, plain": ("train.optimizer=sparse-adam", "train.learning_rate=0.01", "train.engine=plain"),
}
TOWERS = {"linear": (), "hidden": ("model.hidden=[6]", "model.skip=true", "train.dense_learning_rate=0.01")}
KINDS = list(itertools.product(OPTIMIZERS, TOWERS))


def everything():
    """All forms under all optimizers and towers; each form once, and each of the rest often, in the fast suite."""
    for number, form in enumerate(FORMS):
        for kind in KINDS:
            fast = kind == KINDS[number % len(KINDS)]
            yield pytest.param(
                form, *kind, marks=() if fast else pytest.mark.slow, id="-".join((form, *kind))
            )


class Crash(BaseException):
    """Ends a process with nothing saved."""


def assert_same(run, straight):
    """Check that two runs have the same last state and the same metrics."""
    found, expected = (
        dict(leaves([checkpoints.load(r.checkpoints()[-1]), r.metrics()])) for r in (run, straight)
    )
    assert found.keys() == expected.keys()
    assert not [name for name in expected if found[name] != expected[name]]


def go_on(path, config, corpus, stop=None):
    """Continue the run with new objects; `stop` is called with each step's number."""
    run, trainer, saved = restored(path, config, corpus)
    steps = trainer.steps

    def stoppable():
        for record in steps():
            if stop:
                stop(record.step)
            yield record

    trainer.steps = stoppable
    fit(run, trainer, corpus, saved.get("losses", ()))
    return run


def stop_at(step, *, saving):
    def stop(now):
        if now == step:
            if not saving:
                raise Crash
            os.kill(os.getpid(), signal.SIGINT)

    return stop


@pytest.mark.parametrize(("form", "optimizer", "towers"), list(everything()))
def test_interrupted_equals_uninterrupted(make_config, corpus, tmp_path, form, optimizer, towers):
    overrides = (*FORMS[form], *OPTIMIZERS[optimizer], *TOWERS[towers], "train.checkpoint_every=7")
    config = make_config(*(override.replace(FOLDER, str(tmp_path)) for override in overrides))
    straight, _ = train(tmp_path / "straight", config, corpus)
    path = start(tmp_path / "r", config, corpus).path
    random = np.random.default_rng(zlib.crc32(f"{form} {optimizer} {towers}".encode()))
    for step in sorted(random.choice(np.arange(1, 40), INTERRUPTIONS, replace=False)):
        with pytest.raises((Interrupted, Crash)):
            go_on(path, config, corpus, stop_at(step, saving=random.random() < 0.5))
    assert_same(go_on(path, config, corpus), straight)


def test_the_same_with_two_threads(make_config, corpus, tmp_path):
    """Then the two towers are trained in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        test_interrupted_equals_uninterrupted(
            make_config, corpus, tmp_path, "SAGA, items", "adagrad", "hidden"
        )
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("part", ["optimizer", "left_estimator", "previous"])
def test_every_part_of_the_state_is_needed(make_config, corpus, tmp_path, part, monkeypatch):
    """Else the comparisons above would show nothing of that part."""
    estimator = PREVIOUS if part == "previous" else ("estimator.name=control-variate", "estimator.cache=item")
    config = make_config(*estimator, "train.optimizer=adam", "train.learning_rate=0.01")
    straight, _ = train(tmp_path / "straight", config, corpus)
    path = start(tmp_path / "r", config, corpus).path
    with pytest.raises(Interrupted):
        go_on(path, config, corpus, stop_at(17, saving=True))
    load = Trainer.load_state_dict

    def forgetful(self, state):
        load(self, {**state, part: self.state_dict()[part]})

    monkeypatch.setattr(Trainer, "load_state_dict", forgetful)
    with pytest.raises(InputError if part == "previous" else AssertionError):  # that one's absence is seen
        assert_same(go_on(path, config, corpus), straight)


def test_training_goes_on_without_the_checkpoint_it_came_from(make_config, corpus, tmp_path):
    """Nothing of the restored state is a view of the file, which the user may cut, copy over or delete."""
    config = make_config(*FORMS["SAGA, items"], "train.optimizer=adam", "train.learning_rate=0.01")
    straight, _ = train(tmp_path / "straight", config, corpus)
    path = start(tmp_path / "r", config, corpus).path
    with pytest.raises(Interrupted):
        go_on(path, config, corpus, stop_at(17, saving=True))

    def cut(step):
        if step == 18:  # a view of the file would end the process here, with SIGBUS
            os.truncate(path / "checkpoints" / "step-000000017.pt", 0)

    assert_same(go_on(path, config, corpus, cut), straight)


# Real processes. They are forked from one that has imported already what takes seconds to import (torch's
# optimizers import torch._dynamo when they are first made).

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["gramrun.training.loop", "torch._dynamo", "pytest"])


def sit(path, config, corpus_path, die_at=None, count=None):
    """What a process does: start the run or go on with it.

    It dies before its `die_at`th act on the run's files, or counts them.
    """
    acts = itertools.count(1)

    def watch(event, arguments):
        if event in ("open", "os.rename", "os.remove", "os.mkdir") and str(arguments[0]).startswith(
            str(path.parent)
        ):
            number = next(acts)
            if number == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if count is not None:
                count.value = number

    if die_at is not None or count is not None:
        sys.addaudithook(watch)
    corpus = shards.open_corpus(corpus_path)
    if not path.exists():
        start(path, config, corpus)
    go_on(path, config, corpus)


def process(*arguments, **options):
    """Start a sitting in a process of its own."""
    started = PROCESSES.Process(target=sit, args=arguments, kwargs=options)
    started.start()
    return started


def finish(path, config, corpus, straight):
    """Go on to the end after a kill, and compare; nothing half-written may be left."""
    if not path.exists():
        start(path, config, corpus)
    assert_same(go_on(path, config, corpus), straight)
    assert not list(path.parent.rglob("*.partial*"))


def some(total, wanted):
    """Numbers from 1 to `total`, both ends among them."""
    return sorted({round(x) for x in np.linspace(1, total, min(total, wanted))})


@pytest.mark.parametrize("wanted", [6, pytest.param(10**6, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("begun", [False, True], ids=["new", "resumed"])
def test_killed_before_each_thing_it_does_to_its_files(
    make_config, corpus, corpus_path, tmp_path, begun, wanted
):
    """Each opening, renaming, removing: of the folder, config, manifest, metrics, checkpoints, and their temporaries."""
    config = make_config("train.checkpoint_every=9")
    straight, _ = train(tmp_path / "straight" / "r", config, corpus)

    def prepare(folder):
        path = folder / "r"
        folder.mkdir()
        if begun:  # interrupted at step 14, and that checkpoint torn: what is left is step 9's
            start(path, config, corpus)
            with pytest.raises(Interrupted):
                go_on(path, config, corpus, stop_at(14, saving=True))
            os.truncate(path / "checkpoints" / "step-000000014.pt", 5000)
        return path

    count = PROCESSES.Value("i", 0)
    whole = process(prepare(tmp_path / "whole"), config, corpus_path, count=count)
    whole.join()
    assert whole.exitcode == 0
    assert count.value > 30
    for number in some(count.value, wanted):
        path = prepare(tmp_path / f"at-{number}")
        killed = process(path, config, corpus_path, die_at=number)
        killed.join()
        assert killed.exitcode == -signal.SIGKILL
        finish(path, config, corpus, straight)
