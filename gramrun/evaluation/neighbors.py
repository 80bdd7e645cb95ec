r"""``gramrun neighbors``, ``recommend``: find an item by its title, and the items nearest to it on one side.

On the item's own side the score is the cosine :math:`\langle a, b \rangle / (|a| |b|)`, which does not grow
with popularity. On the other side it is the model's score :math:`\langle u, v \rangle`. Both are float64 sums
over all items, computed in chunks: the search is exact. Equal scores keep the order of item numbers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from gramrun.base.errors import InputError
from gramrun.evaluation.ranking import ItemSets
from gramrun.evaluation.trained import SideName, TrainedEmbeddings, open_embeddings

_OTHER: dict[SideName, SideName] = {"left": "right", "right": "left"}
_YEAR = r" \([0-9]{4}\)$"  # at the end of a MovieLens title
_SHOWN = 5  # titles in a message
_COMPARED = 200  # titles compared letter by letter with one that is not found


def find_neighbors(
    path: Path,
    sought: str,
    *,
    side: SideName | None = None,
    to: SideName | None = None,
    count: int = 10,
    data: Path | None = None,
    exclude_seen: bool = False,
) -> dict[str, Any]:
    """Find an item by its title or id, and the items of greatest score.

    Args:
        path: the directory of `gramrun train` or `gramrun baseline`.
        sought: a title, its beginning or a part of it, or an id of the raw data; see `find_item`.
        side: the side of the item. Default: right; left if both sides hold the same items, as pages do.
        to: the side to rank, by cosine if it is `side` and by inner product otherwise. Default: `side`; the
            other side if both hold the same items.
        count: the number of neighbours, at least 1.
        data: the folder of the run's corpus, if it was moved.
        exclude_seen: leave out the right items that a left item has in training.

    Returns:
        A JSON-ready record: ``run``, ``method``, ``step``; ``query`` with ``side``, ``item`` (number), ``id``
        and ``title``; ``to``, ``score`` (``cosine`` or ``inner product``); ``neighbors``, the best first,
        each with ``item``, ``id``, ``title`` and ``score``. The item itself is left out.

    Raises:
        InputError: when no title or several match, or the run or its corpus cannot be used.
    """
    trained = open_embeddings(path, data)
    remedy = "give an id of the raw data, or a title" if side else "--side searches the other side"
    same_items = trained.corpus.left.item == trained.corpus.right.item
    side = side or ("left" if same_items else "right")
    to = to or (_OTHER[side] if same_items else side)
    titles = read_titles(trained, side)
    item = find_item(titles, sought, trained.side(side).item, remedy)
    itself = item if side == to or same_items else None
    assert not exclude_seen or (side, to) == ("left", "right")
    left_out = [] if itself is None else [itself]
    if exclude_seen:
        train = trained.corpus.train
        left_out += ItemSets.of_left_items(train.left, train.right, np.array([item])).rows(0, 1)[1].tolist()
    items, scores = nearest(trained, side, item, to, count, left_out=left_out)
    names = titles if trained.side(to).item == trained.side(side).item else read_titles(trained, to)
    return {
        "run": str(path),
        "method": trained.run.method,
        "step": trained.step,
        "query": {"side": side, **_fields(titles, item)},
        "to": to,
        "score": "cosine" if side == to else "inner product",
        "neighbors": [
            {**_fields(names, int(item)), "score": float(score)}
            for item, score in zip(items, scores, strict=True)
        ],
    }


def describe(found: dict[str, Any], note: str = "") -> str:
    """The record of `find_neighbors` as a table; `note` ends its title."""
    query = found["query"]
    head = f"{query['title']} ({query['id']})" if query["title"] != query["id"] else query["title"]
    lines = [f"{head}: nearest of the {found['to']} side by {found['score']}{note}; {found['method']}"]
    for rank, row in enumerate(found["neighbors"], start=1):
        name = row["title"] if row["title"] == row["id"] else f"{row['title']}  [{row['id']}]"
        lines.append(f"  {rank:>3}  {row['score']:8.4f}  {name}")
    return "\n".join(lines)


def read_titles(trained: TrainedEmbeddings, side: SideName) -> pa.Table:
    """The items of a side in order: columns ``id`` and ``title`` (text).

    The title is the vocabulary's column ``title``, else the first column whose name ends in ``title`` or
    ``name``, else the id.
    """
    file = trained.vocabulary_file(side)
    others = pq.read_schema(file).names[1:]
    named = [name for name in others if name.lower().endswith(("title", "name"))]
    column = "title" if "title" in others else next(iter(named), "key")
    read = pq.read_table(file, columns=list(dict.fromkeys(["key", column])))
    text = {name: read[name].cast(pa.large_string()) for name in read.column_names}
    return pa.table({"id": text["key"], "title": pc.coalesce(text[column], text["key"])})


def find_item(titles: pa.Table, sought: str, kind: str, remedy: str) -> int:
    """The number of the one item that `sought` names, by the first of `_matches` with any match.

    Args:
        titles: columns ``id`` and ``title``.
        sought: a title, its beginning or a part of it, or an id.
        kind: what the items are, for messages.
        remedy: what to do where none matches, for messages.

    Raises:
        InputError: when several items match, or none; the message suggests titles.
    """
    if not sought.strip():
        raise InputError("the title is empty; type one, or an id")
    for matches in _matches(titles, sought):
        found = np.flatnonzero(matches.to_numpy())
        if len(found) == 1:
            return int(found[0])
        if len(found) > 1:
            shown = ", ".join(_name(titles, row) for row in found[:_SHOWN])
            more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
            raise InputError(
                f"{sought!r} matches {len(found):,} {kind} titles: {shown}{more}; give one of them, or an id"
            )
    near = _similar(titles["title"], sought.lower())
    hint = f" (did you mean {', '.join(map(repr, near))}?)" if near else ""
    raise InputError(f"no {kind} is called {sought!r}{hint}; {remedy}")


def _matches(titles: pa.Table, sought: str) -> Iterator[pa.ChunkedArray]:
    """Masks, bool (items,): equal title, equal id, then without case: title without year, prefix, part.

    A number is an id, never a part of another one.
    """
    yield pc.equal(titles["title"], sought)
    yield pc.equal(titles["id"], sought)
    if sought.strip().lstrip("-").isdecimal():
        return
    lower, wanted = pc.utf8_lower(titles["title"]), sought.lower()
    yield pc.equal(pc.replace_substring_regex(lower, _YEAR, ""), wanted)
    yield pc.starts_with(lower, wanted)
    yield pc.match_substring(lower, wanted)


def _name(titles: pa.Table, row: int) -> str:
    fields = _fields(titles, int(row))
    suffix = "" if fields["title"] == fields["id"] else f" ({fields['id']})"
    return f"{fields['title']!r}{suffix}"


def _similar(titles: pa.ChunkedArray, wanted: str) -> list[str]:
    """The most similar titles by difflib, among those that share most trigrams with `wanted`."""
    lower = pc.utf8_lower(titles)
    shared = np.zeros(len(lower), dtype=np.int32)
    for trigram in {wanted[start : start + 3] for start in range(max(1, len(wanted) - 2))}:
        shared += pc.match_substring(lower, trigram).to_numpy()
    likely = np.argsort(-shared, kind="stable")[:_COMPARED]
    by_lower = {lower[row].as_py(): titles[row].as_py() for row in likely.tolist() if shared[row]}
    return [by_lower[text] for text in difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.5)]


def _fields(titles: pa.Table, item: int) -> dict[str, Any]:
    return {"item": item, "id": titles["id"][item].as_py(), "title": titles["title"][item].as_py()}


def nearest(
    trained: TrainedEmbeddings,
    side: SideName,
    item: int,
    to: SideName,
    count: int,
    *,
    left_out: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """The items of greatest score, the best first.

    Args:
        trained: the embeddings.
        side: the side of the item.
        item: its number.
        to: the side to rank: by cosine if it is `side`, by inner product otherwise.
        count: the number of items, at most.
        left_out: numbers of items to leave out.

    Returns:
        Item numbers (int64) and scores (float64), both of shape (at most `count`,).
    """
    query = trained.rows(side, torch.tensor([item]))[0].double()
    items, scores = np.empty(0, dtype=np.int64), np.empty(0)
    start, out = 0, np.array(left_out, dtype=np.int64)
    for chunk in trained.chunks(to):
        found = _scores(chunk.double(), query, cosine=side == to)
        found[out[(out >= start) & (out < start + len(chunk))] - start] = -np.inf
        items = np.concatenate([items, np.arange(start, start + len(chunk))])
        scores = np.concatenate([scores, found])
        best = np.argsort(-scores, kind="stable")[:count]
        items, scores = items[best], scores[best]
        start += len(chunk)
    kept = scores > -np.inf
    return items[kept], scores[kept]


def _scores(embeddings: Tensor, query: Tensor, *, cosine: bool) -> np.ndarray:
    products = embeddings @ query
    if cosine:
        lengths = torch.linalg.norm(embeddings, dim=1) * torch.linalg.norm(query)
        products = torch.where(lengths > 0, products / lengths, 0.0)  # 0 for a zero vector
    return products.numpy()
