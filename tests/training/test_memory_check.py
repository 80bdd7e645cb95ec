"""A run that cannot fit is refused before anything is made; what a GPU would hold, against a learner's tensors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.benchmarks.random_pages import pages_corpus
from gramrun.base import capacity as room
from gramrun.base.errors import ConfigError
from gramrun.base.processes import Processes
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.model.static_learner import StaticLearner
from gramrun.training import trainer as training
from gramrun.training.device_memory import _WORKSPACES, device_memory
from gramrun.training.host_memory import peak_memory
from gramrun.training.memory_check import check_memory
from gramrun.training.objective import companion_dim
from gramrun.training.trainer import Trainer

SMALL = (
    "train.batch_size=2",
    "estimator.gramian_batch_size=2",
    "evaluation.candidates=10",
    "evaluation.left_items=2",
)
FEW_RANKED = ("evaluation.candidates=10", "evaluation.left_items=2", "evaluation.splits=[validation]")
PAPER = Path(__file__).parents[2] / "configs" / "wikipedia-simple" / "paper-sogram.yaml"
CONFIG = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"


def needed(config, corpus):
    return sum(peak_memory(config, corpus, companion_dim(config, corpus)).to_come.values())


def test_what_fits_by_a_byte_is_let_in(make_config, corpus, monkeypatch):
    config = make_config()
    need = needed(config, corpus)
    assert need > 200_000_000
    monkeypatch.setattr(room, "available_memory", lambda: need)
    check_memory(config, corpus)
    monkeypatch.setattr(room, "available_memory", lambda: need - 1)
    with pytest.raises(ConfigError, match=r"and the rest of this run need [\d.]+ MB of memory, .* available"):
        check_memory(config, corpus)


def test_mapped_files_are_not_needed(make_config, corpus, tmp_path):
    in_memory = make_config("estimator.name=sagram")
    in_file = make_config("estimator.name=sagram", f"estimator.cache_folder={tmp_path}")
    caches = peak_memory(in_memory, corpus, 0).caches
    assert caches > 0
    assert needed(in_memory, corpus) - needed(in_file, corpus) == caches
    assert peak_memory(in_file, corpus, 0).files > caches


def test_every_process_of_a_machine_needs_it(make_config, corpus, monkeypatch):
    config = make_config()
    monkeypatch.setattr(room, "available_memory", lambda: 3 * needed(config, corpus) - 1)
    for here, count in (("2", 4), (None, 2)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here or "")
        check_memory(config, corpus, Processes(1, count))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="in each of 3 processes, need"):
        check_memory(config, corpus, Processes(0, 6))


@pytest.mark.parametrize(
    ("settings", "largest", "remedy"),
    [
        (("model.hidden=[2]", "model.input_dim=10000000", *SMALL), "optimizer", "lower model.input_dim"),
        (("model.embedding_dim=10000000", *SMALL), "optimizer", "lower model.embedding_dim"),
        (
            ("model.embedding_dim=10000000", "train.optimizer=sgd", "train.engine=plain", *SMALL),
            "parameters",
            "lower model.embedding_dim",
        ),
        (
            ("train.batch_size=1000", "model.hidden=[100000000]"),
            "evaluation, batches or start",
            "the batch sizes",
        ),
        ((), "threads and compiled loops", "free some, or train on a machine that has more"),
    ],
)
def test_the_line_names_the_largest_and_what_helps(
    make_config, corpus, monkeypatch, settings, largest, remedy
):
    monkeypatch.setattr(room, "available_memory", lambda: 1000)
    with pytest.raises(ConfigError) as caught:
        check_memory(make_config(*settings), corpus)
    assert str(caught.value).startswith(f"{largest} (")
    assert str(caught.value).endswith(remedy)


@pytest.mark.parametrize("dry", [False, True])
def test_a_run_that_does_not_fit_leaves_nothing(gramrun, corpus_path, tmp_path, monkeypatch, dry):
    monkeypatch.setattr(room, "available_memory", lambda: 150_000_000)
    monkeypatch.setattr(training, "make_model", None)  # nothing of the model is made
    settings = ("--set", f"data.path={corpus_path}", "--output", tmp_path / "run")
    code, out, error = gramrun("train", "--config", CONFIG, *settings, *(["--dry-run"] if dry else []))
    assert code == 2
    assert error.startswith("gramrun: threads and compiled loops (200.0 MB) and the rest of this run need 2")
    assert "150.0 MB are available; free some" in error
    assert error.count("\n") == 1
    assert ("at its peak" in out) == dry
    assert not (tmp_path / "run").exists()


def test_a_full_gpu_is_refused(make_config, corpus, monkeypatch):
    config = make_config()
    need = device_memory(config, corpus, 0).total
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (need, 10**12))
    check_memory(config, corpus)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (need - 1, 10**12))
    with pytest.raises(ConfigError, match=r"need [\d.]+ MB of GPU memory, [\d.]+ MB are available; "):
        check_memory(config, corpus)


def test_the_host_of_a_gpu_keeps_only_what_draws(make_config, corpus):
    config = make_config("train.gamma_left=1", "train.gamma_right=0.5", "estimator.name=sagram")
    host = peak_memory(config, corpus, 0, torch.device("cuda"))
    assert (host.parameters, host.optimizer, host.caches) == (0, 0, 0)
    assert host.populations == 8 * corpus.right.items


def most_at_once(act):
    """The most bytes of tensors that live at once while something is done, beyond those before it."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        act()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return int(np.cumsum([event.nbytes() for event in events]).max())


SETTINGS = {
    "linear": ["model.hidden=[]"],
    "hidden": ["model.hidden=[9, 5]", "model.input_dim=6", "model.skip=true"],
    "sgd": ["train.optimizer=sgd", "train.gamma_left=0.5", "train.gamma_right=0"],
    "caches": ["estimator.name=sagram"],
    "caches of pairs": ["estimator.name=sagram", "estimator.cache=pair", "train.gamma_left=1",
                        "train.gamma_right=1", "estimator.cache_dtype=bfloat16"],
    "prior": ["train.prior={name: svd, rank: 3}"],
    "softmax": ["train.objective=batch-softmax", "estimator.name=none"],
}  # fmt: skip


def static_learner(config, model, processes):
    rates = (config.train.learning_rate, config.train.learning_rate)
    return StaticLearner(model, config.train.optimizer, *rates, mean=config.model.bag == "mean")


@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_gpu_would_keep_is_what_the_learner_holds(make_config, corpus, monkeypatch, name):
    monkeypatch.setattr(training, "make_learner", static_learner)
    config = make_config(*SETTINGS[name])
    trainer = Trainer(config, corpus)
    predicted = device_memory(config, corpus, trainer.objective.companion_dim)
    learner, sides = trainer.learner, (trainer.left, trainer.right)
    parameters = list(trainer.model.parameters())
    sums = [*(t for table in learner._tables.values() for t in (table.accumulated, table.gradient))]
    data = [*trainer.model.buffers(), *(side.population.pair_items for side in sides)]
    data += [side.population.item_weights for side in sides]
    data += [s.population.importance for s in sides if s.population.importance is not None]
    if getattr(trainer.objective, "prior", None) is not None:
        data += [trainer.objective.prior.left, trainer.objective.prior.right]
    if hasattr(trainer.objective, "right_log_probability"):
        data.append(trainer.objective.right_log_probability)
    estimators = (trainer.left_estimator, trainer.right_estimator)
    caches = [b for e in estimators for buffer, b in e.named_buffers() if buffer.endswith("cache")]
    held = [
        sum(t.nbytes for t in part)
        for part in (parameters, [*sums, *learner._dense_accumulated], data, caches)
    ]
    assert held == [predicted.parameters, predicted.optimizer, predicted.data, predicted.caches]


@pytest.mark.parametrize("hidden", ["[]", "[48, 8]"])
def test_a_step_in_fixed_shapes_takes_no_more_than_predicted(tmp_path, monkeypatch, hidden):
    """Twice what its tensors take at their most, for the calls before a capture leave theirs reserved."""
    monkeypatch.setattr(training, "make_learner", static_learner)
    corpus = pages_corpus(tmp_path / "pages", pages=300, links=6000)
    settings = [f"data.path={corpus.path}", f"model.hidden={hidden}", *FEW_RANKED]
    config = load_config(RunConfig, PAPER, settings)
    steps = Trainer(config, corpus).steps()
    next(steps)
    taken = most_at_once(lambda: next(steps))
    predicted = device_memory(config, corpus, 0).work - _WORKSPACES
    assert 2 * taken < predicted < 4 * taken
