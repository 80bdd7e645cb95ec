"""Results as pandas frames: what runs wrote, with the documented types, without opening a model."""

import csv
import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from helpers import BASELINE, CONFIG, SMALL, settings, train

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError
from gramrun.base.records import read_table
from gramrun.config import BaselineConfig
from gramrun.config.loading import dump_config, load_config
from gramrun.evaluation.baselines.run import run_baseline
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import figures, frames


def test_a_training_run(make_config, corpus, tmp_path):
    run, _ = train(tmp_path / "r", make_config("evaluation.inner_products=50", "train.seed=3"), corpus)
    measured = evaluate_run(run, corpus, "validation")
    runs.record_evaluation(run, measured)
    loaded = frames.load(tmp_path / "r")

    written = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert loaded.metrics.to_dict("records") == written
    assert list(loaded.metrics["step"]) == [20, 40]
    with (tmp_path / "r" / "inner_products.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert loaded.inner_products["q0.5"].tolist() == [float(row["q0.5"]) for row in rows]
    assert loaded.evaluation["split"].tolist() == ["validation"]
    assert loaded.evaluation["popularity.map@10"][0] == measured["popularity"]["map@10"]
    assert [loaded.evaluation[f"ci95.{end}"][0] for end in ("low", "high")] == measured["ci95"]
    assert (loaded.seed, loaded.manifest["status"]) == (3, "finished")
    assert loaded.config == run.config
    assert loaded.gram_error.empty and loaded.trajectory.empty
    with pytest.raises(FrozenInstanceError):
        loaded.metrics = pd.DataFrame()
    with pytest.raises(TypeError):
        loaded.manifest["seed"] = 4


def test_types_do_not_depend_on_what_the_rows_hold(make_config, corpus, tmp_path):
    """An objective without Gramians has null for its gravity, which alone would be a column of objects."""
    softmax = ("train.objective=taylor-softmax", "train.gamma_left=1", "train.gravity=1")
    train(tmp_path / "softmax", make_config(*softmax), corpus)
    train(tmp_path / "gravity", make_config(), corpus)
    types = []
    for name in ("softmax", "gravity"):
        frame = frames.load(tmp_path / name).metrics
        types.append(frame.dtypes.to_dict())
        assert {t for c, t in types[-1].items() if c != "step"} == {np.dtype("float64")}
        assert types[-1]["step"] == np.dtype("int64")
    assert types[0] == types[1]
    assert math.isnan(frames.load(tmp_path / "softmax").metrics["gravity"][0])


def test_a_gram_error_run(gramrun, corpus_path, tmp_path):
    arguments = settings(f"data.path={corpus_path}", *SMALL, "train.steps=20", "gram_error.every=10")
    assert gramrun("gram-error", "--config", CONFIG, *arguments, "--output", "g")[0] == 0
    loaded = frames.load("g")  # as text, too
    assert sorted(set(loaded.gram_error["step"])) == [1, 10, 20]
    assert set(loaded.gram_error["side"]) == {"left", "right"}
    assert loaded.gram_error.dtypes["batch_size"] == np.dtype("int64")
    assert loaded.gram_error.dtypes["alpha"] == np.dtype("float64")  # sampling has none
    assert (loaded.trajectory["gramian_norm"] > 0).all()
    assert loaded.metrics.empty and loaded.evaluation.empty


def test_a_baseline(corpus, corpus_path, tmp_path):
    config = load_config(BaselineConfig, BASELINE, [f"data.path={corpus_path}", "baseline.seed=5"])
    measured = run_baseline(tmp_path / "b", config, corpus)
    loaded = frames.load(tmp_path / "b")
    assert loaded.evaluation["map@10"].tolist() == [result["map@10"] for result in measured]
    assert (loaded.metrics["objective"].diff().dropna() <= 0).all()  # each sweep lowers it
    assert loaded.seed == 5


def test_several_runs(make_config, corpus, corpus_path, tmp_path):
    for name, *overrides in (
        ("a-0", "train.seed=0"),
        ("a-1", "train.seed=1"),
        ("b-0", "train.gravity=0.25", "train.seed=0"),
    ):
        train(tmp_path / "runs" / name, make_config("train.steps=10", *overrides), corpus)
    (tmp_path / "runs" / "notes.txt").write_text("no run")
    frame = frames.table(str(tmp_path / "runs" / "*"), "metrics")
    assert frame["run"].tolist() == [str(tmp_path / "runs" / name) for name in ("a-0", "a-1", "b-0")]
    assert frame["seed"].tolist() == [0, 1, 0]
    first, second, third = frame["method"]
    assert first == second != third
    assert third.endswith("gravity 0.25")
    assert len(frame.groupby("method")["map@10"].mean()) == 2
    listed = frames.table([tmp_path / "runs" / "b-0", tmp_path / "runs" / "a-0"], "metrics")
    assert listed["seed"].dtype == np.dtype("int64")
    assert listed["map@10"].tolist() == [frame["map@10"][2], frame["map@10"][0]]

    baseline = load_config(BaselineConfig, BASELINE, [f"data.path={corpus_path}", "baseline.name=popularity"])
    run_baseline(tmp_path / "runs" / "c", baseline, corpus)
    mixed = frames.table(str(tmp_path / "runs" / "*"), "evaluation")
    assert set(mixed["method"]) == {"popularity"}  # the trained ones were not evaluated
    # A setting that only the other kind of run has tells nothing apart.
    assert frames.table(str(tmp_path / "runs" / "*"), "metrics")["method"].tolist()[:3] == list(
        frame["method"]
    )


def test_what_cannot_be_loaded(tmp_path, make_config):
    with pytest.raises(InputError, match="not a run directory"):
        frames.load(tmp_path)
    with pytest.raises(InputError, match="no run directory there"):
        frames.table(str(tmp_path / "*"), "metrics")
    with pytest.raises(InputError, match="no frame is called losses; there are metrics"):
        frames.table([tmp_path], "losses")
    run = runs.create(tmp_path / "r", "train", make_config(), "hash")
    (tmp_path / "r" / "config.yaml").write_text(dump_config(run.config) + "speed: 1\n")
    run.update_manifest(files={})  # as an older version's, which kept no checksums
    with pytest.raises(ConfigError, match="speed"):
        frames.load(tmp_path / "r")


def test_a_file_that_is_growing_and_one_that_is_damaged(tmp_path):
    file = tmp_path / "gram_error.csv"
    file.write_text("step,error\n1,0.5\n2,0.25\n3,0.1")  # 0.1 of perhaps 0.125
    assert read_table(file)["error"].tolist() == [0.5, 0.25]
    for damaged in (
        b"step,error\n1,0.5\n2,0.25,7,8\n",
        b"step,error\n\xff\xfe,1\n",
        b"",
        b"step,error\nnine,0.5\n",
    ):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"gram_error.csv: damaged .* start the run anew"):
            read_table(file, ["step", "error"])
    for row in ("1,,", "1,7,", "1,nan,"):  # of which pandas makes a number, or nothing
        file.write_text(f"step,estimator,error\n{row}0.5\n")
        with pytest.raises(InputError, match=r"estimator holds no text .* start the run anew"):
            read_table(file, ["step", "error"], ["estimator"])
    file.write_text("step,estimator,error\n1,SOGram,0.5\n2,null,0.5\n")
    assert read_table(file, ["step", "error"], ["estimator"])["estimator"].tolist() == ["SOGram", "null"]


def test_estimators_that_differ_have_labels_that_differ(make_config):
    own = [make_config(f"estimator.name={module}:Mine") for module in ("one", "two")]
    cached = [
        make_config(
            "estimator.name=sogram", f"estimator.cache={entry}", "train.gamma_left=1", "train.gamma_right=1"
        )
        for entry in ("item", "pair")
    ]
    assert len({*frames.labels([*own, *cached])}) == 4


def test_the_engine_is_named_only_where_nothing_else_tells_methods_apart(make_config):
    plain, compiled = (f"train.engine={name}" for name in ("plain", "compiled"))
    same = frames.labels([make_config(plain), make_config(compiled)])
    assert [label.rpartition(", ")[2] for label in same] == ["engine plain", "engine compiled"]
    methods = make_config(plain, "estimator.name=sampling"), make_config(compiled, "estimator.name=exact")
    assert frames.labels(methods) == [config.estimator.label for config in methods]


def test_runs_on_two_corpora_have_two_labels(make_config, corpus, tmp_path):
    run, _ = train(tmp_path / "one", make_config("data.path=a/toy"), corpus)
    other, _ = train(tmp_path / "other", make_config("data.path=b/toy", "train.seed=1"), corpus)
    assert set(frames.table([run.path, other.path], "metrics")["method"]) == {run.config.estimator.label}
    for evaluated in (run, other):
        runs.record_evaluation(evaluated, evaluate_run(evaluated, corpus, "validation"))
    other.update_manifest(data_hash="another")
    found = frames.table([run.path, other.path], "metrics")["method"].unique()
    assert sorted(label.rpartition(", ")[2] for label in found) == sorted(
        f"corpus {r.manifest['data_hash'][:8]}" for r in (run, other)
    )
    drawn = {text.get_text() for text in figures.map_of([run.path, other.path]).legends[0].get_texts()}
    assert {label for label in drawn if label.startswith("popularity")} == {
        f"popularity, corpus {r.manifest['data_hash'][:8]}" for r in (run, other)
    }


def test_lines_of_a_map_figure_are_of_the_candidates_of_its_curves(make_config, corpus, tmp_path):
    def lines():
        figure = figures.map_of([run.path, tmp_path / "ease"])
        return {text.get_text() for text in figure.legends[0].get_texts()} - {run.config.estimator.label}

    run, _ = train(tmp_path / "r", make_config(), corpus)
    baseline = load_config(BaselineConfig, BASELINE, ["baseline.name=ease", "baseline.l2=10"])
    run_baseline(tmp_path / "ease", baseline, corpus)
    assert lines() == {baseline.baseline.label}
    runs.record_evaluation(run, evaluate_run(run, corpus, "validation", candidates=20))
    assert lines() == {baseline.baseline.label}
    runs.record_evaluation(run, evaluate_run(run, corpus, "validation"))
    assert lines() == {baseline.baseline.label, "popularity"}


def test_times_of_several_kinds_of_machines_are_not_drawn(make_config, corpus, tmp_path):
    """They are the second row of panels."""
    made = [train(tmp_path / str(seed), make_config(f"train.seed={seed}"), corpus)[0] for seed in (0, 1)]
    paths = [run.path for run in made]
    assert len(figures.map_of(paths).axes) == 4
    made[1].update_manifest(processor="another")
    figure = figures.map_of(paths, {"exact ALS": 0.5})
    assert [panel.get_xlabel() for panel in figure.axes] == ["epochs", "epochs"]
    assert "exact ALS" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_baselines_that_differ_have_lines_of_their_own_and_seeds_share_one(make_config, corpus, tmp_path):
    run, _ = train(tmp_path / "r", make_config(), corpus)
    for name, (dim, seed) in {"a": (2, 0), "b": (2, 1), "c": (4, 0)}.items():
        own = [f"baseline.embedding_dim={dim}", f"baseline.seed={seed}", "baseline.sweeps=2"]
        run_baseline(tmp_path / name, load_config(BaselineConfig, BASELINE, own), corpus)
    figure = figures.map_of([run.path, *(tmp_path / name for name in "abc")])
    shown = {text.get_text() for text in figure.legends[0].get_texts()} - {run.config.estimator.label}
    assert shown == {f"exact ALS λ=10 γ=0,0, embedding_dim {dim}" for dim in (2, 4)}
