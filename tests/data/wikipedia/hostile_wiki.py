"""A made wiki with every trap of real dumps laid around its articles, as lists of rows.

The links and visible categories of the articles stay those of `clean_wiki`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from wiki_twin import ListWiki

TALK, USER, TEMPLATE, CATEGORY = 1, 2, 10, 14

HOSTILE = (
    "),(",
    "Foo_(a),(b)",
    "O'Neil's_'n'_\"Weird\"",
    "Back\\slash",
    "Trailing\\",
    "\\'",
    "\\\\'",
    "');",
    "','",
    "(1,0,'x',0)",
    "A;b",
    ";--_comment",
    "--",
    "NULL",
    "0",
    "-1",
    "INSERT_INTO",
    "INSERT_INTO_`pagelinks`_VALUES_(1,0,'x',0);",
    "/*!40000_ALTER_TABLE_`page`_*/",
    "--_Dump_completed",
    "😀_👩‍👩‍👧",
    "E\u0301tude_a\u0308",  # combining marks
    "שלום_(עולם)",
    "مرحبا,_عالم",
    "İstanbul_ﬁne_Straße_ΣΊΣΥΦΟΣ",  # lower case changes lengths
    "日本語、(東京)",
    "Q" + 127 * "é",  # 255 bytes, MediaWiki's limit
)


@dataclass(frozen=True)
class Size:
    """How many articles, distinct links and categories, and how many articles each category has at least."""

    pages: int
    links: int
    categories: int
    minimum_count: int = 1


def clean_wiki(size: Size) -> ListWiki:
    """Articles with links and categories only; their titles share words, differ by case, or are hostile."""
    draw = random.Random(1)
    words = [f"{a}_{b}" for a in ("Red", "Gr\u00fcn", "gold") for b in ("river", "City")]
    titles = [*HOSTILE, *(f"{words[n % 6]}_({n // 6 * 6})" for n in range(size.pages - len(HOSTILE) - 2))]
    titles += ["Twin", "twin"]
    titles = [title.encode() for title in titles]
    ids = sorted(draw.sample(range(2, 4 * size.pages), size.pages))
    draw.shuffle(titles)
    links = {(n, (n + 1) % size.pages) for n in range(size.pages)}  # each article has one
    while len(links) < size.links:
        source, target = draw.randrange(size.pages), min(int(draw.paretovariate(0.5)), size.pages) - 1
        if source != target:
            links.add((source, target))
    names = [f"Topic_{n}{HOSTILE[n % 5] * (n % 3 == 1)}".encode() for n in range(size.categories)]
    members = {(n, n % size.categories) for n in range(size.pages)}
    members |= {(n, draw.randrange(size.categories)) for n in range(size.pages)}
    return ListWiki(
        list(zip(ids, [0] * size.pages, titles, [False] * size.pages, strict=True)),
        link_rows=[(ids[a], 0, titles[b]) for a, b in sorted(links)],
        member_rows=[(ids[n], names[c]) for n, c in sorted(members)],
        numbered=True,
        name="hostilewiki",
        batch=500,
    )


def hostile_wiki(size: Size, unknown_targets: bool = True) -> ListWiki:
    """The wiki; `unknown_targets`: some links name a number that linktarget lacks."""
    draw = random.Random(0)
    clean = clean_wiki(size)
    ids, titles = [row[0] for row in clean.page_rows], [row[2] for row in clean.page_rows]
    links, members = clean.link_rows, clean.member_rows
    free = iter(draw.sample(sorted(set(range(1, 3 * max(ids))) - set(ids)), 2 * len(ids)))
    missing_pages = [next(free) for _ in range(5)]

    # Redirects: to articles, in chains and loops, to nowhere, without a row; rows that are no redirect's.
    page_rows = list(zip(ids, [0] * len(ids), titles, [False] * len(ids), strict=True))
    redirect_rows, resolved, broken = [], {}, []

    def redirect(name, target=None, namespace=0, interwiki=False):
        page = next(free)
        page_rows.append((page, 0, name, True))
        if target is not None:
            redirect_rows.append((page, namespace, target, interwiki))
        return name

    for n in range(len(ids) // 4):
        article = draw.choice(titles)
        resolved.setdefault(article, []).append(redirect(b"Direct_%d" % n, article))
        if n % 3 == 0:
            resolved[article].append(redirect(b"Chain_(%d),(" % n, b"Direct_%d" % n))
        if n % 6 == 0:
            resolved[article].append(redirect(b"Longer_chain_%d" % n, b"Chain_(%d),(" % n))
    broken.append(redirect(b"Rowless"))
    broken.append(redirect(b"Interwiki", titles[0], interwiki=True))
    broken.append(redirect(b"To_a_user", titles[0], USER))
    broken.append(redirect(b"To_a_red_title", b"Red_0"))
    broken.append(redirect(b"Over_a_broken_one", b"Rowless"))
    for length in (1, 2, 3):
        broken += [
            redirect(b"Loop_%d_%d" % (length, n), b"Loop_%d_%d" % (length, (n + 1) % length))
            for n in range(length)
        ]
    redirect_rows += [(page, 0, titles[0], False) for page in (missing_pages[0], ids[0], ids[1])]

    # Pages of other namespaces, and hidden and rare categories; half of all categories have a page.
    others = []
    for title in draw.sample(titles, len(titles) // 3):
        others.append(next(free))
        page_rows.append((others[-1], draw.choice([TALK, USER, TEMPLATE]), title, draw.random() < 0.1))
    visible = sorted({name for _, name in members})
    hidden = [b"Hidden_%d" % n for n in range(3)]
    category_pages = {name: next(free) for name in [*visible[::2], *hidden]}
    page_rows += [(page, CATEGORY, name, False) for name, page in category_pages.items()]
    members += [(page, name) for name in hidden for page in draw.sample(ids, 20)]
    members += [(page, b"Rare") for page in draw.sample(ids, size.minimum_count - 1)]
    strays = [*others, *missing_pages, *category_pages.values()]
    members += [(page, b"Rare") for page in strays] + [(page, visible[0]) for page in strays]
    hidden_numbers = [category_pages[name] for name in hidden] + [ids[0], others[0]]

    # Links: over redirects, twice, to themselves, to red titles, other namespaces and broken redirects.
    reds = [b"Red_%d" % n for n in range(20)] + [title.swapcase() for title in titles if title.isalpha()]
    written = set()
    for source, _, target in links:
        via = draw.choice(resolved.get(target, [target]))
        written.add((source, 0, draw.choice([via, target])))
        if draw.random() < 0.1:
            written |= {(source, 0, via), (source, 0, target)}
    for page, title in zip(ids, titles, strict=True):
        if draw.random() < 0.2:
            written.add((page, 0, draw.choice([title, *resolved.get(title, [])])))
        if draw.random() < 0.5:
            written |= {(page, 0, draw.choice(reds)), (page, draw.choice([TALK, -1]), draw.choice(titles))}
        if draw.random() < 0.1:
            written.add((page, 0, draw.choice(broken)))
            if unknown_targets:
                written.add((page, None, None))
    sources = [*others, *missing_pages, *(row[0] for row in page_rows if row[1] == 0 and row[3])]
    written |= {(page, 0, draw.choice(titles)) for page in sources}
    if unknown_targets:
        members.append((ids[0], None))

    draw.shuffle(page_rows)
    link_rows = sorted(written, key=repr)  # a set's own order differs between processes
    draw.shuffle(link_rows)
    return ListWiki(
        page_rows,
        redirect_rows,
        link_rows,
        members,
        hidden_numbers,
        numbered=True,
        name="hostilewiki",
        batch=500,
    )
