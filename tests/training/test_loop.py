"""The training loop: when an evaluation is due, what counts as training time, and TensorBoard's curves.

The progress bar is tested on a real terminal in tests/cli/test_interfaces.py.
"""

import itertools
import shutil
import sys
import time

import pytest
from helpers import CONFIG, SMALL, resume, settings, start, train
from hypothesis import given
from hypothesis import strategies as st

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError
from gramrun.base.processes import SINGLE_PROCESS
from gramrun.config import RunConfig, TimedInterval
from gramrun.config.loading import load_config
from gramrun.data.batches import Stream, step_generator
from gramrun.gramian.exact import relative_error
from gramrun.model.towers import embed_in_chunks
from gramrun.runs import checkpoints
from gramrun.training import loop as fitting
from gramrun.training.loop import OWN_STORE, fit, goes_on
from gramrun.training.progress import Schedule
from gramrun.training.trainer import StepRecord, Trainer

NO_TENSORBOARD = "reads TensorBoard's files back, and tensorboard is not installed"


class Killed(BaseException):
    """What no one catches."""


def killed_at(trainer, step):
    """Let a trainer end at a step like a process that is killed."""
    original = trainer.steps

    def steps():
        for record in original():
            if record.step == step:
                raise Killed
            yield record

    trainer.steps = steps


@pytest.fixture(scope="module")
def trainer(corpus):
    settings = ["data.path=in-memory", "train.batch_size=64", "estimator.gramian_batch_size=32"]
    return Trainer(load_config(RunConfig, CONFIG, settings), corpus)


def due(interval, trainer, ends, begin=0):
    """The steps after which an interval is due, where step t ends after ``ends[t - 1]`` seconds."""
    trainer.train_seconds = ends[begin - 1] if begin else 0.0
    schedule = Schedule(TimedInterval.model_validate(interval), trainer)
    records = [StepRecord(t, 0.0, 0.0, ends[t - 1]) for t in range(begin + 1, len(ends) + 1)]
    return [record.step for record in records if schedule.due(record)]


def test_intervals_of_steps_and_epochs(trainer):
    ends = [0.1 * t for t in range(1, 101)]
    epoch = round(trainer.pairs / 64)
    assert due("30", trainer, ends) == [30, 60, 90]
    assert due("2 epochs", trainer, ends) == list(range(2 * epoch, 101, 2 * epoch))
    assert due("0", trainer, ends) == due("0 minutes", trainer, ends) == due("0 epochs", trainer, ends) == []


def test_minutes_are_due_at_the_first_step_after_each_multiple(trainer):
    assert due("0.5 minutes", trainer, [10, 29, 30, 31, 59, 95, 96, 119, 120]) == [3, 6, 9]
    assert due("0.5 minutes", trainer, [100.0, 200.0, 201.0]) == [1, 2]  # a step longer than the interval


@given(st.lists(st.floats(1e-3, 100), min_size=2, max_size=40), st.floats(0.01, 2), st.data())
def test_a_resumed_run_is_due_when_it_would_have_been(trainer, seconds, minutes, data):
    ends = list(itertools.accumulate(seconds))
    stopped = data.draw(st.integers(1, len(ends) - 1))
    interval = f"{minutes:.6f} minutes"
    straight = due(interval, trainer, ends)
    first, second = due(interval, trainer, ends[:stopped]), due(interval, trainer, ends, begin=stopped)
    assert first + second == straight


def test_slow_evaluations_and_checkpoints_are_no_training(tmp_path, make_config, corpus, monkeypatch):
    def slowly(function, seconds):
        def slow(*arguments, **options):
            time.sleep(seconds)
            return function(*arguments, **options)

        return slow

    monkeypatch.setattr(fitting, "evaluate_model", slowly(fitting.evaluate_model, 0.3))
    monkeypatch.setattr(checkpoints, "save", slowly(checkpoints.save, 0.2))
    config = make_config("evaluation.splits=[validation]", "train.checkpoint_every=20")
    run, trainer = train(tmp_path / "r", config, corpus)
    first, last = run.metrics()
    assert last["train_seconds"] == trainer.train_seconds
    assert min(first["evaluation_seconds"], last["evaluation_seconds"]) >= 0.3
    assert (first["checkpoint_seconds"], last["checkpoint_seconds"] >= 0.2) == (0, True)
    passed, trained = (last[name] - first[name] for name in ("seconds", "train_seconds"))
    assert passed - trained >= first["evaluation_seconds"] + last["checkpoint_seconds"]


def test_the_loss_is_the_mean_over_the_stretch(tmp_path, make_config, corpus):
    config = make_config("evaluation.every=15")
    run, _ = train(tmp_path / "r", config, corpus)
    losses = [record.loss for record in Trainer(config, corpus).steps()]
    means = [sum(part) / len(part) for part in (losses[:15], losses[15:30], losses[30:])]
    assert [record["loss"] for record in run.metrics()] == pytest.approx(means, rel=1e-12)


@pytest.mark.parametrize("samples", [1, 100, 10**6])
@pytest.mark.parametrize("name", ["sogram", "exact"])
def test_a_run_logs_the_error_of_its_own_gramians(tmp_path, make_config, corpus, name, samples):
    """The last record by its definition, over all items or over a sample; training is the same."""
    own = (f"estimator.name={name}", "train.gamma_left=1")
    run, trainer = train(tmp_path / "r", make_config(*own, f"log.gramian_samples={samples}"), corpus)
    plain, _ = train(tmp_path / "plain", make_config(*own), corpus)
    last = run.metrics()[-1]
    assert [r["loss"] for r in plain.metrics()] == [r["loss"] for r in run.metrics()]
    assert "gramian_error_left" not in plain.metrics()[-1]
    for side, estimator, stream in (
        (trainer.left, trainer.left_estimator, Stream.LEFT_REFERENCE),
        (trainer.right, trainer.right_estimator, Stream.RIGHT_REFERENCE),
    ):
        exact = side.exact_gramian()
        if side.items > samples:
            generator = step_generator(run.config.train.seed, stream, trainer.step)
            rows = embed_in_chunks(side.embed, side.population.draw(generator, samples)[0]).double()
            exact = rows.T @ rows / samples
        error = relative_error(estimator.gramian, exact)
        assert last[f"gramian_error_{side.name}"] == pytest.approx(error, rel=1e-6)
        assert error > 0  # the drift of one step at least


def test_what_cannot_be_measured_is_null(tmp_path, make_config, corpus):
    """The relative error of a Gramian that is 0, from one member, and gravity that nothing estimates."""
    frozen = "model.table_scale=1e-46", "train.learning_rate=1e-46", "log.gramian_samples=1"
    run, _ = train(tmp_path / "zero", make_config(*frozen), corpus)
    assert run.metrics()[-1]["gramian_error_left"] is run.metrics()[-1]["gramian_error_right"] is None
    run, _ = train(tmp_path / "none", make_config("estimator.name=none", "train.gravity=0"), corpus)
    assert run.metrics()[-1]["gravity"] is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("estimator.name=none", "train.gravity=0"), "no estimate to measure"),
        (("train.objective=taylor-softmax", "train.gamma_left=1"), "set train.objective: gravity"),
        (("train.id_dropout_right=0.5",), "embeds every item with its id"),
    ],
)
def test_a_run_without_gramians_to_measure_is_refused(gramrun, tmp_path, corpus_path, setting, message):
    options = settings(f"data.path={corpus_path}", "log.gramian_samples=100", *SMALL, *setting)
    code, _, err = gramrun("train", "--config", CONFIG, "--output", tmp_path / "r", *options)
    assert (code, message in err) == (2, True), err
    assert not (tmp_path / "r").exists()


def test_there_is_no_bar_without_a_terminal(tmp_path, make_config, corpus, capfd):
    train(tmp_path / "r", make_config(), corpus)
    assert capfd.readouterr().err == ""


def scalars(path):
    """What TensorBoard would draw of a run: {name: {step: value}}, and that no step is drawn twice."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=NO_TENSORBOARD
    )
    events = accumulator.EventAccumulator(str(path / "tensorboard")).Reload()
    curves = {}
    for name in events.Tags()["scalars"]:
        points = [(event.step, event.value) for event in events.Scalars(name)]
        curves[name] = dict(points)
        assert len(points) == len(curves[name])
    return curves


def as_scalars(run):
    """The same from metrics.jsonl, in TensorBoard's float32."""
    return {
        name: {r["step"]: pytest.approx(r[name], rel=1e-6) for r in run.metrics()}
        for name in run.metrics()[0]
        if name != "step"
    }


@pytest.mark.parametrize("before", ["true", "false"])
def test_a_killed_run_resumes_its_curves_without_duplicates(tmp_path, make_config, corpus, before):
    """Also where TensorBoard is switched on by the resume: what was measured before is drawn too."""
    pytest.importorskip("tensorboard", reason=NO_TENSORBOARD)
    settings = ("train.checkpoint_every=15", "evaluation.every=10")
    config = make_config(*settings, f"log.tensorboard={before}")
    run, trainer = start(tmp_path / "r", config, corpus), Trainer(config, corpus)
    killed_at(trainer, 28)
    with pytest.raises(Killed):
        fit(run, trainer, corpus)
    if before == "true":
        assert set(scalars(run.path)["loss"]) == {10, 20}
    config_hash = run.manifest["config_hash"]
    run = resume(run.path, make_config(*settings, "log.tensorboard=true"), corpus)
    assert run.manifest["config_hash"] == config_hash
    assert runs.open_run(run.path).config.log.tensorboard
    assert set(scalars(run.path)["loss"]) == {10, 20, 30, 40}
    assert scalars(run.path) == as_scalars(run)
    with pytest.raises(
        ConfigError,
        match=r"--resume may change only train\.epochs, train\.steps, train\.checkpoints_kept and log",
    ):
        resume(run.path, make_config(*settings, "evaluation.every=7"), corpus)


def test_a_run_goes_on_where_its_corpus_has_moved(gramrun, tmp_path, corpus_path):
    shutil.copytree(corpus_path, tmp_path / "d")
    begun = ["train", "--config", CONFIG, *settings("data.path=d", *SMALL), "--output", "r"]
    assert gramrun(*begun)[0] == 0
    (tmp_path / "d").rename(tmp_path / "e")
    on = ["train", "--output", "r", "--resume", *settings("train.steps=60", "data.path=e")]
    code, out, err = gramrun(*on)
    assert (code, "step 60" in out) == (0, True), err
    assert gramrun("prepare", "synthetic", "--set", "synthetic.seed=1", "--output", "e", "--force")[0] == 0
    code, _, err = gramrun(*on)
    assert (code, err.startswith("gramrun: e: holds another corpus than that of r")) == (2, True), err


def test_a_missing_tensorboard_is_one_line_and_starts_nothing(gramrun, tmp_path, corpus_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    settings = ("--set", f"data.path={corpus_path}", "--set", "log.tensorboard=true")
    for options in (["--output", "r"], ["--dry-run"]):
        code, out, err = gramrun("train", "--config", CONFIG, *settings, *options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "pip install 'gramrun[tensorboard]'" in err
    assert not list(tmp_path.iterdir())


def test_a_launcher_that_restarts_begins_a_run_with_resume(tmp_path, monkeypatch):
    """tests/model/test_row_wise.py kills processes under torchrun --max-restarts."""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    assert not goes_on(tmp_path / "run", SINGLE_PROCESS, resume=True)
    with pytest.raises(InputError, match="give --resume, which begins a run"):
        goes_on(tmp_path / "run", SINGLE_PROCESS, resume=False)
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    with pytest.raises(InputError, match=f"needs {OWN_STORE}=1"):
        goes_on(tmp_path / "run", SINGLE_PROCESS, resume=True)
    monkeypatch.setenv(OWN_STORE, "1")
    assert not goes_on(tmp_path / "run", SINGLE_PROCESS, resume=True)
