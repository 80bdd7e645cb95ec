"""Optimizers: torch's own, with one learning rate for the feature tables and one for the dense layers.

The two kinds of parameters need different rates under Adagrad. A table row is touched by the few pairs
of one item, a dense weight by every pair, so at equal rates the dense layers' accumulators grow by
orders of magnitude faster and the towers move mostly in the directions that all items share.
"""

from __future__ import annotations

from typing import Literal

import torch

from gramrun.model.towers import TwoTower

OptimizerName = Literal["adagrad", "adam", "sgd"]

SPARSE_OPTIMIZERS = frozenset({"adagrad", "sgd"})  # torch's Adam takes dense gradients only


def make_optimizer(
    model: TwoTower,
    name: OptimizerName,
    table_learning_rate: float,
    dense_learning_rate: float,
) -> torch.optim.Optimizer:
    """Make the optimizer of a model.

    Args:
        model: its parameters; tables with sparse gradients need an optimizer in `SPARSE_OPTIMIZERS`.
        name: which optimizer.
        table_learning_rate: η of the feature tables.
        dense_learning_rate: η of the dense layers.
    """
    # Embedding lookups make well-formed sparse gradients; torch warns until one opts out of checking them.
    torch.sparse.check_sparse_tensor_invariants.disable()
    groups = [{"params": model.table_parameters(), "lr": table_learning_rate}]
    dense = model.dense_parameters()
    if dense:
        groups.append({"params": dense, "lr": dense_learning_rate})
    match name:
        case "adagrad":
            return torch.optim.Adagrad(groups)
        case "adam":
            return torch.optim.Adam(groups)
        case "sgd":
            return torch.optim.SGD(groups)


def make_dense_optimizer(
    model: TwoTower, name: OptimizerName, learning_rate: float
) -> torch.optim.Optimizer | None:
    """Make the optimizer of the dense layers alone; None for linear towers, which have none.

    Args:
        model: its parameters.
        name: ``adagrad`` or ``sgd``.
        learning_rate: η.
    """
    dense = model.dense_parameters()
    if not dense:
        return None
    kind = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}[name]
    return kind(dense, lr=learning_rate, fused=True)  # one pass over each parameter, not one an operation
