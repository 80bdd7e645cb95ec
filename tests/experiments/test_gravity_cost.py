"""The cost of gravity: both forms are one function, and the section reads what the script writes."""

import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch

from experiments.report import keys
from experiments.reproduce import timing
from experiments.reproduce.items import gravity_cost
from experiments.reproduce.plans import Plan


def test_the_two_forms_of_a_batchs_gravity_are_one_function():
    u, v = (torch.randn(7, 3, dtype=torch.double, requires_grad=True) for _ in range(2))
    literal = sum((a @ b) ** 2 for a in u for b in v) / 49
    expected = torch.autograd.grad(literal, (u, v))
    for form in gravity_cost.FORMS.values():
        torch.testing.assert_close(form(u, v), literal.detach())
        torch.testing.assert_close(gravity_cost.gradient(form, u, v), expected)


def test_the_section_shows_and_measures_every_round(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "STEPS", 2)
    plan = Plan("gravity_cost", (), (0,), {"rounds": 3, "dims": [2, 4], "batches": [8]}, tmp_path)
    (script,) = gravity_cost.tasks(plan)
    script = replace(script, output=tmp_path / "cost.csv")
    monkeypatch.setattr(gravity_cost, "tasks", lambda plan: [script])
    monkeypatch.setattr(sys, "argv", ["", *script.arguments, "--output", str(script.output)])
    threads = torch.get_num_threads()
    gravity_cost.main()
    torch.set_num_threads(threads)
    rounds = pd.read_csv(script.output).set_index(["k", "B"]).loc[(4, 8)]
    section = gravity_cost.section(plan)
    assert section.tables[0].frame["B/k"].tolist() == ["4", "2"]
    for form in gravity_cost.FORMS:
        assert section.measured[keys.gravity_cost(4, 8, form)] == pytest.approx(tuple(rounds[form]))
