"""Proposition 5 along a measured trajectory: bounds on the expected error of an estimate.

    E‖Ĝ(t) − G(t)‖²_F = E‖Ĝ(t) − Ḡ(t)‖²_F + ‖Ḡ(t) − G(t)‖²_F        variance and squared bias

for SOGram (paper, Algorithm 2) from Ĝ(0) = 0 with constant α, whose batches of B members are drawn
independently of the trajectory θ(1), θ(2), …. Every function here bounds the root mean square over draws; the
error of a single draw can be larger. Derivation: docs/mathematics.md#proposition-5-on-a-measured-trajectory.

Arguments, for measured steps t: `steps`, ascending int64; `norm`, ‖G(t)‖_F; `variance`, σ_t² of one member's
term; `drift`, δ_t = ‖G(t) − G(t−1)‖_F, NaN at step 1. All have shape (measurements,) and the results are
float64 in the unit of ‖G‖.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def sampling(variance: Floats, batch_size: int) -> Floats:
    """The root mean square error of batch sampling, exactly: σ_t / √B."""
    return np.sqrt(variance / batch_size)


def proposition_5(
    steps: Ints, norm: Floats, variance: Floats, drift: Floats, alpha: float, batch_size: int
) -> Floats:
    """Proposition 5's bound for SOGram, with the maxima σ and δ of the steps measured so far.

        variance  ≤ σ²/B · α/(2−α) · (1 − (1−α)^2t)                                              (equation 12)
        bias      ≤ δ · (1−α)/α · [1 − t (1−α)^(t−1) + (t−1) (1−α)^t] + (1−α)^t ‖G(t)‖_F         (equation 13)

    The paper prints the limit of large t. The bound is proven where every step 1, 2, … is measured.
    """
    kept = 1.0 - alpha
    t = steps.astype(np.float64)
    largest_variance = np.maximum.accumulate(variance) / batch_size
    largest_drift = np.maximum.accumulate(np.where(steps == 1, 0.0, drift))
    spread = largest_variance * alpha / (2 - alpha) * (1 - kept ** (2 * t))
    mean_age = kept / alpha * (1 - t * kept ** (t - 1) + (t - 1) * kept**t)
    return np.sqrt(spread + (largest_drift * mean_age + kept**t * norm) ** 2)


def stepwise(
    steps: Ints, norm: Floats, variance: Floats, drift: Floats, alpha: float, batch_size: int
) -> Floats:
    """The same bound with the variance and drift of every step instead of their maxima.

        V(t) = (1−α)² V(t−1) + α² σ_t²/B                      the variance itself
        L(t) = (1−α) [L(t−1) + (1 − (1−α)^(t−1)) δ_t]         the lag; the zero start adds (1−α)^t ‖G(t)‖_F

    Interpolates linearly between measured steps; proven where every step from 1 is measured.
    """
    from scipy.signal import lfilter  # slow to import

    kept = 1.0 - alpha
    every_step = np.arange(1, steps[-1] + 1)
    variances = np.interp(every_step, steps, variance) / batch_size
    moved = steps > 1
    drifts = np.interp(every_step, steps[moved], drift[moved]) if moved.any() else np.zeros(1)
    squares: Floats = lfilter([alpha**2], [1, -(kept**2)], variances)
    lags: Floats = lfilter([kept], [1, -kept], (1 - kept ** (every_step - 1.0)) * drifts)
    measured = steps - 1
    return np.sqrt(squares[measured] + (lags[measured] + kept ** steps.astype(np.float64) * norm) ** 2)
