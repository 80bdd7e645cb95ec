"""Section 3.3: what the gradient of a batch's gravity costs as a double sum and in Gramian form.

    double sum (equation 14)      g̃ = (1/B²) sum_ij ⟨u_i, v_j⟩²                          gradient in O(k B²)
    Gramian form (equation 15)    g̃ = ⟨(1/B) sum_i u_i ⊗ u_i, (1/B) sum_j v_j ⊗ v_j⟩      gradient in O(k² B)

Both by autograd, on one thread, interleaved as in `experiments.reproduce.timing`. To try other sizes:

    python -m experiments.reproduce.items.gravity_cost --rounds 5 --dims 64 --batches 256 --output cost.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from experiments.report import keys
from experiments.report.sections import Section, Seeds, Table
from experiments.reproduce.jobs import Script
from experiments.reproduce.plans import RUNS, Plan, slug
from experiments.reproduce.timing import measure, ratio
from gramrun.base.files import write_text

MODULE = "experiments.reproduce.items.gravity_cost"


def double_sum(u: Tensor, v: Tensor) -> Tensor:
    """Equation 14, from rows of shape (B, k)."""
    return (u @ v.T).square().mean()


def gramian_form(u: Tensor, v: Tensor) -> Tensor:
    """Equation 15, from rows of shape (B, k)."""
    return ((u.T @ u) * (v.T @ v)).sum() / (len(u) * len(v))


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    keys.GRAMIAN_FORM: gramian_form,
    keys.DOUBLE_SUM: double_sum,
}


def gradient(form: Callable[[Tensor, Tensor], Tensor], u: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """∇g̃ with respect to u and v."""
    return torch.autograd.grad(form(u, v), (u, v))


def tasks(plan: Plan) -> list[Script]:
    """One script for all sizes."""
    values = {name: [str(value) for value in plan.options[name]] for name in ("dims", "batches")}
    rounds = str(plan.options["rounds"])
    arguments = ("--rounds", rounds, "--dims", *values["dims"], "--batches", *values["batches"])
    return [Script(MODULE, arguments, "", RUNS / "gravity-cost" / f"{slug('-'.join(arguments))}.csv")]


def section(plan: Plan) -> Section:
    """A row for each k and B."""
    (script,) = tasks(plan)
    frame, rows = pd.read_csv(script.output), []
    for (k, size), rounds in frame.groupby(["k", "B"]):
        times = {f"{form}, ms": f"{rounds[form].median():.3g}" for form in FORMS}
        ratios = ratio(rounds, keys.DOUBLE_SUM, keys.GRAMIAN_FORM)
        rows.append({"k": str(k), "B": f"{size:,}", **times, "ratio": ratios, "B/k": f"{size / k:g}"})
    return Section(
        plan.item,
        "The cost of gravity",
        "Section 3.3",
        "",
        (
            Table(
                "cost",
                "Milliseconds to take the gradient of a batch's gravity with respect to its embeddings, one "
                f"thread: medians of {plan.options['rounds']} rounds. Ratio: double sum ÷ Gramian form, "
                "median (least–greatest). The paper: O(k B²) against O(k² B).",
                pd.DataFrame(rows),
            ),
        ),
        measured=measurements(frame),
    )


def measurements(frame: pd.DataFrame) -> dict[str, Seeds]:
    """The rounds of each size and form, for the claims."""
    return {
        keys.gravity_cost(k, size, form): tuple(map(float, rounds[form]))
        for (k, size), rounds in frame.groupby(["k", "B"])
        for form in FORMS
    }


def rows(rounds: int, dims: list[int], batches: list[int]) -> pd.DataFrame:
    """Milliseconds of each form, a row for each size and round."""
    frames = []
    for k, size in product(dims, batches):
        u, v = (torch.randn(size, k, requires_grad=True) for _ in range(2))
        frame = measure({name: partial(gradient, form, u, v) for name, form in FORMS.items()}, rounds)
        frames.append(frame.reset_index().assign(k=k, B=size))
    return pd.concat(frames)


def main() -> None:
    """Time every size and write a CSV."""
    parser = argparse.ArgumentParser(description="The gravity of a batch: double sum against Gramian form.")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--dims", type=int, nargs="+", required=True)
    parser.add_argument("--batches", type=int, nargs="+", required=True)
    parser.add_argument("--output", type=Path, metavar="FILE.csv", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    frame = rows(arguments.rounds, arguments.dims, arguments.batches)
    write_text(arguments.output, frame.to_csv(index=False))


if __name__ == "__main__":
    main()
