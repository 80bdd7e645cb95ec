"""The page graph → a `Corpus` without rare pages, with n-grams of titles and categories as features.

Both sides are the same articles, and their features share vocabularies and thus embedding tables (paper,
Section 4.1). Most links of a small part of a wiki point to pages outside it. The bipartite corpus therefore
has each linked title as a right item, with the n-grams of the title and without categories.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gramrun.base.errors import InputError
from gramrun.config.prepare import WikipediaSection
from gramrun.data.corpus import Corpus, Feature, Side, one_hot
from gramrun.data.wikipedia.byte_strings import NotTextError, text_of
from gramrun.data.wikipedia.graph import PageGraph, read_graph
from gramrun.data.wikipedia.records import Wiki
from gramrun.data.wikipedia.sparse_rows import RowBuilder, SparseRows
from gramrun.data.wikipedia.title_ngrams import title_ngrams


def read(wiki: Wiki, settings: WikipediaSection) -> Corpus:
    """Read a wiki's tables into a corpus.

    Args:
        wiki: the tables.
        settings: which pages, links and features are taken.

    Returns:
        The corpus. Articles are in ascending order of page_id, missing pages follow in the order of their
        titles. `counts` counts pages, redirects and links by what was done with them. `summary` is a row of
        the paper's table of corpora: ``pages, links, ngrams, categories``.

    Raises:
        InputError: a table is missing, damaged or contradicts itself; no link is kept; a title that is kept
            is not UTF-8.
    """
    categories, bipartite = settings.categories, settings.graph == "titles"
    chosen = _choose(wiki, settings, bipartite=bipartite)
    pages = len(chosen.page_numbers)
    ngrams, ngram_texts = title_ngrams(chosen.titles, settings.min_ngram_count)
    page_ngrams, page_texts = ngrams, chosen.titles
    if bipartite:
        page_ngrams = ngrams.take(chosen.page_titles)
        page_texts = chosen.titles.take(pa.array(chosen.page_titles))
    page_features = [_bag("ngrams", "ngram", page_ngrams)]
    vocabularies = {
        "ngram": _keys(ngram_texts),
        "page": _keys(_blanks(page_texts), page_id=chosen.page_numbers),
    }
    if categories:
        page_features.append(_bag("categories", "category", chosen.categories))
        vocabularies["category"] = _keys(chosen.category_texts)
    left = right = _side("page", pages, page_features)
    if bipartite:
        linked = np.arange(chosen.linked_titles)
        vocabularies["title"] = _keys(_blanks(chosen.titles[: len(linked)]))
        right = _side("title", len(linked), [_bag("ngrams", "ngram", ngrams.take(linked))])
    return Corpus(
        name=wiki.name,
        left=left,
        right=right,
        vocabularies=vocabularies,
        pair_left=chosen.links.rows(),
        pair_right=chosen.links.columns,
        counts=chosen.counts,
        summary={
            "pages": pages,
            "links": len(chosen.links.columns),
            "ngrams": len(ngram_texts),
            "categories": len(chosen.category_texts),
        },
    )


@dataclass(frozen=True)
class _Chosen:
    """The part of a graph that is kept.

    Attributes:
        page_numbers: int64, shape (n,). page_id of the left pages.
        titles: distinct titles: of the right items in order, then of left pages that are no right items.
        linked_titles: how many of them are of right items.
        page_titles: int64, shape (n,). Each left page's row of `titles`.
        links: between items by their new numbers.
        categories, category_texts: of the left pages.
        counts: as `Corpus` has them.
    """

    page_numbers: np.ndarray
    titles: pa.Array
    linked_titles: int
    page_titles: np.ndarray
    links: SparseRows
    categories: SparseRows
    category_texts: pa.Array
    counts: dict[str, int]


def _choose(wiki: Wiki, settings: WikipediaSection, *, bipartite: bool) -> _Chosen:
    graph = read_graph(wiki, categories=settings.categories, missing_pages=bipartite)
    read = len(graph.links.columns)
    left, right, links = _well_linked(graph, settings.min_links, bipartite=bipartite)
    if not len(links.columns):
        raise InputError(
            f"{wiki.name}: no link between articles is left of {graph.counts['links_read']:,} rows; "
            "check that all tables are of one wiki and date, and wikipedia.min_links"
        )
    categories_of, names, category_counts = _visible_categories(graph, left, settings.min_category_count)
    rows, page_titles = right, np.arange(len(left))
    if bipartite:
        only_left = np.setdiff1d(left, right)
        rows = np.concatenate([right, only_left])
        place = np.empty(len(graph.targets), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        page_titles = place[left]
    titles = _texts(graph.targets.take(pa.array(rows)), "title of a page or link")
    dropped = {
        "pages_below_min_links": graph.counts["articles"] - len(left),
        "links_of_these": read - len(links.columns),
    }
    counts = {**graph.counts, **dropped, **category_counts}
    numbers = graph.pages.numbers[left]
    return _Chosen(numbers, titles, len(right), page_titles, links, categories_of, names, counts)


def _well_linked(
    graph: PageGraph, minimum: int, *, bipartite: bool
) -> tuple[np.ndarray, np.ndarray, SparseRows]:
    """Drop pages with fewer than `minimum` links, until there are none, and renumber the others from 0.

    A page's links in and out count together; if `bipartite`, those out of left and into right items.

    Returns:
        Rows of the left pages (of `graph.pages`) and of the right ones (of `graph.targets`), and the links
        between them by their new numbers, in the memory of `graph.links`, which become invalid.
    """
    left = np.arange(len(graph.pages))
    right = np.arange(len(graph.targets))
    if bipartite:
        right = _missing_pages_by_title(graph)
    links = _renumbered(graph.links, right) if bipartite and len(right) > len(left) else graph.links
    # Redirects have no links in the graph.
    keep_left = ~graph.pages.is_redirect
    keep_right = np.ones(len(right), dtype=bool) if bipartite else keep_left
    while True:
        into = links.column_counts(len(right))
        if bipartite:
            keep_left, keep_right = (
                keep_left & (links.lengths >= minimum),
                keep_right & (into >= max(minimum, 1)),
            )
        else:
            keep_left = keep_right = keep_left & (links.lengths + into >= minimum)
        if keep_left.all() and keep_right.all():
            return left, right, links
        links = links.select(keep_left, keep_right, in_place=True)
        left, right = left[keep_left], right[keep_right]
        keep_left, keep_right = np.ones(len(left), dtype=bool), np.ones(len(right), dtype=bool)


def _missing_pages_by_title(graph: PageGraph) -> np.ndarray:
    """Rows of `graph.targets`: the pages in order, then the missing ones in ascending order of titles.

    The order of the titles does not depend on the order of the rows in the dump.
    """
    known = len(graph.pages)
    missing = np.arange(known, len(graph.targets))
    order = pc.sort_indices(graph.targets.take(pa.array(missing))).to_numpy()
    return np.concatenate([np.arange(known), missing[order]])


def _renumbered(rows: SparseRows, columns: np.ndarray) -> SparseRows:
    """The same rows, with column ``columns[c]`` renumbered to c."""
    number = np.empty(len(columns), dtype=np.int32)
    number[columns] = np.arange(len(columns), dtype=np.int32)
    builder = RowBuilder(len(rows))
    builder.add(rows.rows(), number[rows.columns])
    return builder.build()


def _visible_categories(
    graph: PageGraph, pages: np.ndarray, minimum: int
) -> tuple[SparseRows, pa.Array, dict[str, int]]:
    """The categories of these pages that are neither hidden nor rare, in ascending order of their names."""
    chosen = np.zeros(len(graph.pages), dtype=bool)
    chosen[pages] = True
    members = graph.categories.select(chosen, np.ones(len(graph.hidden), dtype=bool))
    sizes = members.column_counts(len(graph.hidden))
    rare = ~graph.hidden & (sizes < max(minimum, 1)) & (sizes > 0)
    kept = np.flatnonzero(~graph.hidden & (sizes > 0) & ~rare)
    counts = {
        "category_rows_hidden": int(sizes[graph.hidden].sum()),
        "category_rows_rare": int(sizes[rare].sum()),
        "rare_categories": int(rare.sum()),
    }
    names = _texts(graph.category_names.take(pa.array(kept)), "category")
    order = pc.sort_indices(names).to_numpy()
    visible = np.zeros(len(graph.hidden), dtype=bool)
    visible[kept] = True
    rows = _renumbered(members.select(np.ones(len(members), dtype=bool), visible), order)
    return rows, names.take(order), counts


def _texts(strings: pa.Array, what: str) -> pa.Array:
    try:
        return text_of(strings)
    except NotTextError as error:
        raise InputError(f"{what} {error}; the dump is damaged, or not in UTF-8: convert it first") from None


def _blanks(titles: pa.Array) -> pa.Array:
    return pc.replace_substring(titles, pattern="_", replacement=" ")


def _keys(keys: pa.Array, **columns: np.ndarray) -> pd.DataFrame:
    """A vocabulary; Arrow holds the texts, without a Python object for each."""
    return pd.DataFrame({"key": pd.arrays.ArrowExtensionArray(keys), **columns})


def _bag(name: str, vocabulary: str, rows: SparseRows) -> Feature:
    return Feature(name, vocabulary, rows.offsets, rows.columns)


def _side(item: str, items: int, features: list[Feature]) -> Side:
    return Side(item, items, (one_hot(item, item, np.arange(items)), *features))
