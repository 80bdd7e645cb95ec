import math

import pandas as pd
import pytest
import torch

from gramrun import checkpoints, gram_error, runs
from gramrun.errors import ConfigError
from gramrun.gramian.exact import relative_error
from gramrun.interruption import Interrupted
from gramrun.training import Trainer


def watch(path, config, corpus):
    run = runs.create(path, "gram-error", config, corpus.content_hash)
    trainer = Trainer(config, corpus)
    observers = gram_error.Observers(config.gram_error.estimators, trainer)
    return run, trainer, observers, gram_error.watch(run, trainer, observers)


def test_the_file_has_every_estimator_side_and_step(tmp_path, make_config, corpus):
    run, _, _, file = watch(tmp_path / "g", make_config(), corpus)
    frame = pd.read_csv(file)
    assert list(frame.columns) == [
        "step",
        "epoch",
        "seconds",
        "estimator",
        "batch_size",
        "alpha",
        "side",
        "error",
    ]
    assert sorted(frame["step"].unique()) == [1, 10, 20, 30, 40]
    assert set(frame["side"]) == {"left", "right"}
    assert len(frame) == 5 * 2 * 5
    assert frame.loc[frame["estimator"] == "SOGram", "alpha"].eq(0.1).all()
    assert frame.loc[frame["estimator"] == "sampling", "alpha"].isna().all()
    assert (frame.loc[frame["estimator"] == "exact Gramian", "error"] < 1e-6).all()
    assert (frame.loc[frame["estimator"] != "exact Gramian", "error"] > 1e-4).all()
    assert run.manifest["status"] == "finished"


def test_errors_are_against_the_pairs_of_the_paper(tmp_path, make_config, corpus):
    """The last row of the file, recomputed from its definition over all training pairs."""
    config = make_config("train.weighting=frequency")
    _, trainer, observers, file = watch(tmp_path / "g", config, corpus)
    rows = trainer.left.embed_items(torch.from_numpy(corpus.train.left).long()).double()
    exact = rows.T @ rows / len(rows)
    torch.testing.assert_close(trainer.left.exact_gramian(), exact, rtol=1e-6, atol=1e-9)
    last = pd.read_csv(file).query("step == 40 and side == 'left' and estimator == 'sampling'")
    assert float(last["error"].iloc[0]) == pytest.approx(
        relative_error(observers.estimators[0][0].gramian, exact)
    )


def test_watchers_do_not_influence_the_trajectory(tmp_path, make_config, corpus):
    config = make_config()
    _, watched, _, _ = watch(tmp_path / "g", config, corpus)
    alone = Trainer(config, corpus)
    for _ in alone.steps():
        pass
    assert all(
        torch.equal(a, b) for a, b in zip(watched.model.parameters(), alone.model.parameters(), strict=True)
    )


def test_equal_batch_sizes_share_their_draws(tmp_path, make_config, corpus):
    both = "gram_error.estimators=[{name: sampling, gramian_batch_size: 64}, {name: sogram, alpha: 1, gramian_batch_size: 64}]"
    _, _, _, file = watch(tmp_path / "g", make_config(both), corpus)
    frame = pd.read_csv(file).pivot(index=["step", "side"], columns="estimator", values="error")
    assert frame["SOGram"].to_numpy() == pytest.approx(frame["sampling"].to_numpy(), rel=1e-5)


def test_a_larger_batch_estimates_better(tmp_path, make_config, corpus):
    sizes = "gram_error.estimators=[{name: sampling, gramian_batch_size: 4}, {name: sampling, gramian_batch_size: 400}]"
    _, _, _, file = watch(tmp_path / "g", make_config(sizes, "gram_error.every=1"), corpus)
    means = pd.read_csv(file).groupby("batch_size")["error"].mean()
    assert means[4] / means[400] == pytest.approx(math.sqrt(100), rel=0.3)


def test_an_interrupted_watch_goes_on_exactly_where_it_was(tmp_path, make_config, corpus, monkeypatch):
    config = make_config()
    _, _, _, straight = watch(tmp_path / "straight", config, corpus)
    run = runs.create(tmp_path / "g", "gram-error", config, corpus.content_hash)
    trainer = Trainer(config, corpus)
    observers = gram_error.Observers(config.gram_error.estimators, trainer)
    monkeypatch.setattr(gram_error, "deferred_interrupt", lambda: _StopsAt(trainer, 15))
    with pytest.raises(Interrupted, match="interrupted at step 15 of 40"):
        gram_error.watch(run, trainer, observers)
    monkeypatch.undo()
    with (run.path / gram_error.CSV).open("a") as file:
        file.write("99,torn")
    trainer = Trainer(config, corpus)
    observers = gram_error.Observers(config.gram_error.estimators, trainer)
    observers.load_state_dict(checkpoints.restore(run, trainer)["observers"])
    assert trainer.step == 15
    resumed = gram_error.watch(run, trainer, observers)
    frames = [pd.read_csv(f).drop(columns="seconds") for f in (straight, resumed)]
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
    trainer = Trainer(make_config("train.weighting=frequency"), corpus)
    observers = gram_error.Observers(trainer.config.gram_error.estimators, trainer)
    seen = {}
    for side, estimators in zip(("left", "right"), observers.estimators, strict=True):
        estimators[1].observe = lambda members, embeddings, side=side: seen.update({side: members})
    for side, estimator in (
        ("driver left", trainer.left_estimator),
        ("driver right", trainer.right_estimator),
    ):
        estimator.observe = lambda members, embeddings, side=side: seen.update({side: members})
    observers.observe()
    trainer.observe(trainer.left_estimator, trainer.left)
    trainer.observe(trainer.right_estimator, trainer.right)
    draws = [tuple(members[:32].tolist()) for members in seen.values()]
    assert len(seen) == len(set(draws)) == 4
