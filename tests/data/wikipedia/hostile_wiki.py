"""A synthetic wiki with every trap of real dumps laid around its articles, as lists of rows.

The links and visible categories of the articles stay those of the `SyntheticWiki`.
"""

from __future__ import annotations

import random

from wiki_twin import ListWiki

from gramrun.data.wikipedia.synthetic import SyntheticWiki
from gramrun.data.wikipedia.synthetic_links import WikiSize

TALK, USER, TEMPLATE, CATEGORY = 1, 2, 10, 14


def hostile_wiki(size: WikiSize, unknown_targets: bool = True) -> ListWiki:
    """The wiki; `unknown_targets`: some links name a number that linktarget lacks."""
    draw = random.Random(size.seed)
    clean = SyntheticWiki("hostilewiki", size)
    (pages,) = clean.pages()
    ids, titles = pages.numbers.tolist(), list(pages.titles)
    (targets,) = clean.link_targets()
    names = list(targets.titles)
    links = [
        (source, 0, names[number - 1])
        for batch in clean.links()
        for source, number in zip(batch.sources.tolist(), batch.targets.numbers.tolist(), strict=True)
    ]
    (members,) = clean.category_links()
    members = [
        (page, names[number - 1])
        for page, number in zip(members.sources.tolist(), members.targets.numbers.tolist(), strict=True)
    ]
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
    return ListWiki(
        page_rows,
        redirect_rows,
        sorted(written, key=lambda row: (draw.random(), row[0])),
        members,
        hidden_numbers,
        numbered=True,
        name="hostilewiki",
        batch=500,
    )
