r"""``gramrun neighbors``: an item by its title, and what lies nearest to it among all items of a side.

Among its own kind the score is the cosine :math:`\langle a, b \rangle / (|a| |b|)`, which does not grow with
an item's popularity; on the other side it is what the model was trained for, :math:`\langle u, v \rangle`.
Both are float64 sums over all items, some at a time: the search is exact. Equal scores keep the order of item
numbers.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from gramrun.base.errors import InputError
from gramrun.evaluation.embeddings import SideName, TrainedEmbeddings, open_embeddings, vocabulary_file

_OTHER: dict[SideName, SideName] = {"left": "right", "right": "left"}
_YEAR = r" \([0-9]{4}\)$"  # after a title, as MovieLens has it
_SHOWN = 5  # titles in a message
_COMPARED = 200  # titles that are compared letter by letter with one that is not found


def find_neighbors(
    path: Path,
    sought: str,
    *,
    side: SideName | None = None,
    to: SideName | None = None,
    count: int = 10,
    data: Path | None = None,
) -> dict[str, Any]:
    """Find an item by its title or id, and the items of greatest score.

    Args:
        path: the run directory, of `gramrun train` or `gramrun baseline`.
        sought: a title, the beginning or a part of one, or an id of the raw data; see `find_item`.
        side: where it is looked up: by default the right side, but the left one where both hold the same
            items, as pages do.
        to: whose items are ranked, by cosine if that is `side`, by inner product if not: by default `side`,
            but the other one where both hold the same items: the pages it is likely to link to.
        count: how many, at least 1.
        data: where the run's corpus lies, if not where it was.

    Returns:
        A JSON-ready record: ``run``, ``method``, ``step``; ``query`` with ``side`` and an item's fields
        ``item`` (its number), ``id`` and ``title``; ``to``, ``score`` (``cosine`` or ``inner product``);
        ``neighbors``, the best first: an item's fields and ``score``. The item itself is left out.

    Raises:
        InputError: when no title or several fit, or the run or its corpus cannot be used.
    """
    trained = open_embeddings(path, data)
    same_items = trained.corpus.left.item == trained.corpus.right.item
    side = side or ("left" if same_items else "right")
    to = to or (_OTHER[side] if same_items else side)
    titles = read_titles(trained, side)
    item = _found(trained, titles, sought, side)
    itself = item if side == to or same_items else None
    items, scores = nearest(trained, side, item, to, count, left_out=itself)
    names = titles if trained.side(to).item == trained.side(side).item else read_titles(trained, to)
    return {
        "run": str(path),
        "method": trained.method,
        "step": trained.step,
        "query": {"side": side, **_fields(titles, item)},
        "to": to,
        "score": "cosine" if side == to else "inner product",
        "neighbors": [
            {**_fields(names, int(item)), "score": float(score)}
            for item, score in zip(items, scores, strict=True)
        ],
    }


def _found(trained: TrainedEmbeddings, titles: pa.Table, sought: str, side: SideName) -> int:
    """`find_item`, whose refusal says where the other side has what is sought."""
    try:
        return find_item(titles, sought, trained.side(side).item)
    except InputError as error:
        other = _OTHER[side]
        kind = trained.side(other).item
        if kind != trained.side(side).item:
            exact = itertools.islice(_fitting(read_titles(trained, other), sought), 2)
            if any(pc.any(fits).as_py() for fits in exact):
                raise InputError(f"{error}; a {kind} is, with --side {other}") from None
        raise


def describe(found: dict[str, Any]) -> str:
    """What `find_neighbors` found, as a table."""
    query = found["query"]
    head = f"{query['title']} ({query['id']})" if query["title"] != query["id"] else query["title"]
    lines = [f"{head}: nearest of the {found['to']} side by {found['score']}; {found['method']}"]
    for rank, row in enumerate(found["neighbors"], start=1):
        name = row["title"] if row["title"] == row["id"] else f"{row['title']}  [{row['id']}]"
        lines.append(f"  {rank:>3}  {row['score']:8.4f}  {name}")
    return "\n".join(lines)


def read_titles(trained: TrainedEmbeddings, side: SideName) -> pa.Table:
    """The items of a side: columns ``id`` and ``title`` (texts), a row for each item in order.

    The title is the vocabulary's column ``title``, or else the first whose name ends so or in ``name``, as
    atomic files may call it; where there is none, as of pages, the id is the title.
    """
    file = vocabulary_file(trained.corpus, trained.side(side))
    others = pq.read_schema(file).names[1:]
    named = [name for name in others if name.lower().endswith(("title", "name"))]
    column = "title" if "title" in others else next(iter(named), "key")
    read = pq.read_table(file, columns=list(dict.fromkeys(["key", column])))
    text = {name: read[name].cast(pa.large_string()) for name in read.column_names}
    return pa.table({"id": text["key"], "title": pc.coalesce(text[column], text["key"])})


def find_item(titles: pa.Table, sought: str, kind: str) -> int:
    """The one item that a text names.

    In this order: the title as it is; the id; the title without its year, small and capital letters being
    the same; the one title that begins so; the one that holds it.

    Args:
        titles: columns ``id`` and ``title``.
        sought: what was typed.
        kind: what the items are, for the message.

    Raises:
        InputError: when several fit, or none: the line names the nearest.
    """
    if not sought.strip():
        raise InputError("the title is empty; type one, or the id of what is sought")
    try:
        sought.encode()
    except UnicodeEncodeError:  # how Python hands over bytes of the command line that are no text
        raise InputError(f"{sought!a} is not UTF-8; type the {kind}'s title in it") from None
    for fits in _fitting(titles, sought):
        found = np.flatnonzero(fits.to_numpy())
        if len(found) == 1:
            return int(found[0])
        if len(found):
            shown = ", ".join(_named(titles, row) for row in found[:_SHOWN])
            more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
            raise InputError(
                f"{sought!r} fits {len(found):,} {kind} titles: {shown}{more}; give one of them, or an id"
            )
    near = _similar(titles["title"], sought.lower())
    hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
    raise InputError(f"no {kind} is called {sought!r}{hint}")


def _fitting(titles: pa.Table, sought: str) -> Iterator[pa.ChunkedArray]:
    """Which items fit, in one sense after the other: bool, shape (items,)."""
    yield pc.equal(titles["title"], sought)
    yield pc.equal(titles["id"], sought)
    lower, wanted = pc.utf8_lower(titles["title"]), sought.lower()
    yield pc.equal(pc.replace_substring_regex(lower, _YEAR, ""), wanted)
    yield pc.starts_with(lower, wanted)
    yield pc.match_substring(lower, wanted)


def _named(titles: pa.Table, row: int) -> str:
    fields = _fields(titles, int(row))
    return (
        repr(fields["title"]) if fields["title"] == fields["id"] else f"{fields['title']!r} ({fields['id']})"
    )


def _similar(titles: pa.ChunkedArray, wanted: str) -> list[str]:
    """The most similar titles; only those that share most groups of three letters are compared closely."""
    lower = pc.utf8_lower(titles)
    groups = {wanted[start : start + 3] for start in range(max(1, len(wanted) - 2))}
    shared = np.zeros(len(lower), dtype=np.int32)
    for group in groups:
        shared += pc.match_substring(lower, group).to_numpy()
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
    left_out: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The items of greatest score, the best first.

    Args:
        trained: the embeddings.
        side: of the item.
        item: its number.
        to: whose items are ranked: by cosine if that is `side`, by inner product if not.
        count: how many, at most.
        left_out: the number of an item that is not ranked.

    Returns:
        Item numbers (int64) and scores (float64), both of shape (at most `count`,).
    """
    query = trained.rows(side, torch.tensor([item]))[0].double()
    items, scores = np.empty(0, dtype=np.int64), np.empty(0)
    start = 0
    for chunk in trained.chunks(to):
        found = _scores(chunk.double(), query, cosine=side == to)
        if left_out is not None and start <= left_out < start + len(chunk):
            found[left_out - start] = -np.inf
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
        products = torch.where(lengths > 0, products / lengths, 0.0)  # what has no direction is near nothing
    return products.numpy()
