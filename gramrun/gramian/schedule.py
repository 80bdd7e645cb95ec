"""The Gramian learning rate α_t at step t = 1, 2, ….

constant      α_t = α, as in the paper
decaying      α_t = max(1/t, α): the plain mean of the first 1/α batches, then an exponential mean
a table       α_t is the rate of the largest step ≤ t, e.g. {1: 1, 100: 0.1, 1000: 0.01}
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AlphaSchedule:
    """α_t for every step.

    Args:
        alpha: α in (0, 1].
        form: ``constant``, ``decaying``, or a mapping from steps (the first is 1) to rates in (0, 1].

    Raises:
        ValueError: for a rate outside (0, 1] or a table that does not start at step 1.

    Example:
        >>> [AlphaSchedule(0.3, "decaying").at(step) for step in (1, 2, 3, 4)]
        [1.0, 0.5, 0.3333333333333333, 0.3]
        >>> AlphaSchedule(0.3, {1: 1.0, 100: 0.1}).at(250)
        0.1
    """

    alpha: float
    form: Literal["constant", "decaying"] | Mapping[int, float] = "constant"

    def __post_init__(self) -> None:
        table = self.form if isinstance(self.form, Mapping) else {}
        for rate in (self.alpha, *table.values()):
            if not 0 < rate <= 1:
                raise ValueError(f"alpha must lie in (0, 1], not {rate}")
        if isinstance(self.form, Mapping) and min(table, default=0) != 1:
            raise ValueError("a table of alpha must begin at step 1")

    def at(self, step: int) -> float:
        """α_t at t = `step`, from 1."""
        if self.form == "constant":
            return self.alpha
        if self.form == "decaying":
            return max(1 / step, self.alpha)
        steps = sorted(self.form)
        return self.form[steps[bisect_right(steps, step) - 1]]
