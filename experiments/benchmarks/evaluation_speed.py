"""Time `rank_scored` against a bare float32 product with ``topk``, interleaved.

    python -m experiments.benchmarks.evaluation_speed [--rounds 5] [--rows 85000]

Embeddings are random: 85,000 items a side, k = 64, once with normal entries and once with norms that fall as
popularity does in Zipf's law, which loosens the bound in `gramrun.evaluation.top_k`. Each left item has six
relevant items, two of them among its best, and fifty excluded items. The bare product writes to preallocated
memory in the same chunks of 256 left items; its ``topk`` has depth 100. Each round times every contender
once, or for two seconds, in a new random order. The table shows the ratios within a round.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from experiments.reproduce import timing
from gramrun.evaluation import ranking
from gramrun.evaluation.ranking import Ints, ItemSets

CHUNK, DEPTH = 256, 100  # the defaults of `rank_scored`
BARE, WHOLE, FLOAT64 = "product and topk", "rank_scored", "float64 product and topk"


@dataclass(frozen=True)
class Problem:
    """Embeddings and the arguments of `rank_scored`."""

    left: Tensor
    right: Tensor
    candidates: Ints
    relevant: ItemSets
    excluded: ItemSets


def made_up(rows: int, items: int, candidates: int, dim: int, *, zipf: bool) -> Problem:
    """Random embeddings; two relevant items of each left item score above most others."""
    random = np.random.default_rng(0)
    left, right = (random.normal(size=(n, dim)).astype(np.float32) for n in (rows, items))
    relevant = random.integers(0, items, (rows, 6))
    # At k = 64 this places the relevant items 3 standard deviations above the others.
    left += 0.5 * right[relevant[:, :2]].sum(axis=1)
    if zipf:
        right *= (random.permutation(items)[:, None] + 1.0) ** -0.5 * np.float32(np.sqrt(items))
    excluded = random.integers(0, items, (rows, 50))
    sets = (
        ItemSets.from_pairs(np.repeat(np.arange(rows), each.shape[1]), each.ravel(), rows)
        for each in (relevant, excluded)
    )
    return Problem(
        torch.from_numpy(left),
        torch.from_numpy(right.astype(np.float32)),
        ranking.sample_candidates(items, candidates, 0),
        *sets,
    )


def contenders(problem: Problem) -> dict[str, Callable[[], object]]:
    """Functions that rank for all left items, by contender."""
    left, right = problem.left, problem.right
    v = right[torch.from_numpy(problem.candidates)]
    chunks = [left[start : start + CHUNK] for start in range(0, len(left), CHUNK)]
    products = torch.empty(CHUNK, len(v))
    depth = min(DEPTH, len(v))

    def bare() -> None:
        for u in chunks:
            torch.mm(u, v.T, out=products[: len(u)]).topk(depth, dim=1)

    def float64() -> None:
        for u in chunks:
            (u.double() @ v.double().T).topk(depth, dim=1)

    def whole() -> None:
        scorer = ranking.InnerProducts(left, right)
        ranking.rank_scored(scorer, problem.candidates, problem.relevant, problem.excluded, DEPTH, CHUNK)

    return {BARE: bare, FLOAT64: float64, WHOLE: whole}


def measure(problem: Problem, rounds: int) -> pd.DataFrame:
    """Milliseconds for 1,000 left items, by round (rows) and contender (columns)."""
    return timing.measure(contenders(problem), rounds) * 1000 / len(problem.left)


def title(name: str, problem: Problem) -> str:
    """The table's title."""
    return (
        f"{name}: {len(problem.left):,} left items, {len(problem.candidates):,} candidates of "
        f"{len(problem.right):,}, k = {problem.left.shape[1]}, {torch.get_num_threads()} threads; "
        "times for 1,000 left items"
    )


def main() -> None:
    """Time them; write results/bench/evaluation_speed.{json,md}."""
    parser = argparse.ArgumentParser(description="Time the ranking of an evaluation, interleaved.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=85_000, help="left items")
    arguments = parser.parse_args()
    parts, numbers = [], {}
    for name, zipf in (("Normal entries", False), ("Zipf norms", True)):
        problem = made_up(arguments.rows, 85_000, 50_000, 64, zipf=zipf)
        frame = measure(problem, arguments.rounds)
        parts.append(timing.table(frame, title(name, problem), BARE))
        numbers[name] = frame.to_dict(orient="list")
    found = {"threads": torch.get_num_threads(), "ms for 1,000 left items": numbers}
    timing.write("evaluation_speed", "\n\n".join(parts), found)


if __name__ == "__main__":
    main()
