"""The real `main` at toy size: what a user types, what is printed, and the exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gramrun import cli

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "synthetic" / "sogram.yaml"
SMALL = [
    "--set",
    "train.steps=40",
    "--set",
    "train.batch_size=64",
    "--set",
    "estimator.gramian_batch_size=32",
]


@pytest.fixture
def trained(gramrun, corpus_path):
    """A finished run of the small corpus."""
    arguments = ["train", "--config", CONFIG, "--set", f"data.path={corpus_path}", *SMALL, "--output", "run"]
    assert gramrun(*arguments)[0] == 0
    return arguments


def test_the_commands_in_order(gramrun, tmp_path):
    code, out, _ = gramrun("prepare", "synthetic", "--output", "data/synthetic")
    assert code == 0
    assert out.splitlines()[-1].startswith(
        "wrote data/synthetic: 600 left items, 400 right items, 12,000 pairs"
    )
    code, out, _ = gramrun("prepare", "synthetic", "--output", "data/synthetic")
    assert (code, "up to date" in out) == (0, True)
    code, out, _ = gramrun("train", "--config", CONFIG, *SMALL)
    assert code == 0
    run = Path("runs/synthetic/sogram-seed0")
    assert out.startswith(f"wrote {run}: step 40")
    assert out.strip().endswith(f"next: gramrun evaluate {run}")
    code, out, _ = gramrun("evaluate", run)
    assert code == 0
    assert "popularity" in out
    code, out, _ = gramrun("evaluate", run, "--json", "--candidates", "100")
    assert json.loads(out)["candidates"] == 100
    code, out, _ = gramrun("gram-error", "--config", CONFIG, *SMALL, "--output", "g")
    assert (code, (tmp_path / "g" / "gram_error.csv").exists()) == (0, True)
    settings = ("--set", "evaluation.inner_products=100", "--output", "watched")
    assert gramrun("train", "--config", CONFIG, *SMALL, *settings)[0] == 0
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
    assert (code, "g: was made by `gramrun gram-error`, which ranks nothing" in err) == (2, True), err
    code, out, _ = gramrun("doctor", "--config", CONFIG)
    assert code == 0
    assert "memory:" in out
    assert "ms a step here" in out


def test_a_tuning_corpus(gramrun):
    settings = ["--set", "split.tuning_fraction=0.1"]
    code, out, _ = gramrun("prepare", "synthetic", *settings, "--output", "tuning")
    manifest = json.loads(Path("tuning/manifest.json").read_text())
    dropped, kept = manifest["counts"]["held_out_pairs_dropped"], manifest["corpus"]["pairs"]
    assert (code, dropped + kept) == (0, 12_000)
    assert f"held out pairs dropped: {dropped:,}\n" in out
    assert f"wrote tuning: 600 left items, 400 right items, {kept:,} pairs" in out
    code, out, _ = gramrun("prepare", "synthetic", *settings, "--output", "tuning")
    assert (code, "up to date" in out) == (0, True)
    code, _, err = gramrun("prepare", "synthetic", "--output", "tuning")
    assert (code, "holds synthetic-tuning prepared from other inputs, settings" in err) == (2, True)
    code, _, err = gramrun("prepare", "synthetic", "--set", "split.tuning_fraction=1", "--output", "other")
    assert (code, "split.tuning_fraction: input should be less than 1" in err) == (2, True)
    assert (
        gramrun("train", "--config", CONFIG, "--set", "data.path=tuning", *SMALL, "--output", "run")[0] == 0
    )


def test_dry_run_writes_nothing(gramrun, corpus_path, tmp_path):
    code, out, _ = gramrun(
        "train", "--config", CONFIG, "--set", f"data.path={corpus_path}", "--output", "r", "--dry-run"
    )
    assert code == 0
    assert "parameters: 1,632" in out  # 120 + 80 items and 4 tags, 8 wide, and nothing dense
    assert not any(tmp_path.iterdir())


def test_existing_runs(gramrun, trained):
    code, _, err = gramrun(*trained)
    assert code == 2
    assert err == "gramrun: run: exists already; continue it with --resume or replace it with --force\n"
    assert gramrun(*trained, "--force")[0] == 0
    assert gramrun("train", "--output", "run", "--resume")[0] == 0
    longer = [a if a != "train.steps=40" else "train.steps=50" for a in map(str, trained)]
    code, out, _ = gramrun(*longer, "--resume")
    assert (code, "step 50" in out) == (0, True)


def test_flags_that_contradict_each_other(gramrun, trained):
    code, _, err = gramrun(*trained, "--resume", "--force")
    assert (code, "give one of them" in err) == (2, True)
    before = Path("run/config.yaml").read_text()
    code, out, _ = gramrun("train", "--output", "run", "--resume", "--dry-run", "--set", "train.steps=99")
    assert (code, "dry run: nothing written" in out) == (0, True)
    assert Path("run/config.yaml").read_text() == before
    code, _, err = gramrun("gram-error", "--output", "run", "--resume")
    assert (code, "was made by `gramrun train`" in err) == (2, True)


def test_a_diverging_trajectory_says_where_it_stopped(gramrun, corpus_path):
    settings = [f"data.path={corpus_path}", "train.optimizer=sgd", "train.learning_rate=1e6"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    for command in ("train", "gram-error"):
        code, _, err = gramrun(command, "--config", CONFIG, *SMALL, *arguments, "--output", command)
        assert code == 1
        assert err.startswith(f"gramrun: {command}: step ")
        assert err.count("\n") == 1
        assert json.loads(Path(command, "manifest.json").read_text())["status"] == "failed"


def test_gram_error_resumes(gramrun, corpus_path):
    arguments = [
        "gram-error",
        "--config",
        CONFIG,
        "--set",
        f"data.path={corpus_path}",
        *SMALL,
        "--output",
        "g",
    ]
    assert gramrun(*arguments)[0] == 0
    first = Path("g/gram_error.csv").read_text()
    assert gramrun("gram-error", "--output", "g", "--resume")[0] == 0
    assert Path("g/gram_error.csv").read_text() == first
    code, _, err = gramrun("gram-error", "--output", "g", "--resume", "--set", "train.steps=50")
    assert (code, "is finished, and cannot be lengthened" in err) == (2, True)


BAD = {
    "a config that is absent": (["train", "--config", "absent.yaml"], "absent.yaml: no such file"),
    "an infinite λ": (["train", "--config", CONFIG, "--set", "train.gravity=.inf"], "finite number"),
    "infinite epochs": (["train", "--config", CONFIG, "--set", "train.epochs=.inf"], "finite number"),
    "an impossible date": (["train", "--config", CONFIG, "--set", "data.path=2024-13-45"], "not valid YAML"),
    "no config": (["train"], "give --config FILE, or --resume with --output RUN"),
    "a typo": (["train", "--config", CONFIG, "--set", "estimator.alpah=1"], "did you mean estimator.alpha?"),
    "α outside (0, 1]": (
        ["train", "--config", CONFIG, "--set", "estimator.alpha=2"],
        "less than or equal to 1",
    ),
    "λ < 0": (["train", "--config", CONFIG, "--set", "train.gravity=-1"], "greater than or equal to 0"),
    "data that is absent": (["train", "--config", CONFIG], "data/synthetic: no prepared corpus here"),
    "an unknown corpus": (
        ["prepare", "movielens-1k", "--output", "x"],
        "no corpus is called movielens-1k; there are",
    ),
    "a source that is absent": (
        ["prepare", "movielens-100k", "--output", "x", "--source", "nowhere"],
        "--source nowhere",
    ),
    "atomic without source": (["prepare", "atomic", "--output", "x"], "atomic needs --source"),
    "synthetic with source": (
        ["prepare", "synthetic", "--output", "x", "--source", "y"],
        "leave --source out",
    ),
    "a run that is none": (["evaluate", "."], "not a run directory"),
    "a plot of nothing": (["plot", "map", ".", "--output", "x.png"], "not a run directory"),
    "an unknown option": (["train", "--confg", "x"], "No such option"),
    "an unknown figure": (["plot", "mapp", ".", "--output", "x.png"], "is not one of"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_exit_2_and_writes_nothing(gramrun, tmp_path, name):
    arguments, message = BAD[name]
    code, _, err = gramrun(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("gramrun:") and err.count("\n") == 1, err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "named", "command"),
    [
        (["train", "--confg", "x"], "--confg", "gramrun train"),
        (["trian"], "Did you mean 'train'", "gramrun"),
        (["prepare"], "CORPUS", "gramrun prepare"),
        (["prepare", "synthetic"], "--output", "gramrun prepare"),
        (["train", "--config"], "--config", "gramrun"),
        (["plot", "mapp", "r", "--output", "x.png"], "'mapp'", "gramrun plot"),
        (["plot"], "trade-off", "gramrun plot"),
        (["evaluate", "r", "--candidates", "many"], "--candidates", "gramrun evaluate"),
        (["evaluate", "r", "--candidates", "0"], "--candidates", "gramrun evaluate"),
        (["evaluate", "r", "s"], "(s)", "gramrun evaluate"),
        (["neighbors", "r"], "TITLE", "gramrun neighbors"),
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


def test_bytes_that_are_no_text_are_refused(gramrun, trained):
    """A path of them was a traceback of YAML's, JSON's or a library's, after half of the work."""
    for command in (["evaluate", "run"], ["plot", "map", "run", "--output", "x.png"]):
        code, _, err = gramrun(*command, "\udcff")
        assert (code, err) == (2, "gramrun: '\\udcff' is not UTF-8; type or name it in UTF-8\n")


def test_the_root_is_no_place_for_a_run(gramrun, corpus_path):
    settings = ("--set", f"data.path={corpus_path}", "--output", "/")
    for command in ("train", "gram-error"):
        code, _, err = gramrun(command, "--config", CONFIG, *SMALL, *settings, "--force")
        assert code != 0
        assert err.startswith("gramrun: /: ")
        assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("arguments", [["doctor", "--json"], ["--help"]])
def test_a_full_disk_under_stdout_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gramrun", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == (
        "gramrun: the output cannot be written: No space left on device; make room there\n"
    )


def test_without_arguments_there_is_help(gramrun):
    code, out, err = gramrun()
    assert (code, err) == (0, "")
    assert "Usage: gramrun [OPTIONS] COMMAND [ARGS]" in out


def test_plots_that_cannot_be(gramrun, trained):
    assert "end its name in .png, .svg or .pdf" in gramrun("plot", "map", "run", "--output", "x.gif")[2]
    code, _, err = gramrun("plot", "gram-error", "run", "--output", "x.png")
    assert (code, "no gram_error.csv" in err) == (2, True)


def test_batch_larger_than_the_corpus(gramrun, corpus_path, tmp_path):
    code, _, err = gramrun(
        "train",
        "--config",
        CONFIG,
        "--set",
        f"data.path={corpus_path}",
        "--set",
        "train.batch_size=5000",
        "--output",
        "r",
    )
    assert code == 2
    assert "train.batch_size is 5000" in err
    assert not (tmp_path / "r").exists()


def test_a_prepared_folder_is_protected(gramrun, tmp_path):
    assert gramrun("prepare", "synthetic", "--output", "d")[0] == 0
    other = ["prepare", "synthetic", "--output", "d", "--set", "synthetic.seed=1"]
    code, _, err = gramrun(*other)
    assert (code, "replace it with --force" in err) == (2, True)
    assert gramrun(*other, "--force")[0] == 0
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("x")
    code, _, err = gramrun("prepare", "synthetic", "--output", "photos", "--force")
    assert (code, "exists and is no prepared corpus" in err) == (2, True)
    assert (tmp_path / "photos" / "a.jpg").exists()


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
        assert err == (
            "gramrun: before: the corpus of run is not there; say with --data where it lies now, or prepare it "
            "again\n"
        )
        code, _, err = gramrun(*command, "--data", "other")
        assert (code, err.startswith("gramrun: other: holds another corpus")) == (
            2, True,
        )  # fmt: skip
        code, out, err = gramrun(*command, "--data", "after")
        assert (code, err) == (0, ""), err
        assert out
    assert (tmp_path / "items.npy").exists() and (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.parametrize("command", [["train", "--config", CONFIG], ["evaluate", "run"], ["doctor"]])
def test_a_number_of_processes_that_is_none(command, gramrun, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "all")
    code, _, err = gramrun(*command)
    assert code == 2
    assert err.startswith(
        "gramrun: the environment variable WORLD_SIZE is 'all', which is no number; unset it"
    )


def test_a_rank_that_is_no_number(gramrun, monkeypatch, corpus_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "first")
    for command in (["train", "--config", CONFIG, "--set", f"data.path={corpus_path}"], ["evaluate", "run"]):
        code, _, err = gramrun(*command)
        assert (code, "the environment variable RANK is 'first', which is no number" in err) == (2, True), err


def test_a_rehearsal_asks_no_more_than_training(gramrun, corpus_path):
    """An estimator that would watch a trajectory with a batch beyond the corpus; doctor speaks for gram-error too."""
    watching = ["--set", "gram_error.estimators=[{name: sampling, gramian_batch_size: 99999}]"]
    line = ["--config", CONFIG, "--set", f"data.path={corpus_path}", *SMALL, *watching]
    code, out, err = gramrun("train", *line, "--dry-run")
    assert (code, "dry run: nothing written" in out) == (0, True), err
    code, _, err = gramrun("doctor", *line)
    assert (code, "gram_error.estimators.0.gramian_batch_size is 99999" in err) == (2, True), err


def test_the_program_itself_ends_in_one_line_then(tmp_path):
    answer = shell("-m", "gramrun", "doctor", env={**os.environ, "WORLD_SIZE": "all"}, cwd=tmp_path)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1), answer.stderr


def test_own_pairs_with_features_through_atomic_files_to_a_trained_model(gramrun, tmp_path):
    """The README's "Your own pairs", to its end."""
    (tmp_path / "mine").mkdir()
    rows = "".join(f"u{i % 23}\ti{i % 31}\t{1 + i % 5}\n" for i in range(600))
    (tmp_path / "mine" / "mine.inter").write_text("user_id:token\titem_id:token\trating:float\n" + rows)
    items = "".join(f"i{i}\t{'crime' if i % 2 else 'crime drama'}\n" for i in range(31))
    (tmp_path / "mine" / "mine.item").write_text("item_id:token\tgenre:token_seq\n" + items)
    code, out, _ = gramrun("prepare", "atomic", "--source", "mine", "--output", "data/mine")
    assert (code, "23 left items, 31 right items, 600 pairs" in out) == (0, True)
    code, out, err = gramrun(
        "train", "--config", CONFIG, *SMALL, "--set", "data.path=data/mine", "--output", "r"
    )
    assert code == 0, err
    assert gramrun("evaluate", "r")[0] == 0


def test_version(gramrun):
    code, out, _ = gramrun("--version")
    assert (code, out.startswith("gramrun 0.")) == (0, True)


def test_a_rating_beyond_float32_is_refused(gramrun, tmp_path):
    (tmp_path / "mine").mkdir()
    text = "user_id:token\titem_id:token\trating:float\na\tx\t1\nb\tx\t1e300\n"
    (tmp_path / "mine" / "mine.inter").write_text(text)
    code, _, err = gramrun("prepare", "atomic", "--source", "mine", "--output", "d")
    assert code == 2
    assert err.startswith("gramrun: mine/mine.inter, line 3: rating is beyond the range of a 32-bit float")


def test_debug_shows_the_traceback(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gramrun", "--debug", "evaluate", "."])
    with pytest.raises(Exception, match="not a run directory"):
        cli.main()


def shell(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_is_fast_and_imports_no_torch():
    times = []
    for _ in range(5):
        started = time.perf_counter()
        answer = shell("-X", "importtime", "-m", "gramrun", "--help")
        times.append(time.perf_counter() - started)
        assert answer.returncode == 0
    imported = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert not imported & {"torch", "pandas", "numpy", "matplotlib", "pydantic"}
    assert min(times) < 0.5


@pytest.mark.parametrize(
    "command",
    ["prepare", "train", "evaluate", "baseline", "gram-error", "plot", "export", "neighbors", "doctor"],
)
def test_every_command_has_help_with_an_example(gramrun, command):
    code, out, _ = gramrun(command, "--help")
    assert (code, f"Example: gramrun {command}" in out) == (0, True)


def start_training(corpus_path, folder, output):
    """Start a real `gramrun train` of some seconds; return its process once it has evaluated."""
    settings = [f"data.path={corpus_path}", "train.steps=3000", "train.batch_size=64", "train.checkpoint_every=400",
                "estimator.gramian_batch_size=32", "evaluation.every=1000"]  # fmt: skip
    arguments = ["-m", "gramrun", "train", "--config", str(CONFIG), "--output", output]
    arguments += [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    for _ in range(1200):
        if (folder / output / "metrics.jsonl").exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    return process


def curve(folder, output):
    records = map(json.loads, (folder / output / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in r.items() if "second" not in k} for r in records]


@pytest.fixture(scope="module")
def straight_curve(corpus_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    process = start_training(corpus_path, folder, "r")
    assert process.wait(timeout=120) == 0, process.stderr.read()
    process.stderr.close()
    return curve(folder, "r")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_stopped_process_resumes_to_the_same_end(corpus_path, tmp_path, straight_curve, number):
    process = start_training(corpus_path, tmp_path, "r")
    process.send_signal(number)
    err = process.communicate(timeout=60)[1]
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 130, err
        assert "state saved; go on with `gramrun train --output r --resume`" in err
    done = shell("-m", "gramrun", "train", "--output", "r", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert curve(tmp_path, "r") == straight_curve


def test_ctrl_c_while_preparing_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "gramrun", "prepare", "synthetic", "--output", "d", "--set", "synthetic.left_items=200000",
         "--set", "synthetic.right_items=2000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert (process.returncode, "interrupted" in err) == (130, True)
    assert "Traceback" not in err
    assert not os.listdir(tmp_path)


def test_a_real_full_disk(tmp_path):
    """A file size limit is a disk that fills at that size; only root could mount a small one."""
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); import sys; sys.argv = ['gramrun', 'prepare', 'synthetic', '--output', 'd']; from gramrun.cli import main; main()"
    for folder in ("w", "d"):  # the first time compiles, and writes what it has compiled
        (tmp_path / folder).mkdir()
    assert shell("-m", "gramrun", "prepare", "synthetic", "--output", "d", cwd=tmp_path / "w").returncode == 0
    answer = shell("-c", limit, cwd=tmp_path / "d")
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.startswith("gramrun: d: cannot be written: ")
    assert answer.stderr.count("\n") == 1
    assert not os.listdir(tmp_path / "d")
