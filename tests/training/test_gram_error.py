"""`gram-error`: errors and trajectories by their definitions, watching without influence, resume bit for bit."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError
from gramrun.base.interruption import Interrupted
from gramrun.gramian.exact import relative_error
from gramrun.gramian.population import make_population
from gramrun.model.towers import embed_in_chunks
from gramrun.runs import checkpoints, figures
from gramrun.training import gram_error, trajectory
from gramrun.training.side import EmbeddedSide
from gramrun.training.trainer import Trainer


def watch(path, config, corpus):
    run = runs.create(path, "gram-error", config, corpus.content_hash)
    trainer = Trainer(config, corpus)
    observers = gram_error.Observers(config.gram_error.estimators, trainer)
    return run, trainer, observers, gram_error.measure(run, trainer, observers)


@pytest.fixture(scope="module")
def watched(tmp_path_factory, make_config, corpus):
    """A run with all observers under the paper's weights."""
    config = make_config("train.gamma_left=1", "train.gamma_right=1")
    return watch(tmp_path_factory.mktemp("watched") / "g", config, corpus)


def test_the_file_has_every_estimator_side_and_step(watched):
    run, _, _, file = watched
    frame = pd.read_csv(file)
    columns = ["step", "epoch", "seconds", "estimator", "batch_size", "alpha", "side", "error"]
    assert list(frame.columns) == columns
    assert sorted(frame["step"].unique()) == [1, 10, 20, 30, 40]
    assert set(frame["side"]) == {"left", "right"}
    assert len(frame) == 5 * 2 * 5
    assert frame.loc[frame["estimator"] == "SOGram", "alpha"].eq(0.1).all()
    assert frame.loc[frame["estimator"] == "sampling", "alpha"].isna().all()
    assert (frame.loc[frame["estimator"] == "exact Gramian", "error"] < 1e-6).all()
    assert (frame.loc[frame["estimator"] != "exact Gramian", "error"] > 1e-4).all()
    assert run.manifest["status"] == "finished"


def test_errors_are_against_the_pairs_of_the_paper(watched, corpus):
    """The last row of the file, recomputed from its definition over all training pairs."""
    _, trainer, observers, file = watched
    rows = embed_in_chunks(trainer.left.embed, torch.from_numpy(corpus.train.left).long()).double()
    exact = rows.T @ rows / len(rows)
    torch.testing.assert_close(trainer.left.exact_gramian(), exact, rtol=1e-6, atol=1e-9)
    last = pd.read_csv(file).query("step == 40 and side == 'left' and estimator == 'sampling'")
    estimate = observers.estimators[0][0].gramian
    assert float(last["error"].iloc[0]) == pytest.approx(relative_error(estimate, exact))


def test_equal_batch_sizes_share_their_draws(tmp_path, make_config, corpus):
    both = "gram_error.estimators=[{name: sampling, gramian_batch_size: 64}, {name: sogram, alpha: 1, gramian_batch_size: 64}]"
    _, _, _, file = watch(tmp_path / "g", make_config(both), corpus)
    frame = pd.read_csv(file).pivot(index=["step", "side"], columns="estimator", values="error")
    assert frame["SOGram"].to_numpy() == pytest.approx(frame["sampling"].to_numpy(), rel=1e-5)


# Step 20 is measured, and its drift starts at 19.
@pytest.mark.parametrize(("reference", "stop"), [("exact", 15), ("sampled", 19)])
def test_an_interrupted_watch_goes_on_exactly_where_it_was(
    tmp_path, make_config, corpus, monkeypatch, stop, reference
):
    config = make_config(f"gram_error.reference={reference}", "gram_error.reference_samples=500")
    _, _, _, straight = watch(tmp_path / "straight", config, corpus)
    run = runs.create(tmp_path / "g", "gram-error", config, corpus.content_hash)
    trainer = Trainer(config, corpus)
    observers = gram_error.Observers(config.gram_error.estimators, trainer)
    monkeypatch.setattr(gram_error, "deferred_interrupt", lambda: _StopsAt(trainer, stop))
    with pytest.raises(Interrupted, match=f"interrupted at step {stop} of 40"):
        gram_error.measure(run, trainer, observers)
    monkeypatch.undo()
    for name in (gram_error.CSV, trajectory.CSV):
        with (run.path / name).open("a") as file:
            file.write("39,0,0,torn in the middle,of a lost row\n99,torn")
    run.update_manifest(status="running", files={})  # as a process leaves it that is killed later on
    trainer = Trainer(config, corpus)
    observers = gram_error.Observers(config.gram_error.estimators, trainer)
    saved = checkpoints.restore(run, trainer)["observers"]
    for other in (None, [], saved[:1], [[None] * len(part) for part in saved], [part[:-1] for part in saved]):
        with pytest.raises(
            InputError, match=r"belongs to other gram_error.estimators: (it|its) \w"
        ) as raised:
            observers.load_state_dict(other)
        assert "NoneType" not in str(raised.value)
    observers.load_state_dict(saved)
    assert trainer.step == stop
    resumed = gram_error.measure(run, trainer, observers)
    for name in (gram_error.CSV, trajectory.CSV):
        frames = [pd.read_csv(f.parent / name).drop(columns="seconds") for f in (straight, resumed)]
        pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert not run.checkpoints()  # caches are large, and a finished trajectory needs none


class _StopsAt:
    def __init__(self, trainer, step):
        self.trainer, self.step = trainer, step

    def __enter__(self):
        return lambda: self.trainer.step >= self.step

    def __exit__(self, *details):
        return None


def test_nothing_to_watch_is_refused(make_config):
    with pytest.raises(ConfigError, match=r"gram_error\.estimators is empty"):
        gram_error.check_config(make_config("gram_error.estimators=[]"))
    with pytest.raises(ConfigError, match=r"gram_error\.every is 0"):
        gram_error.check_config(make_config("gram_error.every=0"))


def test_the_sides_and_the_driver_draw_from_streams_of_their_own(make_config, corpus):
    trainer = Trainer(make_config("train.gamma_left=1", "train.gamma_right=1"), corpus)
    observers = gram_error.Observers(trainer.config.gram_error.estimators, trainer)
    seen = {}
    for side, estimators in zip(("left", "right"), observers.estimators, strict=True):
        estimators[1].observe = lambda batch, side=side: seen.update({side: batch.items})
    for side, estimator in (
        ("driver left", trainer.left_estimator),
        ("driver right", trainer.right_estimator),
    ):
        estimator.observe = lambda batch, side=side: seen.update({side: batch.items})
    observers.observe()
    next(trainer.steps())
    draws = [tuple(items[:32].tolist()) for items in seen.values()]
    assert len(seen) == len(set(draws)) == 4


def read_trajectory(path):
    return pd.read_csv(path / trajectory.CSV)


def test_the_trajectory_is_measured_by_its_definitions_and_not_influenced(watched, corpus):
    """‖G‖, σ² and the last step's drift, recomputed pair by pair from a model trained on its own."""
    run, trainer, _, _ = watched
    frame = read_trajectory(run.path)
    assert tuple(frame.columns) == trajectory.COLUMNS
    assert sorted(frame["step"].unique()) == [1, 10, 20, 30, 40]
    assert frame["drift"].isna().eq(frame["step"] == 1).all()
    assert (frame["reference_error"] == 0).all()
    alone, terms = Trainer(trainer.config, corpus), {}
    for record in alone.steps():
        if record.step >= 39:
            rows = embed_in_chunks(alone.right.embed, torch.from_numpy(corpus.train.right).long()).double()
            terms[record.step] = torch.einsum("ni,nj->nij", rows, rows)
    parameters = zip(trainer.model.parameters(), alone.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in parameters)
    before, now = (terms[step].mean(0) for step in (39, 40))
    row = frame.query("step == 40 and side == 'right'").iloc[0]
    assert row["gramian_norm"] == pytest.approx(float(torch.linalg.norm(now)), rel=1e-6)
    assert row["drift"] == pytest.approx(float(torch.linalg.norm(now - before)), rel=1e-4)
    assert row["variance"] == pytest.approx(float((terms[40] - now).square().sum((1, 2)).mean()), rel=1e-5)


def test_how_often_is_measured_does_not_change_what_is_measured(tmp_path, make_config, corpus):
    settings = ("gram_error.reference=sampled", "gram_error.reference_samples=300")
    watch(tmp_path / "1", make_config(*settings, "gram_error.every=1"), corpus)
    watch(tmp_path / "10", make_config(*settings), corpus)
    every, tenth = (read_trajectory(tmp_path / name).drop(columns="seconds") for name in ("1", "10"))
    assert len(every) == 2 * 40
    common = every[every["step"].isin(tenth["step"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(common, tenth, check_exact=True)


@pytest.mark.parametrize("gamma", [1, 0.5, 0])
@pytest.mark.parametrize("samples", [2, 3])
def test_a_sampled_reference_is_unbiased_and_states_its_own_error(gamma, samples):
    """Over every draw, by its probability: E Ĝ = G, E σ̂² = σ², and the stated error is the true one."""
    theta = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    population = make_population(torch.tensor([0, 0, 1, 3]), 4, gamma)
    side = EmbeddedSide("left", 4, population, lambda items: theta[items], stream=0)
    exact = trajectory.exact_reference(side)
    draws = [torch.tensor(items) for items in itertools.product((0, 1, 3), repeat=samples)]
    chances = [float(population.item_weights.double()[items].prod()) for items in draws]
    assert sum(chances) == pytest.approx(1, rel=1e-6)
    drawn = [trajectory.sampled_reference(side, items) for items in draws]

    def mean(values):
        return sum(chance * value for chance, value in zip(chances, values, strict=True))

    torch.testing.assert_close(mean(d.gramian for d in drawn), exact.gramian, atol=1e-6, rtol=1e-6)
    assert mean(d.variance for d in drawn) == pytest.approx(exact.variance, rel=1e-5)
    true = mean(float((d.gramian - exact.gramian).square().sum()) for d in drawn)
    assert mean((d.error * d.norm) ** 2 for d in drawn) == pytest.approx(true, rel=1e-5)
    assert true == pytest.approx(exact.variance / samples, rel=1e-5)


def test_a_sampled_reference_is_drawn_afresh_from_streams_of_its_own(
    tmp_path, make_config, corpus, monkeypatch
):
    settings = ("gram_error.reference=sampled", "gram_error.reference_samples=400", "gram_error.every=20")
    seen, original = [], trajectory.sampled_reference

    def spy(side, items):
        seen.append((side.name, tuple(items.tolist())))
        return original(side, items)

    monkeypatch.setattr(trajectory, "sampled_reference", spy)
    _, sampled, _, _ = watch(tmp_path / "s", make_config(*settings), corpus)
    # Steps 1, 20 and 40, and the steps before 20 and 40 with the draws of 20 and 40.
    assert len(seen) == 2 * 5
    assert len(set(seen)) == 2 * 3
    assert len({items for _, items in seen}) == 2 * 3
    _, exact, _, _ = watch(tmp_path / "e", make_config("gram_error.every=20"), corpus)
    parameters = zip(sampled.model.parameters(), exact.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in parameters)


def test_theory_is_told_of_sogram_and_sampling_only(tmp_path, make_config, corpus):
    watch(tmp_path / "g", make_config("gram_error.every=1"), corpus)
    frame = figures.theory_frame([tmp_path / "g"])
    assert set(frame["label"]) == {"sampling", "SOGram α=0.1"}
    assert len(frame) == 2 * 2 * 40
    is_sogram = frame["label"] == "SOGram α=0.1"
    assert frame[["bound", "stepwise"]].notna().all(axis=1).eq(is_sogram).all()
    assert frame["expected"].isna().eq(is_sogram).all()
    first = frame[is_sogram & (frame["step"] == 1) & (frame["side"] == "left")].iloc[0]
    row = read_trajectory(tmp_path / "g").iloc[0]
    relative_variance = row["variance"] / row["gramian_norm"] ** 2 / 64
    assert first["stepwise"] == pytest.approx(math.sqrt(0.1**2 * relative_variance + 0.9**2))


@pytest.mark.parametrize(
    "steps",
    [[1, 20, 10], [1, 10, 10**12], [1, 10, np.nan]],
    ids=str,
)
def test_steps_that_are_no_trajectory_are_refused(tmp_path, make_config, corpus, steps):
    """Before anything is summed over them, which for a step of 10^12 would take terabytes."""
    path = tmp_path / "g"
    watch(path, make_config("train.steps=20"), corpus)
    runs.open_run(path).update_manifest(files={})  # as of a run under way, which records none
    frame = read_trajectory(path)
    rows = frame[frame["side"] == "left"].iloc[[0, 1, 1]].assign(step=steps)
    rows.to_csv(path / trajectory.CSV, index=False)
    with pytest.raises(InputError, match=r"trajectory\.csv: (damaged|ends at step 1,000,000,000,000)"):
        figures.make("theory", [path])


def test_runs_without_theory_are_named(tmp_path, make_config, corpus):
    watch(tmp_path / "g", make_config("gram_error.estimators=[{name: exact}]"), corpus)
    with pytest.raises(InputError, match="SOGram and sampling, and neither was watched"):
        figures.theory_frame([tmp_path / "g"])
