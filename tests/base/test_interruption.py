"""Ctrl-C wherever it lands, in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from gramrun.base.interruption import Interrupted, interrupt_with_one_line

interrupt_with_one_line()

class Finalized:
    def __del__(self):
        {finalizer}

try:
    {begin}
    value = Finalized()
    del value
    time.sleep(20)
except Interrupted as interruption:
    {end}
    print(interruption, file=sys.stderr)
    raise SystemExit(interruption.exit_code)
"""


def run(**parts):
    fields = {"finalizer": "pass", "begin": "pass", "end": "pass"} | parts
    command = [sys.executable, "-c", PROGRAM.format(**fields)]
    return subprocess.run(command, capture_output=True, text=True, timeout=15)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_that_a_finalizer_swallows_comes_again(number):
    result = run(finalizer=f"os.kill(os.getpid(), signal.{number}); time.sleep(0)")
    assert result.returncode == 130
    assert result.stderr.splitlines() == ["interrupted; nothing half-written was left behind"]


def test_what_an_interrupt_left_half_made_says_nothing():
    result = run(
        begin="os.kill(os.getpid(), signal.SIGINT)", end="Finalized.__del__ = lambda self: 1 / 0; Finalized()"
    )
    assert (result.returncode, len(result.stderr.splitlines())) == (130, 1)


def test_other_faults_of_finalizers_are_reported():
    result = run(finalizer="signal.setitimer(signal.ITIMER_REAL, 0.05); 1 / 0")
    assert result.returncode == 130
    assert "ZeroDivisionError" in result.stderr
