"""The memory that a training run takes on a GPU, predicted from its configuration and corpus.

    memory = parameters + optimizer + data + caches + work

Shards are mapped on the host and copied here whole, so nothing of it can be dropped when memory is short.
What outlives a step, and what a step takes besides, are held by the tests against the tensors of the learner
on a CPU; the workspaces of the GPU's libraries are a guess. None of it has been compared with a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gramrun.config import RunConfig
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.model.build import learner_kind
from gramrun.model.embedding import EMBED_CHUNK
from gramrun.model.optimizers import SPARSE_OPTIMIZERS
from gramrun.training.caches import cache_bytes
from gramrun.training.host_memory import (
    STATE_FLOATS,
    companion_bytes,
    count_parameters,
    evaluation_bytes_apart,
    layer_widths,
    start_bytes,
    step_bytes,
    table_rows,
)

_WORKSPACES = 200_000_000  # of cuBLAS, a stream each, and what the allocator rounds up; not measured


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on the GPU, by what they are for.

    Attributes:
        parameters: tables and dense layers.
        optimizer: its state, and gradients as large as the tables where the learner has them.
        data: features, training pairs, targets, weights of items and the vectors of a prior.
        caches: of the Gramian estimators.
        work: of the moment that takes most, with the workspaces of the libraries.
    """

    parameters: int
    optimizer: int
    data: int
    caches: int
    work: int

    @property
    def total(self) -> int:
        """Of all."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """All, by what a user calls them."""
        return {
            "parameters": self.parameters,
            "optimizer": self.optimizer,
            "features and pairs": self.data,
            "Gramian caches": self.caches,
            "evaluation, batches or start": self.work,
        }


def device_memory(
    config: RunConfig, corpus: SplitCorpus, companion_dim: int, processes: int = 1
) -> DeviceMemory:
    """Predict what one process of ``gramrun train`` takes on its GPU.

    Args:
        config: of the run.
        corpus: of the run, which it fits.
        companion_dim: r, the companions of an item (`gramrun.training.objective.companion_dim`).
        processes: how many train together, on a GPU each.
    """
    longest = [_longest_bags(side) for side in (corpus.left, corpus.right)]
    static = learner_kind(config, torch.device("cuda"), longest[0] + longest[1], processes) == "static"
    parameters = 4 * count_parameters(config, corpus)
    width = config.model.input_dim if config.model.hidden else config.model.embedding_dim
    optimizer = STATE_FLOATS[config.train.optimizer] * parameters
    if static:
        optimizer += 4 * width * table_rows(corpus)  # D
    elif config.train.optimizer not in SPARSE_OPTIMIZERS:
        optimizer += 2 * parameters  # gradients as large as the tables, and their root
    step = step_bytes(config, corpus) + (_static_bytes(config, corpus, width) if static else 0)
    _, ranking = evaluation_bytes_apart(config, corpus)
    return DeviceMemory(
        parameters,
        optimizer,
        _data_bytes(config, corpus, companion_dim),
        cache_bytes(config, config.estimator, corpus, companion_dim),
        _WORKSPACES + step + max(ranking, start_bytes(config, corpus)),  # graphs keep their memory
    )


def _longest_bags(side: Side) -> list[int]:
    return [int((feature.offsets[1:] - feature.offsets[:-1]).max()) for feature in side.features]


def _data_bytes(config: RunConfig, corpus: SplitCorpus, companion_dim: int) -> int:
    train = corpus.train
    total = companion_bytes(config, corpus, companion_dim) + train.left.nbytes + train.right.nbytes
    if config.train.target == "value" and train.target is not None:
        total += train.target.nbytes
    for side, gamma in ((corpus.left, config.train.gamma_left), (corpus.right, config.train.gamma_right)):
        total += side.items * (4 if gamma == 1 else 8)  # w, and the importance where it is not 1
        total += sum(feature.offsets.nbytes + feature.indices.nbytes for feature in side.features)
    if config.train.objective == "batch-softmax":
        total += 4 * corpus.right.items
    return total


def _static_bytes(config: RunConfig, corpus: SplitCorpus, width: int) -> int:
    """What the padded bags of `gramrun.model.static_learner` take in the graphs of a step, each its own."""
    batch = config.train.batch_size
    embedded = max(config.estimator.gramian_batch_size, EMBED_CHUNK if config.estimator.cache_entry else 0)
    met: dict[str, int] = {}  # rows of each table that a batch B' names
    gathers = []
    for side in (corpus.left, corpus.right):
        longest = _longest_bags(side)
        for feature, length in zip(side.features, longest, strict=True):
            met[feature.vocabulary] = met.get(feature.vocabulary, 0) + batch * length
        bags, inputs = 12 * sum(longest), 4 * (sum(layer_widths(config, len(longest))[:1]) or width)
        # r and the scales of every bag stay; of one column at a time the rows, before and after scaling.
        gathers.append(bags + inputs + 2 * 4 * width * max(longest))
    # Of the table that a batch meets most: which rows, and D's, s's and E's, with two results of arithmetic.
    update = max(met.values()) * (8 + 5 * 4 * width)
    descent = batch * sum(gathers) + update
    return 2 * (descent + embedded * sum(gathers))  # the calls before a capture leave theirs reserved
