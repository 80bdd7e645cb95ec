"""Numbers in README and findings, derived again from measurements.parquet, and from tables that it has too.

Each function below writes a table's cells or a sentence as the page has them.
"""

import io
import itertools
import json
import re

import numpy as np
import pages
import pandas as pd
import pytest

from experiments.report.claims import LEVELS
from experiments.report.sections import interval
from experiments.reproduce import published
from experiments.reproduce.items import gramian_error

README = pages.read("README.md")
REALISM = pages.ROOT / "results" / "reference" / "realism"


def spread(values) -> str:
    return f"{pages.number(np.mean(values), 4)} ± {pages.number(np.std(values, ddof=1), 4)}"


def test_a_smaller_rate_lets_errors_decay_sooner_at_scale():
    table = pd.read_csv(PUBLISHED / "error_at_scale/error_at_scale.csv")
    own = table[table["α"] == 0.01]
    steps = own.pivot(index=["corpus", "side"], columns="η", values="settled at step").astype(int)
    fr, en = (
        " · ".join(f"{own[0.002]:,} of {own[0.01]:,}" for _, own in steps.loc[name].iterrows())
        for name in ("fr-scale", "en-scale")
    )
    words = " ".join(ALL_FINDINGS.split())
    assert f"in {fr} and {en} steps" in words
    steps = own.pivot(index=["corpus", "side"], columns="η", values="at its own level").astype(int)
    ratios = (steps[0.002] / steps[0.01]).map(lambda ratio: pages.number(ratio, 2))
    fr, en = (" · ".join(ratios.loc[name]) for name in ("fr-scale", "en-scale"))
    assert f"in {fr} and {en}." in words


PUBLISHED = pages.ROOT / "results" / "reference"
ALL_FINDINGS = pages.read("docs/findings.md")
RANKING = pages.read("docs/ranking.md")
CORPORA = ("movielens-100k", "movielens-1m", "enwik8", "simple-scale")


def test_measurements_have_every_table():
    """`make report` draws the others; `python -m experiments.reproduce.published` adds these."""
    folder = f"{published.FILE.parent.as_posix()}/"
    own = {path: content for path, content in pages.published_files().items() if path.startswith(folder)}
    found = published.tables(PUBLISHED)
    assert own == {path.removeprefix(f"{pages.ROOT.as_posix()}/"): content for path, content in found.items()}


def verdicts(claim: str) -> list[dict]:
    """The published verdicts on a claim, but for those that it did not test."""
    untold = ("NOT TESTED HERE", "NOT TRAINED")
    return [v for v in pages.verdicts() if v["claim"] == claim and v["outcome"] not in untold]


def trajectories(corpus: str) -> list[pd.DataFrame]:
    """``gram_error.csv`` of the slow trajectory, each seed's."""
    folder = rf"results/runs/{corpus}/gram-error(-steps-\d+-every-\d+)?-seed\d+/gram_error.csv"
    frames = [
        pd.read_csv(io.BytesIO(content))
        for path, content in pages.published_files().items()
        if re.fullmatch(folder, path)
    ]
    assert len(frames) == 5
    return frames


def late_errors(corpus: str) -> pd.DataFrame:
    """Means over seeds and the last fifth of the trajectory: a row for each estimator, a column for each side and B."""
    late = gramian_error.late(gramian_error.labelled(pd.concat(trajectories(corpus))))
    columns = late["side"] + ", B = " + late["batch_size"].astype(str)
    return late.pivot_table(values="error", index="label", columns=columns)


def spanned(values) -> str:
    """From least to greatest, as ".07–.13"; of more than 10 without a decimal."""
    low, high = (
        pages.number(x, 2) if x < 1 else f"{x:.1f}" if x < 10 else f"{x:.0f}"
        for x in (min(values), max(values))
    )
    return f"{low}–{high}"


def errors_over(own, other, batches) -> list[str]:
    """Errors over others on all corpora, left and right: `batches` are pairs of their B."""
    return [
        spanned([
            f.loc[a, f"{side}, B = {b}"] / f.loc[c, f"{side}, B = {d}"]
            for f in map(late_errors, CORPORA) for a in own for c in other for b, d in batches
        ])
        for side in ("left", "right")
    ]  # fmt: skip


def error_rows() -> list[str]:
    """The table of late errors, from the least to the greatest of all corpora."""
    sogram, sampling, item = ["SOGram α=0.01"], ["sampling"], ["SAGram β=1, per item"]
    pairs = ["SAGram β=1, per pair", "SAGram β=1/n, per pair"]
    both, small, large = [(128, 128), (1024, 1024)], [(128, 128)], [(1024, 1024)]
    rows = {
        "| SOGram | sampling | 128, 1,024 |": errors_over(sogram, sampling, both),
        "| SAGram | SOGram | 1,024 |": errors_over(pairs, sogram, large),
        "| SAGram | SOGram | 128 |": errors_over(pairs, sogram, small),
        "| SAGram β = 1 per item | SOGram | 128 |": errors_over(item, sogram, small),
        "| SAGram β = 1 per item | SOGram | 1,024 |": errors_over(item, sogram, large),
        "| SOGram, B = 128 | sampling, B = 1,024 | |": errors_over(sogram, sampling, [(128, 1024)]),
    }
    return [f"{start} {' | '.join(x.replace('–', ' to ') for x in sides)} |" for start, sides in rows.items()]


def test_the_errors_of_the_estimates():
    assert "\n".join(error_rows()) in ALL_FINDINGS


def test_the_errors_along_fast_training():
    table = pd.read_csv(PUBLISHED / "gramian_error" / "enwik8-trained.csv", index_col="estimator")
    late = table.apply(lambda column: column.str.partition(" ±")[0].astype(float))
    sampling, tenth = ("sampling", "sampling"), ("SOGram α=0.1", "SOGram, α = 0.1")
    for name, title, (other, beside) in (
        *((f"SOGram α={x}", f"SOGram, α = {x}", sampling) for x in ("0.1", "0.01", "0.001")),
        *((f"SAGram β={x}, per pair", f"SAGram β = {x} per pair", tenth) for x in ("1/n", "1")),
        ("SAGram β=1, per item", "SAGram β = 1 per item", tenth),
    ):
        shown = [
            " · ".join(
                pages.number(
                    late.loc[name, f"{side}, B = {size}"] / late.loc[other, f"{side}, B = {size}"], 2
                )
                for side in ("left", "right")
            )
            for size in (128, 1024)
        ]
        assert f"| {title} | {beside} | {' | '.join(shown)} |" in ALL_FINDINGS
        if name == "SOGram α=0.1":
            assert f"(α = 0.1: {shown[1].partition(' ')[0]} of sampling's" in " ".join(README.split())


def passes() -> str:
    """How often the Gramian batches pass over the pairs: B = 128 is an eighth of the gradient batch."""
    epochs = {name: trajectories(name)[0]["epoch"].iloc[-1] for name in CORPORA}
    few = ", ".join(
        f"{epochs[name] / 8:.1f} on {title}"
        for name, title in (
            ("simple-scale", "simple-scale"),
            ("movielens-1m", "MovieLens 1M"),
            ("enwik8", "enwik8"),
        )
    )
    return f"at B = 128 after few passes over the pairs ({few}), and on simple-scale also at 1,024 ({epochs['simple-scale']:.1f})"


def test_the_age_of_caches_per_pair():
    own = [v for v in verdicts("sagram-nearer-than-sogram") if v["dataset"] == "movielens-1m"]
    failed = sum(v["outcome"] == "FAIL" for v in own)
    expected = (
        f"{passes()}; on MovieLens 1M at 1,024, after ten passes, in {failed} of {len(own)} comparisons"
    )
    assert expected in " ".join(ALL_FINDINGS.split())


def counted(claim: str, *cases: str) -> tuple[int, ...]:
    """How many comparisons of slow trajectories there are, hold, fail, and do better, with all of `cases`."""
    own = [
        v["outcome"]
        for v in verdicts(claim)
        if v["dataset"] in CORPORA and set(cases) <= set(v["case"].split(", "))
    ]
    return len(own), own.count("PASS"), own.count("FAIL"), own.count("BETTER THAN CLAIMED")


def readme_rows() -> dict[str, str]:
    """README's table on the errors of the estimates."""
    sogram = ["SOGram α=0.01"], ["sampling"]
    left, right = errors_over(*sogram, [(128, 128), (1024, 1024)])
    both, holds, fails, _ = counted("sogram-nearer-than-sampling")
    large, small = (counted("sagram-nearer-than-sogram", f"B = {batch}") for batch in (1024, 128))
    like = {
        alpha: spanned(
            [
                float(x)
                for s in errors_over([f"SOGram α={alpha}"], ["sampling"], [(128, 1024)])
                for x in s.split("–")
            ]
        )
        for alpha in ("0.1", "0.01")
    }
    slow = counted("sogram-128-like-sampling-1024", "α = 0.001")
    # After fewer than three passes: all errors of SAGram per pair, over all of SOGram's.
    behind = [
        pair / sogram
        for f in map(late_errors, ("movielens-1m", "simple-scale"))
        for side in ("left, B = 128", "right, B = 128")
        for pair in f.filter(like="per pair", axis=0)[side]
        for sogram in f.filter(like="SOGram", axis=0)[side]
    ]
    assert min(behind) > 1
    return {
        "R NEARER": f"in {holds} of {both} comparisons, not in {fails}; α = .01: {left} of its error (left), {right} (right)",
        "R SAGRAM": f"at B = 1,024: yes in {large[1]} of {large[0]}, no in {large[2]}; "
        f"at 128: yes in {small[1]} of {small[0]}, no in {small[2]} (after fewer than three passes, not judged, it is farther "
        f"in all {len(behind)}); else undecided",
        "R LIKE": f"α = .1: yes, {like['0.1']} of its error; .01: better, {like['0.01']}; .001: in {slow[1]} of {slow[0]}, better in {slow[3]}",
    }


@pytest.mark.parametrize(("name", "words"), readme_rows().items())
def test_a_row_of_readme_on_errors(name, words):
    assert f"| {words} |" in README


def test_gravity_and_the_learning_rate():
    def shown(verdict: dict, digits: int) -> list[str]:
        return [pages.number(verdict[key], digits) for key in ("estimate", "low", "high")]

    words = " ".join(ALL_FINDINGS.split())
    (weak,) = verdicts("weak-gravity-lowers-map")
    assert "MAP@10 at λ = 0.01 is {} [{}, {}] of that at λ = 10".format(*shown(weak, 2)) in words
    (best,) = verdicts("gravity-has-a-best-value")
    assert "{} times [{}, {}] the better end".format(*shown(best, 1)) in words
    near = {v["case"]: shown(v, 2)[0] for v in verdicts("observed-pairs-near-one")}
    assert f"observed pairs reach {near['λ = 10']} instead of 1 at λ = 10" in words
    for corpus, level in itertools.product(("enwik8", "simple-scale"), LEVELS):
        sides = ["{} [{}, {}]".format(*shown(verdict, 2)) for verdict in settling(corpus, level)]
        assert f"in {' · '.join(sides)}" in words


def settling(corpus: str, level: str) -> list[dict]:
    """Whether errors settle sooner with the smaller η, α = 0.01, left and right."""
    cases = [f"α = 0.01, {side}, {level}" for side in ("left", "right")]
    own = {v["case"]: v for v in verdicts("smaller-rate-faster-decay") if v["dataset"] == corpus}
    return [own[case] for case in cases]


def crossing() -> str:
    """From which step α = 0.001 has a smaller error than 0.01 at Simple's size; with larger batches never."""
    table = pd.read_csv(PUBLISHED / "trade_off" / "simple-scale.csv", dtype=str)
    own = table[table["smaller α"] == "0.001"].set_index(["side", "B"])["crosses at step"]
    assert (own.xs("1024", level="B") == "never").all()
    return f"from step {own['left', '128']} (left) and {own['right', '128']} (right)"


def separation(part: str) -> str:
    """How far observed and random pairs are apart."""
    table = pd.read_csv(PUBLISHED / "inner_products" / f"map_by_gravity{part}.csv", index_col="λ", dtype=str)
    table.index = table.index.astype(float)
    apart = table["observed minus random, in standard deviations"].str.partition(" ±")[0].astype(float)
    return f"{apart[10]:.1f} standard deviations apart at λ = 10, {apart[0.01]:.1f} at 0.01 and {apart[1]:.1f} at 1"


def test_the_larger_rate_settles_first_with_the_smallest_alpha():
    table = pd.concat(
        pd.read_csv(PUBLISHED / "error_at_scale" / f"error_at_scale{part}.csv", dtype=str)
        for part in ("", "-enwik8", "-simple-scale")
    )
    own = table[table["α"] == "0.001"].set_index(["η", "corpus", "side"])["settled at step"]
    steps = own["0.01"].drop(("en-scale", "left")).str.partition(" ±")[0].astype(int)
    assert own["0.01", "en-scale", "left"] == "not yet" and own["0.002"].str.startswith("not yet").all()
    assert own["0.002", "enwik8", "left"] == own["0.002", "enwik8", "right"] == "not yet in 2 of 5 seeds"
    expected = f"the larger η settles in {steps.min():,} to {steps.max():,} steps"
    assert expected in " ".join(ALL_FINDINGS.split())


def test_where_curves_cross_and_pairs_separate():
    words = " ".join(ALL_FINDINGS.split())
    assert crossing() in words and separation("-dense-adam") in words and separation("-wider-inputs") in words


def gravity_at_simple_s_size() -> str:
    table = pd.read_csv(PUBLISHED / "inner_products" / "map_by_gravity-wider-inputs.csv", dtype=str)
    maps = [
        f"{pages.number(float(row['validation MAP@10']), 4)} at λ = {row['λ']}"
        for row in table.to_dict("records")
    ]
    return f"MAP@10 is {', '.join(maps[:-1])} and {maps[-1]}"


def test_gravity_at_simple_s_size():
    words = " ".join(ALL_FINDINGS.split())
    assert gravity_at_simple_s_size() in words
    table = pd.read_csv(PUBLISHED / "inner_products" / "inner_products-wider-inputs.csv")
    table = table.set_index(["λ", "pairs"])
    observed, random, deviation = (
        [pages.number(table.loc[(weight, pairs), name], 2) for weight in (0.01, 10)]
        for pairs, name in (("observed", "mean"), ("random", "mean"), ("random", "standard deviation"))
    )
    assert (
        f"observed pairs are at {observed[0]} and random ones at {random[0]} ± {deviation[0]} (over pairs) with "
        f"λ = 0.01, and at {observed[1]} and {random[1]} ± {deviation[1]} with λ = 10"
    ) in words


def test_what_orders_the_losses():
    losses = pd.read_csv(PUBLISHED / "scaling" / "losses.csv")
    losses["loss"] = losses["loss"].str.rstrip("%").astype(float)

    def orders(frame):
        error, ratio = (
            frame["loss"].corr(frame[name], method="spearman") for name in ("Gramian error", "B/k")
        )
        return pages.number(error, 2), pages.number(-ratio, 2)

    error, ratio = orders(losses)
    words = " ".join(ALL_FINDINGS.split())
    assert f"(rank correlation {error} against {ratio})" in words
    error, ratio = orders(losses[losses["estimator"] == "sampling"])
    assert f"({ratio} against {error})" in words


def test_the_tuned_estimators_on_movielens():
    runs = pd.read_csv(PUBLISHED / "estimators" / "movielens-1m" / "final.csv")
    by_method = {name: part.sort_values("seed")["validation"] for name, part in runs.groupby("method")}
    table = ALL_FINDINGS.split("## Estimators on MovieLens 1M")[1].split("\n## ")[0]
    sampling = by_method["sampling"].to_numpy()
    for name, words in (
        ("SOGram", "SOGram"),
        ("SOGram debiased", "debiased"),
        ("SAGram β=1, per item", "SAGram per item"),
        ("exact", "exact"),
    ):
        differences = by_method[name].to_numpy() - sampling
        low, high = (pages.number(x, 4) for x in interval(tuple(differences)))
        mean = pages.number(differences.mean(), 4)
        assert f"{words} +{mean} [{low}, {high}]" in table.replace("\n  ", " ")


def test_how_many_runs_were_made_with_uncommitted_changes():
    commits = pd.read_csv(PUBLISHED / "runs.csv")["commit"].astype(str)
    assert f"as with {commits.str.endswith('+changes').sum()} runs" in pages.read("experiments/README.md")


def test_how_many_manifests_do_not_name_their_folder():
    """In the command."""
    files = pages.published_files()
    folders = [name.removesuffix("/manifest.json") for name in files if name.endswith("/manifest.json")]
    commands = [json.loads(files[f"{folder}/manifest.json"])["command"] for folder in folders]
    other = sum(folder not in command for folder, command in zip(folders, commands, strict=True))
    assert f"In {other:,} of the published runs it does not name the run's folder" in pages.read(
        "experiments/README.md"
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
    table = RANKING.split("## What ranks best")[1].split("\n## ")[0]
    shown = {int(row[1]): row for row in map(pages.cells, table.splitlines()) if row[0] == title}
    assert shown
    for width, row in shown.items():
        own = runs[runs["width"] == width]
        maps = {label: rows.set_index("seed")["map@10"] for label, rows in own.groupby("method")}
        best = max((x for x in maps if x.startswith("implicit ALS")), key=lambda label: maps[label].mean())
        ease = runs.loc[runs["method"].str.startswith("EASE"), "map@10"]
        expected = [spread(maps[best]), pages.number(ease.max(), 4) if len(ease) else ""]
        labels = ("free vectors", "towers", "towers of ids", "hidden towers", "hidden towers of ids")
        for label in (*labels, "gramrun.fit"):
            if label not in maps:
                expected.append("")
                continue
            ends = interval(tuple((maps[label] - maps[best]).dropna()))
            low, high = (f"{x:+.4f}".replace("0.", ".", 1).replace("-", "−") for x in ends)
            expected.append(f"{pages.number(maps[label].mean(), 4)} [{low}, {high}]")
        assert row[2:] == expected
    if corpus == "movielens-1m":
        start = runs[runs["method"] == "towers from a decomposition"].groupby("width")["map@10"].mean()
        assert (
            "reach {}, {} and {} at k = 35, 64 and 128".format(*(pages.number(x, 4) for x in start)) in table
        )


def test_what_the_words_on_ranking_say():
    ranking = pages.ROOT / "results" / "reference" / "ranking"
    words = " ".join(RANKING.split())

    def means(corpus: str) -> pd.Series:
        return pd.read_csv(ranking / f"runs-{corpus}.csv").groupby(["method", "width"])["map@10"].mean()

    wiki, movies = means("miwiki"), means("movielens-1m")
    als = wiki[[x for x in wiki.index if x[0].startswith("implicit ALS")]].groupby("width").max()
    gains = wiki["towers of ids"] - als
    assert f"ids on miwiki, +{pages.number(gains.min(), 3)} to +{pages.number(gains.max(), 3)}" in words
    (ahead,) = {pages.number(x, 3) for x in (movies["free vectors"] - movies["gramrun.fit"])[[35, 64]]}
    assert f"they are {ahead} ahead of `gramrun.fit` at k = 35 and 64" in words
    tries = pd.read_csv(ranking / "search" / "defaults.csv")
    defaults = (tries[["gravity", "l2", "learning_rate", "decay_from"]] == [80, 0.06, 0.1, 0.3]).all(axis=1)
    corpora = ["movielens-100k", "movielens-1m", "enwik8"]
    earlier, shipped = tries.iloc[0], tries[defaults & (tries["epochs"] == 20)].iloc[0]
    before, now = ([pages.number(x[name], 3) for name in corpora] for x in (earlier, shipped))
    assert f"have {before[0]}, {before[1]} and {before[2]}, these {now[0]}, {now[1]} and {now[2]}." in words

    def l2(corpus: str) -> float:
        search = pd.read_csv(ranking / "search" / f"{corpus}-fit-64.csv")
        return search.loc[search["map@10"].idxmax(), "train.l2"]

    dense, *small = (
        pages.number(l2(x), d)
        for x, d in zip(["movielens-1m", "movielens-100k", "enwik8"], (3, 2, 2), strict=True)
    )
    wikis = [l2(x) for x in ("miwiki", "zuwiki", "vewiki")]
    assert (
        f"search for ids: {dense} on MovieLens 1M, {small[0]} on 100K, {small[1]} on enwik8, "
        f"{pages.number(min(wikis), 2)} to {max(wikis):.1f} on the whole wikis"
    ) in words


def test_the_time_to_a_map():
    """Of the start from a decomposition, and of random tables, over implicit ALS's."""

    def times(page: str, method: str) -> list[str]:
        text = (PUBLISHED / "bench" / page).read_text(encoding="utf-8")
        return pages.line(text, f"| {method} |")

    def ratio(cell: str) -> str:
        return re.search(r"\[(.*)\]", cell)[1].removeprefix("0")

    words = " ".join(RANKING.split())
    start, left = (times("time_to_quality_start.md", x) for x in ("the same, γ = 0", "SOGram, SVD start"))
    random = times("time_to_quality.md", "sampling")
    seconds = start[4].partition(" ")[0].removeprefix("0")
    assert (
        f"after {seconds} s: {ratio(start[4])} times implicit ALS's time to .26 (median of three seeds), from random tables "
        f"{ratio(random[4])} times"
    ) in words
    assert f"It ends lower ({pages.number(float(start[7].partition(' ')[0]), 3)})." in words
    slow = sorted(float(ratio(x[5])) for x in (start, left))
    assert (
        f".26 takes {ratio(left[4])} times ALS's time; .28 takes {slow[0]:.0f} to {slow[1]:.0f} times either way"
    ) in words


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
        shown = pages.line(README, f"| {start} |")[1:]
        for corpus, cell in zip(corpora, shown, strict=True):
            runs = pd.read_csv(pages.ROOT / f"results/reference/ranking/runs-{corpus}.csv")
            means = runs[runs["width"] == 64].groupby("method")["map@10"].mean()
            best = max(value for name, value in means.items() if name.split(",")[0] == label)
            assert cell == pages.number(best, 3), (start, corpus)


def test_items_never_seen():
    runs = pd.read_csv(pages.ROOT / "results/reference/unseen/runs.csv")
    section = RANKING.split("## Items never seen")[1].split("\n## ")[0]
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
                error = f" ± {pages.number(own['map@10'].std(), 3)}" if len(own) > 1 else ""
                cells_of.append(
                    f"{pages.number(own['map@10'].mean(), 3)}{error}, {pages.number(own['recall@100'].mean(), 3)}"
                )
            assert pages.line(table, f"| {method} |")[1:] == cells_of, (new, method)
        for corpus, among in columns:
            own = runs[(runs[["corpus", "new", "among"]] == [corpus, new, among]).all(axis=1)]
            maps = own.pivot(index="seed", columns="method", values="map@10")
            gain = maps["towers, half of the ids dropped"] - maps["towers, ids never dropped"]
            ends = interval(tuple(gain.dropna()))
            gains[new, corpus, among] = "{} [{}, {}]".format(
                *(pages.number(x, 4) for x in (gain.mean(), *ends))
            )
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
        [
            pages.number(maps[(*place, name)], 3)
            for name in ("towers, half of the ids dropped", "TF-IDF neighbours")
        ]
        for place in (("enwik8", "all"), ("movielens-1m", "all"), ("movielens-1m", "unseen"))
    )
    words = " ".join(README.split())
    assert f"MAP@10 {wiki[0]} on enwik8, TF-IDF neighbours {wiki[1]}" in words
    assert f"MovieLens 1M {movies[0]}, TF-IDF neighbours {movies[1]} (among new" in words
    assert f"alone {new[0]} and {new[1]})" in words
    gains = [
        pages.number(maps[corpus, "all", f"towers, {name}"], 3)
        for corpus in corpora[:2] for name in ("ids never dropped", "half of the ids dropped")
    ]  # fmt: skip
    assert "from {} to {} on MovieLens 1M and from {} to {} on enwik8".format(*gains) in " ".join(
        pages.read("docs/python.md").split()
    )


def test_where_the_expansion_of_enwik8_agrees_with_it():
    """The table of realism.md: within 25 % of the base, or not."""
    frame = pd.read_csv(REALISM / "realism.csv").set_index("corpus")
    derived = {
        "links in, 99 % quantile / median": frame["in 0.99"] / frame["in 0.5"],
        "links out, 99 % quantile / median": frame["out 0.99"] / frame["out 0.5"],
        "reciprocity": frame["reciprocity"],
        "decay of the spectrum": frame["decay"],
        "effective rank": frame["effective rank"],
        "transitivity": frame["transitivity"],
        "share of the most linked page": frame["top share"],
        "exact ALS / popularity": frame["exact ALS"] / frame["popularity"],
        "implicit ALS / exact ALS": frame["implicit ALS"] / frame["exact ALS"],
    }
    page = pages.read("results/reference/realism/realism.md")
    wikis = ["enwik8", "miwiki", "vewiki", "zuwiki"]
    assert (frame.loc[wikis, "implicit ALS"] > frame.loc[wikis, "exact ALS"]).all()
    for name, values in derived.items():
        *_, row = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        base, expansion, within, larger = (cell.strip() for cell in row.strip("|").split("|")[1:])
        french, _, french_within = larger.partition(", ")
        verdicts_ = {"simple-scale": within, "fr-scale": french_within}
        assert (french == "–") == np.isnan(values["fr-scale"])
        for corpus, shown in (("enwik8", base), ("simple-scale", expansion), ("fr-scale", french)):
            if shown == "–":
                continue
            digits = len(shown.partition(".")[2])
            assert float(shown) == pytest.approx(values[corpus], abs=0.51 * 10**-digits)
            near = "yes" if 0.75 <= values[corpus] / values["enwik8"] <= 1.25 else "no"
            assert verdicts_.get(corpus, "yes").startswith(near)
