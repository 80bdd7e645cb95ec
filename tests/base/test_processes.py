"""Several processes give what one gives: by arithmetic, and by real processes that torchrun starts.

All variants of the comparison are trained by one start of torchrun; a stop and a resume take two more.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import CONFIG, ROOT, pages_corpus, pids_by_rank
from replica import result

from gramrun.base.errors import ConfigError
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.config.loading import dump_config
from gramrun.data import shards
from gramrun.data.shards import open_corpus
from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.surrogate import GravitySide, gravity_surrogate
from gramrun.training.checks import check_run
from gramrun.training.objective import squared_error
from gramrun.training.trainer import Trainer

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
VARIANTS = {
    "sogram": ["estimator.name=sogram", "estimator.debias=true", "model.hidden=[6]", "model.skip=true",
               "train.dense_learning_rate=0.01", "model.bag=mean"],
    "sagram-item": ["estimator.name=sagram", "estimator.rebuild_every=7", "train.prior={name: svd, rank: 3}"],
    "sagram-pair": ["estimator.name=sagram", "estimator.beta=1/n", "estimator.cache=pair",
                    "train.gamma_left=1", "train.gamma_right=1"],
    "control-variate": ["estimator.name=control-variate", "estimator.alpha=0.1"],
    "exact": ["estimator.name=exact", "train.gamma_left=0.5"],
    "free-batch": ["estimator.batch=previous", "estimator.gramian_batch_size=64", "estimator.alpha=0.1",
                   "train.optimizer=sgd", "train.learning_rate=0.1"],
    "gradient-batch": ["estimator.name=sampling", "estimator.batch=gradient",
                       "estimator.gramian_batch_size=64"],
    "plain": ["train.engine=plain", "model.hidden=[6]", "train.optimizer=adam", "train.learning_rate=0.01"],
    "adam": ["train.optimizer=adam", "model.hidden=[6]", "train.learning_rate=0.01"],
    "sparse-adam": ["train.optimizer=sparse-adam", "model.hidden=[6]", "train.learning_rate=0.01"],
    "l2": ["train.l2=0.02", "train.l2_exponent=0.5", "train.dense_l2=0.01", "model.hidden=[6]",
           "train.dense_learning_rate=0.01"],
    "l2, plain": ["train.l2=0.02", "train.l2_exponent=0.5", "train.engine=plain"],
    "taylor-softmax": ["train.objective=taylor-softmax", "train.gamma_left=1", "train.gravity=1"],
    "targets": ["train.target=value", "data.path=VALUED"],
    "stopped": ["estimator.name=sagram", "train.steps=400", "evaluation.every=100", "train.checkpoint_every=20"],
}  # fmt: skip


@pytest.mark.parametrize(("length", "count"), [(0, 3), (2, 3), (12, 3), (1000, 7)])
def test_parts_are_the_whole_and_as_even_as_can_be(length, count):
    rows = torch.arange(length)
    parts = [Processes(rank, count).share(rows) for rank in range(count)]
    assert torch.equal(torch.cat(parts), rows)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def random_batch(size, k=5, r=2):
    random = torch.Generator().manual_seed(0)
    columns = [torch.randn(size, width, generator=random, dtype=torch.double) for width in (k, r, 1)]
    return GramianBatch(torch.arange(size), *columns[:2], importance=columns[2].squeeze(1))


def test_mean_of_the_parts_moments_is_the_batchs():
    batch = random_batch(24)
    parts = [batch_moments(batch.each(Processes(rank, 4).share)) for rank in range(4)]
    torch.testing.assert_close(sum(parts) / 4, batch_moments(batch), rtol=1e-14, atol=1e-14)


def test_sum_of_the_parts_gradients_is_the_batchs():
    random = torch.Generator().manual_seed(1)
    left, right = (torch.randn(12, 3, generator=random, dtype=torch.double) for _ in range(2))
    gramians = [m @ m.T for m in (torch.randn(3, 3, generator=random, dtype=torch.double) for _ in range(2))]

    def gradient(processes):
        u, v = (processes.share(rows).clone().requires_grad_() for rows in (left, right))
        objective = squared_error(u, v, 1.0) + gravity_surrogate(GravitySide(u), GravitySide(v), *gramians)
        (objective / processes.count).backward()
        return torch.cat([u.grad, v.grad], 1)

    parts = [gradient(Processes(rank, 4)) for rank in range(4)]
    torch.testing.assert_close(torch.cat(parts), gradient(SINGLE_PROCESS), rtol=1e-14, atol=1e-14)


def test_what_does_not_divide_is_refused(make_config, corpus):
    check_run(make_config(), corpus, Processes(0, 2))
    check_run(make_config("train.batch_size=63"), corpus, Processes(0, 1))
    for setting, words in (
        ("train.batch_size=63", "train.batch_size is 63; make it a multiple of the 2 processes"),
        ("estimator.gramian_batch_size=31", "estimator.gramian_batch_size is 31; make it a multiple"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_run(make_config(setting), corpus, Processes(0, 2))
    softmax = make_config("train.objective=batch-softmax", "estimator.name=none")
    with pytest.raises(ConfigError, match="train it in one process"):
        check_run(softmax, corpus, Processes(0, 2))


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """A function: the configuration of a variant."""
    made = pages_corpus()
    values = np.random.default_rng(4).uniform(0.5, 1.5, len(made.pair_left)).astype(np.float32)
    valued = tmp_path_factory.mktemp("valued") / "corpus"
    corpus = replace(made, target=values)
    shards.write_corpus(corpus, valued, validation_fraction=0.2, split_seed=0, origin={})
    return lambda make_config, name: make_config(*(s.replace("VALUED", str(valued)) for s in VARIANTS[name]))


@pytest.fixture(scope="module")
def trained(of, tmp_path_factory):
    """A function: (result of rank 0, of rank 1) of a variant; all are trained by one start of two processes."""
    folder = tmp_path_factory.mktemp("replicas")

    def train(make_config, variant):
        if not any(folder.iterdir()):
            for name in VARIANTS:
                (folder / f"{name}.yaml").write_text(dump_config(of(make_config, name)))
            command = [*TORCHRUN, str(ROOT / "tests" / "replica.py"), str(folder)]
            done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
        return [torch.load(folder / f"{variant}.rank{rank}.pt") for rank in (0, 1)]

    return train


def test_two_processes_equal_one(trained, of, make_config):
    """And a replica that differs from the first in one bit is noticed by all."""
    for variant in VARIANTS.keys() - {"stopped"}:
        first, second = trained(make_config, variant)
        assert first["hash"] == second["hash"], variant
        assert len(first["losses"]) == 40
        config = of(make_config, variant)
        alone = result(Trainer(config, open_corpus(config.data.path)))
        assert alone["parameters"][0].abs().max() > 0.1
        for name in ("losses", "moments", "parameters"):
            torch.testing.assert_close(
                first[name], alone[name], rtol=1e-4, atol=2e-5, msg=lambda m, v=variant: f"{v}: {m}"
            )
        for kept in (first, second):
            assert kept["complaint"].startswith("step 40: the processes no longer have the same parameters")


def start(folder, *arguments):
    """Start gramrun in two processes in `folder`."""
    command = [*TORCHRUN, "-m", "gramrun", *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def lines_of_gramrun(process):
    """What gramrun itself said, once all processes have ended."""
    out, err = process.communicate(timeout=120)
    assert 'File "' not in err.split("elastic")[0], err  # no traceback of gramrun's own
    return [line for line in (out + err).splitlines() if line.startswith(("gramrun: ", "wrote "))]


def wait_for_a_checkpoint(process, run):
    """Wait for a checkpoint that is not there yet."""
    there = set(run.glob("checkpoints/step-*.pt"))
    while process.poll() is None and set(run.glob("checkpoints/step-*.pt")) <= there:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


def status(run):
    return json.loads((run / "manifest.json").read_text())["status"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_stopped_and_resumed(trained, make_config, tmp_path):
    """The death of one process ends all with one line; Ctrl-C saves once; the end has the same bits."""
    run, config = tmp_path / "run", tmp_path / "config.yaml"
    straight, _ = trained(make_config, "stopped")
    config.write_text(dump_config(make_config(*VARIANTS["stopped"])))

    process = start(tmp_path, "train", "--config", config, "--output", "run")
    wait_for_a_checkpoint(process, run)
    os.kill(pids_by_rank(process)[1], signal.SIGKILL)
    (line,) = lines_of_gramrun(process)
    # The launcher may end the others before they notice.
    assert "lost the other processes of this run" in line or "gramrun: interrupted" in line
    assert status(run) == "failed"

    process = start(tmp_path, "train", "--output", "run", "--resume")
    wait_for_a_checkpoint(process, run)
    process.send_signal(signal.SIGINT)
    (line,) = lines_of_gramrun(process)
    assert "state saved; go on with `gramrun train --output run --resume`" in line
    assert status(run) == "interrupted"

    (line,) = lines_of_gramrun(start(tmp_path, "train", "--output", "run", "--resume"))
    assert line.startswith("wrote run: step 400")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [100, 200, 300, 400]
    means = straight["losses"].double().view(4, 100).mean(1)
    torch.testing.assert_close(
        torch.tensor([record["loss"] for record in records]).double(), means, rtol=1e-6, atol=0
    )
    saved = torch.load(run / "checkpoints" / "step-000000400.pt")["trainer"]["model"].values()
    assert all(torch.equal(*pair) for pair in zip(saved, straight["parameters"], strict=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "run"]


@pytest.mark.slow
def test_errors_are_one_line_though_all_processes_meet_them(tmp_path):
    process = start(tmp_path, "train", "--config", CONFIG)
    (line,) = lines_of_gramrun(process)
    assert line.startswith("gramrun: data/synthetic: no prepared corpus here")
    assert process.returncode != 0
    assert not any(tmp_path.iterdir())
