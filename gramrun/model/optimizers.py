"""Optimizers: one for the feature tables and one for the dense layers, each with its own learning rate.

With g the gradient of the batch, t the step from 1, and every operation elementwise:

    sgd           E ← E − η g
    adagrad       s ← s + g²,  E ← E − η g / (√s + 10⁻¹⁰)                     s starts at a value, usually 0
    adam          m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
                  E ← E − η m̂ / (√v̂ + 10⁻⁸)                                   m̂ = m / (1 − β₁ᵗ), v̂ likewise
    sparse-adam   as adam, but of a table only the rows that the batch touched, with m, v and E; in place of
                  the last line  E ← E − η (√(1 − β₂ᵗ) / (1 − β₁ᵗ)) m / (√v + 10⁻⁸)

Adam with momentum changes every row of a table at every step: m of a row that was touched once is never 0
again. So PyTorch's step costs as much as the table is large; the compiled engine's does not
(`gramrun.model.delayed_adam`). The m of sparse Adam does not decay between two batches that touch a row, so a
rare row takes longer steps than under Adam; the dense layers have plain Adam. Both are PyTorch's:
`torch.optim.Adam` and `torch.optim.SparseAdam`, with β₂ = .999 and β₁ = `momentum`, which delays the answer
to an error of a Gramian, as SOGram does (docs/mathematics.md).

Under Adagrad tables and dense layers need different rates. The few pairs of one item update a table row,
every pair updates a dense weight. So at equal rates the sums of the dense layers grow orders of magnitude
faster, and the towers move mostly in the directions that all items share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gramrun.model.towers import TwoTower

OptimizerName = Literal["adagrad", "adam", "sgd", "sparse-adam"]

# Those that change only the rows of a table that a batch touched.
SPARSE_OPTIMIZERS = frozenset({"adagrad", "sgd", "sparse-adam"})

BETA2 = 0.999


@dataclass(frozen=True)
class OptimizerOptions:
    """Which optimizer trains a model.

    Attributes:
        name: one of `OptimizerName`.
        table_learning_rate: η of the feature tables.
        dense_learning_rate: η of the dense layers.
        initial_accumulator: what every s of Adagrad starts at.
        momentum: β₁ of Adam.
        dense_decay: what of each dense parameter is added to its gradient (`gramrun.model.l2`).
    """

    name: OptimizerName
    table_learning_rate: float
    dense_learning_rate: float
    initial_accumulator: float = 0.0
    momentum: float = 0.9
    dense_decay: float = 0.0

    @property
    def betas(self) -> tuple[float, float]:
        """β₁ and β₂ of Adam."""
        return self.momentum, BETA2


def make_optimizers(model: TwoTower, options: OptimizerOptions) -> list[torch.optim.Optimizer]:
    """Make PyTorch's optimizers of a model; for ``sparse-adam`` the dense layers have their own.

    Args:
        model: its parameters; tables with sparse gradients need an optimizer in `SPARSE_OPTIMIZERS`.
        options: which optimizer.
    """
    # Embedding lookups make valid sparse gradients; PyTorch warns unless the check is disabled.
    torch.sparse.check_sparse_tensor_invariants.disable()
    tables = {"params": model.table_parameters(), "lr": options.table_learning_rate}
    dense = {
        "params": model.dense_parameters(),
        "lr": options.dense_learning_rate,
        "weight_decay": options.dense_decay,
    }
    groups = [tables, dense] if dense["params"] else [tables]
    match options.name:
        case "adagrad":
            return [torch.optim.Adagrad(groups, initial_accumulator_value=options.initial_accumulator)]
        case "adam":
            return [torch.optim.Adam(groups, betas=options.betas)]
        case "sgd":
            return [torch.optim.SGD(groups)]
        case "sparse-adam":
            sparse = torch.optim.SparseAdam([tables], betas=options.betas)
            return [sparse, torch.optim.Adam([dense], betas=options.betas)] if dense["params"] else [sparse]


def make_dense_optimizer(model: TwoTower, options: OptimizerOptions) -> torch.optim.Optimizer | None:
    """Make the optimizer of the dense layers; None for linear towers.

    Args:
        model: its parameters.
        options: which optimizer.
    """
    dense, rate, decay = model.dense_parameters(), options.dense_learning_rate, options.dense_decay
    if not dense:
        return None
    match options.name:  # fused: one pass over each parameter
        case "adagrad":
            start = options.initial_accumulator
            return torch.optim.Adagrad(
                dense, lr=rate, weight_decay=decay, initial_accumulator_value=start, fused=True
            )
        case "sgd":
            return torch.optim.SGD(dense, lr=rate, weight_decay=decay, fused=True)
        case _:
            return torch.optim.Adam(dense, lr=rate, weight_decay=decay, betas=options.betas, fused=True)


# The state of each parameter: a step count, and tensors of the parameter's shape.
_STATE = {
    torch.optim.Adagrad: {"step", "sum"},
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.SGD: set[str](),
    torch.optim.SparseAdam: {"step", "exp_avg", "exp_avg_sq"},
}


def load_optimizer_state(optimizer: torch.optim.Optimizer, saved: Any) -> None:
    """Restore an optimizer's state, but not its learning rates, which follow the configuration.

    Args:
        optimizer: an optimizer of this module.
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
            if name == "step" and isinstance(value, int):  # SparseAdam's
                continue
            shape = torch.Size() if name == "step" else parameters[number].shape
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != shape:
                raise ValueError("its optimizer has other shapes")
    optimizer.load_state_dict({"state": saved, "param_groups": own["param_groups"]})


def load_in_place(own: dict[str, Any], saved: Any) -> None:
    """Copy a saved state of tensors into an engine's own; the compiled and the static engine use it.

    Args:
        own: an engine's ``state_dict``: tensors that are its own, by name or in lists.
        saved: the same from a file.

    Raises:
        KeyError, ValueError: when it belongs to another model, optimizer or engine.
    """
    if not isinstance(saved, dict) or not isinstance(saved.get("accumulated"), dict):
        raise ValueError("its optimizer is that of another train.engine")
    pairs: list[tuple[Tensor, Any]] = []
    for key, part in own.items():
        if isinstance(part, dict):
            pairs += [(tensor, saved[key][name]) for name, tensor in part.items()]
        else:
            pairs += zip(part, saved[key], strict=True)
    if not all(isinstance(other, Tensor) and mine.shape == other.shape for mine, other in pairs):
        raise ValueError("its optimizer has other shapes")
    for mine, other in pairs:
        mine.copy_(other)
