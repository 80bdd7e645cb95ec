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
from experiments.studies import lifts as study

REFERENCE = pages.ROOT / "results" / "reference"
PAGE = pages.read("docs/findings.md")
SECTION = PAGE.split("## When does a better Gramian rank better?")[1].split("\n## ")[0]
WORDS = " ".join(SECTION.split())
EXACT, SAMPLING = "exact Gramian", "sampling"
LIFTS = pd.read_csv(REFERENCE / "lifts" / "lifts.csv")


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


def short(row: pd.Series) -> str:
    """A lift in per cent, bold where its interval is on one side of 0."""
    mean = f"{100 * row['lift']:.1f}".replace("-", "−")
    return f"**{mean}**" if round(row["low"], 3) * round(row["high"], 3) > 0 else mean


def errors(text: str) -> str:
    """ "0.780 · 0.833" as ".78 and .83"."""
    return " and ".join(pages.number(float(x), 2) for x in text.split(" · "))


def map_of(text: str) -> float:
    return float(text.split(" ")[0])


def final_map(corpus: str) -> pd.DataFrame:
    return pd.read_csv(REFERENCE / "final_map" / f"{corpus}.csv", dtype=str).set_index("method")


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


SHARES = (1 / 16, 1 / 4, 1, 4, 16)  # B / k


def long_rows() -> list[str]:
    """Lifts over B / k: exact Gramian, SOGram, SAGram per item."""
    rows = []
    for title, own in LIFTS.groupby("training", sort=False):
        k, cells = own["k"].iloc[0], []
        for share in SHARES:
            near = own[np.isclose(own["B"] / k, share, rtol=0.1)].set_index("estimator")
            found = [short(near.loc[name]) if name in near.index else "–" for name in study.STYLES]
            cells.append(" · ".join(found) if len(near) else "")
        rows.append(f"| {title.partition(', k =')[0]} | {k} | {' | '.join(cells)} |")
    return rows


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
            lifts[2] = final_map("enwik8").loc[names[2], "lift over sampling [95 %]"]
        solved = optimum(title.partition(",")[0].partition(" ")[0] + ("-titles" if "titles" in title else ""))
        judged = EXACT if EXACT in own.index else SAMPLING
        share = f"{map_of(own.loc[judged, 'MAP@10']) / solved:.0%}".replace("%", " %")
        trained = {"yes": f"yes: {share}", "NOT TRAINED": f"no: {share}"}.get(
            own["trained"].iloc[0], "not known"
        )
        cells = [percent(x.partition(" ")[0]) for x in lifts]
        als = "" if np.isnan(solved) else pages.number(solved, 4)
        rows.append(f"| {title} | {pages.number(maps, 4)} | {' | '.join(cells)} | {als} | {trained} |")
    wiki = final_map("miwiki")
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
    pair = final_map("enwik8").loc["SAGram β=1, per pair"]
    titles = table("enwik8-titles").loc[("sparse Adam", "1024"), "lift [95 %]"].map(percent)
    at = [pages.number(constant(f"enwik8/paper-sampling{size}"), 4) for size in (small, "")]
    near_k = table("simple-scale-small-batch").loc[("sparse Adam, inputs of 256, 10 epochs", "64")]
    item, noise = (near_k["error of Ĝ"].map(errors)[x] for x in ("SAGram per item", SAMPLING))
    gain = near_k.loc["SAGram per item"]
    return {
        "SIMPLE, B = k": f"gains {percent(gain['lift [95 %]'])} at B = k (by left items {gain['by left items'].replace('%', '')}; "
        f"one seed) and {percent(gain['at a constant η'])} while η is constant",
        "SIMPLE, ERRORS": f"At B = k sampling has {near_k.loc[SAMPLING, 'MAP@10'][1:]} and an error of {noise}, "
        f"SAGram per item {item} and {percent(gain['lift [95 %]'])} of MAP",
        "CONSTANT64": f"(sampling then has {at[0]} at B = 64 and {at[1]} at 1,024)",
        "BETTER": f"SOGram (α = 0.1) has {better['64']} at B = k and {better['1,024']} at 16·k",
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
        "AT FIRST": f"the exact Gramian gains {percent(cell('sparse Adam', '1024', EXACT, 'at a constant η'))} while",
        "AT FIRST, B = k": f"at B = k {percent(cell('sparse Adam', '64', EXACT, 'at a constant η'))} is left as "
        f"{percent(cell('sparse Adam', '64', EXACT, 'lift [95 %]'))}",
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
    return errors(table(name).loc[(optimizer, batch, estimator), "error of Ĝ"])


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
    adam = "optimizer-sparse-adam-initial-accumulator-0-reduction-mean-learning-rate-0.003-dense-learning-rate-0.0003"
    curves = {}
    for name in (
        f"sampling-{adam}",
        f"sogram-{adam}-a-d39a4449",
        f"sagram-{adam}-c-0c531fcd",
        "sampling-input-dim-128",
    ):
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


def test_the_published_lifts_are_those_of_the_published_tables():
    pd.testing.assert_frame_equal(LIFTS, study.measure(REFERENCE), atol=1e-5, check_dtype=False)


def test_readme_rounds_the_same_numbers():
    words = " ".join(pages.read("README.md").split())

    def rounded(text: str) -> str:
        """ "+13.0% [+11.5%, +14.5%]" as "13.0 % [11.5, 14.5]"."""
        return "{} % [{}, {}]".format(*re.findall(r"[+-][\d.]+", text)).replace("+", "").replace("-", "−")

    large, small = (
        [rounded(cell("sparse Adam", batch, EXACT, column)) for column in ("at a constant η", "lift [95 %]")]
        for batch in ("1024", "64")
    )
    assert f"gains {large[0]} on enwik8 while η is constant and {large[1]} once η has fallen to 0" in words
    assert f"At B = k it gains {small[0]} and {small[1]}" in words
    same = rounded(
        table("enwik8-same-batches").loc[("sparse Adam", "1024", "sampling, B = B′"), "lift [95 %]"]
    )
    assert f"ranked {same} higher on enwik8" in words
    rows = {row.split(" | ")[0]: [x.strip() for x in row.strip("| ").split("|")] for row in table_2()}
    enwik8, fr = rows["| enwik8, 5 seeds"], rows["| fr-scale, 1 seed, .24 epochs"]
    for shown, row, kind in (
        ("enwik8, B = 16·k, 5 seeds", enwik8, "exact"),
        ("fr's size, B = 8·k, ¼ epoch, 1 seed", fr, "SAGram"),
        ("en's size, B = 8·k, ⅒ epoch, 1 seed", rows["| en-scale, 1 seed, .09 epochs"], "SAGram"),
    ):
        assert f"| {shown} | {' | '.join(row[1:5])} | {row[5]}, {kind} |".replace("|  ", "| ") in words


@pytest.mark.parametrize("row", ROWS)
def test_a_row(row):
    squeezed = [" ".join(line.split()) for line in SECTION.splitlines()]
    assert " ".join(row.split()) in squeezed


@pytest.mark.parametrize(("name", "words"), sentences().items())
def test_a_sentence(name, words):
    assert words in WORDS
