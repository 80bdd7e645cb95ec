"""Modules that run in processes forked from one that has imported PyTorch: as `python -m` would run them."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from experiments.reproduce.worker import run_module, terminate_all
from gramrun import runs

ROOT = Path(__file__).parents[2]
WITNESS = """
import json, os, pathlib, sys
loaded, stained = "torch" in sys.modules, getattr(sys.modules.get("torch"), "stain", None)
import torch
torch.stain = 1
pathlib.Path("seen.json").write_text(json.dumps({
    "arguments": sys.argv[1:], "name": __name__, "variable": os.environ.get("GRAMRUN_RAW"), "loaded": loaded,
    "stained": stained, "threads": torch.get_num_threads(), "omp": os.environ["OMP_NUM_THREADS"],
    "input": sys.stdin.read(), "process": os.getpid(),
}))
print("not to be seen")
"""
ENDS = """
import os, signal, sys
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit({"well": 0, "three": 3, "words": "no such thing"}.get(sys.argv[1]))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "witness.py").write_text(WITNESS)
    (tmp_path / "ends.py").write_text(ENDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_finds_its_folder_its_environment_and_nothing_of_another(here, monkeypatch, capfd):
    seen = []
    for number in ("1", "2"):
        monkeypatch.setenv("GRAMRUN_RAW", number)
        assert run_module("witness", ["--a", "b c"]) == (0, "")
        seen.append(json.loads((here / "seen.json").read_text()))
    assert [one["variable"] for one in seen] == ["1", "2"]
    assert seen[0].pop("process") != seen[1].pop("process")
    for one in seen:
        assert one["arguments"] == ["--a", "b c"] and one["name"] == "__main__" and one["input"] == ""
        assert (one["threads"], one["omp"], one["stained"]) == (1, "1", None)
        assert one["loaded"] == (sys.platform == "linux"), "every start would take seconds"
    assert os.environ["GRAMRUN_RAW"] == "2" and capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [("well", 0, ""), ("three", 3, ""), ("words", 1, "no such thing\n"), ("killed", -9, "")],
)
def test_how_it_ended(here, how, code, said):
    assert run_module("ends", [how]) == (code, said)


def test_from_several_threads_none_takes_the_end_of_anothers_process(here):
    """Starting a process looks after the others, and how one ended can be read only once."""
    with ThreadPoolExecutor(6) as pool:
        ends = list(pool.map(lambda i: run_module("ends", ["three" if i % 5 == 0 else "well"]), range(40)))
    assert ends == [(3, "") if i % 5 == 0 else (0, "") for i in range(40)]


def test_every_process_at_work_is_asked_to_end(here):
    """A SIGTERM for the whole is not theirs: without this they would go on, each to its end."""
    (here / "long.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(60)\n"
    )
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(run_module, "long", [name]) for name in ("a", "b")]
        deadline = time.monotonic() + 60
        while not ((here / "a").exists() and (here / "b").exists()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        terminate_all()
        assert [end.result() for end in ends] == [(-signal.SIGTERM, "")] * 2
    assert run_module("ends", ["well"]) == (0, "")
    terminate_all()  # of none


def test_a_run_has_the_bits_and_the_command_of_python_m_gramrun(tmp_path, corpus_path):
    line = ["train", "--config", str(ROOT / "configs/synthetic/sogram.yaml"), "--set", f"data.path={corpus_path}",
            "--set", "train.epochs=1", "--output"]  # fmt: skip
    assert run_module("gramrun", [*line, str(tmp_path / "forked")]) == (0, "")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "gramrun", *line, str(tmp_path / "alone")], env=environment, check=True
    )
    found = [runs.open_run(tmp_path / name) for name in ("forked", "alone")]
    commands = [run.manifest["command"].replace(run.path.name, "") for run in found]
    assert commands[0] == commands[1] and commands[0].startswith("gramrun train --config")
    assert [run.manifest["threads"] for run in found] == [1, 1]
    ours, theirs = (list(tensors(torch.load(run.checkpoints()[-1])["trainer"])) for run in found)
    assert len(ours) == len(theirs) > 5
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def tensors(state):
    """All of a nested state."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)
