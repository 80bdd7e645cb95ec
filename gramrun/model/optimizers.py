"""PyTorch's optimizers, with one learning rate for the feature tables and one for the dense layers.

Under Adagrad the two need different rates. The few pairs of one item update a table row, every pair updates a
dense weight. So at equal rates the accumulators of the dense layers grow orders of magnitude faster, and the
towers move mostly in the directions that all items share.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from gramrun.model.towers import TwoTower

OptimizerName = Literal["adagrad", "adam", "sgd"]

SPARSE_OPTIMIZERS = frozenset({"adagrad", "sgd"})  # PyTorch's Adam needs dense gradients


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
    # Embedding lookups make valid sparse gradients; PyTorch warns unless the check is disabled.
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


# The state of each parameter: a step count, and tensors of the parameter's shape.
_STATE = {
    torch.optim.Adagrad: {"step", "sum"},
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.SGD: set[str](),
}


def load_optimizer_state(optimizer: torch.optim.Optimizer, saved: Any) -> None:
    """Restore an optimizer's state, but not its learning rates, which follow the configuration.

    Args:
        optimizer: an optimizer of `make_optimizer`.
        saved: ``state`` of its ``state_dict``, from a file. PyTorch does not check it and would fail in a
            step.

    Raises:
        ValueError: when it belongs to another model or optimizer.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own = optimizer.state_dict()
    if not isinstance(saved, dict) or not own["state"].keys() <= saved.keys() <= set(range(len(parameters))):
        raise ValueError("its optimizer has other parameters")
    for number, kept in saved.items():
        if not isinstance(kept, dict) or kept.keys() != _STATE[type(optimizer)]:
            raise ValueError("its optimizer is another")
        for name, value in kept.items():
            shape = torch.Size() if name == "step" else parameters[number].shape
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.shape != shape:
                raise ValueError("its optimizer has other shapes")
    optimizer.load_state_dict({"state": saved, "param_groups": own["param_groups"]})


def make_dense_optimizer(
    model: TwoTower, name: OptimizerName, learning_rate: float
) -> torch.optim.Optimizer | None:
    """Make the optimizer of the dense layers; None for linear towers.

    Args:
        model: its parameters.
        name: ``adagrad`` or ``sgd``.
        learning_rate: η.
    """
    dense = model.dense_parameters()
    if not dense:
        return None
    kind = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}[name]
    return kind(dense, lr=learning_rate, fused=True)  # fused: one pass over each parameter


def load_adagrad_sums(own: dict[str, Any], saved: Any) -> None:
    """Copy saved Adagrad sums into place; the compiled and the static engine share this format.

    Args:
        own: an engine's ``state_dict``, whose tensors are its own.
        saved: the same from a file.

    Raises:
        KeyError, ValueError: when it belongs to another model or engine.
    """
    if not isinstance(saved, dict) or not isinstance(saved.get("accumulated"), dict):
        raise ValueError("its optimizer is that of another train.engine")
    pairs = [
        *((table, saved["accumulated"][name]) for name, table in own["accumulated"].items()),
        *zip(own["dense_accumulated"], saved["dense_accumulated"], strict=True),
    ]
    if not all(isinstance(other, torch.Tensor) and mine.shape == other.shape for mine, other in pairs):
        raise ValueError("its optimizer has other shapes")
    for mine, other in pairs:
        mine.copy_(other)
