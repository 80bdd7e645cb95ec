"""Dense Adam at the cost of a batch: a row of a table is brought up to date when it is read.

Adam changes every row at every step, also a row without a gradient. But between two gradients m and v only
decay, so what the steps in between do is known. With g_r's last gradient at step s, and t > s,

    m_t = β₁^(t − s) m_s,   v_t = β₂^(t − s) v_s
    E_t = E_(t−1) − η_t / (1 − β₁ᵗ) · m_t / (√v_t / √(1 − β₂ᵗ) + 10⁻⁸)          as in `torch.optim.Adam`

The compiled engine keeps m_s, v_s and s of each row, and takes these steps in their order once a batch or an
evaluation reads the row (`Delayed.catch_up`). It stops J steps after s, where (β₁ / √β₂)ᴶ ≤ 2⁻²⁴ (159 for
β₁ = .9): from then on a step is less than a rounding of the first. Up to that, and to the rounding of powers,
the result is PyTorch's. It does not depend on how often a row is read, bit for bit, so a resumed run goes on
exactly.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numba
import numpy as np

from gramrun.base.compiled import compiled
from gramrun.model.bags import ADAM_EPSILON

_NEGLIGIBLE = 2.0**-24  # half a unit in the last place of float32
_unsigned: Any = numba.uintp


class AdamSteps:
    """What the steps of a run have in common for all rows: rates, bias corrections and powers of β.

    Args:
        beta1: β₁, less than √β₂.
        beta2: β₂.

    Attributes:
        rates: float32, η_t / (1 − β₁ᵗ) by step t, from 1.
        corrections: float32, 1 / √(1 − β₂ᵗ) by step t.
        first: float32, shape (J + 1,), β₁ʲ.
        second: float32, shape (J + 1,), √β₂ʲ.
    """

    def __init__(self, beta1: float, beta2: float) -> None:
        self.betas = beta1, beta2
        ratio = beta1 / math.sqrt(beta2)  # of a step to the one before
        horizon = math.ceil(math.log(_NEGLIGIBLE) / math.log(ratio)) if ratio else 0
        self.first = np.power(beta1, np.arange(horizon + 1)).astype(np.float32)
        self.second = np.power(beta2, np.arange(horizon + 1) / 2).astype(np.float32)
        self.rates, self.corrections = np.zeros((2, 1024), dtype=np.float32)

    def add(self, step: int, rate: float) -> None:
        """Note η of a step."""
        if step >= len(self.rates):
            more = np.zeros(step, dtype=np.float32)
            self.rates, self.corrections = (np.append(x, more) for x in (self.rates, self.corrections))
        beta1, beta2 = self.betas
        self.rates[step] = rate / (1 - beta1**step)
        self.corrections[step] = 1 / math.sqrt(1 - beta2**step)


class Delayed:
    """Which steps the rows of a table have had.

    Args:
        rows: of the table.

    Attributes:
        last: int32, s of each row: the step of its last gradient; 0 before the first.
        done: int32, the step up to which each row is current.
    """

    def __init__(self, rows: int) -> None:
        self.last = np.zeros(rows, dtype=np.int32)
        self.done = np.zeros(rows, dtype=np.int32)
        self._lock = threading.Lock()  # both towers may read one table at once

    def catch_up(
        self,
        rows: np.ndarray,
        table: np.ndarray,
        momentum: np.ndarray,
        accumulated: np.ndarray,
        steps: AdamSteps,
        step: int,
    ) -> None:
        """Bring rows up to date with the steps 1 … `step`.

        Args:
            rows: int32, rows of the table, with repeats.
            table: float32, shape (all rows, width); changed.
            momentum: float32, of the same shape: m_s.
            accumulated: float32, of the same shape: v_s.
            steps: of the run.
            step: t, the steps done.
        """
        powers = steps.rates, steps.corrections, steps.first, steps.second
        with self._lock:
            _catch_up(rows, table, momentum, accumulated, self.last, self.done, *powers, step)

    def decay(
        self,
        momentum: np.ndarray,
        accumulated: np.ndarray,
        rows: np.ndarray,
        step: int,
        betas: tuple[float, float],
    ) -> None:
        """Decay m and v of rows to just before their next gradient, at `step`.

        Args:
            momentum: float32, shape (all rows, width): m; changed.
            accumulated: float32, of the same shape: v; changed.
            rows: int64, distinct rows that are current up to `step` − 1.
            step: the step of the gradient.
            betas: β₁ and β₂.
        """
        _decay(momentum, accumulated, self.last, self.done, rows, step, *betas)


@compiled
def _catch_up(
    rows: np.ndarray,
    table: np.ndarray,
    momentum: np.ndarray,
    accumulated: np.ndarray,
    last: np.ndarray,
    done: np.ndarray,
    rates: np.ndarray,
    corrections: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: int,
) -> None:
    width, horizon = _unsigned(table.shape[1]), len(first) - 1
    roots = np.empty(table.shape[1], dtype=np.float32)
    for p in range(_unsigned(len(rows))):
        row = _unsigned(rows[p])
        begin, start = done[row], last[row]
        if begin == step:
            continue
        done[row] = step
        end = min(step, start + horizon)
        if start == 0 or begin >= end:
            continue
        for d in range(width):
            roots[d] = np.sqrt(accumulated[row, d])
        for t in range(begin + 1, end + 1):
            passed = _unsigned(t - start)
            rate = rates[_unsigned(t)] * first[passed]
            correction = corrections[_unsigned(t)] * second[passed]
            for d in range(width):
                table[row, d] -= rate * momentum[row, d] / (correction * roots[d] + ADAM_EPSILON)


@compiled
def _decay(
    momentum: np.ndarray,
    accumulated: np.ndarray,
    last: np.ndarray,
    done: np.ndarray,
    rows: np.ndarray,
    step: int,
    beta1: float,
    beta2: float,
) -> None:
    width = _unsigned(momentum.shape[1])
    for p in range(_unsigned(len(rows))):
        row = _unsigned(rows[p])
        passed = step - 1 - last[row]
        last[row] = done[row] = step
        first, second = np.float32(beta1**passed), np.float32(beta2**passed)
        for d in range(width):
            momentum[row, d] *= first
            accumulated[row, d] *= second
