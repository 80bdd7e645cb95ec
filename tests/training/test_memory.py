"""Predicted memory against real tensors and real processes, and the refusal of runs that do not fit."""

import numpy as np
import pytest
import torch
import yaml
from helpers import CONFIG, CONFIGS, needs_torchrec, settings

from experiments.benchmarks.growth import peak_of_training, predicted_peak
from experiments.benchmarks.random_pages import pages_corpus
from gramrun.base import capacity
from gramrun.base.errors import ConfigError
from gramrun.base.processes import Processes
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.model.build import make_model
from gramrun.model.l2 import row_decays
from gramrun.training import trainer as training
from gramrun.training.checks import check_run
from gramrun.training.memory import (
    CACHES,
    WORK,
    WORKSPACES,
    cache_bytes,
    check_memory,
    count_parameters,
    device_memory,
    host_memory,
    needed_memory,
)
from gramrun.training.objective import companion_dim
from gramrun.training.resources import estimate_resources
from gramrun.training.trainer import Trainer

PAIRS = ("train.gamma_left=1", "train.gamma_right=1", "estimator.name=sagram", "estimator.cache=pair")
PAPER = CONFIGS / "wikipedia-simple" / "paper-sogram.yaml"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A corpus that is small beside the process."""
    return pages_corpus(tmp_path_factory.mktemp("small") / "pages", pages=4000, links=40_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A corpus whose tables, sums, caches and files are as large as the process."""
    folder = tmp_path_factory.mktemp("large") / "pages"
    return pages_corpus(folder, pages=400_000, links=1_500_000, ngrams=40_000, categories=30_000)


@pytest.fixture
def available(monkeypatch):
    """Set the bytes of memory that seem available."""
    return lambda count: monkeypatch.setattr(capacity, "available_memory", lambda: count)


def needed(config, corpus):
    return sum(needed_memory(host_memory(config, corpus)).values())


def paper(corpus, *more):
    return load_config(RunConfig, PAPER, [f"data.path={corpus.path}", *more])


# Predictions against what a run holds.


@pytest.mark.parametrize(
    "shape",
    [
        ("model.hidden=[]",),
        ("model.hidden=[9, 7]", "model.skip=true", "model.input_dim=5"),
    ],
)
def test_parameters_are_counted_without_making_them(small, shape):
    config = paper(small, *shape)
    assert count_parameters(config, small) == sum(p.numel() for p in make_model(config, small).parameters())


@pytest.mark.parametrize(
    "overrides",
    [
        PAIRS,
        ("estimator.name=sagram", "estimator.cache_dtype=bfloat16"),
        ("estimator.name=control-variate", "estimator.cache=item"),
        ("estimator.name=sogram",),
        (*PAIRS, "train.prior.name=svd", "train.prior.rank=7"),
        ("estimator.name=sagram", "train.objective=taylor-softmax", "train.gamma_left=1"),
    ],
    ids=" ".join,
)
def test_caches_occupy_what_is_predicted(make_config, corpus, overrides):
    config = make_config(*overrides)
    trainer = Trainer(config, corpus)
    held = sum(cache.nbytes for cache in caches_of(trainer))
    assert cache_bytes(config, config.estimator, corpus, trainer.objective.companion_dim) == held
    assert companion_dim(config, corpus) == trainer.objective.companion_dim
    assert bool(held) == (config.estimator.cache_entry is not None)


@pytest.mark.parametrize("engine", ["compiled", "plain"])
def test_the_l2_penalty_holds_what_is_predicted(make_config, corpus, engine):
    common = (f"train.engine={engine}", "train.l2_exponent=0.5")
    with_l2, without = (make_config(*common, f"train.l2={l2}") for l2 in (0.1, 0))
    held = sum(decay.nbytes for decay in row_decays(with_l2, corpus).values())
    predicted = [host_memory(config, corpus)["optimizer"] for config in (with_l2, without)]
    assert held == predicted[0] - predicted[1] > 0
    assert not row_decays(without, corpus)


def caches_of(trainer):
    estimators = (trainer.left_estimator, trainer.right_estimator)
    return [b for e in estimators for name, b in e.named_buffers() if name.endswith("cache")]


ADAM = (
    "train.optimizer=adam",
    "train.initial_accumulator=0",
    "train.steps=20",
    "evaluation.left_items=1000",
)
ROW_WISE = ("train.tables=row-wise", "train.optimizer=adagrad")


@pytest.mark.parametrize(("processes", "more"), [(1, ()), pytest.param(2, ROW_WISE, marks=needs_torchrec)])
def test_the_peak_of_a_small_run(small, tmp_path, processes, more):
    chosen = [f"data.path={small.path}", "train.epochs=null", "train.steps=20", *more]
    peak = peak_of_training(PAPER, chosen, tmp_path, processes)
    assert predicted_peak(PAPER, chosen, processes) == pytest.approx(peak, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ("estimator.name=sogram", "evaluation.left_items=1000", "evaluation.candidates=1000"),
        ("estimator.name=sogram", "evaluation.splits=[validation]", "evaluation.left_items=20000"),
        ("estimator.name=sagram", "evaluation.left_items=1000"),
        (*ADAM, "train.engine=compiled"),
        (*ADAM, "train.engine=plain"),
        pytest.param((*ROW_WISE, "evaluation.left_items=1000"), marks=needs_torchrec),
    ],
    ids=" ".join,
)
def test_the_peak_of_a_large_run(large, tmp_path, more):
    config = yaml.safe_load(PAPER.read_text())
    config["train"] |= {"epochs": None, "steps": 400}
    if "estimator.name=sagram" in more:
        config["estimator"] = {"beta": 1, "gramian_batch_size": 1024, "name": "sagram"}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    chosen = [f"data.path={large.path}", *more]
    processes = 2 if ROW_WISE[0] in more else 1
    peak = peak_of_training(file, chosen, tmp_path / "run", processes)
    assert predicted_peak(file, chosen, processes) == pytest.approx(peak, rel=0.1)


STATIC = {
    "hidden": ["model.hidden=[9, 5]", "model.input_dim=6", "model.skip=true"],
    "sgd": ["train.optimizer=sgd", "train.gamma_left=0.5", "train.gamma_right=0"],
    "caches of pairs": [*PAIRS, "estimator.cache_dtype=bfloat16"],
    "prior": ["train.prior={name: svd, rank: 3}"],
    "adam": ["train.optimizer=adam", "model.hidden=[9, 5]", "model.input_dim=6"],
    "softmax": ["train.objective=batch-softmax", "estimator.name=none"],
}


@pytest.mark.parametrize("name", STATIC)
def test_what_a_gpu_would_keep_is_what_the_static_engine_holds(make_config, corpus, name):
    config = make_config(*STATIC[name], "train.engine=static")
    trainer = Trainer(config, corpus)
    engine, sides, objective = trainer.engine, (trainer.left, trainer.right), trainer.objective
    kept = [(table.gradient, table.accumulated, table.momentum) for table in engine._tables.values()]
    sums = [tensor for tensors in kept for tensor in tensors]
    data = [*trainer.model.buffers()]
    for side in sides:
        population = side.population
        data += [population.pair_items, population.item_weights]
        data += [] if population.importance is None else [population.importance]
    if getattr(objective, "prior", None) is not None:
        data += [objective.prior.left, objective.prior.right]
    if hasattr(objective, "right_log_probability"):
        data.append(objective.right_log_probability)
    held = {
        "parameters": trainer.model.parameters(),
        "optimizer": [*sums, *engine._dense_accumulated, *engine._dense_momentum],
        "features and pairs": data,
        CACHES: caches_of(trainer),
    }
    predicted = device_memory(config, corpus)
    for part, tensors in held.items():
        assert sum(t.nbytes for t in tensors) == predicted[part], part


def most_at_once(act):
    """The most bytes of tensors that live at once during a call, beyond those before it."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        act()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return int(np.cumsum([event.nbytes() for event in events]).max())


def test_a_static_step_takes_no_more_than_predicted(tmp_path):
    """The prediction is at least twice the step: the calls before a capture reserve its memory again."""
    corpus = pages_corpus(tmp_path / "pages", pages=300, links=6000)
    few = ("evaluation.candidates=10", "evaluation.left_items=2", "evaluation.splits=[validation]")
    settings = ("model.hidden=[48, 8]", "train.engine=static", "train.optimizer=adagrad", *few)
    config = paper(corpus, *settings)
    steps = Trainer(config, corpus).steps()
    next(steps)
    taken = most_at_once(lambda: next(steps))
    predicted = device_memory(config, corpus)[WORK] - WORKSPACES
    assert 2 * taken < predicted < 4 * taken


# Refusals.


def test_a_run_that_fits_by_a_byte_is_accepted(make_config, corpus, available):
    config = make_config()
    need = needed(config, corpus)
    available(need)
    check_memory(config, corpus)
    available(need - 1)
    with pytest.raises(ConfigError, match=r"and the rest of this run need [\d.]+ MB of memory, .* available"):
        check_memory(config, corpus)


def test_mapped_caches_are_not_needed_in_memory(make_config, corpus, tmp_path):
    in_memory = make_config("estimator.name=sagram")
    in_file = make_config("estimator.name=sagram", f"estimator.cache_folder={tmp_path}")
    caches = host_memory(in_memory, corpus)[CACHES]
    assert caches > 0
    assert needed(in_memory, corpus) - needed(in_file, corpus) == caches
    assert host_memory(in_file, corpus)["mapped files"] == caches  # the corpus is in memory


def test_every_process_of_a_machine_needs_the_memory(make_config, corpus, available, monkeypatch):
    config = make_config()
    available(3 * needed(config, corpus) - 1)
    for here, count in (("2", 4), (None, 2)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here or "")
        check_memory(config, corpus, Processes(1, count))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="in each of 3 processes, need"):
        check_memory(config, corpus, Processes(0, 6))


def test_a_full_gpu_is_refused(make_config, corpus, monkeypatch):
    config = make_config("device=cuda")
    need = sum(device_memory(config, corpus).values())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (need, 10**12))
    check_memory(config, corpus)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (need - 1, 10**12))
    with pytest.raises(ConfigError, match=r"need [\d.]+ MB of GPU memory, [\d.]+ MB are available; "):
        check_memory(config, corpus)


def test_caches_beyond_memory_or_disk_are_refused(make_config, corpus, available, monkeypatch, tmp_path):
    config = make_config(*PAIRS)
    need = cache_bytes(config, config.estimator, corpus, 0)
    available(need)
    check_run(config, corpus)
    available(need - 1)
    with pytest.raises(ConfigError, match=r"Gramian caches need .* of memory.*; set cache: item"):
        check_run(config, corpus)
    mapped = make_config(*PAIRS, f"estimator.cache_folder={tmp_path}")
    check_run(mapped, corpus)
    monkeypatch.setattr(capacity, "available_disk", lambda path: 2 * need - 1)
    check_run(mapped, corpus)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # each process has a file of its own
    with pytest.raises(ConfigError, match="Gramian caches need .* of disk"):
        check_run(mapped, corpus, Processes(0, 2))
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr(capacity, "available_disk", lambda path: 1000)
    with pytest.raises(ConfigError, match=f"need .* of disk, 1.0 KB are available for {tmp_path}"):
        check_run(mapped, corpus)


def test_the_caches_of_observers_are_added_up(make_config, corpus, available):
    two = "gram_error.estimators=[{name: sagram, gramian_batch_size: 64}, {name: sogram, cache: item, gramian_batch_size: 64}]"
    config = make_config(two)
    need = sum(cache_bytes(config, section, corpus, 0) for section in config.gram_error.estimators)
    available(need - 1)
    check_run(config, corpus)
    with pytest.raises(ConfigError, match="Gramian caches need"):
        check_run(config, corpus, observers=config.gram_error.estimators)


def test_a_run_that_does_not_fit_leaves_nothing(gramrun, corpus_path, tmp_path, monkeypatch, available):
    available(150_000_000)
    monkeypatch.setattr(training, "make_model", None)  # no model is made
    line = ["--config", CONFIG, *settings(f"data.path={corpus_path}"), "--output", tmp_path / "run"]
    for command, dry in (("train", []), ("train", ["--dry-run"]), ("gram-error", [])):
        code, out, error = gramrun(command, *line, *dry)
        assert (code, error.count("\n"), "at its peak" in out) == (2, 1, bool(dry))
        assert "and the rest of this run need 150." in error
    assert not (tmp_path / "run").exists()


ABSENT = "gram_error.estimators=[{name: sagram, cache_folder: /absent}]"


@pytest.mark.parametrize(
    ("command", "setting", "message"),
    [
        (("train", "--dry-run"), "train.prior={name: file, path: absent.npz}", "absent.npz"),
        (("train", "--dry-run"), "estimator={name: sagram, cache_folder: /absent}", "/absent is no folder"),
        (("gram-error",), ABSENT, "/absent is no folder"),
        (("train", "--dry-run"), ABSENT, None),  # `train` makes no observers
    ],
)
def test_commands_refuse_what_the_run_would(gramrun, corpus_path, tmp_path, command, setting, message):
    options = settings(f"data.path={corpus_path}", setting)
    code, _, error = gramrun(*command, "--config", CONFIG, *options)
    assert (code, error.count("\n")) == ((0, 0) if message is None else (2, 1))
    assert message is None or message in error
    assert not list(tmp_path.glob("**/run*"))


def test_checkpoints_beyond_the_disk_are_refused(gramrun, corpus_path, tmp_path, monkeypatch):
    monkeypatch.setattr(capacity, "available_disk", lambda path: 1000)
    options = (*settings(f"data.path={corpus_path}"), "--output", tmp_path / "run")
    code, _, error = gramrun("train", "--config", CONFIG, *options)
    assert code == 2
    assert "checkpoints need" in error
    assert not (tmp_path / "run").exists()


def test_the_caches_of_observers_are_in_checkpoints_too(gramrun, corpus_path, tmp_path, monkeypatch):
    observers = "gram_error.estimators=[{name: sagram, cache: item}]"
    options = settings(f"data.path={corpus_path}", observers)
    corpus, config = open_corpus(corpus_path), load_config(RunConfig, CONFIG, options[1::2])
    without = estimate_resources(config, corpus)["disk"]["checkpoints"]
    monkeypatch.setattr(capacity, "available_disk", lambda path: without + 1)
    code, _, error = gramrun("gram-error", "--config", CONFIG, *options, "--output", tmp_path / "run")
    assert (code, "checkpoints need" in error) == (2, True), error
