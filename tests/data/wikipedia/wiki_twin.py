"""A wiki in Python's own lists, and the literal twin of the graph: dictionaries, sets and no arrays."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from gramrun.config.prepare import WikipediaSection
from gramrun.data.wikipedia.features import read
from gramrun.data.wikipedia.records import ByNumber, ByTitle, Links, LinkTargets, Pages, Redirects


def read_all(wiki, graph="pages"):
    """The corpus of a wiki, with every n-gram and category."""
    return read(wiki, WikipediaSection(graph=graph, min_ngram_count=1, min_category_count=1))


def titles_of(corpus, side):
    """The titles of a side's pages, as the twin has them."""
    return [key.replace(" ", "_").encode() for key in corpus.vocabularies[side.item]["key"]]


def links_of(corpus):
    """The pairs, by titles."""
    left, right = titles_of(corpus, corpus.left), titles_of(corpus, corpus.right)
    pairs = zip(corpus.pair_left.tolist(), corpus.pair_right.tolist(), strict=True)
    return {(left[a], right[b]) for a, b in pairs}


def integers(values):
    return np.array(list(values), dtype=np.int64)


def binary(strings):
    return pa.array(list(strings), pa.large_binary())


@dataclass
class ListWiki:
    """Rows as tuples: pages (number, namespace, title, is_redirect), redirects (source, namespace, title,
    interwiki), links (source, namespace, title) and memberships (source, title).

    Where `numbered`, the title None stands for a number that linktarget lacks."""

    page_rows: list
    redirect_rows: list = field(default_factory=list)
    link_rows: list = field(default_factory=list)
    member_rows: list = field(default_factory=list)
    hidden_numbers: list = field(default_factory=list)
    numbered: bool = False
    name: str = "listwiki"
    batch: int = 3

    def batches(self, rows):
        return (rows[start : start + self.batch] for start in range(0, len(rows), self.batch))

    def targets(self):
        titles = [(n, t) for _, n, t in self.link_rows] + [(14, t) for _, t in self.member_rows]
        known = dict.fromkeys(target for target in titles if target[1] is not None)
        return {target: 7 + 3 * row for row, target in enumerate(known)}

    def pages(self):
        for rows in self.batches(self.page_rows):
            numbers, namespaces, titles, redirect = zip(*rows, strict=True)
            yield Pages(integers(numbers), integers(namespaces), binary(titles), np.array(redirect, bool))

    def redirects(self):
        for rows in self.batches(self.redirect_rows):
            sources, namespaces, titles, interwiki = zip(*rows, strict=True)
            targets = ByTitle(integers(namespaces), binary(titles))
            yield Redirects(integers(sources), targets, np.array(interwiki, bool))

    def link_targets(self):
        if self.numbered:
            for rows in self.batches(list(self.targets().items())):
                yield LinkTargets(
                    integers(number for _, number in rows),
                    integers(namespace for (namespace, _), _ in rows),
                    binary(title for (_, title), _ in rows),
                )

    def links(self):
        return self.linked([(s, (n, t)) for s, n, t in self.link_rows])

    def category_links(self):
        return self.linked([(s, (14, t)) for s, t in self.member_rows])

    def linked(self, links):
        known = self.targets()
        for rows in self.batches(links):
            sources = integers(source for source, _ in rows)
            if self.numbered:
                yield Links(sources, ByNumber(integers(known.get(target, 1) for _, target in rows)))
            else:
                namespaces = integers(namespace for _, (namespace, _) in rows)
                yield Links(sources, ByTitle(namespaces, binary(title for _, (_, title) in rows)))

    def hidden_categories(self):
        yield integers(self.hidden_numbers)


@dataclass
class Expected:
    pages: list  # (number, title)
    targets: list  # titles
    links: set  # (source title, target title)
    categories: dict  # page title -> set of names
    ngrams: dict  # title -> set of n-grams
    counts: dict


def end_of(title, pages, redirects):
    """Where a title of namespace 0 leads: an article's title, or the reason why to none."""
    seen = set()
    while True:
        if title not in pages:
            return None, "to_missing_pages"
        number, is_redirect = pages[title]
        if not is_redirect:
            return title, None
        if title in seen:
            return None, "in_loops"
        seen.add(title)
        if number not in redirects:
            return None, "without_row"
        namespace, target, interwiki = redirects[number]
        if interwiki:
            return None, "interwiki"
        if namespace != 0:
            return None, "to_other_namespaces"
        title = target


def expected(wiki, *, min_links=1, min_ngrams=1, min_members=1, titles=False):
    pages = {title: (number, flag) for number, namespace, title, flag in wiki.page_rows if namespace == 0}
    by_number = {number: title for title, (number, _) in pages.items()}
    others = {number for number, namespace, _, _ in wiki.page_rows if namespace != 0}
    usable = [row for row in wiki.redirect_rows if row[0] in by_number and pages[by_number[row[0]]][1]]
    redirects = {source: row for source, *row in usable}
    articles = {title for title, (_, flag) in pages.items() if not flag}
    counts = Counter(
        pages_read=len(wiki.page_rows),
        pages_of_other_namespaces=len(others),
        articles=len(articles),
        redirects=len(pages) - len(articles),
        redirect_rows_ignored=len(wiki.redirect_rows) - len(usable),
        links_read=len(wiki.link_rows),
    )
    for title in pages.keys() - articles:
        end, reason = end_of(title, pages, redirects)
        counts["redirects_resolved" if end else f"redirects_{reason}"] += 1
        if end:
            step = redirects[pages[title][0]][1]
            counts["redirects_chained"] += pages[step][1]
    links = set()
    for source, namespace, title in wiki.link_rows:
        from_title = by_number.get(source)
        end, _ = end_of(title, pages, redirects)
        if source in others:
            reason = "links_from_other_namespaces"
        elif from_title is None:
            reason = "links_from_missing_pages"
        elif from_title not in articles:
            reason = "links_from_redirects"
        elif title is None:
            reason = "links_without_target"
        elif namespace != 0:
            reason = "links_to_other_namespaces"
        elif title not in pages and not titles:
            reason = "links_to_missing_pages"
        elif end is None and not titles:
            reason = "links_to_broken_redirects"
        else:
            target = end or title
            if target == from_title:
                reason = "self_links"
            else:
                counts["links_through_redirects"] += target != title
                reason = "duplicate_links" if (from_title, target) in links else None
                links.add((from_title, target))
        if reason:
            counts[reason] += 1
    left, right = articles, {target for _, target in links} if titles else articles
    while True:
        into, out = Counter(b for _, b in links), Counter(a for a, _ in links)
        if titles:
            kept_left = {a for a in left if out[a] >= min_links}
            kept_right = {b for b in right if into[b] >= max(min_links, 1)}
        else:
            kept_left = kept_right = {a for a in left if into[a] + out[a] >= min_links}
        if (kept_left, kept_right) == (left, right):
            break
        left, right = kept_left, kept_right
        links = {(a, b) for a, b in links if a in left and b in right}
    counts["pages_below_min_links"] = len(articles) - len(left)

    hidden = {t for number, n, t, _ in wiki.page_rows if n == 14 and number in wiki.hidden_numbers}
    members = {page: set() for page in left}
    for source, name in wiki.member_rows:
        if name is not None and by_number.get(source) in left:
            members[by_number[source]].add(name)
    sizes = Counter(name for names in members.values() for name in names)
    visible = {name for name, size in sizes.items() if size >= min_members and name not in hidden}
    counts["hidden_categories"] = len(hidden)
    counts["rare_categories"] = sum(s < min_members and n not in hidden for n, s in sizes.items())

    named = sorted(left | right)
    grams = [ngrams(title.decode()) for title in named]
    often = Counter(gram for found in grams for gram in found)
    kept = [{gram for gram in found if often[gram] >= min_ngrams} for found in grams]
    number_of = {title: number for title, (number, _) in pages.items()}
    return Expected(
        pages=sorted((number_of[title], title) for title in left),
        targets=sorted(right, key=lambda t: (t not in pages, number_of.get(t), t)),
        links=links,
        categories={page: names & visible for page, names in members.items()},
        ngrams=dict(zip(named, kept, strict=True)),
        counts=counts,
    )


def ngrams(title):
    text = unicodedata.normalize("NFKC", title).lower()
    words = [w for w in re.split(r"[\W_]+", text) if w]
    return {*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))}
