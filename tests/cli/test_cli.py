"""`main` at toy size: commands, exit codes, one-line errors, and signals to a real process."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import helpers
import pytest
from helpers import CONFIG, settings

from gramrun.evaluation import trained as trained_runs

SMALL = settings(*helpers.SMALL)


@pytest.fixture
def trained(gramrun, corpus_path):
    """A finished run of the small corpus."""
    arguments = ["train", "--config", CONFIG, "--set", f"data.path={corpus_path}", *SMALL, "--output", "run"]
    assert gramrun(*arguments)[0] == 0
    return arguments


def test_force_replaces_a_corpus_and_nothing_else(gramrun, trained, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/manifest.json").write_text("{}")
    for place, message in (("mine", "is no prepared corpus"), ("run", "is no prepared corpus")):
        before = sorted((tmp_path / place).rglob("*"))
        code, _, err = gramrun("prepare", "synthetic", "--output", place, "--force")
        assert (code, message in err) == (2, True), err
        assert sorted((tmp_path / place).rglob("*")) == before


def test_a_link_stays_where_what_it_points_to_is_replaced(gramrun, tmp_path, monkeypatch):
    (tmp_path / "disk/corpus").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk/corpus")
    for options in ((), ("--force",)):
        code, _, err = gramrun("prepare", "synthetic", "--output", "link", *options)
        assert code == 0, err
        assert (tmp_path / "link").is_symlink() and (tmp_path / "disk/corpus/manifest.json").exists()
    monkeypatch.chdir(tmp_path / "disk/corpus")
    code, _, err = gramrun("prepare", "synthetic", "--output", ".", "--force")
    assert (code, "is the folder of this command" in err) == (2, True), err


def test_the_commands_in_order(gramrun, tmp_path):
    code, out, _ = gramrun("prepare", "synthetic", "--output", "data/synthetic")
    assert code == 0
    assert "600 left items, 400 right items, 12,000 pairs" in out
    code, out, _ = gramrun("train", "--config", CONFIG, *SMALL)
    assert code == 0
    run = Path("runs/synthetic/sogram-seed0")
    assert out.startswith(f"wrote {run}: step 40")
    assert out.strip().endswith(f"next: gramrun evaluate {run}")
    code, out, _ = gramrun("evaluate", run, "--candidates", "100")
    assert (code, "popularity" in out) == (0, True)
    code, out, _ = gramrun("gram-error", "--config", CONFIG, *SMALL, "--output", "g")
    assert (code, (tmp_path / "g" / "gram_error.csv").exists()) == (0, True)
    watched = (*settings("evaluation.inner_products=100"), "--output", "watched")
    assert gramrun("train", "--config", CONFIG, *SMALL, *watched)[0] == 0
    code, _, err = gramrun("plot", "inner-products", run, "--output", "figure.png")
    assert (code, "train with --set evaluation.inner_products=10000" in err) == (2, True)
    for kind, source, suffix in (
        ("map", run, "png"),
        ("gram-error", "g", "svg"),
        ("trade-off", "g", "pdf"),
        ("theory", "g", "png"),
        ("inner-products", "watched", "svg"),
        ("gravity", run, "pdf"),
    ):
        code, out, _ = gramrun("plot", kind, source, "--output", f"figure.{suffix}")
        assert (code, out) == (0, f"wrote figure.{suffix}\n")
        assert (tmp_path / f"figure.{suffix}").stat().st_size > 1000
    code, _, err = gramrun("plot", "map", "g", "--output", "figure.png")
    assert (code, "g: no MAP@10; draw runs of `gramrun train`" in err) == (2, True), err
    code, _, err = gramrun("gram-error", "--output", "g", "--resume", "--set", "train.steps=50")
    assert (code, "is finished, and its checkpoints are gone" in err) == (2, True)
    code, _, err = gramrun("evaluate", "g")
    assert (code, "a gram-error run keeps no checkpoint" in err) == (2, True), err
    faster = (*settings("train.learning_rate=1"), "--output", "faster")
    assert gramrun("gram-error", "--config", CONFIG, *SMALL, *faster)[0] == 0
    for kind in ("gram-error", "trade-off", "theory"):
        code, _, err = gramrun("plot", kind, "g", "faster", "--output", "figure.png")
        assert (code, "the runs are of several trainings (SOGram" in err) == (2, True), err


def test_existing_runs(gramrun, trained):
    code, _, err = gramrun(*trained)
    assert (code, "exists already; replace it with --force, or go on with a training: --resume" in err) == (
        2,
        True,
    )
    assert gramrun(*trained, "--force")[0] == 0
    assert gramrun("train", "--output", "run", "--resume")[0] == 0
    code, out, _ = gramrun(*trained, *settings("train.steps=50"), "--resume")
    assert (code, "step 50" in out) == (0, True)
    code, _, err = gramrun(*trained, "--resume", "--force")
    assert (code, "give one of them" in err) == (2, True)
    code, _, err = gramrun("gram-error", "--output", "run", "--resume")
    assert (code, "was made by `gramrun train`" in err) == (2, True)
    code, _, err = gramrun(*trained, "--output", "run/config.yaml/below")
    assert (code, "below: cannot be written: a folder of this path is a file" in err) == (2, True), err


def test_a_run_replaces_no_folder_of_another_kind(gramrun, corpus_path, tmp_path):
    fitted = ("baseline", "--config", "synthetic/exact-als", "--set", f"data.path={corpus_path}", "--output")
    for output in (".", "/"):
        code, _, err = gramrun(*fitted, output)
        assert (code, "is the folder of this command" in err, err.count("\n")) == (2, True, 1), err
    (tmp_path / "photos/2024").mkdir(parents=True)
    for more in ((), ("--force",)):
        code, _, err = gramrun(*fitted, "photos", *more)
        assert (code, "is no run directory, so it is not replaced" in err) == (2, True), err


def test_doctor_sizes_the_estimators_of_gram_error_without_refusing_them(gramrun, corpus_path):
    own = settings(
        f"data.path={corpus_path}", "gram_error.estimators=[{name: sogram, gramian_batch_size: 9999}]"
    )
    code, out, _ = gramrun("doctor", "--config", CONFIG, *SMALL, *own)
    assert (code, "gram-error would be refused: gram_error.estimators.0" in out) == (0, True), out
    code, _, err = gramrun("gram-error", "--config", CONFIG, *SMALL, *own, "--output", "g")
    assert (code, "gram_error.estimators.0.gramian_batch_size is 9999" in err) == (2, True), err


def test_a_dry_run_refuses_what_a_run_refuses(gramrun, trained, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    losses = settings("train.objective=batch-softmax", "estimator.name=none", "log.gramian_samples=10")
    code, _, err = gramrun(*trained, "--output", "other", *losses, "--dry-run")
    assert (code, "log.gramian_samples" in err) == (2, True), err
    assert sorted(tmp_path.rglob("*")) == before


def test_force_leaves_a_run_whose_successor_cannot_be_made(gramrun, trained, tmp_path):
    """Custom estimators are called before the directory is replaced."""
    measured = ("gram-error", *trained[1:-2], "--output", "g")
    assert gramrun(*measured)[0] == 0
    before = (tmp_path / "g/gram_error.csv").read_bytes()
    code, _, err = gramrun(*measured, *settings("gram_error.estimators=[{name: 'math:gcd'}]"), "--force")
    assert code == 2 and "math:gcd" in err, err
    assert (tmp_path / "g/gram_error.csv").read_bytes() == before


BAD = {
    "train --config absent.yaml": "absent.yaml: no such file",
    "train": "give --config FILE, or --resume with --output RUN",
    "train --config synthetic/sogram": "data/synthetic: no prepared corpus here",
    "prepare movielens-1k --output x": "no corpus is called movielens-1k; there are",
    "prepare movielens-100k --output x --source nowhere": "nowhere: holds neither",
    "prepare atomic --output x": "atomic needs --source",
    "evaluate .": "not a run directory",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_exit_2_and_writes_nothing(gramrun, tmp_path, arguments):
    code, _, err = gramrun(*arguments.split())
    assert code == 2
    assert BAD[arguments] in err
    assert err.startswith("gramrun:") and err.count("\n") == 1, err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "named", "command"),
    [
        (["trian"], "Did you mean 'train'", "gramrun"),
        (["prepare", "synthetic"], "--output", "gramrun prepare"),
        (["evaluate", "r", "--candidates", "0"], "--candidates", "gramrun evaluate"),
        (["export", "r", "--output", "x.npy", "--side", "top"], "'top'", "gramrun export"),
    ],
)
def test_usage_errors_are_one_line(gramrun, arguments, named, command):
    """What is wrong, in the library's words, and where the options are explained."""
    code, out, err = gramrun(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gramrun: ") and err.count("\n") == 1, err
    assert named in err and "Value error" not in err
    assert err.rstrip("\n").partition("; see ")[2] in (f"{command} --help", "gramrun --help")


def test_bytes_that_are_no_text_are_refused(gramrun, tmp_path):
    code, _, err = gramrun("plot", "map", "run", "--output", "x.png", "\udcff")
    assert (code, err) == (2, "gramrun: '\\udcff' is not UTF-8; type or name it in UTF-8\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "\udcff.inter").write_text("user_id:token\titem_id:token\n1\t2\n2\t2\n1\t1\n3\t1\n")
    code, _, err = gramrun("prepare", "atomic", "--source", "a", "--output", "b")
    assert (code, err.count("\n"), (tmp_path / "b").exists()) == (2, 1, False), err
    assert "the name of a file that is not UTF-8" in err


def test_options_that_would_do_nothing_are_refused(gramrun, trained):
    for line, message in (
        ("evaluate run --full --candidates 10", "give --full or --candidates, not both"),
        ("doctor --set train.steps=3", "--set needs --config"),
        ("prepare synthetic --output x --set wikipedia.graph=titles", "synthetic does not read this section"),
        ("prepare synthetic --output x --set dump.date=20200101", "synthetic does not read this section"),
    ):
        code, _, err = gramrun(*line.split())
        assert (code, message in err) == (2, True), err


def test_a_damaged_evaluation_is_met_before_the_work(gramrun, trained, tmp_path, monkeypatch):
    (tmp_path / "run/evaluation.json").write_text("{")
    monkeypatch.setattr(trained_runs, "evaluate_run", None)
    code, _, err = gramrun("evaluate", "run", "--json")
    assert (code, "remove it and evaluate again" in err) == (2, True), err


def test_the_next_command_can_be_pasted(gramrun, corpus_path):
    code, out, _ = gramrun(
        "train", "--config", CONFIG, *SMALL, *settings(f"data.path={corpus_path}"), "--output", "a b"
    )
    assert (code, out.strip().endswith("next: gramrun evaluate 'a b'")) == (0, True), out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_under_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gramrun", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in done.stderr


def test_a_corpus_that_has_moved(gramrun, corpus_path, tmp_path):
    """Whatever reads a run finds its corpus where --data says, and takes no other for it."""
    shutil.copytree(corpus_path, tmp_path / "before")
    assert (
        gramrun("train", "--config", CONFIG, *SMALL, "--set", "data.path=before", "--output", "run")[0] == 0
    )
    (tmp_path / "before").rename(tmp_path / "after")
    assert gramrun("prepare", "synthetic", "--output", "other")[0] == 0
    for command in (
        ["evaluate", "run"],
        ["export", "run", "--output", "items.npy"],
        ["neighbors", "run", "source-1", "--side", "left"],
    ):
        code, _, err = gramrun(*command)
        assert code == 2
        assert err.startswith("gramrun: before: the corpus of run is not there; ") and "--data" in err
        code, _, err = gramrun(*command, "--data", "other")
        assert (code, err.startswith("gramrun: other: holds another corpus")) == (
            2, True,
        )  # fmt: skip
        code, out, err = gramrun(*command, "--data", "after")
        assert (code, err) == (0, ""), err
        assert out
    assert (tmp_path / "items.npy").exists() and (tmp_path / "run" / "evaluation.json").exists()


def test_without_arguments_there_is_help_and_version_is_printed(gramrun):
    code, out, err = gramrun()
    assert (code, err) == (0, "")
    assert "Usage: gramrun [OPTIONS] COMMAND [ARGS]" in out
    code, out, _ = gramrun("--version")
    assert (code, out.startswith("gramrun 0.")) == (0, True)


def shell(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_is_fast_and_imports_no_torch():
    seconds = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = shell("-X", "importtime", "-m", "gramrun", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert answer.returncode == 0
    imported = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert not imported & {"torch", "pandas", "numpy", "matplotlib", "pydantic"}
    assert min(seconds) < 0.5


def test_ctrl_c_while_preparing_leaves_nothing(tmp_path):
    large = settings("synthetic.left_items=200000", "synthetic.right_items=2000")
    process = subprocess.Popen(
        [sys.executable, "-m", "gramrun", "prepare", "synthetic", "--output", "d", *large],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert (process.returncode, "interrupted" in err) == (130, True)
    assert "Traceback" not in err
    assert not os.listdir(tmp_path)
