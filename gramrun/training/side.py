"""One side of the corpus under the current parameters: its batches, and its exact Gramian."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.data.batches import IndexStream, Stream, step_generator
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.population import Population
from gramrun.model.towers import EMBED_CHUNK, embed_chunks


@dataclass(frozen=True)
class EmbeddedSide:
    """One side: its items, their weights, and the function that embeds them.

    With ``train.id_dropout_left`` or ``_right``, p > 0, a drawn item is embedded without its id with
    probability p, in B′ and in B alike: training is that of a corpus in which each item is there with its id
    and without it, with shares 1 − p and p. All draws are independent.

    Attributes:
        name: ``left`` or ``right``.
        items: the number of items.
        population: the weights of the items in the Gramian.
        embed: item ids, shape (B,), to current embeddings, shape (B, k), without a graph; as a second
            argument it takes `without_id`.
        stream: the random stream of its Gramian batches (`gramrun.data.batches`).
        processes: the processes that train together. `draw`, `from_pairs` and `whole` return the part of this
            process, `chunks` whole chunks.
        id_dropout: p.
    """

    name: str
    items: int
    population: Population
    embed: Callable[..., Tensor]
    stream: int
    processes: Processes = SINGLE_PROCESS
    id_dropout: float = 0.0
    _streams: dict[tuple[int, int, int], IndexStream] = field(default_factory=dict, repr=False, compare=False)

    @torch.no_grad()
    def draw(self, seed: int, stream: int, step: int, size: int) -> GramianBatch:
        """Draw items x ~ w and embed them: the Gramian batch of one step."""
        items, pairs = self.population.members(self._stream(seed, stream, size).batch(step))
        items = self.processes.share(items)
        pairs = None if pairs is None else self.processes.share(pairs)
        if not self.id_dropout:
            return GramianBatch(items, self.embed(items), pairs=pairs)
        ids = Stream.LEFT_GRAMIAN_IDS if self.name == "left" else Stream.RIGHT_GRAMIAN_IDS
        without_id = self.processes.share(self._without_id(seed, ids, step, size))
        return GramianBatch(items, self.embed(items, without_id), pairs=pairs)

    def without_id(self, seed: int, step: int, size: int) -> Tensor | None:
        """The items of a gradient batch that are embedded without their ids: bool, shape (size,), or None."""
        if not self.id_dropout:
            return None
        return self._without_id(
            seed, Stream.LEFT_IDS if self.name == "left" else Stream.RIGHT_IDS, step, size
        )

    def _without_id(self, seed: int, stream: int, step: int, size: int) -> Tensor:
        drawn: np.ndarray = step_generator(seed, stream, step).random(size) < self.id_dropout
        return torch.from_numpy(drawn).to(self.population.pair_items.device)

    def _stream(self, seed: int, stream: int, size: int) -> IndexStream:
        key, population = (seed, stream, size), self.population
        if key not in self._streams:
            self._streams[key] = IndexStream(
                lambda step: population.choose(step_generator(seed, stream, step), size),
                population.pair_items.device,
            )
        return self._streams[key]

    def from_pairs(self, pairs: Tensor, embeddings: Tensor) -> GramianBatch:
        """Make a Gramian batch of training pairs that are embedded already (``batch: previous``).

        The gradient batch of the step before, |B| pairs of a shuffled epoch under θ(t−1), costs no forward
        pass. It is unbiased for G(t−1), so its bias for G(t) is −(G(t) − G(t−1)), the drift of one step. In
        an epoch no pair occurs twice, so at γ = 1 its variance is σ²/|B| · (n − |B|)/(n − 1), a little below
        that of a drawn batch; at other γ, σ² is that of r u⊗u with the importance r = w_x/p_x. How it depends
        on the next gradient batch: docs/mathematics.md#reused-batches.
        """
        pairs, embeddings = self.processes.share(pairs), self.processes.share(embeddings)
        items = self.population.pair_items[pairs].long()
        importance = self.population.importance
        weights = None if importance is None else importance[items]
        return GramianBatch(items, embeddings, pairs=pairs, importance=weights)

    @torch.no_grad()
    def chunks(self, items: Tensor) -> Iterator[GramianBatch]:
        """Embed `items` chunk by chunk."""
        for chunk in items.split(EMBED_CHUNK):
            part = self.processes.share(chunk)
            yield GramianBatch(part, self.embed(part)).each(self.processes.gather_uneven)

    def whole(self) -> GramianBatch:
        """Embed all items of positive weight in one batch."""
        items = self.population.weighted_items
        # Of each chunk its share: all processes embed equally many times, as split tables need.
        shares = [self.processes.share(chunk) for chunk in items.split(EMBED_CHUNK)]
        return GramianBatch(torch.cat(shares), embed_chunks(self.embed, shares))

    def exact_gramian(self) -> Tensor:
        """G of this side under the current parameters: float64, shape (k, k)."""
        return weighted_moments(self.chunks(self.population.weighted_items), self.population.item_weights)
