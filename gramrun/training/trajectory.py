"""What Proposition 5 asks to know of a trajectory, measured along it (paper, Section 3.2 and Appendix D).

For one side under the parameters θ(t), over its population with weights w_x:

    ‖G‖_F     G = sum_x w_x u_x ⊗ u_x                        (paper, equation 4)
    σ²        E‖u ⊗ u − G‖²_F = sum_x w_x ‖u_x‖⁴ − ‖G‖²_F    of one member; a batch's mean has σ²/|B|
    drift     ‖G(t) − G(t−1)‖_F                              whose maximum over all t is δ

The drift is measured at the measured steps only, so δ is exact where ``gram_error.every`` is 1 and a lower
bound of it elsewhere. Step 1 has none: the estimators first observe under θ(1), and G(0) enters nothing.

On a corpus too large to embed whole, "the true Gramian" is the mean over a large sample (Appendix D: one
million embeddings). For N members drawn from the population with replacement, Ĝ is unbiased and its relative
standard error is stated beside it:

    sqrt(E‖Ĝ − G‖²_F) / ‖G‖_F = σ / (√N ‖G‖_F),   with σ̂² = N/(N−1) · (mean ‖u‖⁴ − ‖Ĝ‖²_F),   E σ̂² = σ²
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gramrun.data.batches import LEFT_REFERENCE_STREAM, RIGHT_REFERENCE_STREAM, step_generator
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.training.sides import TrainingSide
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


@dataclass(frozen=True)
class Reference:
    """What one side's estimates are held against.

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
    """One side at one step: the reference, and how far it moved in the last step (None at step 1)."""

    side: str
    reference: Reference
    drift: float | None

    def row(self) -> dict[str, float | str | None]:
        """Its columns in ``trajectory.csv``."""
        return {
            "side": self.side,
            "gramian_norm": self.reference.norm,
            "variance": self.reference.variance,
            "drift": self.drift,
            "reference_error": self.reference.error,
        }


def exact_reference(side: TrainingSide) -> Reference:
    """G and σ² over every item of positive weight, under the current parameters."""
    return _weighted(side, side.population.item_weights, samples=None)


def sampled_reference(side: TrainingSide, items: Tensor) -> Reference:
    """Ĝ and σ̂² over drawn items; an item that was drawn c times is embedded once, and weighs c/N.

    Args:
        side: whose Gramian.
        items: int64, shape (N,), N >= 2. Drawn with replacement from the population, x ~ w.
    """
    counts = torch.bincount(items, minlength=side.items)
    return _weighted(side, counts.double() / len(items), samples=len(items))


def _weighted(side: TrainingSide, weights: Tensor, samples: int | None) -> Reference:
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
    return Reference(gramian, variance, math.sqrt(variance / samples) / norm)


class Trajectory:
    """Measures both sides of `trainer` at the steps it is asked to, as ``gram_error`` configures.

    `prepare` is called one step before each `measure`; it keeps the Gramians from which that measurement's
    drift starts. They follow from the parameters alone, so a resumed run computes them again and a
    checkpoint need not hold them.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._before: tuple[int, list[Tensor]] | None = None
        self._last: tuple[int, list[Tensor]] | None = None

    def prepare(self) -> None:
        """Remember the current Gramians G(t−1), where the next step t will be measured."""
        step = self.trainer.step
        if step == 0 or not self.trainer.config.gram_error.drift:
            return
        is_exact = self.trainer.config.gram_error.reference == "exact"
        if is_exact and self._last is not None and self._last[0] == step:
            self._before = self._last
        else:
            self._before = (step, [reference.gramian for reference in self._references(step + 1)])

    def measure(self) -> list[Measurement]:
        """The left and the right side under the current parameters."""
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

        A sample is drawn afresh for each measurement, but its drift's two Gramians share it: their noise
        cancels where that of two samples would drown the drift.
        """
        config = self.trainer.config
        sides = (self.trainer.left, self.trainer.right)
        if config.gram_error.reference == "exact":
            return [exact_reference(side) for side in sides]
        streams = (LEFT_REFERENCE_STREAM, RIGHT_REFERENCE_STREAM)
        size = config.gram_error.reference_samples
        return [
            sampled_reference(
                side, side.population.draw(step_generator(config.train.seed, stream, measured_step), size)[0]
            )
            for side, stream in zip(sides, streams, strict=True)
        ]
