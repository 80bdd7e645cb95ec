"""Proposition 5 along a measured trajectory: how far an estimate may be expected from the Gramian.

SOGram (paper, Algorithm 2) from Ĝ(0) = 0, with constant α, observing batches of B members that are drawn
independently of the trajectory θ(1), θ(2), …, has the mean Ḡ(t) = sum_τ a_{t−τ} G(τ), a_j = α (1−α)^j, so

    E‖Ĝ(t) − G(t)‖²_F  =  E‖Ĝ(t) − Ḡ(t)‖²_F + ‖Ḡ(t) − G(t)‖²_F

exactly: variance and squared bias. (An estimator that drives its own trajectory has a cross term as well.)
With σ_τ² the variance of one member's term at step τ, δ_τ = ‖G(τ) − G(τ−1)‖_F, and σ, δ their maxima over
τ <= t, the proof in the paper's appendix gives, before its last step lets t grow,

    variance  <= σ²/B · α/(2−α) · (1 − (1−α)^2t)                                              (equation 12)
    bias      <= δ · sum_{j<t} j a_j + (1−α)^t ‖G(t)‖_F                                       (equation 13)
    sum_{j<t} j a_j = (1−α)/α · [1 − t (1−α)^(t−1) + (t−1) (1−α)^t]   ->   1/α − 1

`proposition_5` is this; it is tighter than the limit, which the paper prints, and equal to it for t >> 1/α.
The maxima make it loose: a model moves fastest in its first steps, and δ never forgets them. `stepwise` is
the same proof with each step's own σ_τ and δ_τ kept in the sums, where the triangle inequality is all
that is lost:

    V(t) = (1−α)² V(t−1) + α² σ_t²/B                      (the variance itself)
    L(t) = (1−α) [L(t−1) + (1 − (1−α)^(t−1)) δ_t]         (the lag; + (1−α)^t ‖G(t)‖ for the zero start)

All are bounds on the root mean square over draws; a single draw may lie above.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def sampling(variance: Floats, batch_size: int) -> Floats:
    """The root mean square error of a batch's mean, exactly: σ_t / √B.

    Args:
        variance: σ_t², shape (measurements,).
        batch_size: B.

    Returns:
        In the unit of ‖G‖, float64, shape (measurements,).
    """
    return np.sqrt(variance / batch_size)


def proposition_5(
    steps: Ints, norm: Floats, variance: Floats, drift: Floats, alpha: float, batch_size: int
) -> Floats:
    """Proposition 5's bound on SOGram's root mean square error, with the maxima over the measured steps.

    Args:
        steps: t, ascending, shape (measurements,). The bound is proven where these are all steps 1, 2, ….
        norm: ‖G(t)‖_F.
        variance: σ_t².
        drift: δ_t; NaN at step 1, which has none.
        alpha: α in (0, 1].
        batch_size: B.

    Returns:
        In the unit of ‖G‖, float64, shape (measurements,).
    """
    kept = 1.0 - alpha
    t = steps.astype(np.float64)
    largest_variance = np.maximum.accumulate(variance) / batch_size
    largest_drift = np.maximum.accumulate(_after_step_1(steps, drift))
    spread = largest_variance * alpha / (2 - alpha) * (1 - kept ** (2 * t))
    mean_age = kept / alpha * (1 - t * kept ** (t - 1) + (t - 1) * kept**t)
    return np.sqrt(spread + (largest_drift * mean_age + kept**t * norm) ** 2)


def stepwise(
    steps: Ints, norm: Floats, variance: Floats, drift: Floats, alpha: float, batch_size: int
) -> Floats:
    """The same bound with every step's own variance and drift instead of their maxima.

    Steps between measured ones are interpolated linearly, so that it is proven where all are measured.

    Args:
        steps: t, ascending from 1, shape (measurements,).
        norm: ‖G(t)‖_F.
        variance: σ_t².
        drift: δ_t; NaN at step 1, which has none.
        alpha: α in (0, 1].
        batch_size: B.

    Returns:
        In the unit of ‖G‖, float64, shape (measurements,).
    """
    kept = 1.0 - alpha
    every_step = np.arange(1, steps[-1] + 1)
    variances = np.interp(every_step, steps, variance) / batch_size
    moved = steps > 1
    drifts = np.interp(every_step, steps[moved], drift[moved]) if moved.any() else np.zeros(1)
    spread = lag = 0.0
    squares, lags = np.empty(len(every_step)), np.empty(len(every_step))
    weight = 1.0  # (1−α)^(t−1): what of the zero start is left before step t
    for i in range(len(every_step)):
        spread = kept**2 * spread + alpha**2 * variances[i]
        lag = kept * (lag + (1 - weight) * drifts[i])
        weight *= kept
        squares[i], lags[i] = spread, lag
    measured = steps - 1
    return np.sqrt(squares[measured] + (lags[measured] + kept ** steps.astype(np.float64) * norm) ** 2)


def _after_step_1(steps: Ints, drift: Floats) -> Floats:
    return np.where(steps == 1, 0.0, drift)
