"""Time the gradient of the gravity of a batch as a double sum and in Gramian form (Section 3.3).

    python -m experiments.benchmarks.gravity_cost [--rounds 11] [--dims 64 128] [--batches 64 256 1024 4096]

    double sum (equation 14)      g̃ = (1/B²) sum_ij ⟨u_i, v_j⟩²                          gradient in O(k B²)
    Gramian form (equation 15)    g̃ = ⟨(1/B) sum_i u_i ⊗ u_i, (1/B) sum_j v_j ⊗ v_j⟩      gradient in O(k² B)

Both by autograd, on one thread, interleaved as in `experiments.benchmarks.timing`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from experiments.benchmarks.timing import RESULTS, measure, ratio
from gramrun.base.files import write_json, write_text
from gramrun.base.provenance import provenance

GRAMIAN = "Gramian form"
DOUBLE_SUM = "double sum"


def double_sum(u: Tensor, v: Tensor) -> Tensor:
    """Equation 14, from rows of shape (B, k)."""
    return (u @ v.T).square().mean()


def gramian_form(u: Tensor, v: Tensor) -> Tensor:
    """Equation 15, from rows of shape (B, k)."""
    return ((u.T @ u) * (v.T @ v)).sum() / (len(u) * len(v))


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {GRAMIAN: gramian_form, DOUBLE_SUM: double_sum}


def gradient(form: Callable[[Tensor, Tensor], Tensor], u: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """∇g̃ with respect to u and v."""
    return torch.autograd.grad(form(u, v), (u, v))


def main() -> None:
    """Time every size; write results/bench/gravity_cost.{json,md}."""
    parser = argparse.ArgumentParser(description="The gravity of a batch: double sum against Gramian form.")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--dims", type=int, nargs="+", default=(64, 128))
    parser.add_argument("--batches", type=int, nargs="+", default=(64, 256, 1024, 4096))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows, numbers = [], {}
    for k in arguments.dims:
        for size in arguments.batches:
            u, v = (torch.randn(size, k, requires_grad=True) for _ in range(2))
            steppers = {name: partial(gradient, form, u, v) for name, form in FORMS.items()}
            frame = measure(steppers, arguments.rounds)
            times = " | ".join(f"{frame[name].median():.3g}" for name in FORMS)
            rows.append(f"| {k} | {size:,} | {times} | {ratio(frame, DOUBLE_SUM, GRAMIAN)} | {size / k:g} |")
            numbers[f"k={k}, B={size}"] = frame.to_dict(orient="list")
    heading = (
        "`python -m experiments.benchmarks.gravity_cost`: milliseconds (medians) to take the gradient of the "
        "gravity of a batch\nwith respect to its embeddings, on one thread. "
        "The paper (Section 3.3): O(k B²) against O(k² B).\n\n"
        f"| k | B | {GRAMIAN} | {DOUBLE_SUM} | ratio, median (min–max) | B/k |\n|---|---|---|---|---|---|"
    )
    text = "\n".join([heading, *rows]) + "\n"
    write_json(RESULTS / "gravity_cost.json", {**provenance(), "threads": 1, **numbers})
    write_text(RESULTS / "gravity_cost.md", text)
    print(text)


if __name__ == "__main__":
    main()
