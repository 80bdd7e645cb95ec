"""What the paper's profile would take: stand-ins predict what corpora do, and every cost follows its shapes."""

import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.benchmarks.random_pages import pages_corpus
from experiments.reproduce import corpora as datasets
from experiments.reproduce import cost_model, dry_run
from experiments.reproduce import scheduler as scheduling
from experiments.reproduce.paper_corpora import PAPER, file_bytes, sizes_of, stand_in
from experiments.reproduce.plans import Plan, load_profile, run_task
from gramrun.base.files import read_json
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.training.memory import CACHES, WORK, host_memory

ROOT = Path(__file__).parents[2]
PARTS = ("parameters", "optimizer", "populations", CACHES)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return pages_corpus(
        tmp_path_factory.mktemp("c") / "pages", pages=2000, links=60_000, ngrams=300, categories=200
    )


def config_of(name, *settings, dataset="wikipedia-simple"):
    return load_config(RunConfig, ROOT / "configs" / dataset / f"{name}.yaml", settings)


@pytest.mark.parametrize("name", ["paper-sogram", "paper-sagram", "sagram"])
def test_a_stand_in_predicts_what_the_corpus_does(prepared, name):
    config, made = config_of(name), stand_in("pages", sizes_of(prepared.manifest))
    assert config.train.total_steps(len(made.train)) == config.train.total_steps(len(prepared.train))
    real, predicted = (host_memory(config, c) for c in (prepared, made))
    for part in PARTS:
        assert predicted[part] == real[part], part
    assert predicted["mapped files"] == pytest.approx(real["mapped files"], rel=0.01)
    assert predicted[WORK] == pytest.approx(real[WORK], rel=0.1)


def test_the_sizes_of_shards(prepared):
    """Exact, but for vocabularies, whose keys are text."""
    predicted = file_bytes(sizes_of(prepared.manifest))
    real = {name: file["bytes"] for name, file in prepared.manifest["files"].items()}
    assert set(predicted) == set(real)
    for name in real:
        assert name.startswith("vocabularies/") or predicted[name] == real[name], name


def test_items_that_do_not_occur_bound_the_evaluation_from_above(corpus_path):
    """MovieLens-like: some items are in no validation pair, and the stand-in counts them."""
    corpus = open_corpus(corpus_path)
    config, made = config_of("sogram", dataset="synthetic"), stand_in("s", sizes_of(corpus.manifest))
    real, predicted = (host_memory(config, c) for c in (corpus, made))
    assert real[WORK] <= predicted[WORK] <= 1.5 * real[WORK]


def test_the_papers_sizes():
    for name, sizes in PAPER.items():
        config = load_config(RunConfig, ROOT / "configs" / name / "paper-sogram.yaml")
        made = stand_in(name, sizes)
        assert len(made.train) + len(made.validation) in (4_600_000, 142_000_000, 490_000_000, 10_000_000)
        assert config.train.total_steps(len(made.train)) == round(
            config.train.epochs * len(made.train) / config.train.batch_size
        )


def test_the_model_gives_back_the_timings_that_it_was_made_from(prepared):
    """The step of the benchmark's configs at the benchmark's sizes, on one thread."""
    timed = read_json(cost_model.BENCH / "step_time.json")["workloads"]
    pages, linear_pairs = (
        statistics.median(timed[kind]["by_threads"]["1"]["ms"]["compiled"]) for kind in ("pages", "linear")
    )
    model = cost_model.load()
    simple = stand_in("s", PAPER["wikipedia-simple"])
    config = config_of("paper-sampling")
    assert 1e3 * model.step(config, simple) == pytest.approx(pages, rel=0.05)
    linear = load_config(RunConfig, ROOT / "configs" / "movielens-1m" / "sampling.yaml")
    sizes = replace(PAPER["movielens-10m"], left_items=6040, right_items=3706)
    assert 1e3 * model.step(linear, stand_in("l", sizes)) == pytest.approx(linear_pairs, rel=0.15)


def test_costs_follow_their_shapes():
    model, simple = cost_model.load(), stand_in("s", PAPER["wikipedia-simple"])
    config = config_of("paper-sampling")
    assert model.step(config_of("paper-sagram"), simple) > model.step(config, simple)
    assert model.step(config, stand_in("e", PAPER["wikipedia-en"])) > model.step(config, simple)
    twice = config_of("paper-sampling", "train.epochs=20", "evaluation.every=0")
    once = config_of("paper-sampling", "train.epochs=10", "evaluation.every=0")
    evaluation = model.evaluation(once, simple)
    trained = [model.train(c, simple) - evaluation for c in (once, twice)]
    assert trained[1] == pytest.approx(2 * trained[0], rel=1e-3)
    timed = config_of("paper-sampling", "train.epochs=10", "evaluation.every=1 minutes")
    assert model.train(timed, simple) == pytest.approx(trained[0] * (1 + evaluation / 60), rel=1e-3)
    assert (
        model.evaluation(config_of("paper-sampling", "evaluation.left_items=8500"), simple) < evaluation / 5
    )
    watched = config_of("gram-error")
    alone = config_of("gram-error", "gram_error.estimators=[]")
    assert model.gram_error(watched, simple) > model.gram_error(alone, simple)
    no_drift = config_of("gram-error", "gram_error.drift=false")
    assert model.gram_error(no_drift, simple) < model.gram_error(watched, simple)


def test_a_dry_run_of_the_papers_profile_needs_no_data(tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    plans = [plan for plan in load_profile("paper", tmp_path) if plan.item in ("map_curves", "movielens")]
    text = dry_run.dry_run(plans)
    assert "| train paper-sogram-every-5-minutes-alpha-0.01 | 3 | 0 | 60,645 |" in text
    assert "5,300,000 × 5,300,000 items, 441,000,000 training pairs (not prepared: the paper's sizes)" in text
    assert "72 runs, 0 of them done." in text
    assert "- wikipedia-en: about 20.0 GB of raw files" in text and "3 min to prepare" in text
    assert "movielens-10m: about 66" in text
    assert re.search(r"Time: [\d,.]+ h on one core, [\d,.]+ h on these", text)
    assert not (tmp_path / "data").exists() and not (tmp_path / "results").exists()


def test_what_is_done_is_counted_and_tells_how_long_the_rest_takes(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "configs" / "synthetic", tmp_path / "configs" / "synthetic")
    monkeypatch.chdir(tmp_path)
    datasets.prepare(datasets.Dataset("synthetic", "synthetic", ("synthetic.left_items=100",)))
    settings = ("train.epochs=1", "train.batch_size=64", "estimator.gramian_batch_size=64")
    done, waiting = (run_task("train", "synthetic", "sogram", *settings, seed=seed) for seed in (0, 1))
    scheduling.run_all([done])
    corpora = {"synthetic": open_corpus(Path("data/synthetic"))}
    found = list(dry_run.predict([done, waiting], corpora))
    assert [p.state for p in found] == ["done", "new"]
    assert found[0].seconds == found[1].seconds > 0 and found[1].basis == "like runs"
    assert found[1].disk >= 2 * (done.output / "checkpoints").glob("*.pt").__next__().stat().st_size
    elsewhere = run_task("train", "synthetic", "sogram", seed=0)
    (unknown,) = dry_run.predict([replace(elsewhere, overrides=("data.path=data/none",))], {"none": None})
    assert unknown.seconds is None and unknown.memory == 0


def test_gramian_errors_rank_nothing_and_hold_every_watchers_caches():
    """Beside training of the same model: no evaluation, and two caches an estimator more."""
    corpora = {"wikipedia-simple": stand_in("wikipedia-simple", PAPER["wikipedia-simple"])}
    settings = (
        "gram_error.estimators=[{name: sagram, cache: pair}, {name: sagram, beta: 1/n, cache: pair}]",
    )
    jobs = [
        run_task("train", "wikipedia-simple", "paper-sampling", seed=0),
        run_task("gram-error", "wikipedia-simple", "gram-error", "gram_error.estimators=[]", seed=0),
        run_task("gram-error", "wikipedia-simple", "gram-error", *settings, seed=0),
    ]
    trained, plain, watched = (p.memory for p in dry_run.predict(jobs, corpora))
    assert plain < trained
    assert watched - plain == pytest.approx(
        2 * 2 * 4_140_000 * 64 * 4, rel=0.02
    )  # process memory moves a little


def test_disk_is_that_of_what_is_kept_and_of_what_runs_side_by_side(monkeypatch):
    """Ten runs that end with 20 bytes and ten with none, at most 100 while they are under way, on two cores."""
    monkeypatch.setattr(dry_run.os, "cpu_count", lambda: 2)
    task = run_task("train", "wikipedia-en", "paper-sogram", seed=0)
    found = [
        dry_run.Prediction(task, "new", 1, 1.0, "timings", 1, 100, kept)
        for kept in (20, 0)
        for _ in range(10)
    ]
    assert "Disk: 400 bytes for checkpoints" in "\n".join(dry_run._totals(found, {}))


def test_a_finished_watch_keeps_no_checkpoint():
    corpora = {"wikipedia-simple": stand_in("wikipedia-simple", PAPER["wikipedia-simple"])}
    jobs = [run_task("gram-error", "wikipedia-simple", "gram-error", seed=0),
            run_task("train", "wikipedia-simple", "paper-sampling", "train.checkpoints_kept=2", seed=0)]  # fmt: skip
    watched, trained = dry_run.predict(jobs, corpora)
    assert (watched.kept, trained.kept) == (0, trained.disk * 2 // 3) and watched.disk > 0


def test_runs_that_failed_before_are_no_work():
    task = run_task("train", "wikipedia-en", "paper-sogram", seed=0)
    found = [dry_run.Prediction(task, state, 1, 60.0, "timings", 1, 0) for state in ("failed", "done", "new")]
    words = "\n".join(dry_run._totals(found, {}))
    assert "3 runs, 1 of them done, 1 failed before (--retry tries them again)." in words
    assert "Time: 60 s on one core" in words


def test_no_profile_writes_anything_in_a_dry_run(tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    for profile in ("quick", "standard"):
        text = dry_run.dry_run(load_profile(profile, tmp_path / "results"))
        assert "### To be prepared" in text and "- enwik8: not known" in text
        assert "Not counted, as they have never been prepared:" in text.splitlines()[-1]
        assert "enwik8" in text.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["configs"]


def test_what_does_not_fit_is_named():
    task = run_task("train", "wikipedia-en", "paper-sogram", seed=0)
    big = dry_run.Prediction(task, "new", 1, 1.0, "timings", 100, 50)
    words = dry_run._what_does_not_fit([big], memory=60, beside=100, disk=50, room=20)
    assert "wikipedia-en train paper-sogram (more than this machine's memory)" in words
    assert "30 bytes too much" in words
    words = dry_run._what_does_not_fit([big], memory=150, beside=200, disk=50, room=80)
    assert words == "Does not fit here: the largest runs side by side (more than this machine's memory)."
    assert dry_run._what_does_not_fit([big], 300, 200, 50, 80) == "All of it fits here."


def test_jobs_of_a_plan_that_are_scripts_have_a_table_too(monkeypatch, tmp_path):
    options = {"learning_rate": 0.3, "epochs": 80}
    monkeypatch.chdir(tmp_path)
    text = dry_run.dry_run([Plan("known_optimum", (), (0,), options, tmp_path)])
    assert "### scripts" in text and "6 runs, 0 of them done." in text and "not known" in text
