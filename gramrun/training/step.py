"""One training step (paper, Algorithms 1 and 2), read from top to bottom.

With parameters θ(t), an independent Gramian batch B and gradient batch B', and λ = ``train.gravity``:

    Algorithm 2, line 7     Ĝ_u ← (1 − α) Ĝ_u + α (1/|B|) sum_{b in B} u_b ⊗ u_b, and Ĝ_v with v_b
    Algorithm 2, line 9     θ ← θ − η ∇_θ (1/|B'|) sum_{i in B'} [f_i(θ) + λ ĝ_i(θ, Ĝ_u, Ĝ_v)]

Algorithm 1 has the same two parts: lines 8, 11 and 12 are the estimator's, line 10 is the update of θ.
Engines (`gramrun.model.engine`) differ in the functions that gather features and update parameters, not in
their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gramrun.base.errors import RunError
from gramrun.config import EstimatorSection
from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.model.engine import Batch, TowerInputs
from gramrun.training.objective import GradientBatch
from gramrun.training.side import EmbeddedSide

if TYPE_CHECKING:
    from gramrun.training.trainer import Trainer


def training_step(state: Trainer) -> float:
    """Take one step, and return f, the mean loss of the observed pairs in B' before it.

    Raises:
        RunError: when the objective is not finite. On a CPU the parameters are left unchanged.
    """
    engine, left, right = state.engine, state.left, state.right
    pairs = state.pair_stream.batch(state.step)  # B'
    with engine.thread_limit():
        # Algorithm 2, line 6: draw B and embed it under θ(t), without a graph.
        draw = partial(gramian_batches, state, state.config.estimator)
        left_batches, right_batches = engine.both(
            draw, (state.left_estimator, left), (state.right_estimator, right)
        )
        # Line 7: update Ĝ_v, then Ĝ_u. With the Taylor softmax, the left side's statistics depend on Ĝ_v.
        observe(state, state.right_estimator, right, right_batches)
        observe(state, state.left_estimator, left, left_batches)
        # Line 9: update θ along the gradient over B'.
        engine.scale_rates(state.config.train.rate_factor(state.step, state.total_steps))
        means, u, v = state.gradient_step(pairs)
    if engine.captured:  # else checked before the update
        check_finite(state, means)
    # An observer of gram-error, which runs in one process, may have `batch: previous` too.
    if state.config.estimator.batch == "previous" or state.processes.count == 1:
        state.previous = state.processes.gather(u), state.processes.gather(v)
    return float(means[0])


def gradient_step(state: Trainer, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Update the parameters from the gradient batch B'. Every process does its part of the batch.

    Args:
        state: its engine and objective.
        pairs: int64, shape (B',), training pairs.

    Returns:
        The mean loss and the mean weighted term over all pairs, shape (2,); u and v of this process's part,
        shape (B'/N, k), without a graph.
    """
    engine, processes = state.engine, state.processes

    # Embed B': z = feature bags, u = tower(z).
    batches = [side_of_pairs(state, pairs, side) for side in (state.left, state.right)]
    left_inputs, right_inputs = engine.gather_pairs(*batches)
    left, right = engine.both(
        partial(embed_pairs, state),
        (state.left, batches[0], left_inputs),
        (state.right, batches[1], right_inputs),
    )
    if state.config.estimator.batch == "gradient":  # equation 15: B is B', and the gradient goes through both
        observe(state, state.right_estimator, state.right, (right.gramian_batch(),))
        observe(state, state.left_estimator, state.left, (left.gramian_batch(),))

    # Loss f and surrogate ĝ (equation 8), in which Ĝ_u and Ĝ_v are constants.
    target = 1.0 if state.target is None else state.target[processes.share(pairs)]
    batch = GradientBatch(
        left.items, right.items, left.leaf, right.leaf, target, left.importance, right.importance
    )
    loss, surrogate = state.objective.terms(batch, state.left_estimator, state.right_estimator)
    weighted = state.config.train.gravity * surrogate
    means = processes.mean(torch.stack([loss.detach(), weighted.detach()]))
    if not engine.captured:
        check_finite(state, means)

    # Backward: to u and v, then through both towers to the dense layers and to z.
    scale = state.config.train.batch_size if state.config.train.reduction == "sum" else 1
    ((loss + weighted) * (scale / processes.count)).backward()
    engine.both(backward_through_tower, (left,), (right,))

    # θ ← θ − η ∇: the dense layers, then the rows of the tables that B' touched.
    engine.update(left.inputs, right.inputs)
    return means, left.leaf.detach(), right.leaf.detach()


@dataclass(frozen=True)
class EmbeddedPairs:
    """One side of this process's part of B'.

    Attributes:
        items: int64, shape (B'/N,).
        inputs: z, of the tower.
        embeddings: u, shape (B'/N, k), with the tower's graph.
        leaf: u without it. The objective's graph ends here, so that both towers can go backward at once.
        importance: shape (B'/N,), or None for 1 (`gramrun.gramian.population`).
    """

    items: Tensor
    inputs: TowerInputs[Any]
    embeddings: Tensor
    leaf: Tensor
    importance: Tensor | None

    def gramian_batch(self) -> GramianBatch:
        """The same rows as a Gramian batch, without a graph (``batch: gradient``)."""
        return GramianBatch(self.items, self.leaf.detach(), importance=self.importance)


def side_of_pairs(state: Trainer, pairs: Tensor, side: EmbeddedSide) -> Batch:
    """One side of B', and the part of it that this process embeds."""
    items = side.population.pair_items[pairs].long()
    without_id = side.without_id(state.config.train.seed, state.step, len(items))
    return Batch(side.name, items, state.processes.part(len(items)), without_id)


def embed_pairs(state: Trainer, side: EmbeddedSide, batch: Batch, inputs: TowerInputs[Any]) -> EmbeddedPairs:
    """Embed one side of B' with a graph."""
    embeddings = state.engine.towers[side.name].dense(inputs.inputs)
    importance = side.population.importance
    items = batch.items[batch.part]
    return EmbeddedPairs(
        items,
        inputs,
        embeddings,
        embeddings.detach().requires_grad_(),
        None if importance is None else importance[items],
    )


def backward_through_tower(side: EmbeddedPairs) -> None:
    """Continue the backward pass from u to the dense parameters and to z."""
    assert side.leaf.grad is not None
    torch.autograd.backward(side.embeddings, side.leaf.grad)


def check_finite(state: Trainer, means: Tensor) -> None:
    """Stop where the objective is infinite or not a number; in all processes, as `means` is the same in all.

    Raises:
        RunError: with the step and the remedy.
    """
    if not torch.isfinite(means.sum()):
        raise RunError(
            f"step {state.step + 1}: the objective is {float(means.sum()):g} (loss {float(means[0]):g}, "
            f"weighted term over all pairs {float(means[1]):g}); lower train.learning_rate or train.gravity"
        )


def gramian_batches(
    state: Trainer, section: EstimatorSection, estimator: GramianEstimator, side: EmbeddedSide
) -> tuple[GramianBatch, ...]:
    """The batch B of one side under θ(t), and for an estimator that looks ahead also that of step t + 1."""
    if estimator.observes == "nothing" or section.batch == "gradient":  # `gradient_step` has that batch
        return ()
    if estimator.observes == "corpus":
        return (side.whole(),)
    if section.batch == "previous" and state.previous is not None:
        u, v = state.previous
        pairs = state.pair_stream.batch(state.step - 1)
        return (side.from_pairs(pairs, u if side.name == "left" else v),)
    steps = (state.step, state.step + 1) if estimator.looks_ahead else (state.step,)
    size, seed = section.gramian_batch_size, state.config.train.seed
    stream = state.left.stream if section.batch == "shared" else side.stream
    return tuple(side.draw(seed, stream, step, size) for step in steps)


def observe(
    state: Trainer,
    estimator: GramianEstimator,
    side: EmbeddedSide,
    batches: Sequence[GramianBatch],
) -> None:
    """Update an estimator with the batches of `gramian_batches`."""
    for batch, update in zip(batches, (estimator.observe, estimator.look_ahead), strict=False):
        update(_of_all_processes(state, estimator, side, batch))


def statistics(state: Trainer, side: EmbeddedSide, batch: GramianBatch) -> GramianBatch:
    """What the objective has the estimator of a side observe: embeddings, and companions where it has any."""
    right = state.right_estimator if side.name == "left" else None
    return state.objective.statistics(side.name, batch, right)


def _of_all_processes(
    state: Trainer, estimator: GramianEstimator, side: EmbeddedSide, batch: GramianBatch
) -> GramianBatch:
    """Exchange what an estimator needs of a batch: its mean rank-one term, or all its rows."""
    processes = state.processes
    if processes.count == 1:
        return statistics(state, side, batch)
    if estimator.needs_rows:
        gather = processes.gather_uneven if estimator.observes == "corpus" else processes.gather
        return statistics(state, side, batch.each(gather))
    part = statistics(state, side, batch)
    return replace(part, moments=processes.mean(batch_moments(part)))
