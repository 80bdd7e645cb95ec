"""Embedding any number of items in bounded memory, outside of training."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

EMBED_CHUNK = 8192  # rows embedded at once; bounds memory, not a result


def embed_in_chunks(embed: Callable[[Tensor], Tensor], items: Tensor) -> Tensor:
    """Embed any number of items: shape (len(items), k)."""
    first, *others = items.split(EMBED_CHUNK)
    rows = embed(first)
    if not others:
        return rows
    embeddings = rows.new_empty(len(items), rows.shape[1])  # joined at the end, they would take it twice
    embeddings[: len(first)] = rows
    done = len(first)
    for chunk in others:
        embeddings[done : done + len(chunk)] = embed(chunk)
        done += len(chunk)
    return embeddings
