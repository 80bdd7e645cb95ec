"""The tables and sentences of findings on when a better Gramian ranks better, made again from the published tables.

`ROWS` and `SENTENCES` are what the page must have. They come from results/reference, which `make report` draws from the
published measurements.
"""

import json
import re
from functools import cache

import numpy as np
import pages
import pandas as pd
import pytest

from experiments.report.sections import geometric
from experiments.reproduce import published

REFERENCE = pages.ROOT / "results" / "reference"
PAGE = pages.read("docs/findings.md")
SECTION = PAGE.split("## When does a better Gramian rank better?")[1].split("\n## ")[0]
WORDS = " ".join(SECTION.split())
EXACT, SAMPLING = "exact Gramian", "sampling"


@cache
def table(name: str) -> pd.DataFrame:
    """A table of results/reference/factorial by optimizer's name, B and estimator."""
    frame = pd.read_csv(REFERENCE / "factorial" / f"{name}.csv", dtype=str).fillna("")
    return frame.set_index(["optimizer", "B", "estimator"]).sort_index()


def percent(text: str) -> str:
    """ "+3.3% [+0.4%, +6.2%]" as "+3.3 % [+0.4, +6.2]"."""
    mean, _, rest = text.partition(" ")
    return " ".join(filter(None, (mean.replace("%", " %"), rest.replace("%", "")))).replace("-", "−")


def lift(ratios) -> str:
    mean, low, high = (100 * (x - 1) for x in geometric(tuple(ratios)))
    return f"{mean:+.1f} % [{low:+.1f}, {high:+.1f}]".replace("-", "−")


def short(text: str) -> str:
    """A cell without its interval, bold where that is on one side of 0: "+3.3% [+0.4%, +6.2%]" as "**3.3**"."""
    if not text:
        return "–"
    numbers = [float(x) for x in re.findall(r"[+-][\d.]+", text.replace("−", "-"))]
    mean = f"{numbers[0]:.1f}".replace("-", "−")
    return f"**{mean}**" if len(numbers) == 3 and numbers[1] * numbers[2] > 0 else mean


def map_of(text: str) -> float:
    return float(text.split(" ")[0])


# The tables of the optimizer and B


OPTIMIZERS = {
    "sparse Adam": ("enwik8", "sparse Adam"),
    "… at η/5": ("enwik8-slower", "sparse Adam at a fifth of η"),
    "Adagrad": ("enwik8-adagrad", "Adagrad"),
    "SGD": ("enwik8-sgd", "SGD"),
}
COLUMNS = ("SOGram α=0.5", "SOGram α=0.1", "SOGram α=0.01", "SOGram α=0.001", "SAGram per item", EXACT)


def cell(label: str, batch: str, estimator: str, column: str) -> str:
    name, optimizer = OPTIMIZERS[label]
    for frame in (table(name), table("enwik8-long-average")):  # of sparse Adam with α = 0.001
        if (optimizer, batch, estimator) in frame.index:
            return frame.loc[(optimizer, batch, estimator), column]
    return ""


def optimizer_rows(column: str) -> list[str]:
    rows = []
    for label in OPTIMIZERS:
        for batch in ("64", "1024"):
            cells = [percent(cell(label, batch, name, column)) for name in COLUMNS]
            if column == "lift [95 %]":
                maps = cell(label, batch, SAMPLING, "MAP@10").replace("0.", ".")
                cells = [maps, *cells]
            rows.append(f"| {label} | {int(batch):,} | {' | '.join(cells)} |")
    return rows


def long_rows() -> list[str]:
    """Lifts over B / k, of three experiments."""
    planted = pd.read_csv(REFERENCE / "standard-part" / "scaling" / "runs.csv")
    rows = []
    for (items, epochs, dim), title in {
        (1_000_000, 1, 16): "planted, a million items, 1 epoch",
        (100_000, 10, 16): "planted, 100,000 items, 10 epochs",
        (10_000, 10, 16): "planted, 10,000 items, 10 epochs",
        (10_000, 10, 64): "planted, 10,000 items, 10 epochs",
        (10_000, 100, 16): "planted, 10,000 items, 100 epochs",
    }.items():
        own = planted[(planted[["items", "epochs", "dim"]] == [items, epochs, dim]).all(axis=1)]
        rows.append(f"| {title} | {dim} | {' | '.join(over_sampling(own, dim * x) for x in SHARES)} |")
    movies = pd.read_csv(REFERENCE / "comparisons" / "gramian_batch" / "movielens-1m" / "runs.csv")
    cells = {1 / 16: 2, 1 / 4: 8, 1: 32}
    found = [movies_cell(movies, cells[share]) if share in cells else "" for share in SHARES]
    rows.append(f"| MovieLens 1M, 6 epochs (B = 2, 8, 32) | 35 | {' | '.join(found)} |")
    for label, title in {
        "Adagrad": "enwik8, Adagrad",
        "… at η/5": "enwik8, sparse Adam, η/5",
        "sparse Adam": "enwik8, sparse Adam",
    }.items():
        for column, when in (("at a constant η", "constant η"), ("lift [95 %]", "60 epochs")):
            small, large = (
                " · ".join(short(cell(label, batch, name, column)) for name in (EXACT, *COLUMNS[1:5:3]))
                for batch in ("64", "1024")
            )
            rows.append(f"| {title}, {when} | 64 | | | {small} | | {large} |")
    french = table("fr-scale-as-small-as-k").loc[("Adagrad", "128", "SAGram per item"), "lift [95 %]"]
    rows.append(f"| fr-scale, Adagrad, .12 epochs, 1 seed | 128 | | | – · – · {short(french)} | | |")
    return [row.replace("|  |", "| |").replace("|  |", "| |") for row in rows]


SHARES = (1 / 16, 1 / 4, 1, 4, 16)  # B / k


def over_sampling(frame: pd.DataFrame, batch: float) -> str:
    maps = {key: part.set_index("seed")["map@10"] for key, part in frame.groupby(["estimator", "batch"])}
    if ("sampling", batch) not in maps:
        return ""
    reference = frame[frame["estimator"] == "reference"].set_index("seed")["map@10"]
    own = [reference, maps["SOGram α=0.1", batch], maps["SAGram", batch]]
    return " · ".join(short(lift(x / maps["sampling", batch])) for x in own)


def movies_cell(frame: pd.DataFrame, batch: int) -> str:
    maps = {name: part.set_index("seed")["map@10"] for name, part in frame.groupby("variant")}
    names = ("exact", f"SOGram α=0.1 debiased, B={batch}", f"SAGram β=1 per item, B={batch}")
    base = maps[f"sampling, B={batch}"]
    return " · ".join(short(lift(maps[name] / base)) if name in maps else "–" for name in names)


# Table 2


TABLE_2 = {
    "enwik8, 5 seeds": ("enwik8", "sparse Adam", EXACT),
    "enwik8 at η/5, 3 seeds": ("enwik8-slower", "sparse Adam at a fifth of η", EXACT),
    "enwik8, titles, 3 seeds": ("enwik8-titles", "sparse Adam", "SAGram per item"),
    "simple-scale, 1 seed": ("simple-scale", "sparse Adam", "SAGram per item"),
    "simple-scale at η/5, 1 seed": ("simple-scale-slower", "sparse Adam at a fifth of η", "SAGram per item"),
    "simple-scale, inputs of 128, 1 seed": (
        "simple-scale-wide-inputs", "sparse Adam, inputs of 128", "SAGram per item",
    ),
    "simple-scale, inputs of 256, 1 seed": (
        "simple-scale-wider-inputs", "sparse Adam, inputs of 256, 10 epochs", "SAGram per item",
    ),
    "fr-scale, 1 seed, .24 epochs": ("fr-scale", "Adagrad", "SAGram per item"),
    "en-scale, 1 seed, .09 epochs": ("en-scale", "Adagrad", "SAGram per item"),
}  # fmt: skip


def optimum(dataset: str) -> float:
    """Exact ALS of the same objective, the mean over its published seeds; NaN where it was not solved."""
    found = [
        json.loads(content)["validation"]["map@10"]
        for path, content in files().items()
        if path.startswith(f"results/runs/{dataset}/exact-als-") and path.endswith("evaluation.json")
    ]
    return float(np.mean(found)) if found else float("nan")


@cache
def files() -> dict[str, bytes]:
    return published.read(pages.ROOT / published.FILE)


def table_2() -> list[str]:
    rows = []
    for title, (name, optimizer, nearest) in TABLE_2.items():
        frame = table(name)
        own = frame.loc[(optimizer, "1024")]
        maps = map_of(own.loc[SAMPLING, "MAP@10"])
        names = ("SOGram α=0.1", "SOGram α=0.01", "SOGram α=0.001", nearest)
        lifts = [own.loc[x, "lift [95 %]"] if x in own.index else "" for x in names]
        if title == "enwik8, 5 seeds":
            lifts[2] = table("enwik8-long-average").loc[(optimizer, "1024", names[2]), "lift [95 %]"]
        solved = optimum(title.partition(",")[0].partition(" ")[0] + ("-titles" if "titles" in title else ""))
        judged = EXACT if EXACT in own.index else SAMPLING
        share = f"{map_of(own.loc[judged, 'MAP@10']) / solved:.0%}".replace("%", " %")
        trained = {"yes": f"yes: {share}", "NOT TRAINED": f"no: {share}"}.get(
            own["trained"].iloc[0], "not known"
        )
        cells = [percent(x.partition(" ")[0]) for x in lifts]
        als = "" if np.isnan(solved) else pages.number(solved, 4)
        rows.append(f"| {title} | {pages.number(maps, 4)} | {' | '.join(cells)} | {als} | {trained} |")
    wiki = pd.read_csv(REFERENCE / "final_map" / "miwiki.csv", dtype=str).set_index("method")
    lifts = [
        percent(wiki.loc[x, "lift over sampling [95 %]"].partition(" ")[0]) for x in ("SOGram α=0.1", EXACT)
    ]
    maps = [
        map_of(wiki.loc[x, "validation MAP@10"]) for x in (SAMPLING, EXACT, "exact ALS of the same objective")
    ]
    ends = f"{pages.number(maps[2], 4)} | yes: {maps[1] / maps[2]:.0%}".replace("%", " %")
    return [*rows, f"| miwiki, 3 seeds | {pages.number(maps[0], 4)} | {lifts[0]} | | | {lifts[1]} | {ends} |"]


# Sentences


def seeds(folder: str, count: int = 99) -> np.ndarray:
    """The validation MAP@10 of a method's first published seeds."""
    found = {
        int(re.search(r"-seed(\d+)/", path)[1]): json.loads(content)["validation"]["map@10"]
        for path, content in files().items()
        if re.fullmatch(rf"results/runs/{re.escape(folder)}-seed\d+/evaluation.json", path)
    }
    return np.array([found[seed] for seed in sorted(found)[:count]])


def constant(folder: str) -> float:
    """The mean validation MAP@10 of epochs 21 to 30 of 60, when η is constant, over seeds."""
    found = []
    for path, content in files().items():
        if re.fullmatch(rf"results/runs/{re.escape(folder)}-seed\d+/metrics.jsonl", path):
            curve = pd.DataFrame(map(json.loads, content.decode().splitlines()))
            falls = curve["step"].iloc[-1] / 2
            found.append(
                curve.loc[curve["step"].between(falls * 2 / 3, falls, inclusive="right"), "map@10"].mean()
            )
    return float(np.mean(found))


def same_batches(batch: str, estimator: str) -> str:
    return percent(table("enwik8-same-batches").loc[("sparse Adam", batch, estimator), "lift [95 %]"])


def over_splits(method: str) -> str:
    """A lift's mean and interval over the means of three splits."""
    logs = [
        np.log(seeds(f"{corpus}/{method}") / seeds(f"{corpus}/paper-sampling")).mean()
        for corpus in ("enwik8", "enwik8-split1", "enwik8-split2")
    ]
    return lift(np.exp(logs))


def trajectory(part: str, batch: str) -> str:
    """SOGram's error (α = 0.1) over sampling's, left side."""
    frame = pd.read_csv(REFERENCE / "gramian_error" / f"enwik8{part}.csv").set_index("estimator")
    errors = frame[f"left, B = {batch}"].str.partition(" ±")[0].astype(float)
    return pages.number(errors["SOGram α=0.1"] / errors["sampling"], 2)


def sentences() -> dict[str, str]:
    small, slow = "-gramian-batch-size-64", "-learning-rate-0.002-dense-learning-rate-0.0002"
    better = {
        batch: lift(
            seeds(f"enwik8/paper-sogram{slow}-alpha-0.1{size}", 3) / seeds(f"enwik8/paper-sampling{size}", 3)
        )
        for batch, size in (("64", small), ("1,024", ""))
    }
    near = ("paper-exact", "paper-sagram", "paper-sagram-cache-item", "paper-sampling-batch-gradient")
    pooled = np.mean([np.log(seeds(f"enwik8/{x}") / seeds("enwik8/paper-sampling")) for x in near], axis=0)
    final = pd.read_csv(REFERENCE / "final_map" / "enwik8.csv", dtype=str).set_index("method")
    pair = final.loc["SAGram β=1, per pair"]
    titles = table("enwik8-titles").loc[("sparse Adam", "1024"), "lift [95 %]"].map(percent)
    at = [pages.number(constant(f"enwik8/paper-sampling{size}"), 4) for size in (small, "")]
    return {
        "CONSTANT64": f"(sampling then has {at[0]} at B = 64 and {at[1]} at 1,024)",
        "BETTER": f"SOGram (α = 0.1) has {better['64']} at B = k and {better['1,024']} at 16k",
        "PAIR": f"ends at {pair['validation MAP@10'].replace('0.', '.')}, "
        f"{percent(pair['lift over sampling [95 %]'])} over sampling",
        "POOLED": f"together have {lift(np.exp(pooled))}",
        "SHARED": f"one B for both sides {same_batches('1024', 'sampling, shared B')} "
        f"(B = 64: {same_batches('64', 'sampling, shared B')})",
        "EQ15": f"(equation 15), {same_batches('1024', 'sampling, B = B′')}",
        "EQ15EXACT": f"({lift(seeds('enwik8/paper-sampling-batch-gradient') / seeds('enwik8/paper-exact'))} over it)",
        "SPLITS": f"SOGram with α = 0.1 {over_splits('paper-sogram-alpha-0.1')}, "
        f"SAGram per item {over_splits('paper-sagram-cache-item')}, the exact Gramian {over_splits('paper-exact')}",
        "TITLES": f"SOGram with α = 0.1 {titles['SOGram α=0.1']}, SAGram per item {titles['SAGram per item']}",
        "TRAJECTORY": f"has {trajectory('-trained', '1024')} of sampling's error at B = 1,024 and "
        f"{trajectory('-trained', '128')} at 128",
        "SPLITS, CONSTANT": "While η is constant the exact Gramian gains {} and {} on the two".format(
            *(
                percent(table(f"enwik8-split{n}").loc[("sparse Adam", "1024", EXACT), "at a constant η"])
                for n in (1, 2)
            )
        ),
        "AT FIRST": f"(B = 16k) it gains {percent(cell('sparse Adam', '1024', EXACT, 'at a constant η'))} on enwik8",
        "AT FIRST, B = k": f"At B = k it gains {percent(cell('sparse Adam', '64', EXACT, 'at a constant η'))}",
        "SLOW": f"it has {trajectory('', '1024')} and {trajectory('', '128')}",
    }


def test_errors_while_towers_are_trained():
    frame = pd.read_csv(REFERENCE / "gramian_error" / "enwik8-trained.csv").set_index("estimator")
    errors = frame.filter(like="left").apply(lambda cells: cells.str.partition(" ±")[0].astype(float))
    small, large = (errors[f"left, B = {batch}"] for batch in (128, 1024))

    def over(own: str, other: str) -> list[str]:
        return [pages.number(x[own] / x[other], 2) for x in (small, large)]

    slow, fast = (over(f"SOGram α={alpha}", SAMPLING) for alpha in (0.01, 0.1))
    item = over("SAGram β=1, per item", "SOGram α=0.1")
    words = " ".join(PAGE.split())
    assert f"SOGram has {slow[0]} (α = 0.01) and {fast[0]} (0.1) of sampling's error" in words
    assert f"{slow[1]} and {fast[1]} at 1,024" in words and f"per item {item[0]} and {item[1]}" in words


def own_error(name: str, batch: str, estimator: str, optimizer: str = "Adagrad") -> str:
    """The error of the estimate that trains, left and right."""
    sides = table(name).loc[(optimizer, batch, estimator), "error of Ĝ"].split(" · ")
    return " and ".join(pages.number(float(x), 2) for x in sides)


def test_the_largest_corpora():
    """Lifts with intervals over left items, and the errors of the estimates that train."""

    def said(name: str, batch: str, estimator: str) -> str:
        row = table(name).loc[("Adagrad", batch, estimator)]
        of_items = percent(f"{row['lift [95 %]'].partition(' ')[0]} {row['by left items']}")
        return f"{estimator} {of_items}, its error {own_error(name, batch, estimator)}"

    for name, batch in (("fr-scale-as-small-as-k", "128"), ("en-scale", "1024")):
        assert (
            f"{said(name, batch, 'SAGram per item')}, sampling's {own_error(name, batch, SAMPLING)}" in WORDS
        )
    assert said("en-scale", "1024", "SOGram α=0.01").replace("α=0.01", "with α = 0.01") in WORDS


def test_the_error_of_an_estimate_that_drives_the_training():
    sampling, sogram = (
        own_error("enwik8-own-errors", "1024", name, "sparse Adam") for name in (SAMPLING, "SOGram α=0.1")
    )
    assert (
        f"its error is {sogram} while η is constant (left, right; three seeds), sampling's {sampling}"
        in WORDS
    )
    assert (
        f"SOGram with α = 0.01 has {own_error('en-scale', '1024', 'SOGram α=0.01')} where it drives" in WORDS
    )
    left = [x.partition(" and ")[0] for x in (sogram, sampling)]
    assert f"(its error is {left[0]}, sampling's {left[1]})" in " ".join(pages.read("README.md").split())
    watched = pd.read_csv(REFERENCE / "error_at_scale" / "error_at_scale.csv").set_index(["corpus", "α", "η"])
    assert (
        f"and {pages.number(float(watched.loc[('en-scale', 0.01, 0.01), 'late error']), 2)} where it watches"
        in WORDS
    )


def test_the_run_at_the_size_of_simple_english_wikipedia():
    curves = {}
    for name in ("sampling", "sogram-alpha-0.1", "sagram-cache-item", "sampling-input-dim-128"):
        lines = files()[f"results/runs/simple-scale/paper-{name}-seed0/metrics.jsonl"].decode().splitlines()
        curves[name] = {round(r["epoch"]): r["map@10"] for r in map(json.loads, lines)}
    sampling, sogram, sagram, wide = curves.values()
    shown = SECTION.split("| epochs |")[1]
    epochs = [int(x) for x in shown.splitlines()[0].strip(" |").split("|")]
    rows = [
        f"| {label} | {' | '.join(pages.number(curve[e], 4) for e in epochs)} |"
        for label, curve in (("sampling", sampling), ("sampling, inputs of 128", wide))
    ]
    for label, curve in (("SOGram, α = 0.1", sogram), ("SAGram per item", sagram)):
        lifts = (percent(f"{100 * (curve[e] / sampling[e] - 1):+.1f}%") for e in epochs)
        rows.append(f"| lift of {label} | {' | '.join(lifts)} |")
    for row in rows:
        assert row in shown


ROWS = [*optimizer_rows("lift [95 %]"), *optimizer_rows("at a constant η"), *long_rows(), *table_2()]


def test_readme_rounds_the_same_numbers():
    words = " ".join(pages.read("README.md").split())

    def rounded(text: str) -> str:
        """ "+13.0% [+11.5%, +14.5%]" as "13 % [12, 14]"; halves to even, as Python's."""
        numbers = [f"{float(x):.0f}" for x in re.findall(r"[+-][\d.]+", text)]
        return "{} % [{}, {}]".format(*numbers).replace("-0", "0").replace("-", "−")

    large, small = (
        [rounded(cell("sparse Adam", batch, EXACT, column)) for column in ("at a constant η", "lift [95 %]")]
        for batch in ("1024", "64")
    )
    assert f"gains {large[0]} at B = 16k and {small[0]} at B = k while η is constant" in words
    assert f"and {large[1]} and {small[1]} once η has fallen to 0" in words
    same = rounded(
        table("enwik8-same-batches").loc[("sparse Adam", "1024", "sampling, B = B′"), "lift [95 %]"]
    )
    assert f"ranked {same.replace(' % ', ' % ')} higher on enwik8" in words
    rows = {row.split(" | ")[0]: [x.strip() for x in row.strip("| ").split("|")] for row in table_2()}
    enwik8, fr = rows["| enwik8, 5 seeds"], rows["| fr-scale, 1 seed, .24 epochs"]
    for shown, row, kind in (
        ("enwik8, B = 16k, 5 seeds", enwik8, "exact"),
        ("fr's size, B = 8k, ¼ epoch, 1 seed", fr, "SAGram"),
        ("en's size, B = 8k, ⅒ epoch, 1 seed", rows["| en-scale, 1 seed, .09 epochs"], "SAGram"),
    ):
        assert f"| {shown} | {' | '.join(row[1:5])} | {row[5]}, {kind} |".replace("|  ", "| ") in words
    planted = pd.read_csv(REFERENCE / "standard-part" / "scaling" / "runs.csv")
    own = planted[(planted["items"] == 1_000_000) & planted["batch"].isin((4, 2048))]
    maps = {name: part.set_index("seed")["map@10"] for name, part in own.groupby("estimator")}
    base = maps["sampling"]
    lifts = [lift(maps[x] / base).partition(" [")[0] for x in ("SOGram α=0.1", "SOGram α=0.01", "reference")]
    assert f"| {pages.number(base.mean(), 4)} | {lifts[0]} | {lifts[1]} | | {lifts[2]}, near exact |" in words


@pytest.mark.parametrize("row", ROWS)
def test_a_row(row):
    squeezed = [" ".join(line.split()) for line in SECTION.splitlines()]
    assert " ".join(row.split()) in squeezed


@pytest.mark.parametrize(("name", "words"), sentences().items())
def test_a_sentence(name, words):
    assert words in WORDS
