"""The small tables of a planted wiki, as columns by name; ``pagelinks`` is in `writing`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from gramrun.data.byte_strings import ByteStrings, offsets_of
from gramrun.data.sql_writer import Column, Literals, constant, quoted
from gramrun.data.wikipedia.planted.pages import (
    ARTICLE,
    ARTICLE_TITLE,
    CATEGORY_TITLE,
    FATES,
    MISSING,
    OTHER,
    OTHER_TITLE,
    REDIRECT,
    REDIRECT_TITLE,
)
from gramrun.data.wikipedia.planted.world import World
from gramrun.data.wikipedia.records import CATEGORIES

Columns = Mapping[str, Column]
Counts = dict[str, int]
_POOL = 1 << 15  # different values of a column that no reader needs
_FILES = 6  # the namespace of files


def page(world: World) -> tuple[Columns, Counts]:
    """The rows of ``page``, in the order of their ids."""
    random, layout = world.wiki.random(20), world.layout
    here = layout.kinds != MISSING
    numbers, kinds, rows = layout.numbers[here], layout.kinds[here], layout.rows[here]
    namespaces = world.page_namespaces[here]
    begins = world.titles.begins
    titles = np.where(kinds == REDIRECT, begins[REDIRECT_TITLE] + rows, begins[ARTICLE_TITLE] + rows)
    titles[kinds == OTHER] = _titles_of_others(world)[rows[kinds == OTHER]]
    is_redirect = kinds == REDIRECT
    is_redirect[kinds == OTHER] = world.others.is_redirect[rows[kinds == OTHER]]
    n = len(numbers)
    columns = {
        "page_id": numbers,
        "page_namespace": namespaces,
        "page_title": Literals(world.titles.literals, titles),
        "page_restrictions": _pool(
            random, n, [b"''", b"''", b"''", b"'move=autoconfirmed:edit=autoconfirmed'"]
        ),
        "page_counter": np.zeros(n, dtype=np.int64),
        "page_is_redirect": is_redirect.astype(np.int64),
        "page_is_new": random.integers(0, 2, n),
        "page_random": _pool(random, n, [b"%.12f" % u for u in random.random(_POOL)]),
        "page_touched": _pool(random, n, _stamps(random)),
        "page_links_updated": _pool(random, n, [*_stamps(random), *[b"NULL"] * (_POOL // 50)]),
        "page_latest": random.integers(1, 40 * n, n),
        "page_len": (40 * random.pareto(1.1, n)).astype(np.int64) % 2_000_000,
        "page_no_title_convert": np.zeros(n, dtype=np.int64),
        "page_content_model": _pool(random, n, [b"'wikitext'"] * 20 + [b"NULL"]),
        "page_lang": constant(b"NULL", n),
    }
    fates = np.bincount(world.redirects.fates, minlength=len(FATES))
    return columns, {
        "pages_read": n,
        "pages_of_other_namespaces": int(np.count_nonzero(namespaces)),
        "articles": int(np.count_nonzero(kinds == ARTICLE)),
        "redirects": int(np.count_nonzero(kinds == REDIRECT)),
        **{name: int(count) for name, count in zip(FATES, fates, strict=True)},
        "redirects_chained": int(np.count_nonzero(world.redirects.steps > 1)),
    }


def redirect(world: World) -> tuple[Columns, Counts]:
    """The rows of ``redirect``, those that are to be ignored included, in the order of their ids."""
    random, layout = world.wiki.random(21), world.layout
    named = world.redirect_titles()
    with_row = np.flatnonzero(named >= 0)
    # Rows of pages that do not exist, that are no redirects, and that stand in other namespaces.
    unknown = layout.of_kind(MISSING)
    unflagged = world.article_numbers[
        random.permutation(world.wiki.pages)[: max(2, world.wiki.pages // 1000)]
    ]
    elsewhere = layout.of_kind(OTHER)[world.others.is_redirect]
    ignored = np.concatenate([unknown, unflagged, elsewhere])
    sources = np.concatenate([layout.of_kind(REDIRECT)[with_row], ignored])
    titles = np.concatenate([named[with_row], random.integers(0, world.wiki.pages, len(ignored))])
    interwiki = np.concatenate([world.redirects.interwiki[with_row], np.zeros(len(ignored), dtype=bool)])
    order = np.argsort(sources)
    n = len(order)
    prefixes = ByteStrings.of([b"''", b"NULL", b"'de'", b"'m'"])
    local, foreign = random.integers(0, 2, n), random.integers(2, 4, n)
    columns = {
        "rd_from": sources[order],
        "rd_namespace": world.titles.namespaces[titles[order]],
        "rd_title": Literals(world.titles.literals, titles[order]),
        "rd_interwiki": Literals(prefixes, np.where(interwiki[order], foreign, local)),
        "rd_fragment": _pool(random, n, [b"''", b"''", b"NULL", b"'History'", b"'See_\\'also\\''"]),
    }
    return columns, {"redirect_rows_ignored": len(ignored)}


def linktarget(world: World) -> tuple[Columns, Counts]:
    """The rows of ``linktarget``, in the order of their ids."""
    known = world.titles.known
    order = world.titles.order[known]
    columns = {
        "lt_id": world.titles.numbers[known],
        "lt_namespace": world.titles.namespaces[order],
        "lt_title": Literals(world.titles.literals, order),
    }
    return columns, {}


def categorylinks(world: World, *, by_number: bool) -> tuple[Columns, Counts]:
    """The rows of ``categorylinks``, in the order of the pages' ids and then of the categories."""
    random, members, layout = world.wiki.random(22), world.memberships, world.layout
    sources, categories = _stray_members(world)
    dropped = len(sources)
    titles = np.concatenate([members.categories, categories]) + world.titles.begins[CATEGORY_TITLE]
    sources = np.concatenate([world.article_numbers[members.articles], sources])
    without = 0
    if by_number:
        # Numbers that stand in no table; articles have one each at most, so that rows stay distinct.
        unknown = np.arange(world.titles.begins[-2], world.titles.begins[-1])
        without = len(unknown)
        lost = random.permutation(world.wiki.pages)[:without]
        titles = np.concatenate([titles, unknown[: len(lost)]])
        sources, without = np.concatenate([sources, world.article_numbers[lost]]), len(lost)
    order = np.lexsort([world.titles.slots[titles], sources])
    titles, sources = titles[order], sources[order]
    n = len(sources)
    types = np.zeros(n, dtype=np.int64)
    namespaces = world.page_namespaces[np.searchsorted(layout.numbers, sources)]
    types[namespaces == CATEGORIES], types[namespaces == _FILES] = 1, 2
    dates = random.integers([5, 1, 1, 0], [26, 13, 29, 24], (_POOL, 4)).tolist()
    stamps = [b"'20%02d-%02d-%02d %02d:59:01'" % tuple(date) for date in dates]
    columns = {
        "cl_from": sources,
        "cl_to": Literals(world.titles.literals, titles),
        "cl_sortkey": _pool(random, n, quoted(_sort_keys(random))),
        "cl_timestamp": _pool(random, n, stamps),
        "cl_sortkey_prefix": _pool(
            random, n, [b"''"] * 6 + [b"'*'", b"' '", b"'Smith,_J.'", b"'\\'n_(a),(b)'"]
        ),
        "cl_collation": constant(b"'uca-default'", n),
        "cl_type": Literals(ByteStrings.of([b"'page'", b"'subcat'", b"'file'"]), types),
        "cl_collation_id": np.ones(n, dtype=np.int64),
        "cl_target_id": world.titles.numbers[world.titles.slots[titles]],
    }
    is_rare = (members.categories >= members.visible) & (members.categories < members.visible + members.rare)
    kept = int(np.count_nonzero(members.categories < members.visible))
    return columns, {
        "category_rows_read": n,
        "category_rows_dropped_source": dropped,
        "category_rows_without_target": without,
        "category_rows_hidden": len(members.categories) - kept - int(np.count_nonzero(is_rare)),
        "category_rows_rare": int(np.count_nonzero(is_rare)),
        "category_rows_kept": kept,
        "visible_categories": members.visible,
        "rare_categories": members.rare,
        "hidden_categories": members.hidden,
    }


def page_props(world: World) -> tuple[Columns, Counts]:
    """The rows of ``page_props``: hidden categories among properties that nobody asks for."""
    random, articles = world.wiki.random(23), world.article_numbers
    others = world.layout.of_kind(OTHER)
    described = len(world.others.categories)
    hidden = others[:described][world.others.categories >= world.memberships.visible + world.memberships.rare]
    # "hiddencat" says something of a category page only.
    ignored = np.concatenate([random.choice(articles, 3, replace=False), others[described:][:3]])
    sorted_by = random.choice(articles, len(articles) // 10, replace=False)
    names = [b"'wikibase_item'", b"'defaultsort'", b"'hiddencat'"]
    pages = [articles, sorted_by, hidden, ignored]
    name = np.repeat([0, 1, 2, 2], [len(part) for part in pages])
    page_numbers = np.concatenate(pages)
    order = np.lexsort([name, page_numbers])
    name, page_numbers = name[order], page_numbers[order]
    items = [b"'Q%d'" % number for number in random.integers(1, 10**8, _POOL)]
    values = ByteStrings.of([*items, b"'Smith, John \\\"J.\\\" (b),(c)'", b"''"])
    value = np.where(name == 0, random.integers(0, _POOL, len(name)), _POOL - 1 + name)
    columns: Columns = {
        "pp_page": page_numbers,
        "pp_propname": Literals(ByteStrings.of(names), name),
        "pp_value": Literals(values, value),
        "pp_sortkey": _pool(random, len(name), [b"NULL"] * 9 + [b"-0.5", b"1e20", b"3"]),
    }
    return columns, {"hiddencat_rows_ignored": len(ignored)}


def small_tables(*, categories_by_number: bool) -> Mapping[str, Callable[[World], tuple[Columns, Counts]]]:
    """What gives the columns and the counts of each table but ``pagelinks``.

    Args:
        categories_by_number: ``categorylinks`` names categories by number alone, so that some lack theirs.
    """
    return {
        "page": page,
        "redirect": redirect,
        "linktarget": linktarget,
        "categorylinks": partial(categorylinks, by_number=categories_by_number),
        "page_props": page_props,
    }


def _titles_of_others(world: World) -> np.ndarray:
    """The title of each page of another namespace."""
    begins, described = world.titles.begins, world.others.categories
    rest = np.arange(len(world.others.articles))
    return np.concatenate([begins[CATEGORY_TITLE] + described, begins[OTHER_TITLE] + rest])


def _stray_members(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose page is no article: (page ids, categories), distinct.

    Among them enough in the first rare category to make it look frequent.
    """
    random, members, layout = world.wiki.random(24), world.memberships, world.layout
    others = layout.of_kind(OTHER)
    redirects = layout.of_kind(REDIRECT)
    sources = np.concatenate(
        [others, random.choice(redirects, len(redirects) // 20 + 1), layout.of_kind(MISSING)]
    )
    categories = random.integers(0, members.count, len(sources))
    if members.rare:
        crowd = others[: 2 * world.wiki.minimum_count]
        sources = np.concatenate([sources, crowd])
        categories = np.concatenate([categories, np.full(len(crowd), members.visible)])
    key = np.unique(sources * members.count + categories)
    return key // members.count, key % members.count


def _pool(random: np.random.Generator, rows: int, values: list[bytes] | ByteStrings) -> Literals:
    texts = values if isinstance(values, ByteStrings) else ByteStrings.of(values)
    return Literals(texts, random.integers(0, len(texts), rows))


def _sort_keys(random: np.random.Generator) -> ByteStrings:
    """Keys of collation: mostly of few different bytes, one in eight of any; seldom UTF-8."""
    common = np.frombuffer(
        bytes(range(0x27, 0x57, 2)) + b"\x01\x01\x01\xdc\xdb\x8f\x0a\x22\x5c", dtype=np.uint8
    )
    lengths = 4 + random.geometric(0.06, _POOL).clip(max=226)
    rare = np.repeat(np.arange(_POOL) % 8 == 0, lengths)
    total = len(rare)
    data = np.where(rare, random.integers(0, 256, total, dtype=np.uint8), random.choice(common, total))
    return ByteStrings(offsets_of(lengths), data)


def _stamps(random: np.random.Generator) -> list[bytes]:
    times = random.integers([1, 1, 0, 0, 0], [13, 29, 24, 60, 60], (_POOL, 5)).tolist()
    return [b"'2025%02d%02d%02d%02d%02d'" % tuple(time) for time in times]
