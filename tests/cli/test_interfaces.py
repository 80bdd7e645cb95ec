"""--json, terminals and completion."""

import json
import math
import os
import pty
import re
import resource
import subprocess
import sys
import termios
from pathlib import Path

import helpers
import pytest
from helpers import BASELINE, CONFIG, settings

from gramrun.base.files import read_json
from gramrun.cli.data import CORPORA
from gramrun.cli.options import Report
from gramrun.data.registry import CORPORA as KNOWN

SMALL = (*helpers.SMALL, "train.steps=20", "gram_error.every=10")


def documented_keys(gramrun, command):
    """The words of the paragraph of a command's help that lists the keys."""
    text = gramrun(command, "--help")[1]
    paragraph = re.search(r"JSON: (.*?)\n\n", text, flags=re.S)
    assert paragraph, f"{command} --help lists no keys"
    return set(re.findall(r"[\w@]+", paragraph[1]))


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


@pytest.fixture
def answer(gramrun):
    """Run a command with --json: its one object, which has no key that the help does not list."""

    def run(command, *arguments):
        code, out, err = gramrun(command, *arguments, "--json")
        assert (code, out.count("\n")) == (0, 1), (out, err)
        record = json.loads(out, parse_constant=refuse_constant)
        assert set(record) <= documented_keys(gramrun, command), command
        return record

    return run


def test_every_command_that_a_program_may_read(answer, gramrun, corpus_path, tmp_path):
    fresh = answer("prepare", "synthetic", "--output", "d")
    assert (fresh["written"], fresh["corpus"]["pairs"], fresh["output"]) == (True, 12_000, "d")
    assert answer("prepare", "synthetic", "--output", "d") == {**fresh, "written": False}

    small = ["--config", CONFIG, *settings(f"data.path={corpus_path}", *SMALL)]
    plan = answer("train", *small, "--output", "r", "--dry-run")
    assert (plan["dry_run"], plan["run"], plan["config"]["train"]["steps"]) == (True, "r", 20)
    assert plan["resources"]["memory"]["total"] > plan["resources"]["memory"]["parameters"] == 4 * 1632
    assert not Path("r").exists()
    trained = answer("train", *small, "--output", "r")
    last = json.loads(Path("r/metrics.jsonl").read_text().splitlines()[-1])
    assert trained == {"run": "r", "dry_run": False, "step": 20, "metrics": last}
    assert answer("train", "--output", "r", "--resume") == trained  # nothing was to do

    measured = answer("evaluate", "r")
    assert measured == read_json(Path("r/evaluation.json"))["validation"]
    assert measured["map@10"] == last["map@10"]

    exact = ["--config", BASELINE, *settings(f"data.path={corpus_path}")]
    fitted = answer("baseline", *exact, "--output", "b")
    assert fitted["evaluation"] == read_json(Path("b/evaluation.json"))
    assert answer("evaluate", "b")["map@10"] == fitted["evaluation"]["validation"]["map@10"]

    watched = answer("gram-error", *small, "--output", "g")
    assert (watched["written"], watched["step"]) == (True, 20)
    assert all(Path(watched[file]).exists() for file in ("gram_error", "trajectory"))
    assert answer("gram-error", "--output", "g", "--resume") == {**watched, "written": False}

    exported = answer("export", "r", "--output", "items.npy")
    assert exported["bytes"] == Path("items.npy").stat().st_size
    assert len(answer("neighbors", "r", "destination-5", "--count", "3")["neighbors"]) == 3

    machine = answer("doctor")
    assert set(machine) == {"machine"} and machine["machine"]["memory"] > 0
    needed = answer("doctor", *small)
    assert needed["resources"]["steps"] == needed["time"]["steps"] == 20
    assert needed["time"]["seconds"] == pytest.approx(20 * needed["time"]["seconds_per_step"])


def test_errors_leave_stdout_empty(gramrun, corpus_path):
    small = ["--config", CONFIG, *settings(f"data.path={corpus_path}", *SMALL)]
    diverging = settings("train.optimizer=sgd", "train.learning_rate=1e6")
    for expected, *arguments in (
        (2, "prepare", "movielens-1k", "--output", "x"),
        (2, "evaluate", "."),
        (2, "doctor", "--config", "absent.yaml"),
        (2, "train", *small, "--set", "train.batch_size=5000", "--dry-run"),
        (1, "train", *small, *diverging, "--output", "r"),
        (2, "baseline", "--config", "absent.yaml"),
    ):
        code, out, err = gramrun(*arguments, "--json")
        assert (code, out, err.count("\n")) == (expected, "", 1), err


def test_what_is_no_number_is_null(capsys):
    """JSON has no NaN: Python would write one that other programs refuse."""
    Report(as_json=True).record({"a": math.nan, "b": [1.0, {"c": -math.inf}]})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=refuse_constant) == {"a": None, "b": [1.0, {"c": None}]}


def train_arguments(corpus_path, output):
    overrides = (f"data.path={corpus_path}", *SMALL, "train.steps=100", "evaluation.every=50")
    return [sys.executable, "-m", "gramrun", "train", "--config", str(CONFIG),
            *settings(*overrides), "--output", output]  # fmt: skip


def on_a_terminal(command, folder, environment):
    """What a command writes to a terminal that is its stdin, stdout and stderr."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    process = subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65_536):
            written += part
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0, written
    return written


def test_on_a_terminal_there_is_a_bar_and_no_colour_where_none_is_wanted(corpus_path, tmp_path):
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    written = on_a_terminal(train_arguments(corpus_path, "r"), tmp_path, environment)
    assert re.search(rb"\r[^\r]*SOGram[^\r]*100%[^\r]*100/100[^\r]*MAP@10=", written)
    assert not re.search(rb"\x1b\[[0-9;]*m", written)
    shown = on_a_terminal([sys.executable, "-m", "gramrun", "evaluate", "--help"], tmp_path, environment)
    assert b"Usage: gramrun" in shown and b"\x1b" not in shown


def complete(line):
    """What bash would be offered at the end of a line, and the seconds that it took of a processor."""
    words = line.split(" ")
    asked = {"_GRAMRUN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "gramrun"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout.split(), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_completion():
    assert complete("gramrun plot gra")[0] == ["gram-error", "gravity"]
    found, seconds = complete("gramrun prepare wikipedia-")
    assert found == [name for name in CORPORA if name.startswith("wikipedia-")]
    assert seconds < 0.5


def test_all_corpora_can_be_completed():
    assert tuple(KNOWN) == CORPORA
