"""A literal reader of a wiki's tables, by dictionaries and by the definitions of the planted truth."""

from collections import Counter
from pathlib import Path

from literal_sql import read_table


def tables(folder: Path):
    """The rows of each table that lies in a folder, by the table's name."""
    return {
        path.name.split(".")[0].split("-")[-1]: read_table(path) for path in sorted(folder.glob("*.sql*"))
    }


def fate_of(page, pages, by_title, rows):
    """Where a redirect ends: its fate, the article, and the steps to it."""
    seen = set()
    while True:
        if page in seen:
            return "redirects_in_loops", None, 0
        seen.add(page)
        row = rows.get(page)
        if row is None:
            return "redirects_without_row", None, 0
        if row["rd_interwiki"]:
            return "redirects_interwiki", None, 0
        if row["rd_namespace"] != 0:
            return "redirects_to_other_namespaces", None, 0
        page = by_title.get((0, row["rd_title"]))
        if page is None:
            return "redirects_to_missing_pages", None, 0
        if not pages[page]["page_is_redirect"]:
            return "redirects_resolved", page, len(seen)


def read_literally(found, minimum_count):
    """The links, the titles of articles, the visible categories, and all counts of the truth."""
    count = Counter()
    pages = {row["page_id"]: row for row in found["page"]}
    by_title = {(row["page_namespace"], row["page_title"]): number for number, row in pages.items()}
    assert len(by_title) == len(pages) == len(found["page"])
    of_articles = {n: row for n, row in pages.items() if row["page_namespace"] == 0}
    redirects = {n for n, row in of_articles.items() if row["page_is_redirect"]}
    articles = of_articles.keys() - redirects
    count["pages_read"] = len(pages)
    count["pages_of_other_namespaces"] = len(pages) - len(of_articles)
    count["articles"], count["redirects"] = len(articles), len(redirects)

    rows = {row["rd_from"]: row for row in found["redirect"]}
    assert len(rows) == len(found["redirect"])
    count["redirect_rows_ignored"] = len(rows.keys() - redirects)
    final = {}
    for page in redirects:
        fate, final[page], steps = fate_of(page, pages, by_title, rows)
        count[fate] += 1
        count["redirects_chained"] += steps > 1

    targets = {row["lt_id"]: (row["lt_namespace"], row["lt_title"]) for row in found.get("linktarget", [])}
    assert len(set(targets.values())) == len(targets) == len(found.get("linktarget", []))
    pairs, written = set(), set()
    for row in found["pagelinks"]:
        source = row["pl_from"]
        number = row.get("pl_target_id")
        target = (row["pl_namespace"], row["pl_title"]) if "pl_title" in row else targets.get(number)
        if "pl_title" in row and number is not None:
            assert targets[number] == target
        if "pl_from_namespace" in row:
            assert row["pl_from_namespace"] == (pages[source]["page_namespace"] if source in pages else 0)
        written.add((source, target or number))
        count["links_read"] += 1
        count[classify(source, target, pages, by_title, redirects, final, pairs, count)] += 1
    assert len(written) == len(found["pagelinks"])  # each row once, as the table's key demands

    members = {}
    for row in found["categorylinks"]:
        name = row["cl_to"] if "cl_to" in row else targets.get(row["cl_target_id"], (14, None))[1]
        if "cl_to" in row and "cl_target_id" in row:
            assert targets[row["cl_target_id"]] == (14, name)
        count["category_rows_read"] += 1
        if row["cl_from"] not in articles:
            count["category_rows_dropped_source"] += 1
        elif name is None:
            count["category_rows_without_target"] += 1
        else:
            assert row["cl_from"] not in members.setdefault(name, set())
            members[name].add(row["cl_from"])
    hidden = set()
    for row in found["page_props"]:
        if row["pp_propname"] == b"hiddencat":
            page = pages[row["pp_page"]]
            if page["page_namespace"] == 14:
                hidden.add(page["page_title"])
            else:
                count["hiddencat_rows_ignored"] += 1
    visible = {}
    for name, inside in members.items():
        kind = "hidden" if name in hidden else "rare" if len(inside) < minimum_count else "kept"
        count[f"category_rows_{kind}"] += len(inside)
        count["visible_categories" if kind == "kept" else f"{kind}_categories"] += 1
        if kind == "kept":
            visible[name] = inside
    titles = {page: pages[page]["page_title"] for page in articles}
    return pairs, titles, visible, count


def classify(source, target, pages, by_title, redirects, final, pairs, count):
    """The class of a row of pagelinks: the source is judged first, then the namespace, then the target."""
    if source not in pages:
        return "links_from_missing_pages"
    if pages[source]["page_namespace"] != 0:
        return "links_from_other_namespaces"
    if source in redirects:
        return "links_from_redirects"
    if target is None:
        return "links_without_target"
    if target[0] != 0:
        return "links_to_other_namespaces"
    page = by_title.get(target)
    if page is None:
        return "links_to_missing_pages"
    article = final[page] if page in redirects else page
    if article is None:
        return "links_to_broken_redirects"
    if article == source:
        return "self_links"
    count["links_through_redirects"] += page in redirects
    if (source, article) in pairs:
        return "duplicate_links"
    pairs.add((source, article))
    return "distinct_links"
