"""Tables split by rows among processes: the trajectory of one process that holds whole tables."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from random import Random

import pytest
import torch
from helpers import FOLDER, FORMS, ROOT, needs_torchrec, pages_corpus, pids_by_rank
from split_tables import result

from gramrun.base import capacity
from gramrun.base.errors import ConfigError
from gramrun.base.processes import Processes
from gramrun.config import ModelSection
from gramrun.config.loading import dump_config
from gramrun.data import shards
from gramrun.data.shards import open_corpus
from gramrun.evaluation.trained import evaluate_run, load_model
from gramrun.model.row_wise import padded_rows
from gramrun.model.towers import initial_rows
from gramrun.runs import corpus_of, open_run
from gramrun.training.checks import check_run
from gramrun.training.gram_error import check_config
from gramrun.training.loop import OWN_STORE
from gramrun.training.trainer import Trainer

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

TOWERS = {
    "linear": ["model.hidden=[]", "model.embedding_dim=10", "model.bag=mean"],
    "hidden": ["model.hidden=[9, 5]", "model.input_dim=6"],
    "skip": ["model.hidden=[9]", "model.input_dim=8", "model.skip=true", "model.bag=mean",
             "train.dense_l2=0.01"],
}  # fmt: skip
OPTIMIZERS = {
    "adagrad": ["train.optimizer=adagrad", "train.dense_learning_rate=0.01"],
    "adagrad from .1": ["train.optimizer=adagrad", "train.initial_accumulator=0.1", "train.decay_from=0.25"],
    "sgd on sums": ["train.optimizer=sgd", "train.learning_rate=0.002", "train.reduction=sum",
                    "train.dense_learning_rate=0.0005"],
}  # fmt: skip
METHODS = {name: form for name, form in FORMS.items() if name != "batch softmax"}  # of one process alone
DROPPED = ["train.id_dropout_left=0.3", "train.id_dropout_right=0.2"]
L2 = ["train.l2=0.05", "train.l2_exponent=0.5"]


def _cases():
    """Every method, and every optimizer with every tower."""
    cases = {}
    for i, (name, method) in enumerate(METHODS.items()):
        towers, optimizer = list(TOWERS.values())[i % 3], list(OPTIMIZERS.values())[i // 3 % 3]
        dropped = DROPPED if i % 2 and name != "exact" else []
        cases[name] = [*towers, *optimizer, *dropped, *(L2 if i % 4 > 1 else []), *method]
    return cases


CASES = _cases()
# In `make test` one method of each estimator, with every optimizer and every kind of tower among them.
CASES_OF = {
    "each estimator": [
        "sampling", "sogram", "SAG, pairs", "SAGA, items", "control variate", "exact", "no gravity",
    ],
    "all": list(CASES),
}  # fmt: skip
NUMBERS = (1, 2, 4)  # of processes


def assert_near(actual, expected, what="", share=1e-4):
    """Up to this share of a value, or of the root mean square of all of its tensor."""
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(
            actual[name], values, rtol=share, atol=share * float(values.square().mean().sqrt()),
            msg=lambda m, n=name: f"{what} {n}: {m}",
        )  # fmt: skip


@pytest.fixture(scope="module")
def pages_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "pages"
    shards.write_corpus(pages_corpus(), path, validation_fraction=0.1, split_seed=0, origin={})
    return path


@pytest.fixture(scope="module")
def configured(make_config, pages_path):
    """A function: the config of a case."""
    own, folder = [f"data.path={pages_path}", "train.steps=100"], str(pages_path.parent)
    return lambda case, *more: make_config(*own, *(s.replace(FOLDER, folder) for s in CASES[case]), *more)


def flat(kept):
    """The tensors of `split_tables.result` by name."""
    lists = {f"{name} {i}": t for name in ("moments", "dense") for i, t in enumerate(kept[name])}
    return {"losses": kept["losses"], **kept["tables"], **lists}


@needs_torchrec
@pytest.mark.parametrize("chosen", ["each estimator", pytest.param("all", marks=pytest.mark.slow)])
def test_processes_with_split_tables_equal_one_with_whole_tables(configured, pages_path, tmp_path, chosen):
    for processes in NUMBERS:
        (tmp_path / str(processes)).mkdir()
        for case in CASES_OF[chosen]:
            config = dump_config(configured(case, "train.tables=row-wise"))
            (tmp_path / str(processes) / f"{case}.yaml").write_text(config)
    command = [sys.executable, str(ROOT / "tests" / "split_tables.py"), str(tmp_path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    for case in CASES_OF[chosen]:
        whole = result(Trainer(configured(case), open_corpus(pages_path)))
        assert (whole["tables"]["table:page"] - whole["start"]["table:page"]).abs().max() > 0.005, case
        for processes in NUMBERS:
            split = torch.load(tmp_path / str(processes) / f"{case}.pt")
            for name, table in whole["start"].items():
                assert torch.equal(split["start"][name], table), case
            share = 3e-4 if case == "SAGA, on disk" else 1e-4  # bfloat16 makes units of differences
            assert_near(flat(split), flat(whole), f"{case}, {processes} processes:", share)


@pytest.mark.parametrize(
    ("rows", "width"), [(1, 3), (5, 3), (65_536, 3), (65_537, 3), (65_552, 2), (140_001, 5)]
)
def test_rows_drawn_in_parts_have_the_bits_of_one_draw(rows, width):
    shape = ModelSection(embedding_dim=width)
    one, other = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    whole = torch.empty(rows, width).normal_(0, 0.1, generator=one)
    parts = list(initial_rows(rows, shape, other))
    assert [start for start, _ in parts] == [
        0,
        *torch.tensor([len(r) for _, r in parts[:-1]]).cumsum(0).tolist(),
    ]
    assert torch.equal(torch.cat([part for _, part in parts]), whole)
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=other))


@pytest.mark.parametrize("count", range(1, 9))
def test_padded_rows_leave_no_process_without_a_row(count):
    for rows in range(1, 40):
        padded = padded_rows(rows, count)
        for rank in range(count):
            block, own = Processes(rank, count).block(padded), Processes(rank, count).block(rows)
            assert block.stop > block.start
            assert len(range(*own.indices(rows))) == max(0, min(block.stop, rows) - block.start)


def _run(folder, processes, *arguments, restarts=0):
    """`gramrun train` in so many processes: the launcher's handle."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    launcher += ["--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    command = [sys.executable, *(launcher if processes > 1 else []), "-m", "gramrun", "train", *arguments]
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def _finish(folder, processes, *arguments):
    process = _run(folder, processes, *arguments)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err


def _tables(folder):
    """The tables of a run's newest checkpoint, read by one process."""
    run = open_run(folder)
    model, step = load_model(run, corpus_of(run))
    return step, {name: table.detach() for name, table in model.named_tables().items()}


@pytest.fixture(scope="module")
def straight(configured, tmp_path_factory):
    """A run of two processes that nothing interrupted, and its config."""
    folder = tmp_path_factory.mktemp("runs")
    settings = (
        "train.tables=row-wise",
        "train.steps=80",
        "train.checkpoint_every=20",
        "evaluation.every=50",
    )
    (folder / "config.yaml").write_text(dump_config(configured("SAGA, items", *settings)))
    kept = ("--set", "train.checkpoints_kept=4")
    _finish(folder, 2, "--config", "config.yaml", "--output", "straight", *kept)
    return folder


@needs_torchrec
def test_other_numbers_of_processes_go_on(straight, gramrun, monkeypatch):
    """Two processes, then four, then one; and one process reads what several trained."""
    shutil.copytree(straight / "straight", straight / "moved")
    for path in (straight / "moved" / "checkpoints").glob("step-*.pt"):
        if path.name > "step-000000040.pt":
            path.unlink()
    _finish(straight, 4, "--output", "moved", "--resume", "--set", "train.steps=60")
    _finish(straight, 1, "--output", "moved", "--resume", "--set", "train.steps=80")
    (step, moved), (_, whole) = _tables(straight / "moved"), _tables(straight / "straight")
    assert step == 80
    assert_near(moved, whole)
    records = [json.loads(line) for line in (straight / "moved" / "metrics.jsonl").read_text().splitlines()]
    run = open_run(straight / "moved")
    evaluated = evaluate_run(run, corpus_of(run), "validation")
    assert evaluated["map@10"] == pytest.approx(records[-1]["map@10"], abs=1e-6)
    for command in (["export", "--output", "left.npy"], ["neighbors", "0"], ["recommend", "0"]):
        code, _, err = gramrun(command[0], straight / "moved", *command[1:])
        assert code == 0, err
    monkeypatch.setattr(capacity, "available_memory", lambda: 1000)
    with pytest.raises(ConfigError, match="the tables of .* need .* read the run on a machine with more"):
        load_model(run, corpus_of(run))


def _killed(folder, kills, random):
    """Kill one of two processes at random moments, which torchrun restarts; return how often, up to `kills`."""
    run, done = folder / "killed" / "metrics.jsonl", 0
    arguments = ("--config", "config.yaml", "--output", "killed", "--resume")
    process = _run(folder, 2, *arguments, restarts=kills)
    before = 0
    while done < kills and process.poll() is None:
        if not run.exists() or run.stat().st_mtime_ns <= before:  # rewritten when training begins
            time.sleep(0.005)
            continue
        time.sleep(random.random() * 1.5)
        with contextlib.suppress(OSError, IndexError):  # it has just ended
            before = run.stat().st_mtime_ns
            os.kill(random.choice(list(pids_by_rank(process).values())), signal.SIGKILL)
            done += 1
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return done


@needs_torchrec
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_process_loses_nothing(straight, kills):
    """torchrun goes on, to the same bits; a damaged part sends the reader to the checkpoint before."""
    folder, random = straight, Random(kills)
    (_, whole), checkpoints, left = _tables(folder / "straight"), folder / "killed" / "checkpoints", kills

    def check():
        step, killed = _tables(folder / "killed")
        assert step == 80
        assert all(torch.equal(killed[name], table) for name, table in whole.items())
        assert sorted(path.name for path in checkpoints.iterdir() if not path.name.endswith(".torn")) == [
            f"step-0000000{step}.{kind}" for step in (60, 80) for kind in ("pt", "tables")
        ]

    while left:
        shutil.rmtree(folder / "killed", ignore_errors=True)
        left -= _killed(folder, left, random)
        check()
    if kills > 1:  # as a kill between the tables and the file that records them leaves it
        (checkpoints / "step-000000080.pt").unlink()
        _finish(folder, 2, "--output", "killed", "--resume")
        check()
    part = checkpoints / "step-000000080.tables" / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    assert _tables(folder / "killed")[0] == 60


@pytest.mark.slow
@needs_torchrec
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_eight_processes_of_two_launchers(straight):
    """As on two machines: a killed process restarts all, and one process evaluates what eight trained."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        meeting = f"localhost:{free.getsockname()[1]}"
    launcher = ["--nnodes", "2", "--nproc-per-node", "4", "--max-restarts", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", meeting, "--rdzv-id", "run", "--monitor-interval", "0.1"]
    train = ["-m", "gramrun", "train", "--config", "config.yaml", "--output", "eight", "--resume"]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, *train]
    started = [subprocess.Popen(command, cwd=straight, env=ENVIRONMENT | {OWN_STORE: "1"}) for _ in range(2)]
    while not (straight / "eight" / "checkpoints" / "step-000000020.pt").exists():
        assert all(process.poll() is None for process in started)
        time.sleep(0.01)
    os.kill(next(iter(pids_by_rank(started[1]).values())), signal.SIGKILL)
    assert [process.wait(timeout=600) for process in started] == [0, 0]
    (step, eight), (_, whole) = _tables(straight / "eight"), _tables(straight / "straight")
    assert step == 80
    assert_near(eight, whole)
    run = open_run(straight / "eight")
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    evaluated = evaluate_run(run, corpus_of(run), "validation")
    assert evaluated["map@10"] == pytest.approx(records[-1]["map@10"], abs=1e-6)


@needs_torchrec
def test_what_split_tables_have_not_is_refused_in_one_line(make_config, corpus):
    for setting, words in (
        ("train.optimizer=adam", "tables: row-wise has no adam"),
        ("train.optimizer=sparse-adam", "tables: row-wise has no sparse-adam"),
        ("train.engine=plain", "drop engine: plain"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_config("train.tables=row-wise", setting)
    for processes, settings, words in (
        (
            2,
            ["train.objective=batch-softmax", "estimator.name=none"],
            "batch-softmax scores each pair against",
        ),
        (1, ["train.start=svd", "model.hidden=[]"], "svd sets whole tables"),
    ):
        config = make_config("train.tables=row-wise", *settings)
        with pytest.raises(ConfigError, match=words):
            check_run(config, corpus, Processes(0, processes))
    with pytest.raises(ConfigError, match="gram-error measures in one process"):
        check_config(make_config("train.tables=row-wise"))


@needs_torchrec
def test_a_gpu_is_refused_before_the_first_step(make_config, corpus, monkeypatch):
    monkeypatch.setattr("gramrun.training.checks.choose_device", torch.device)
    with pytest.raises(ConfigError, match="row-wise has not run on a GPU yet; set device: cpu"):
        check_run(make_config("train.tables=row-wise", "device=cuda"), corpus)


def test_a_missing_torchrec_is_one_line(make_config, corpus, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torchrec is not installed"):
        check_run(make_config("train.tables=row-wise"), corpus)
