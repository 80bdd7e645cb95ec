"""Findings on planted topics, costs and linear towers, derived again from the studies' published tables."""

import json
import re

import numpy as np
import pages
import pandas as pd
import pytest
import yaml

PUBLISHED = pages.ROOT / "results" / "reference"
WORDS = " ".join(pages.read("docs/findings.md").split())
MOVIES = "movielens-1m/RESULTS.md"


def reported(path: str, heading: str = "") -> dict[str, list[str]]:
    """The rows of the tables under a heading of a published page, by their first cells."""
    text = (PUBLISHED / path).read_text(encoding="utf-8")
    own = text.partition(heading)[2] if heading else text
    lines = own.partition("\n#")[0].splitlines()
    rows = [
        x[1:-1].split("|")
        for x, rule in zip(lines, [*lines[1:], ""], strict=True)
        if x[:2] == "| " and rule[:4] != "|---"
    ]
    return {first.strip(): [x.strip() for x in rest] for first, *rest in rows}


def shown(cell: str, digits: int = 3) -> str:
    """ "0.0232 ± 0.0015" as ".023"."""
    return pages.number(abs(float(cell.split(" ")[0])), digits)


def spread(cell: str) -> str:
    """ "0.2742 ± 0.0014" as ".2742 ± .0014"."""
    return cell.replace("0.", ".")


def dotted(cells) -> str:
    return " · ".join(cells)


# Estimators on MovieLens 1M and enwik8

ALPHAS = ("0.1", "0.01")
MOVIE_ROWS = {  # what the tables of errors, of epochs, of tuned and of equal settings call a row of the page
    "batch sampling": (["sampling (paper)"], ["sampling"], "sampling", ["sampling"]),
    "SOGram (the paper's), α = 0.1 · 0.01": (
        [f"SOGram α={x} (paper)" for x in ALPHAS], [f"SOGram α={x}" for x in ALPHAS], "SOGram", [],
    ),
    "SOGram debiased, α = 0.1 · 0.01": (
        [f"SOGram, debiased α={x}" for x in ALPHAS], [f"SOGram α={x}, debiased" for x in ALPHAS],
        "SOGram debiased", [f"SOGram debiased, α={x}" for x in ALPHAS],
    ),
    "… on the reused gradient batch, α = 0.1": (
        ["SOGram, debiased, free batch α=0.1"], ["SOGram α=0.1, debiased, previous batch"],
        "SOGram debiased, free batch", [],
    ),
    "control variate, α = 0.1 · 0.01": (
        [f"control variate, decaying α={x}" for x in ALPHAS], [f"control variate α={x}" for x in ALPHAS],
        "control variate", ["control variate, α=0.1"],
    ),
    "SAGram β = 1, a cache per pair (the paper's)": (["SAGram β=1, per pair (paper)"], [], "", []),
    "SAGram β = 1, a cache per item": (
        ["SAGram β=1, per item"], ["SAGram β=1, per item"], "SAGram β=1, per item", ["SAGram β=1, per item"],
    ),
    "exact Gramian at every step": ([], ["exact Gramian"], "exact", ["exact"]),
}  # fmt: skip


def movie_row(title: str) -> str:
    wrong, slow, tuned, equal = MOVIE_ROWS[title]
    errors = reported(f"estimator_error/{MOVIES}", "## B = 1024")
    epochs = reported("known_optimum/learning-rate-0.3.md", "### γ = 0, λ = 10, B = 64")
    search, same = reported(f"estimators/{MOVIES}"), reported(f"comparisons/same_settings/{MOVIES}")
    digits = 4 if "per item" in title else 3
    own = spread(search[tuned][4]) if tuned else ""
    alpha = f" (α = {search[tuned][2]})" if tuned and search[tuned][2] else ""
    one = f" ({equal[0].rpartition(', ')[2].replace('=', ' = ')})" if equal and "control" in title else ""
    columns = [
        dotted(shown(errors[x][0], digits) for x in wrong) or "0",
        dotted(f"{float(epochs[x][0].split(' ')[0]):.0f}" for x in slow),
        own + alpha,
        dotted(spread(same[x][0]) for x in equal) + one,
    ]
    return " ".join(f"| {title} | {' | '.join(columns)} |".split())


@pytest.mark.parametrize("title", MOVIE_ROWS)
def test_a_row_on_movielens(title):
    assert movie_row(title) in WORDS


def test_smaller_gramian_batches_on_movielens():
    minus = {key: row[1] for key, row in reported(f"comparisons/gramian_batch/{MOVIES}").items()}
    sampling, sogram, sagram = (
        [shown(minus[f"{name}, B={size}"]) for size in sizes]
        for name, sizes in (
            ("sampling", (32, 8, 2)),
            ("SOGram α=0.1 debiased", (8, 2)),
            ("SAGram β=1 per item", (2,)),
        )
    )
    assert (
        f"sampling loses {sampling[0]}, {sampling[1]} and {sampling[2]} to the exact Gramian; SOGram (α = 0.1) "
        f"{sogram[0]} and {sogram[1]} at 8 and 2; SAGram per item nothing at 8 and {sagram[0]} at 2" in WORDS
    )
    low, high = (float(x) for x in minus["SAGram β=1 per item, B=8"].split(" ± "))
    assert abs(low) < high
    equal = reported(f"comparisons/same_settings/{MOVIES}")["sampling"][1]
    assert f"sampling ranks like the exact Gramian: {equal.replace('0.', '.')} (half width" in WORDS
    weights = {key: float(row[0]) for key, row in reported(f"estimators/{MOVIES}").items()}
    assert (
        f"gave sampling λ = {weights['sampling']:.0f}, and SAGram per item and the exact Gramian λ = {weights['exact']:.0f}"
        in WORDS
    )
    assert weights["exact"] == weights["SAGram β=1, per item"]


def test_estimators_on_enwik8():
    maps = pd.read_csv(PUBLISHED / "estimator_comparison" / "enwik8.csv", index_col="method")[
        "validation MAP@10"
    ]
    errors = pd.read_csv(PUBLISHED / "gramian_error" / "enwik8.csv", index_col="estimator")["right, B = 1024"]
    sagram = dotted(shown(errors[f"SAGram β=1, per {x}"]) for x in ("item", "pair"))
    for title, name, note, error in (
        ("batch sampling", "sampling", "", shown(errors["sampling"])),
        ("SOGram, α = 0.1", "SOGram debiased α=0.1", " (debiased)", shown(errors["SOGram α=0.1"])),
        ("SOGram, α = 0.01", "SOGram debiased α=0.01", " (debiased)", shown(errors["SOGram α=0.01"])),
        ("SAGram β = 1", "SAGram β=1, per item", " (per item)", f"{sagram} (per item, per pair)"),
        ("exact Gramian", "exact Gramian", "", "0"),
    ):
        assert f"| {title} | {spread(maps[name])}{note} | {error} |" in WORDS
    hidden = shown(maps["hidden towers with SOGram debiased α=0.1"], 4)
    assert f"`hidden-sogram` (hidden towers, λ = 30) ends at {hidden}" in WORDS


def test_baselines():
    plain = re.sub(r"\[|\]\([^)]*\)", "", WORDS)  # without links
    page = (PUBLISHED / "baselines" / "ease.md").read_text(encoding="utf-8")

    def found(corpus: str, digits: int) -> list[str]:
        rows = reported(f"baselines/{corpus}/RESULTS.md")
        mean, deviation = (
            pages.number(float(x), digits) for x in rows["implicit ALS, tuned"][0].split(" ± ")
        )
        ease = re.search(rf"\| {corpus} \| \d+ \| (\.\d+)", page)[1]
        return [shown(rows["popularity"][0]), mean, deviation, pages.number(float(ease), digits)]

    popular, mean, deviation, ease = found("enwik8", 4)
    free = spread(reported("baselines/enwik8/RESULTS.md")["exact ALS, γ = 0, λ = 30"][0])
    assert (
        f"Popularity ranks at {popular}, tuned `implicit` ALS at {mean} ± {deviation}, exact ALS at {free} (baselines), "
        f"EASE at {ease} (EASE)" in plain
    )
    popular, mean, deviation, ease = found("movielens-1m", 3)
    other = pages.number(float(re.search(r"\| movielens-100k \| \d+ \| (\.\d+)", page)[1]), 3)
    free = shown(reported(f"baselines/{MOVIES}")["exact ALS, γ = 0, λ = 30"][0])
    assert (
        f"Popularity ranks at {popular}, exact ALS on the same objective at {free} (free vectors, no genres), tuned "
        f"`implicit` ALS at {mean} ± {deviation}, also with k = 35 (baselines), EASE at {ease} (EASE; {other} on 100K)"
        in plain
    )


# Other findings


def test_gravity_over_items():
    als = {key: shown(row[0]) for key, row in reported(f"baselines/{MOVIES}").items()}
    towers = {key: shown(row[0]) for key, row in reported(f"comparisons/objectives/{MOVIES}").items()}
    one, free, left = (
        als[f"exact ALS, {x}"] for x in ("γ = 1 and λ = 1 (the paper's)", "γ = 0, λ = 30", "γ left = 1, right = 0, λ = 30")
    )  # fmt: skip
    assert f"reaches {one} with γ = 1 and λ = 1, {free} with γ = 0 and {left} with γ = 1 for users" in WORDS
    one, free, left = (
        towers[f"gravity, {x}"] for x in ("γ = 1 (the paper), λ = 1", "γ = 0", "γ left = 1, right = 0")
    )
    assert f"two towers {one}, {free} and {left} (" in WORDS
    readme = " ".join(pages.read("README.md").split())
    assert (
        f"on both sides that raises linear towers on MovieLens 1M from {one} (λ = 1) to {free} (λ = 30)"
        in readme
    )


def test_the_cost_of_an_estimator():
    def ratio(heading: str, name: str) -> float:
        return float(reported("bench/estimator_cost.md", f"### {heading},")[name][1].split(" ")[0])

    pages_, linear = ((ratio(x, "SAGram β=1, per item") - 1) * 100 for x in ("pages", "linear"))
    step = reported("bench/estimator_cost.md", "### linear,")["sampling"][0].split(" ")[0]
    assert (
        f"{pages_:.0f} % more time per step than sampling with the paper's towers over 85,000 pages" in WORDS
    )
    assert (
        f"({linear:.0f} % with linear towers on MovieLens, whose whole step takes {float(step):.1f} ms)"
        in WORDS
    )
    saved = [1 - ratio(x, "SOGram, debiased, previous batch") for x in ("linear", "hidden", "pages")]
    assert "saves a tenth to a seventh of the step" in WORDS
    assert [round(f(saved), 2) for f in (min, max)] == [0.09, 0.15]
    cost = pd.read_csv(PUBLISHED / "gravity_cost" / "cost.csv", dtype=str).set_index(["k", "B"])["ratio"]
    near, middle, large = (float(cost["64", x].split(" ")[0]) for x in ("256", "1,024", "4,096"))
    assert f"at k = 64 {near:.1f} at B = 256, {middle:.0f} at 1,024 and {large:.0f} at 4,096" in WORDS
    assert float(cost["64", "64"].split(" ")[0]) < 1


def test_the_time_of_a_step_of_adam():
    def times(name: str) -> list[float]:
        tables = (reported("bench/adam_step.md", f"### {x} threads,") for x in (1, 2))
        return sorted(float(table[name][1].split(" ")[0]) for table in tables)

    (sparse,) = {f"{1 / x:.1f}" for x in times("compiled, sparse Adam")}
    static, plain = (times(f"{engine}, Adam") for engine in ("static", "plain"))
    assert (
        f"takes {sparse} times as long as under sparse Adam; `static` takes {static[0]:.1f} to {static[1]:.1f} times "
        f"and `plain` {plain[0]:.0f} to {plain[1]:.0f} times as long as the compiled engine"
    ) in " ".join(pages.read("docs/how-to.md").split())


STEPS = {
    "bare matrix products": "bare products",
    "`compiled`": "compiled",
    "… with `estimator.batch: previous`": "compiled, previous batch",
    "… with `model.products: bfloat16` (AVX512-BF16)": "compiled, bfloat16",
    "plain PyTorch: EmbeddingBag(sparse), autograd, Adagrad": "plain PyTorch",
}
HOW_TO = pages.read("docs/how-to.md")


@pytest.mark.parametrize(("title", "name"), STEPS.items())
def test_the_time_of_a_step(title, name):
    rows = [reported("bench/step_time.md", f"### pages, {x} threads,")[name] for x in (1, 2)]
    cells = []
    for time, ratio, _ in rows:
        cells.append(f"{float(time.split(' ')[0]):.1f}")
        if name != "bare products":
            cells[-1] += f" ({ratio.split(' ')[0]})"
    assert pages.line(HOW_TO, f"| {title} |")[1:] == cells


def test_what_the_words_on_speed_say():
    words = " ".join(HOW_TO.split())
    growth = reported("bench/growth.md", "### corpora")
    larger = [growth[x][1].split(" ")[0] for x in ("1.8M", "5.3M")]
    assert "a step takes {} and {} times as long as at 85,000".format(*larger) in words
    predicted = [float(cells[-1]) for cells in growth.values()]
    assert "(3 % on up to 5.3 million pages" in words and max(abs(x - 1) for x in predicted) < 0.035
    products = reported("comparisons/products/enwik8/RESULTS.md")
    gain, plain = products["bfloat16"][4], products["float32"][3]
    assert f"ranks like float32: {spread(gain)} of MAP@10 {shown(plain)} with hidden towers" in words
    with_l2 = reported("bench/step_time_l2.md", "### pages, 1 threads,")["compiled, L2"][-1]
    mean, low, high = re.findall(r"[\d.]+", with_l2)
    assert f"takes {mean} times ({low.removeprefix('0')} to {high}) one without" in " ".join(
        pages.read("docs/mathematics.md").split()
    )


def test_the_time_to_prepare():
    page = pages.read("data/README.md")
    text = (PUBLISHED / "bench" / "prepare_speed.md").read_text(encoding="utf-8")
    for wiki, links in (("simple-scale", "4.6 million"), ("fr-scale", "142 million")):
        for year in ("2016", "2026"):
            _, _, _, _, _, seconds, ratio, *_, memory = pages.line(text, f"| {wiki} | {year} |")
            digits = 1 if float(seconds) < 10 else 0
            memory = f"{float(memory):.{1 if float(memory) > 1 else 2}f}"
            expected = [f"{float(seconds):.{digits}f}", ratio.split(" ")[0], memory]
            assert pages.line(page, f"| {links} | {year} |")[2:] == expected


def test_caches_per_item():
    errors = {size: reported(f"estimator_error/{MOVIES}", f"## B = {size}") for size in (1024, 4)}
    report = (PUBLISHED / "estimator_error" / MOVIES).read_text(encoding="utf-8")
    below = re.findall(
        r"Below every method of the paper at every measured step after the first, (.*)", report
    )
    assert len(below) == 2 and "SAGram β=1, per item," in below[0]
    rows = {name: [float(x.split(" ")[0]) for x in row[::2]] for name, row in errors[4].items()}
    best = np.min([row for name, row in rows.items() if "(paper)" in name], axis=0)
    right, left = (pages.number(x, 2) for x in rows["SOGram + SAGA caches, decaying α=0.01"] / best)
    assert f"has {right} and {left} times the error of the paper's best (right and left side)" in WORDS


def test_hidden_towers_on_movielens():
    maps = pd.read_csv(PUBLISHED / "estimator_comparison" / "movielens-1m.csv", index_col="method")[
        "validation MAP@10"
    ]
    hidden = shown(maps["hidden towers with SOGram debiased α=0.1"])
    assert f"Hidden towers reach {hidden} at λ = 10 on 1M" in WORDS


def test_the_dense_learning_rate():
    maps = {
        rate: float(row[0].split(" ")[0])
        for rate, row in reported("dense_learning_rate/movielens-1m.md").items()
    }
    assert f"at a tenth they lose {100 * (1 - maps['0.005'] / maps['0.0005']):.0f} %" in WORDS


def test_the_zero_start():
    rows = reported(f"comparisons/zero_start/{MOVIES}")
    lost, *others = (
        rows[f"SOGram α=0.01{x}"][3].lstrip("-").replace("0.", ".") for x in ("", ", debiased", ", decaying", ", exact start")
    )  # fmt: skip
    mean, deviation = (pages.number(float(x), 3) for x in lost.split(" ± "))
    low, high = (pages.number(f([float(x.split(" ")[0]) for x in others]), 3) for f in (min, max))
    assert f"lose {mean} ± {deviation} of {shown(rows['sampling'][2])} with α = 0.01" in WORDS
    assert f"and {low} to {high} with a debiased, decaying or exact start" in WORDS


# Planted topics


def test_planted_topics():
    losses = pd.read_csv(PUBLISHED / "scaling" / "losses.csv")
    losses["loss"] = losses["loss"].str.rstrip("%").astype(float)
    tenth, hundredth = (
        losses.loc[(losses["B/k"] >= 0.25) & (losses["estimator"] == f"SOGram α={x}"), "loss"].max()
        for x in ALPHAS
    )
    assert f"at most {hundredth:.1f} % with α = 0.01 and {tenth:.1f} % with α = 0.1 at B ≥ k/4" in WORDS
    own = losses[(losses["estimator"] == "sampling") & (losses["k"] == 16) & (losses["B"] == 4)]
    loss = own.set_index(["items", "epochs"])["loss"]
    assert "Ten times the epochs halve sampling's loss at B = k/4" in WORDS
    assert loss[10_000, 10] / loss[10_000, 100] == pytest.approx(2, rel=0.2)
    assert "a corpus a hundred times as large quadruples it" in WORDS
    assert loss[1_000_000, 1] / loss[10_000, 100] == pytest.approx(4, rel=0.2)
    share = pd.read_csv(PUBLISHED / "scaling" / "references.csv").set_index(["items", "epochs", "k"])[
        "share of it"
    ]
    small, large = (f"{float(share[x].rstrip('%')):.0f} %" for x in ((10_000, 100, 16), (1_000_000, 1, 16)))
    assert (
        f"come to {small} of the planted optimum on 10,000 items (of all items as candidates) and {large} on a million"
        in WORDS
    )


# Seconds of a step


def test_runs_that_share_a_gpu():
    """Milliseconds a step of the 80 epochs of dense Adam on the titles, which ran under MPS."""
    found = {"sagram": [], "others": []}
    for path, content in pages.published_files().items():
        if not re.match(r"results/runs/enwik8-titles/.*/config.yaml", path):
            continue
        config = yaml.safe_load(content)
        if config.get("device") == "cuda" and config["train"]["epochs"] == 80:
            metrics = pages.published_files()[path.replace("config.yaml", "metrics.jsonl")]
            last = json.loads(metrics.decode().splitlines()[-1])
            name = "sagram" if config["estimator"]["name"] == "sagram" else "others"
            found[name].append(1000 * last["train_seconds"] / last["step"])
    assert len(found["sagram"]) == 10 and len(found["others"]) == 30
    sagram, others = (f"{min(found[x]):.1f} to {max(found[x]):.1f}" for x in ("sagram", "others"))
    page = " ".join(pages.read("docs/how-to.md").split())
    assert f"took {others} ms a step and SAGram {sagram} " in page


def test_the_cost_of_a_step():
    """Of the training alone, from the logs of the published runs."""

    def last(run: str) -> dict[str, float]:
        file = pages.published_files()[f"results/runs/{run}-seed0/metrics.jsonl"]
        return json.loads(file.decode().splitlines()[-1])

    simple, french, sagram, english = map(
        last,
        (
            "simple-scale/paper-sampling-products-bfloat16-table-scale-0.1",
            "fr-scale/paper-sampling-products-bfloat16",
            "fr-scale/paper-sagram-products-bfloat16-cache-item",
            "en-scale/paper-sampling",
        ),
    )
    steps = [f"{1000 * x['train_seconds'] / x['step']:.0f} ms" for x in (simple, french, sagram, english)]
    epochs = np.array([x["train_seconds"] / x["epoch"] for x in (simple, french, english)]) / [60, 3600, 3600]
    assert f"a step takes {steps[0]} at Simple's size (an epoch half a minute" in WORDS
    assert (
        f"and {steps[1]} at French Wikipedia's (half an hour" in WORDS
        and f"{steps[2]} with SAGram per item" in WORDS
    )
    assert f"{steps[3]} at English Wikipedia's (eleven hours" in WORDS
    assert epochs == pytest.approx([0.5, 0.5, 11], rel=0.1)
