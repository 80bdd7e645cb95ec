"""The numbers in README and findings, derived again from the published measurements.

Each function below writes a table's cells or a sentence as the page has them: from measurements.parquet, or for older
experiments from their published tables.
"""

import json
import re
from collections import defaultdict

import numpy as np
import pages
import pandas as pd
import pytest
import yaml

from experiments.report.sections import interval
from experiments.reproduce import published

FINDINGS = (
    pages.read("docs/findings.md").split("## When does a better Gramian rank better?")[1].split("\n## ")[0]
)
README = pages.read("README.md")
ESTIMATORS = {
    "sampling, shared": ("sampling", None, None, "shared"),
    "sampling, gradient": ("sampling", None, None, "gradient"),
    "sampling": ("sampling", None, None, None),
    "SOGram .5": ("sogram", 0.5, None, None),
    "SOGram .1": ("sogram", 0.1, None, None),
    "SOGram .01": ("sogram", 0.01, None, None),
    "SOGram .001": ("sogram", 0.001, None, None),
    "SAGram per pair": ("sagram", None, "pair", None),
    "SAGram per item": ("sagram", None, "item", None),
    "exact": ("exact", None, None, None),
}
BATCHES = (64, 1024)
SLOWER = {"enwik8": 0.002, "simple-scale": 0.0006}  # a fifth of the configs' η


@pytest.fixture(scope="module")
def runs():
    """Validation MAP@10 by seed, by corpus, optimizer, estimator and B; the exact Gramian has no B."""
    files = published.read(pages.ROOT / published.FILE)
    found = defaultdict(dict)
    for path, content in files.items():
        match = re.fullmatch(r"results/runs/([^/]+)/(paper-.*)-seed(\d+)/config.yaml", path)
        evaluation = files.get(path.replace("config.yaml", "evaluation.json"))
        if match and evaluation:
            config = yaml.safe_load(content)
            own = config["estimator"]
            name = next(
                name for name, (kind, alpha, cache, source) in ESTIMATORS.items()
                if kind == own["name"] and alpha in (None, own["alpha"]) and cache in (None, own["cache"])
                and source in (None, own.get("batch"))
            )  # fmt: skip
            batch = None if name == "exact" else own["gramian_batch_size"]
            value = json.loads(evaluation)["validation"]["map@10"]
            optimizer = config["train"]["optimizer"]
            if config["train"]["learning_rate"] == SLOWER.get(match[1]):
                optimizer += " slower"
            if match[1] == "simple-scale" and config["model"]["input_dim"] == 128:
                optimizer += " wide"
            found[match[1], optimizer, name, batch][int(match[3])] = value
    return {key: [values[seed] for seed in sorted(values)] for key, values in found.items()}


@pytest.fixture(scope="module")
def maps(runs):
    """Those of enwik8, by optimizer, estimator and B."""
    return {tuple(key): values for (corpus, *key), values in runs.items() if corpus == "enwik8"}


def number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def spread(values) -> str:
    return f"{number(np.mean(values), 4)} ± {number(np.std(values, ddof=1), 4)}"


def lift(own, other, digits: int) -> str:
    """As "+3.2 % [−1.7, +8.0]", paired by seed."""
    ratios = 100 * (np.array(own) / np.array(other) - 1)
    low, high = interval(tuple(ratios))
    text = f"{ratios.mean():+.{digits}f} % [{low:+.{digits}f}, {high:+.{digits}f}]"
    return text.replace("-", "−")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def line(page: str, start: str) -> list[str]:
    """The cells of the one row of the page's tables that begins with these."""
    (row,) = [text for text in page.splitlines() if text.startswith(start)]
    return cells(row)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("batch sampling", "sampling"),
        ("SOGram, α = 0.1", "SOGram .1"),
        ("SOGram, α = 0.01", "SOGram .01"),
        ("SAGram β = 1 per pair", "SAGram per pair"),
        ("exact Gramian at every step", "exact"),
    ],
)
def test_the_final_map_on_enwik8(maps, start, name):
    own = maps["sparse-adam", name, None if name == "exact" else 1024]
    sampling = maps["sparse-adam", "sampling", 1024]
    shown = line(FINDINGS, f"| {start} |")
    assert shown[1] == spread(own)
    digits = 0 if name == "SOGram .01" else 1
    assert shown[2] == ("" if name == "sampling" else lift(own, sampling, digits))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("optimizer", ["sparse-adam", "sparse-adam slower", "adagrad"])
def test_the_factorial_experiment(maps, optimizer, batch):
    labels = {"sparse-adam": "sparse Adam", "sparse-adam slower": "… at η/5", "adagrad": "Adagrad"}
    shown = line(FINDINGS, f"| {labels[optimizer]} | {batch:,} |")
    sampling = maps[optimizer, "sampling", batch]
    names = ["SOGram .5", "SOGram .1", "SOGram .01", "SOGram .001", "SAGram per item", "exact"]
    runs = [maps.get((optimizer, name, None if name == "exact" else batch), []) for name in names]
    expected = [
        lift(own, sampling[: len(own)], 1 if abs(np.mean(own) / np.mean(sampling) - 1) < 0.2 else 0)
        if own
        else ""
        for own in runs
    ]
    assert shown[2:] == [spread(sampling), *expected]


def test_how_batches_are_drawn(maps):
    lifts = [
        lift(maps["sparse-adam", f"sampling, {name}", batch], maps["sparse-adam", "sampling", batch], 1)
        for name, batch in (("shared", 1024), ("shared", 64), ("gradient", 1024))
    ]
    expected = "one B for both sides {} (B = 64: {}); B′ itself, with the gradient through both Gramians (equation 15), {}"
    assert expected.format(*lifts) in FINDINGS.replace("\n  ", " ")


def test_a_smaller_rate_lets_errors_decay_sooner_at_scale():
    table = pd.read_csv(pages.ROOT / "results/reference/error_at_scale/error_at_scale.csv")
    settled = (
        table[table["α"] == 0.01].pivot(index="corpus", columns="η", values="settled at step").astype(int)
    )
    simple, fr = (settled.loc[name].tolist() for name in ("simple-scale", "fr-scale"))
    expected = f"{simple[0]} of {simple[1]} and in {fr[0]} of {fr[1]} steps"
    assert expected in " ".join(ALL_FINDINGS.split())


def test_the_titles_of_enwik8(runs):
    own = {name: values for (corpus, _, name, _), values in runs.items() if corpus == "enwik8-titles"}
    shown = [lift(own[name], own["sampling"], 1) for name in ("SOGram .1", "SAGram per item")]
    assert "SOGram {} with α = 0.1, SAGram per item {}".format(*shown) in FINDINGS.replace("\n  ", " ")
    files = published.read(pages.ROOT / published.FILE)
    solved = [
        json.loads(content)["validation"]["map@10"]
        for path, content in files.items()
        if re.fullmatch(r"results/runs/enwik8-titles/exact-als-.*/evaluation.json", path)
    ]
    row = line(FINDINGS, "| enwik8, titles, 3 seeds |")
    share = np.mean(own["sampling"]) / np.mean(solved)
    assert (len(solved), row[6:]) == (3, [number(np.mean(solved), 4), f"no: {share:.0%}".replace("%", " %")])


def test_readme_rounds_the_same_numbers(maps):
    sampling = maps["sparse-adam", "sampling", 1024]
    lifts = [lift(maps["sparse-adam", *key], sampling, 0) for key in (("SOGram .1", 1024), ("exact", None))]
    sogram, exact = (text.replace("[+0", "[0").replace("+", "") for text in lifts)
    assert f"{sogram} (α = .1); exact Gramians gain {exact}" in README
    speed = pd.read_csv(pages.ROOT / "results/reference/map_curves/speed-ups.csv").set_index("method")
    assert speed.loc["SOGram α=0.1", "in steps"] == "0.00 to 0.00", "never"
    slow, fast = (float(x) for x in speed.loc["SAGram β=1, per pair", "in steps"].split(" to "))
    assert f"does on enwik8, in {number(1 / fast, 2)}–{number(1 / slow, 2)} of the steps" in README
    own, nearest = (
        lift(maps["sparse-adam slower", *key], maps["sparse-adam slower", "sampling", 64], 0)
        .replace("[+0", "[0").replace("+", "") for key in (("SOGram .1", 64), ("exact", None))
    )  # fmt: skip
    assert f"**yes**: {own}; exact Gramians {nearest}" in README


OLDER = pages.ROOT / "results" / "reference" / "standard-part"
ALL_FINDINGS = pages.read("docs/findings.md")
CORPORA = ("movielens-100k", "movielens-1m", "enwik8", "simple-scale")


def verdicts(claim: str) -> list[dict]:
    """The verdicts on a claim in the older report, but for those that it did not test."""
    found = json.loads((OLDER / "claims.json").read_text(encoding="utf-8"))["verdicts"]
    return [v for v in found if v["claim"] == claim and v["outcome"] != "NOT TESTED HERE"]


def late_errors(corpus: str) -> pd.DataFrame:
    """Means over seeds, a row for each estimator, a column for each side and B."""
    frame = pd.read_csv(OLDER / "gramian_error" / f"{corpus}.csv", index_col="estimator")
    return frame.apply(lambda column: column.str.partition(" ±")[0].astype(float))


def spanned(values) -> str:
    """From least to greatest, as ".07–.13"."""
    return f"{number(min(values), 2)}–{number(max(values), 2)}"


def test_the_errors_of_sogram_relative_to_sampling():
    same, larger = {}, {}
    for side in ("left", "right"):
        frames = [late_errors(corpus) for corpus in CORPORA]
        sogram = [f.loc["SOGram α=0.01"] for f in frames]
        sampling = [f.loc["sampling"] for f in frames]
        same[side] = [
            a[f"{side}, B = {b}"] / c[f"{side}, B = {b}"]
            for a, c in zip(sogram, sampling, strict=True) for b in (128, 1024)
        ]  # fmt: skip
        larger[side] = [
            a[f"{side}, B = 128"] / c[f"{side}, B = 1024"] for a, c in zip(sogram, sampling, strict=True)
        ]
    shown = (
        f"yes: {spanned(same['left'])} of sampling's error (left side), {spanned(same['right'])} (right side)"
    )
    assert shown in README
    assert (
        f"nearer: {spanned(larger['left'])} of its error (left), {spanned(larger['right'])} (right)" in README
    )
    to = {side: spanned(values).replace("–", " to ") for side, values in larger.items()}
    assert line(ALL_FINDINGS, "| SOGram, B = 128 |")[3:] == [to["left"], to["right"]]


def test_where_sagram_is_nearer_than_sogram():
    judged = verdicts("sagram-nearer-than-sogram")
    passed = sum(v["outcome"] == "PASS" for v in judged)
    assert f"{passed} of {len(judged)} comparisons (cache per pair, left)" in README


def test_gravity_and_the_learning_rate():
    (weak,) = verdicts("weak-gravity-lowers-map")
    factor = format(float(format(1 / weak["estimate"], ".2g")), "g")
    assert f"the factor, {factor}, has a wide interval" in README
    assert f"MAP@10 at λ = 0.01 is 1/{factor} of that at λ = 10" in ALL_FINDINGS
    (best,) = verdicts("gravity-has-a-best-value")
    shown = f"{best['estimate']:.1f} times [{best['low']:.1f}, {best['high']:.1f}]"
    assert shown in ALL_FINDINGS
    sooner = next(v for v in verdicts("smaller-rate-faster-decay") if v["case"] == "α = 0.01")
    digits = [number(sooner[key], 2) for key in ("estimate", "low", "high")]
    assert f"η/5 needs {digits[0]} [{digits[1]}, {digits[2]}] of the steps, at α = 0.01" in README


def test_what_orders_the_losses():
    losses = pd.read_csv(OLDER / "scaling" / "losses.csv")
    losses["loss"] = losses["loss"].str.rstrip("%").astype(float)

    def orders(frame):
        error, ratio = (
            frame["loss"].corr(frame[name], method="spearman") for name in ("Gramian error", "B/k")
        )
        return number(error, 2), number(-ratio, 2)

    error, ratio = orders(losses)
    assert f"(rank correlation {error} against {ratio})" in ALL_FINDINGS
    error, ratio = orders(losses[losses["estimator"] == "sampling"])
    assert f"({ratio} against {error})" in ALL_FINDINGS


def test_the_tuned_estimators_on_movielens():
    runs = pd.read_csv(OLDER.parent / "estimators" / "movielens-1m" / "final.csv")
    by_method = {name: part.sort_values("seed")["validation"] for name, part in runs.groupby("method")}
    rows = {
        "batch sampling": "sampling",
        "SAGram β = 1, a cache per item": "SAGram β=1, per item",
        "exact Gramian at every step": "exact",
    }
    table = ALL_FINDINGS.split("## Estimators on MovieLens 1M")[1].split("\n## ")[0]
    for shown, name in rows.items():
        assert line(table, f"| {shown} |")[3] == spread(by_method[name])
    sampling = by_method["sampling"].to_numpy()
    for name, words in (
        ("SOGram", "SOGram"),
        ("SOGram debiased", "debiased"),
        ("SAGram β=1, per item", "SAGram per item"),
        ("exact", "exact"),
    ):
        differences = by_method[name].to_numpy() - sampling
        low, high = (number(x, 4) for x in interval(tuple(differences)))
        mean = number(differences.mean(), 4)
        assert f"{words} +{mean} [{low}, {high}]" in table.replace("\n  ", " ")
        if name == "SOGram":
            assert (
                f"SOGram's MAP@10 is {mean} [{low}, {high}] above sampling's {number(sampling.mean(), 4)}"
                in (README.replace("\n", " "))
            )


CORPORA_RANKED = {
    "movielens-100k": "MovieLens 100K",
    "movielens-1m": "MovieLens 1M",
    "enwik8-titles": "enwik8, titles",
    **{name: name for name in ("enwik8", "miwiki", "zuwiki", "vewiki")},
}


@pytest.mark.parametrize(("corpus", "title"), CORPORA_RANKED.items())
def test_what_ranks_best(corpus, title):
    runs = pd.read_csv(pages.ROOT / f"results/reference/ranking/runs-{corpus}.csv")
    table = ALL_FINDINGS.split("## What ranks best")[1].split("\n## ")[0]
    shown = {int(row[1]): row for row in map(cells, table.splitlines()) if row[0] == title}
    assert shown
    for width, row in shown.items():
        own = runs[runs["width"] == width]
        maps = {label: rows.set_index("seed")["map@10"] for label, rows in own.groupby("method")}
        best = max((x for x in maps if x.startswith("implicit ALS")), key=lambda label: maps[label].mean())
        ease = runs.loc[runs["method"].str.startswith("EASE"), "map@10"]
        expected = [spread(maps[best]), number(ease.max(), 4) if len(ease) else ""]
        labels = ("free vectors", "towers", "towers of ids", "hidden towers", "hidden towers of ids")
        for label in (*labels, "gramrun.fit"):
            if label not in maps:
                expected.append("")
                continue
            ends = interval(tuple((maps[label] - maps[best]).dropna()))
            low, high = (f"{x:+.4f}".replace("0.", ".", 1).replace("-", "−") for x in ends)
            expected.append(f"{number(maps[label].mean(), 4)} [{low}, {high}]")
        assert row[2:] == expected
    if corpus == "movielens-1m":
        start = runs[runs["method"] == "towers from a decomposition"].groupby("width")["map@10"].mean()
        assert "reach {}, {} and {} at k = 35, 64 and 128".format(*(number(x, 4) for x in start)) in table


def test_readme_compares_with_other_methods():
    """At k = 64; of a method with several settings the best."""
    rows = {
        "`gramrun.fit`, one setting for all": "gramrun.fit",
        "towers with features, tuned": "towers",
        "towers of ids, tuned": "towers of ids",
        "implicit ALS, tuned": "implicit ALS",
        "EASE (full rank), tuned": "EASE",
    }
    corpora = ("movielens-1m", "movielens-100k", "enwik8", "miwiki")
    for start, label in rows.items():
        shown = line(README, f"| {start} |")[1:]
        for corpus, cell in zip(corpora, shown, strict=True):
            runs = pd.read_csv(pages.ROOT / f"results/reference/ranking/runs-{corpus}.csv")
            means = runs[runs["width"] == 64].groupby("method")["map@10"].mean()
            best = max(value for name, value in means.items() if name.split(",")[0] == label)
            assert cell == number(best, 3), (start, corpus)


def test_items_never_seen():
    runs = pd.read_csv(pages.ROOT / "results/reference/unseen/runs.csv")
    section = ALL_FINDINGS.split("## Items never seen")[1].split("\n## ")[0]
    corpora = ("movielens-1m", "enwik8", "miwiki")
    tables = {
        "right items": [(corpus, among) for corpus in corpora for among in ("all", "unseen")],
        "left items": [(corpus, "all") for corpus in corpora[1:]],
    }
    gains = {}
    for new, columns in tables.items():
        table = section.split(f"| new {new} |")[1].split("\n\n")[0]
        for method in runs["method"].unique():
            cells_of = []
            for corpus, among in columns:
                own = runs[
                    (runs[["corpus", "new", "method", "among"]] == [corpus, new, method, among]).all(axis=1)
                ]
                error = f" ± {number(own['map@10'].std(), 3)}" if len(own) > 1 else ""
                cells_of.append(
                    f"{number(own['map@10'].mean(), 3)}{error}, {number(own['recall@100'].mean(), 3)}"
                )
            assert line(table, f"| {method} |")[1:] == cells_of, (new, method)
        for corpus, among in columns:
            own = runs[(runs[["corpus", "new", "among"]] == [corpus, new, among]).all(axis=1)]
            maps = own.pivot(index="seed", columns="method", values="map@10")
            gain = maps["towers, half of the ids dropped"] - maps["towers, ids never dropped"]
            ends = interval(tuple(gain.dropna()))
            gains[new, corpus, among] = "{} [{}, {}]".format(*(number(x, 4) for x in (gain.mean(), *ends)))
    flat = section.replace("\n  ", " ")
    assert (
        "{} on MovieLens, {} on enwik8 and {} on miwiki".format(
            *(gains["right items", corpus, "all"] for corpus in corpora)
        )
        in flat
    )
    left = [gains["left items", corpus, "all"] for corpus in corpora[1:]]
    assert f"{left[0]} on enwik8 and not on miwiki, {left[1]}".replace("-0.", "−.") in flat
    maps = runs[runs["new"] == "right items"].groupby(["corpus", "among", "method"])["map@10"].mean()
    wiki, movies, new = (
        [number(maps[(*place, name)], 3) for name in ("towers, half of the ids dropped", "TF-IDF neighbours")]
        for place in (("enwik8", "all"), ("movielens-1m", "all"), ("movielens-1m", "unseen"))
    )
    words = " ".join(README.split())
    assert f"MAP@10 {wiki[0]} on enwik8, TF-IDF neighbours {wiki[1]}" in words
    assert f"MovieLens 1M {movies[0]}, TF-IDF neighbours {movies[1]} (among new" in words
    assert f"alone {new[0]} and {new[1]})" in words


def test_the_run_at_the_size_of_simple_english_wikipedia():
    files = published.read(pages.ROOT / published.FILE)
    names = ("sampling", "sogram-alpha-0.1", "sagram-cache-item", "sampling-input-dim-128")
    curves = []
    for name in names:
        text = files[f"results/runs/simple-scale/paper-{name}-seed0/metrics.jsonl"].decode()
        records = map(json.loads, text.splitlines())
        curves.append({round(record["epoch"]): record["map@10"] for record in records})
    table = FINDINGS.split("| epochs |")[1]
    epochs = [int(cell) for cell in cells(table.splitlines()[0])]
    sampling, sogram, sagram, wide = curves
    for label, curve in (("sampling", sampling), ("sampling, inputs of 128", wide)):
        assert line(table, f"| {label} |")[1:] == [number(curve[e], 4) for e in epochs]
    for label, curve in (("SOGram, α = 0.1", sogram), ("SAGram per item", sagram)):
        lifts = [f"{100 * (curve[e] / sampling[e] - 1):+.1f} %".replace("-", "−") for e in epochs]
        assert line(table, f"| lift of {label} |")[1:] == lifts
    (solved,) = (
        json.loads(content)["validation"]["map@10"]
        for path, content in files.items()
        if re.fullmatch(r"results/runs/simple-scale/exact-als-.*-seed0/evaluation.json", path)
    )
    share = f"{100 * wide[20] / solved:.0f} % of exact ALS"
    assert f"MAP@10 is {number(wide[20], 4)}, {share}" in FINDINGS
    ranks = []
    for name in names[:2]:
        evaluation = json.loads(files[f"results/runs/simple-scale/paper-{name}-seed0/evaluation.json"])
        ranks.append(" and ".join(f"{rank:.0f}" for rank in evaluation["validation"]["effective_rank"]))
    assert f"the effective rank is {ranks[0]} of 64" in FINDINGS
    assert f"SOGram lags as on enwik8 (effective rank {ranks[1]})" in FINDINGS


def test_table_2_beside_the_paper_s(runs):
    rows = {
        "enwik8, 5 seeds": ("enwik8", "sparse-adam", "exact", 5),
        "enwik8 at η/5, 3 seeds": ("enwik8", "sparse-adam slower", "exact", 3),
        "enwik8, titles, 3 seeds": ("enwik8-titles", "sparse-adam", "SAGram per item", 3),
        "miwiki, 3 seeds": ("miwiki", "sparse-adam", "exact", 3),
        "simple-scale, 1 seed": ("simple-scale", "sparse-adam", "SAGram per item", 1),
        "simple-scale at η/5, 1 seed": ("simple-scale", "sparse-adam slower", "SAGram per item", 1),
        "simple-scale, inputs of 128, 1 seed": ("simple-scale", "sparse-adam wide", "SAGram per item", 1),
        "fr-scale, 1 seed, .24 epochs": ("fr-scale", "adagrad", "SAGram per item", 1),
    }
    for start, (corpus, optimizer, nearest, seeds) in rows.items():
        sampling = np.array(runs[corpus, optimizer, "sampling", 1024][:seeds])
        expected = [number(sampling.mean(), 4)]
        for name in ("SOGram .1", "SOGram .01", "SOGram .001", nearest):
            own = runs.get((corpus, optimizer, name, None if name == "exact" else 1024), [])[:seeds]
            ratios = np.array(own) / sampling[: len(own)]
            lift = f"{100 * (ratios - 1).mean():+.1f} %".replace("-", "−") if own else ""
            expected.append(lift)
        assert line(FINDINGS, f"| {start} |")[1:6] == expected
