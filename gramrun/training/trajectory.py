"""The quantities of Proposition 5 along a trajectory (paper, Section 3.2 and Appendix D): ``trajectory.csv``.

For one side under the parameters θ(t), over its population with weights w_x:

    ‖G‖_F     G = sum_x w_x u_x ⊗ u_x                        (paper, equation 4)
    σ²        E‖u ⊗ u − G‖²_F = sum_x w_x ‖u_x‖⁴ − ‖G‖²_F    of one member; a batch's mean has σ²/|B|
    drift     ‖G(t) − G(t−1)‖_F                              whose maximum over all t is δ

Only measured steps have a drift, so their maximum is δ where ``gram_error.every`` is 1 and a lower bound of δ
elsewhere. Step 1 has none: the estimators first observe under θ(1).

On a corpus too large to embed whole, a large sample stands for the exact Gramian (Appendix D: one million
embeddings). For N members drawn with replacement, Ĝ is unbiased, with the relative standard error

    sqrt(E‖Ĝ − G‖²_F) / ‖G‖_F = σ / (√N ‖G‖_F),   with σ̂² = N/(N−1) · (mean ‖u‖⁴ − ‖Ĝ‖²_F),   E σ̂² = σ²

`own_errors` measures, in the same way, the estimates that train.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gramrun.base.processes import SINGLE_PROCESS
from gramrun.data.batches import Stream, step_generator
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.exact import relative_error
from gramrun.training.side import EmbeddedSide
from gramrun.training.trainer import Trainer

COLUMNS = (
    "step",
    "epoch",
    "seconds",
    "side",
    "gramian_norm",
    "variance",
    "drift",
    "reference_error",
)
CSV = "trajectory.csv"
_STREAMS = (Stream.LEFT_REFERENCE, Stream.RIGHT_REFERENCE)


@dataclass(frozen=True)
class Reference:
    """The Gramian that one side's estimates are compared with.

    Attributes:
        gramian: G, or its estimate from a large sample: float64, shape (k, k).
        variance: σ², the variance of one member's rank-one term.
        error: the reference's own relative standard error; 0 where it is exact.
    """

    gramian: Tensor
    variance: float
    error: float

    @property
    def norm(self) -> float:
        """‖G‖_F."""
        return float(torch.linalg.norm(self.gramian))


@dataclass(frozen=True)
class Measurement:
    """One side at one step: the reference, and its drift in the last step (None at step 1)."""

    side: str
    reference: Reference
    drift: float | None

    def row(self) -> dict[str, float | str | None]:
        """The columns of ``trajectory.csv``."""
        return {
            "side": self.side,
            "gramian_norm": self.reference.norm,
            "variance": self.reference.variance,
            "drift": self.drift,
            "reference_error": self.reference.error,
        }


def exact_reference(side: EmbeddedSide) -> Reference:
    """G and σ² over every item of positive weight, under the current parameters."""
    return _weighted(side, side.population.item_weights, samples=None)


def sampled_reference(side: EmbeddedSide, items: Tensor) -> Reference:
    """Ĝ and σ̂² over drawn items; an item that was drawn c times is embedded once, with weight c/N.

    Args:
        side: the side.
        items: int64, shape (N,), N >= 2, drawn with replacement from the population, x ~ w.
    """
    return _weighted(side, _drawn_weights(side, items), samples=len(items))


def _drawn_weights(side: EmbeddedSide, items: Tensor) -> Tensor:
    return torch.bincount(items, minlength=side.items).double() / len(items)


def _weighted(side: EmbeddedSide, weights: Tensor, samples: int | None) -> Reference:
    fourth_moment = 0.0

    def embedded() -> Iterator[GramianBatch]:
        nonlocal fourth_moment  # summed on the way, so that every item is embedded once
        for chunk in side.chunks(weights.nonzero().squeeze(1)):
            norms = chunk.embeddings.double().square().sum(1)
            fourth_moment += float(weights[chunk.items].double() @ norms.square())
            yield chunk

    gramian = weighted_moments(embedded(), weights)
    norm = float(torch.linalg.norm(gramian))
    variance = max(0.0, fourth_moment - norm**2)  # rounding; 0 where all embeddings are equal
    if samples is None:
        return Reference(gramian, variance, 0.0)
    variance *= samples / (samples - 1)
    return Reference(gramian, variance, math.sqrt(variance / samples) / norm if variance else 0.0)


def own_errors(trainer: Trainer, samples: int) -> dict[str, float | None]:
    """‖Ĝ − G‖_F / ‖G‖_F of the estimates that train, by side, under the current parameters.

    Ĝ is that of the last step, before it moved the parameters, so the exact Gramian has an error too: the
    drift of one step. Training is not influenced.

    Args:
        trainer: after at least one step.
        samples: members drawn for the reference; a side with at most as many items has an exact one.

    Returns:
        ``gramian_error_left`` and ``gramian_error_right``; None where all embeddings of the side are 0.
    """
    found: dict[str, float | None] = {}
    estimators = (trainer.left_estimator, trainer.right_estimator)
    for side, estimator, stream in zip((trainer.left, trainer.right), estimators, _STREAMS, strict=True):
        alone = replace(side, processes=SINGLE_PROCESS)  # the other processes do not measure
        weights = side.population.item_weights
        if side.items > samples:
            weights = _drawn_weights(alone, _draw(alone, trainer, stream, trainer.step, samples))
        gramian = weighted_moments(alone.chunks(weights.nonzero().squeeze(1)), weights)
        found[f"gramian_error_{side.name}"] = (
            relative_error(estimator.gramian, gramian) if gramian.any() else None
        )
    return found


def _draw(side: EmbeddedSide, trainer: Trainer, stream: int, step: int, samples: int) -> Tensor:
    generator = step_generator(trainer.config.train.seed, stream, step)
    return side.population.draw(generator, samples)[0]


class Trajectory:
    """Measures both sides of `trainer` as ``gram_error`` configures.

    Call `prepare` one step before each `measure`: it keeps the Gramians from which the drift starts. They
    follow from the parameters, so checkpoints do not hold them and a resumed run computes them again.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._before: tuple[int, list[Tensor]] | None = None
        self._last: tuple[int, list[Tensor]] | None = None

    def prepare(self) -> None:
        """Keep the current Gramians G(t−1); the next step t will be measured."""
        step = self.trainer.step
        if step == 0 or not self.trainer.config.gram_error.drift:
            return
        is_exact = self.trainer.config.gram_error.reference == "exact"
        if is_exact and self._last is not None and self._last[0] == step:
            self._before = self._last
        else:
            self._before = (step, [reference.gramian for reference in self._references(step + 1)])

    def measure(self) -> list[Measurement]:
        """Measure the left and the right side under the current parameters."""
        step = self.trainer.step
        references = self._references(step)
        self._last = (step, [reference.gramian for reference in references])
        drifts: list[float | None] = [None, None]
        if self._before is not None and self._before[0] == step - 1:
            pairs = zip(self._last[1], self._before[1], strict=True)
            drifts = [float(torch.linalg.norm(now - before)) for now, before in pairs]
        sides = (self.trainer.left, self.trainer.right)
        return [
            Measurement(side.name, reference, drift)
            for side, reference, drift in zip(sides, references, drifts, strict=True)
        ]

    def _references(self, measured_step: int) -> list[Reference]:
        """Both sides' references for the measurement at `measured_step`, under the current parameters.

        Each measurement draws a new sample, but the two Gramians of its drift share it: their noise cancels,
        where that of two samples would exceed the drift.
        """
        config = self.trainer.config
        sides = (self.trainer.left, self.trainer.right)
        if config.gram_error.reference == "exact":
            return [exact_reference(side) for side in sides]
        samples = config.gram_error.reference_samples
        return [
            sampled_reference(side, _draw(side, self.trainer, stream, measured_step, samples))
            for side, stream in zip(sides, _STREAMS, strict=True)
        ]
