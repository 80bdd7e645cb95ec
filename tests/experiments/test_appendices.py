"""How an error at scale decays and settles (Appendix D), on numbers worked by hand."""

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from experiments.reproduce.items import error_at_scale
from experiments.reproduce.plans import Plan


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([8, 4, 1, 1], 30 - 10 / 2),  # 2 is half-way from 4 to 1 in logarithms
        ([9, 1, 4, 1], 40 - 10 / 2),
        ([1, 1, 1, 1], 10),
        ([9, 9, 9, 9], float("inf")),
        ([9, 1, 1, 2], float("inf")),
    ],
)
def test_an_error_has_settled_where_it_stays_low(errors, expected):
    curve = pd.Series(errors, index=[10, 20, 30, 40], dtype=float)
    assert error_at_scale.settled(curve, 2.0) == pytest.approx(expected)


def test_decay_of_known_curves():
    """Error 1/t against 10/t, each over 100 steps: at one level the smaller is earlier, at its own it is not."""
    curves = [
        pd.DataFrame({"step": range(1, 101), "error": [c / t for t in range(1, 101)]}).assign(
            side="left", seed=seed, learning_rate=rate, label="SOGram α=0.1", alpha=0.1, relative_drift=rate
        )
        for rate, c in ((0.01, 10.0), (0.002, 1.0))
        for seed in (0, 1)
    ]
    measured = error_at_scale.decay("toy", pd.concat(curves))
    late = sum(10 / t for t in range(81, 101)) / 20
    of = "toy/SOGram α=0.1/left"
    assert measured[f"{of} late error η=0.01"] == pytest.approx((late, late))
    assert measured[f"{of} early error η=0.01"] == (1.0, 1.0)
    for rate, c in ((0.01, 10.0), (0.002, 1.0)):  # within a step of where c/t is 2 · late
        crossing = c / (2 * late)
        assert measured[f"{of} steps to the common level η={rate}"] == pytest.approx(
            (crossing,) * 2, rel=0.01
        )
        crossing = 10 / (2 * late)
        assert measured[f"{of} steps to its own level η={rate}"] == pytest.approx((crossing,) * 2, rel=0.01)


def test_while_the_zero_start_lasts_nothing_has_settled():
    """(1 − 0.001)^100 = 0.90: the error of a curve at that level is its start."""
    curve = pd.DataFrame({"step": range(1, 101), "error": [0.999**t for t in range(1, 101)], "alpha": 0.001})
    frames = [
        curve.assign(side=side, seed=0, learning_rate=rate, label="SOGram α=0.001", relative_drift=0.0)
        for rate, side in product((0.01, 0.002), ("left", "right"))
    ]
    measured = error_at_scale.decay("toy", pd.concat(frames))
    assert measured["toy/SOGram α=0.001/right steps to the common level η=0.01"] == (float("inf"),)
    plan = Plan("error_at_scale", (), (0,), {"learning_rates": [0.01, 0.002], "alphas": [0.001]}, Path())
    frame = pd.concat(frames).assign(reference_error=0.0)
    assert error_at_scale._rows("toy", plan, measured, frame)[0]["settled at step"] == "not yet"
