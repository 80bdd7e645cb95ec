"""Numbers of the prose in their sentences: README's answer, and findings on when a better Gramian ranks better.

Each is derived from the published tables and runs and looked for with the words around it. The last tests find what
no statement has: a lift with its interval, a percentage with a decimal, a MAP@10 of four digits, a pair of errors.
"""

import json
import re
from collections.abc import Iterable

import numpy as np
import pages
import pandas as pd
import pytest
from scipy import stats
from test_findings import (
    BF16,
    DRAWS,
    EXACT,
    REFERENCE,
    REPLICATION,
    ROWS,
    SAMPLING,
    SECTION,
    SGD_AT_K,
    SGD_RUNS,
    SOGRAM,
    SPARSE_RUNS,
    SPARSE_WIDER,
    SPLITS,
    SUMS,
    TITLES,
    WIDER,
    WIKIS,
    WORDS,
    added,
    answers,
    at_a_constant_rate,
    at_k_rows,
    at_the_best_point,
    between,
    between_alphas,
    cell,
    final_map,
    length_table,
    lengths,
    lift,
    log_lifts,
    map_of,
    metrics,
    nearest,
    optimum,
    over,
    percent,
    seeds,
    sgd_exact,
    sgd_lift,
    sgd_ratios,
    share_of,
    spreads,
    table,
    titles,
    titles_runs,
    training,
    under_adagrad,
    welch,
    with_interval,
    within_splits,
    without_momentum,
)

from experiments.report.claims import CLAIMS
from experiments.report.sections import geometric

ITEM, HUNDREDTH, LEAST = "SAGram per item", "SOGram α=0.01", "SOGram α=0.001"
SPARSE, DENSE_ADAM, SGD = "enwik8, sparse Adam", "enwik8, Adam", "enwik8, SGD, 1,920 epochs"
LONG, TITLES_SGD = "enwik8, titles, Adam, 80 epochs", "enwik8, titles, SGD, 320 epochs"
LONGER, TITLES_SPARSE = "enwik8, titles, Adam, 160 epochs", "enwik8, titles, sparse Adam, 80 epochs"
WIDE, ADAGRAD_TITLES, MIWIKI = (
    "simple-scale, inputs of 256, Adagrad",
    "enwik8, titles, Adagrad, 40 epochs",
    "miwiki, sparse Adam",
)
SECOND_SPLIT = "enwik8-titles-split1-smaller-start"
SMALL_START, TITLES_SMALL = "enwik8, Adagrad, smaller start", "enwik8, titles, Adagrad, smaller start"
WIDE_SMALL = "simple-scale, inputs of 256, Adagrad, smaller start"
TWICE_SGD = "enwik8-sgd-twice-its-plateau"
TWICE_SGD_RUN = (  # with α = 0.001
    "enwik8/paper-sogram-products-bfloat16-every-60-epochs-optimizer-sgd-learning-rate-3.58"
    "-dense-learning-rate-0.0155-epochs-3840-a-37ac697a"
)
START, NO_MOMENTUM = "enwik8, sparse Adam, smaller start", "enwik8, sparse Adam without momentum"


def of(title: str, estimator: str, batch: str = "1024", column: str = "lift [95 %]") -> str:
    return percent(cell(title, batch, estimator, column))


def mean(title: str, estimator: str = SOGRAM, batch: str = "1024") -> str:
    """A lift without its interval."""
    return of(title, estimator, batch).partition(" [")[0]


def same(values: Iterable[str]) -> str:
    """The value that all of them have."""
    (value,) = {*values}
    return value


def lost(title: str, estimator: str = SOGRAM, batch: str = "1024") -> str:
    """A loss in whole per cent."""
    return f"{-float(cell(title, batch, estimator).partition('%')[0]):.0f}"


def maps(title: str, estimator: str = SAMPLING, batch: str = "1024") -> str:
    return pages.number(map_of(cell(title, batch, estimator, "MAP@10")), 4)


def share(title: str, estimator: str = SAMPLING, batch: str = "1024") -> str:
    return share_of(cell(title, batch, estimator, "of exact ALS"))


def error(title: str, estimator: str, batch: str = "1024") -> str:
    values = map(float, cell(title, batch, estimator, "error of Ĝ").split(" · "))
    return " and ".join(pages.number(value, 2) for value in values)


def rank(title: str, estimator: str, batch: str = "1024") -> str:
    return cell(title, batch, estimator, "effective rank").replace(" · ", " and ")


def rise(title: str, estimator: str, batch: str = "1024") -> str:
    return cell(title, batch, estimator, "rise in the last tenth").partition("%")[0].lstrip("+")


def steady(title: str, estimator: str, batch: str = "1024") -> str:
    return of(title, estimator, batch, "at a constant η")


def bare(text: str) -> str:
    """As README writes a lift: "+2.5 % [−1.5, +3.5]" as "2.5 % [−1.5, 3.5]"."""
    return text.replace("+", "")


def logs(*runs: str, **part: int) -> str:
    return lift(np.exp(log_lifts(*runs, **part)))


def splits(corpora: tuple[str, ...], own: str, base: str) -> str:
    return lift(np.exp(over(corpora, f"paper-{own}", f"paper-{base}")))


def losses_under_adam() -> list[float]:
    """What SOGram with α = 0.1 loses at B = 16·k under Adam with momentum in trained towers, in each table."""
    return [
        -float(found["lift [95 %]"].partition("%")[0])
        for file in sorted((REFERENCE / "factorial").glob("*.csv"))
        for (optimizer, *others), found in table(file.stem).iterrows()
        if others == ["1024", SOGRAM]
        and found["trained"] == "yes"
        and re.fullmatch(r".*Adam(?!.*momentum).*", optimizer)
    ]


def shares_of_splits() -> tuple[float, float]:
    """What SAGram per item reaches of exact ALS on the second and third splits of enwik8 and the titles."""
    names = [*(f"{x}-dense-adam" for x in SPLITS[1:]), *TITLES[1:]]
    own = [float(share_of(row(name, ITEM)["of exact ALS"])) for name in names]
    return min(own), max(own)


def losses_on_splits() -> tuple[float, float]:
    """The least and the greatest loss of SOGram with α = 0.01 and 0.001 on enwik8's splits, under Adam."""
    own = [
        -float(lost.partition("%")[0])
        for corpus in SPLITS
        for part in ("", "-dense-adam")
        for lost in final_map(f"{corpus}{part}").loc[[HUNDREDTH, LEAST], "lift over sampling [95 %]"]
    ]
    return min(own), max(own)


def both_machines() -> str:
    """SOGram's lift under SGD with α = 0.1, averaged by seed over a CPU and a GPU."""
    own = seeds(SGD_RUNS["SOGram, α = 0.1"]) / seeds(SGD_RUNS["sampling"])
    return lift((sgd_ratios(SOGRAM, 1890) * own) ** 0.5)


def twice(longer: str, shorter: str, count: int) -> str:
    """What a longer training adds to the mean of the first seeds, in per cent."""
    return f"{100 * (seeds(longer, count).mean() / seeds(shorter, count).mean() - 1):.1f}"


def seed_of_least_rank() -> tuple[str, float]:
    """Its effective ranks at Simple's size with inputs of 256, and how far its MAP@10 is below the mean, in per cent."""
    ranks, maps = seeds(WIDE_RUNS[1], key="effective_rank"), seeds(WIDE_RUNS[1])
    least = ranks.min(axis=1).argmin()
    return "{:.0f} and {:.0f}".format(*ranks[least]), 100 * (1 - maps[least] / maps.mean())


def on_training(name: str, estimator: str) -> str:
    """MAP@10 of the training pairs."""
    return pages.number(map_of(final_map(name).loc[estimator, "training MAP@10"]), 3)


def speed_up() -> str:
    """The least and the greatest of SOGram's seeds at Simple's size with inputs of 256, in steps."""
    file = REFERENCE / "map_curves" / f"speed-ups-{WIDE_TABLE}.csv"
    return pd.read_csv(file).set_index("method").loc[SOGRAM, "in steps"]


def by_left_items(title: str, estimator: str) -> str:
    return percent(f"{cell(title, '1024', estimator)} {cell(title, '1024', estimator, 'by left items')}")


def in_shorter_trainings() -> tuple[str, str]:
    """In how many cases a smaller α loses more with half the epochs on enwik8, of how many."""
    worse = [
        float(cell(f"enwik8, {short}", batch, alpha).partition("%")[0])
        < float(cell(f"enwik8, {whole}", batch, alpha).partition("%")[0])
        for short, whole in (
            ("Adam, 30 epochs", "Adam"), ("sparse Adam, 30 epochs", "sparse Adam"), ("Adagrad, 30 epochs", "Adagrad"),
        )
        for batch in ("64", "1024")
        for alpha in (HUNDREDTH, LEAST)
    ]  # fmt: skip
    words = {10: "ten", 12: "twelve"}
    return words[sum(worse)], words[len(worse)]


def p_of_wiki() -> str:
    """Of SOGram's gain over the three splits of miwiki, by the noise of seeds."""
    own = [log_lifts(f"{x}/paper-sogram{SUMS}-al-f78fc62f", f"{x}/paper-sampling{SUMS}") for x in WIKIS]
    middle, error, freedom = welch([own])
    return pages.number(2 * stats.t.sf(abs(middle) / error, freedom), 3)


def five_losses() -> tuple[float, float]:
    """The least and the greatest loss of SOGram where κ is above .4."""
    own = [
        -float(found.partition(" ")[0].replace("−", "-"))
        for kappa, found in answers().values()
        if kappa.max() > 0.4
    ]
    return min(own), max(own)


WIDE_TABLE = "simple-scale-wider-inputs"
WIDE_RUNS = f"simple-scale/paper-sogram{WIDER}-alpha-0.1", f"simple-scale/paper-sampling{WIDER}"
SIMPLE_RUNS = f"simple-scale/paper-sogram{BF16}-alpha-0.1", f"simple-scale/paper-sampling{BF16}"
FRENCH = pd.read_csv(REFERENCE / "gpu" / "french_runs.csv").pivot(index="estimator", columns="seed")


def row(name: str, estimator: str, batch: str = "1024", optimizer: str = ".*") -> pd.Series:
    """The one row of a table of results/reference/factorial."""
    own = table(name).xs((batch, estimator), level=("B", "estimator"))
    (found,) = (x for x in own.index if re.fullmatch(optimizer, x))
    return own.loc[found]


def of_row(name: str, estimator: str, **where: str) -> str:
    """A lift, with the interval over left items where there is one seed."""
    own = row(name, estimator, **where)
    ends = "" if "[" in own["lift [95 %]"] else f" {own['by left items']}"
    return percent(own["lift [95 %]"] + ends)


def error_of_row(name: str, estimator: str) -> str:
    values = map(float, row(name, estimator)["error of Ĝ"].split(" · "))
    return " and ".join(pages.number(value, 2) for value in values)


def map_of_row(name: str, estimator: str = SAMPLING, **where: str) -> str:
    return pages.number(map_of(row(name, estimator, **where)["MAP@10"]), 4)


def at_the_end(run: str, seed: int = 0) -> str:
    return pages.number(metrics(f"simple-scale/{run}", seed)[-1]["map@10"], 4)


def twice_sgd_errors() -> list[str]:
    """Of Ĝ with α = 0.001 on the left, halfway through 3,840 epochs of SGD and at their end."""
    rows = {round(row["epoch"]): row for row in metrics(TWICE_SGD_RUN)}
    return [pages.number(rows[epoch]["gramian_error_left"], 2) for epoch in (1920, 3840)]


def tried(estimator: str) -> str:
    """MAP@10 at Simple's size after six epochs at 1.6 η, on a tuning split."""
    frame = pd.read_csv(REFERENCE / "training" / "simple-scale-estimators.csv")
    (found,) = frame[(frame["estimator"] == estimator) & (frame["learning_rate"] == 0.156)]["6"]
    return pages.number(found, 4)


def french(split: str, seed: int, estimator: str = SOGRAM) -> float:
    own = FRENCH[f"{split}_map@10"][seed]
    return own[estimator] / own[SAMPLING]


def percents(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")


def signless(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):.1f}"


def popularity(run: str) -> float:
    content = pages.published_files()[f"results/runs/{run}-seed0/evaluation.json"]
    return json.loads(content)["validation"]["popularity"]["map@10"]


def french_shares() -> list[str]:
    """The shares of exact ALS of SOGram's and sampling's towers at French Wikipedia's size with inputs of 256."""
    own = FRENCH["validation_map@10"].dropna(axis=1, how="all").loc[[SAMPLING, SOGRAM]].to_numpy() / optimum(
        "fr-scale"
    )
    return [f"{100 * x:.0f}" for x in (own.min(), own.max())]


def best_on_the_wiki() -> str:
    """The highest point of sampling's curves on miwiki under Adagrad, the mean over seeds."""
    best = []
    for seed in range(5):
        rows = [x for x in metrics(f"miwiki/paper-sampling{SUMS}", seed) if "map@10" in x]
        best.append(max(x["map@10"] for x in rows))
    return pages.number(np.mean(best), 4)


SAGA = "SOGram α=0.1 of SAGA estimates"
TITLES_SGD_RUNS = {key[2:]: run for key, run in titles_runs().items() if key[:2] == ("sgd", 320)}
SPREADS = [text.replace("0.", ".", 1) if text.startswith("0.") else text for text in spreads()]
HALF = "miwiki, k = 32, Adagrad"
HALF_RUNS = (  # the start of names that end in a hash
    "-embedding-dim-32-optimizer-adagrad-initial-accumulator-0.1-reduction-sum-learning-rate-0.0975-dense-learn"
)


def als_rank(k: int) -> str:
    """Effective ranks of exact ALS on miwiki, the mean over seeds."""
    run = f"exact-als-embedding-dim-{k}-gravity-10.0-gamma-left-1.0-gamma-right-1.0-target-one"
    return " and ".join(f"{x:.0f}" for x in seeds(f"miwiki/{run}", key="effective_rank").mean(0))


WIKI_SOGRAM, WIKI_HUNDREDTH = (
    splits(WIKIS, f"sogram{SUMS}-al-{end}", f"sampling{SUMS}") for end in ("f78fc62f", "52d03c8d")
)
TITLES_SOGRAM, TITLES_HUNDREDTH, TITLES_LEAST = (
    splits(TITLES, f"sogram{BF16}-alpha-{alpha}", f"sampling{BF16}") for alpha in ("0.1", "0.01", "0.001")
)
WIDE_SOGRAM, WIDE_ITEM = (
    splits(DRAWS, f"{name}", f"sampling{WIDER}")
    for name in (f"sogram{WIDER}-alpha-0.1", f"sagram{WIDER}-cache-item")
)
EVERY, EVERY_ITEM = under_adagrad(0), under_adagrad(1)
HALF_SOGRAM = splits(WIKIS, f"sogram{HALF_RUNS}in-f76c2f51", f"sampling{HALF_RUNS}-a05420c0")
FOUR, FIRST = (text.replace("-", "−") for text in nearest())
DENSE_SPLITS = [splits(SPLITS, x, "sampling") for x in ("sogram-alpha-0.1", "sagram-cache-item")]
LOSSES = losses_under_adam()
BEST_OF_TWENTY_EPOCHS = percent(between(WIDE_RUNS[0], SPARSE_WIDER))
WIDE_SMALL_LIFT = with_interval(training(WIDE_SMALL).loc[("1024", SOGRAM)])
SMALLER_OVER_SOGRAM = percent(
    between("simple-scale/paper-sampling-products-bfloat16-input-dim-256", WIDE_RUNS[0])
)
RATE = "-learning-rate-0.0034-dense-learning-rate-0.000221"
AT_ITS_RATE = logs(f"enwik8/paper-sogram{RATE}-alpha-0.1", "enwik8/paper-sampling")
ON_GPU = sgd_lift(SOGRAM, 1890)
HIGHER_AT_K = logs(SGD_AT_K["B = k: sampling"], SGD_RUNS["sampling"])
SMALLER = "-optimizer-adagrad-initial-accumulator-0.1-reduction-sum-learning-rate-0.06-dense-learning-rate-0.00241-ta"
EXACT_OVER_LONGER = logs(
    f"enwik8/paper-exact{SMALLER}ble-1c983f77", f"enwik8/paper-sampling{SMALLER}-47e5766e"
)
PER_PAIR = percent(final_map("enwik8").loc["SAGram β=1, per pair", "lift over sampling [95 %]"])


def number(text: str) -> str:
    """The mean of a gain, without sign and per cent."""
    return text.partition(" %")[0].removeprefix("+")


def signed(text: str) -> str:
    """A gain whose sign is in the words around it."""
    return text.removeprefix("+")


def growth(part: str) -> str:
    """SOGram's lift on the titles over that on enwik8, α = 0.1."""
    own = (v for v in pages.verdicts() if v["claim"] == "lift-grows-enwik8" and v["case"] == "α = 0.1")
    verdict = next(v for v in own if v["dataset"] == f"enwik8-titles{part}")
    ends = (100 * (float(verdict[end]) - 1) for end in ("estimate", "low", "high"))
    return "{:+.1f} % [{:+.1f}, {:+.1f}]".format(*ends).replace("-", "−")


TITLES_RUNS = {  # under Adagrad at 16·k, by epochs
    x: [titles_runs()["adagrad", x, name, 1024] for name in ("sampling", "sogram", "sagram")]
    for x in (40, 80, 160)
}
TITLES_LIFTS = [logs(own, base, last=5) for base, own, _ in TITLES_RUNS.values()]  # of SOGram


def more_epochs(shorter: int) -> list[str]:
    """What twice the epochs add to sampling, SOGram and SAGram per item on the titles."""
    return [logs(*runs) for runs in zip(TITLES_RUNS[2 * shorter], TITLES_RUNS[shorter], strict=True)]


README = [
    ("(errors {} and {}, sampling's {} and {})", *(error(x, e).partition(" and ")[0] for e in (ITEM, SAMPLING) for x in ("fr-scale, sparse Adam", "en-scale, Adagrad"))),
    ("it has {}, undecided. SAGram per item, which is nearer, has {}, so", bare(EVERY), bare(EVERY_ITEM)),
    ("80 epochs end {} higher than 40 with sampling and {} with SOGram", *map(bare, more_epochs(40)[:2])),
    ("it loses {:.0f} to {:.0f} % at sampling's learning rate", min(LOSSES), max(LOSSES)),
    ("the exact one {} on enwik8 under dense Adam", bare(of(DENSE_ADAM, EXACT, "64"))),
]  # fmt: skip
TABLE_2 = [
    ("Single seeds fall lower, to {} at Simple's size with inputs of 256, at a MAP@10 {:.0f} % lower", *seed_of_least_rank()),
    ("The exact Gramian without momentum, of which two runs of five collapse, is at {} %, sampling there at {} %", share(NO_MOMENTUM, EXACT), share(NO_MOMENTUM)),
    ("on the titles under Adagrad {} of 64 with sampling", rank(ADAGRAD_TITLES, SAMPLING)),
    ("With k = 32 they are at least k/2 on miwiki too, the one corpus that is not made from enwik8, and on which nothing was tuned: {} with sampling under Adagrad, at {} % of exact ALS, which has {}. With k = 64 they are below: {} with sampling under sparse Adam, {} under Adagrad, and {} with exact ALS", rank(HALF, SAMPLING), share(HALF), als_rank(32), rank(MIWIKI, SAMPLING), rank("miwiki, Adagrad", SAMPLING), als_rank(64)),
    ("standard deviation of {} on enwik8 under dense Adam, {} on miwiki and {} on MovieLens 1M under sparse Adam, {} on the titles ({} after 20 epochs) and {} at Simple's size ({} with inputs of 256)", *(SPREADS[i] for i in (0, 1, 6, 2, 3, 4, 5))),
]  # fmt: skip
ANSWERS = [
    ("With k = 32 no gain is seen: SOGram has {} on miwiki (NOT DECIDED when corrected; {} over three splits), the exact Gramian {}.", of(HALF, SOGRAM), HALF_SOGRAM, of(HALF, EXACT)),
    ("The nearest one has {} at the end of training, as a mean of four corpora, by the noise of seeds: enwik8 (dense Adam; SAGram per item) and its titles (40 epochs of Adagrad), three splits each, of which the first is trained and the others reach {:.0f} to {:.0f} % of exact ALS", FOUR, *shares_of_splits()),
    ("Over first splits alone, all trained, with the exact Gramian on enwik8 and dense Adam on the titles, it is {} (not planned)", FIRST),
    ("on the titles {} under Adagrad from a [smaller start](#the-optimizer-b-and-length) (on a second split, NOT TRAINED, {}, three seeds) and {} under 80 epochs of dense Adam (after 160 {}), and", of(TITLES_SMALL, ITEM), of_row(SECOND_SPLIT, ITEM), of(LONG, ITEM), of(LONGER, ITEM)),
    ("where the exact Gramian has {}, at {} % of exact ALS, NOT TRAINED", of(START, EXACT), share(START, EXACT)),
    ("and {} on miwiki [without momentum]", of_row("miwiki-no-momentum", EXACT)),
    ("the exact one {} on enwik8 under Adagrad from a smaller start and {} under dense Adam", signed(of(SMALL_START, EXACT, "64")), signed(of(DENSE_ADAM, EXACT, "64"))),
    ("ends higher with B = k than with 16·k, by {}", HIGHER_AT_K),
    ("{} at [Simple's size](#sogram-at-simples-size) (three draws; eight, one and one seeds), {} on the [titles](#larger-and-other-corpora) (40 epochs) and {} on miwiki (three splits each), and {} on enwik8 from", WIDE_SOGRAM, TITLES_SOGRAM, WIKI_SOGRAM, of(SMALL_START, SOGRAM)),
    ("on the titles it is {} after 40 epochs, {} after 80 and {} after [160](#length), with the same five seeds", *TITLES_LIFTS),
    ("it has {}, undecided, and SAGram per item {}, so nothing shows that the nearer Gramian is the reason (SOGram over SAGram per item: {})", EVERY, EVERY_ITEM, under_adagrad(0, 1)),
    ("it is {} on the titles (on a second split, NOT TRAINED, {}, three seeds) and {} at Simple's size (one seed, over left items)", of(TITLES_SMALL, SOGRAM), of_row(SECOND_SPLIT, SOGRAM), WIDE_SMALL_LIFT),
    ("over the best sampling of twenty epochs, sparse Adam's, which still rises, SOGram has {} (seed 0", BEST_OF_TWENTY_EPOCHS),
    ("where SAGram per item ends at {} % of exact ALS", share(SGD, ITEM)),
    ("SOGram has {} with α = 0.1 and {} with 0.01. The same five seeds in float32 on a GPU have {} with 0.1; averaged by seed over both sets it is {} (not planned)", of(SGD, SOGRAM), of(SGD, HUNDREDTH), ON_GPU, both_machines()),
    ("SAGram per item has {}, the exact one {} (three seeds", of(SGD, ITEM), percent(sgd_exact())),
    ("On the titles SOGram ends where sampling does, at {}, and so does SAGram per item, at {}.", of(TITLES_SGD, SOGRAM), of(TITLES_SGD, ITEM)),
    ("with α = 0.1 {} % on enwik8 under dense Adam ({} over three splits, of which two are NOT TRAINED) and {} % on the titles, {} % on miwiki and {} % at Simple's size with inputs of 256 (one seed) under sparse Adam; with B = k as much on enwik8 and {} % on the titles", lost(DENSE_ADAM), DENSE_SPLITS[0], lost(LONG), lost(MIWIKI), lost("simple-scale, inputs of 256, sparse Adam"), lost(LONG, batch="64")),
    ("also at the best of six η for itself ({} on enwik8 under dense Adam, NOT TRAINED at that η)", AT_ITS_RATE),
    ("α = 0.01 ends highest of all, {} over 0.1, at {} % of exact ALS", logs(SGD_RUNS["α = 0.01"], SGD_RUNS["SOGram, α = 0.1"]), share(SGD, HUNDREDTH)),
    ("with α = 0.1 by {} under Adagrad, from a smaller start on both, NOT DECIDED when corrected, and by {} under dense Adam, where SOGram loses on both: a FAIL", *(growth(x) for x in ("-smaller-start", "-adam"))),
    ("At French Wikipedia's size towers reach {} % of exact ALS or less", share("fr-scale, sparse Adam", ITEM)),
    ("six leave out 0, and are NOT DECIDED, miwiki with k = 32 at {}, the titles at {}, miwiki's second split at {}, its third with α = 0.01 at {}, and its first and second with α = 0.001 at {} and {}", of(HALF, SOGRAM), of(ADAGRAD_TITLES, SOGRAM), of_row("miwiki-split1-adagrad", SOGRAM), of_row("miwiki-split2-adagrad", HUNDREDTH), of("miwiki, Adagrad", LEAST), of_row("miwiki-split1-adagrad", LEAST)),
    ("the gain at α = 0.1 would be decided ({}, p = {})", within_splits(WIKIS), p_of_wiki()),
]  # fmt: skip
AT_K = [
    ("on enwik8 at B = k the exact Gramian gains {} % while η is constant and {} % at the end under dense Adam (sparse: {} and {} %), on the titles (40 epochs) SAGram per item {} % and {} %.", *(number(f(x, e, "64")) for x, e in ((DENSE_ADAM, EXACT), (SPARSE, EXACT), (ADAGRAD_TITLES, ITEM)) for f in (steady, of))),
    ("SOGram has on enwik8 under SGD, NOT TRAINED, {} with α = 0.1 and {} with 0.01, SAGram per item {} (five seeds), the exact Gramian {} (three)", steady(SGD, SOGRAM), steady(SGD, HUNDREDTH), steady(SGD, ITEM), percent(sgd_exact(", constant η"))),
    ("sampling with 16·k has {} over sampling with k after 80 epochs of dense Adam and {} after 160", *(lift(np.exp(titles("adam", x, ("sampling", 1024)))) for x in (80, 160))),
    ("SAGram per item with B = k makes up for it after 80 epochs of dense Adam, {} from sampling with 16·k (80 of sparse: {})", *(lift(np.exp(titles(x, 80, ("sagram", 64), ("sampling", 1024)))) for x in ("adam", "sparse-adam"))),
    ("sampling gains {} from 60 to 120 epochs, and the exact Gramian after 60, on its plateau, has {} over it", signed(added("enwik8, Adagrad, smaller start", "k")), EXACT_OVER_LONGER),
    ("Its errors (left, right) are {} under Adagrad and {} under dense Adam; with B = k they are {}, and {}.", *(error(x, ITEM, b) for b in ("1024", "64") for x in (ADAGRAD_TITLES, LONG))),
]  # fmt: skip
ITEM_RUNS, SAMPLING_RUNS = (
    [titles_runs()["adam", x, name, 64] for x in (80, 160, 320)] for name in ("sagram", "sampling")
)
LENGTH = [
    ("Twice the epochs of Adagrad add {} % at Simple's size (inputs of 256, seed 0)", twice(f"simple-scale/paper-sampling{WIDER}-epochs-40", f"simple-scale/paper-sampling{WIDER}", 1)),
    ("sampling ends at {} after 160 (after 80 at {}), SAGram per item at {} ({}), SOGram at {} ({})", *(maps(x, e) for e in (SAMPLING, ITEM, SOGRAM) for x in (LONGER, LONG))),
    ("is decided from 160 to 320 epochs**: {} (sparse Adam: {})", *(added(f"titles, {x}", "k") for x in ("Adam", "sparse Adam"))),
    ("It rises by {} % in the last tenth of both lengths", same(rise(x, SAMPLING, "64") for x in (LONGER, "enwik8, titles, Adam, 320 epochs"))),
    ("may still gain {} % from 160 to 320 epochs", same(x.partition(", +")[2].rstrip("]") for x in (added("titles, sparse Adam", "k"), added("titles, Adam", "k", ITEM)))),
    ("SAGram per item after 160 has {} over sampling after 320", logs(ITEM_RUNS[1], SAMPLING_RUNS[2])),
    ("so part of it is speed; after 320 it is no smaller, {} (all with five seeds)", of("enwik8, titles, Adam, 320 epochs", ITEM, "64")),
    ("80 epochs end higher than 40 with sampling, by {}, and with SOGram, by {}, though", *more_epochs(40)[:2]),
    ("with SAGram per item that is undecided, {}", more_epochs(40)[2]),
    ("From 80 to 160 nothing more is decided: {} with sampling, {} with SOGram and {} with SAGram per item.", *more_epochs(80)),
    ("SOGram's lift is {} after 40 (all eight: {}), {} after 80 and {} after 160", TITLES_LIFTS[0], of(ADAGRAD_TITLES, SOGRAM), *TITLES_LIFTS[1:]),
    ("SAGram per item has {} after 80 and {} after 160, and SOGram {} and {} over it", *(logs(TITLES_RUNS[x][2], TITLES_RUNS[x][0]) for x in (80, 160)), *(logs(*TITLES_RUNS[x][1:]) for x in (80, 160))),
    ("With k sampling has {} from 40 to 80", added("titles, Adagrad", "k")),
    ("Dense Adam with B = k still rises by {} in the last tenth of 240", lengths()["enwik8, Adam", "k", SAMPLING][2]),
    ("from {} after 10 epochs to {} after 160, so", *(of(f"enwik8, titles, Adam, {x} epochs", ITEM, "64") for x in (10, 160))),
    ("is {} ahead (320 epochs", steady("enwik8, titles, Adam, 320 epochs", ITEM, "64")),
    ("a smaller α loses more, in {} of {} cases", *in_shorter_trainings()),
]  # fmt: skip
OPTIMIZERS = [
    ("sampling reaches {} % of exact ALS with dense Adam and {} % with sparse Adam, the exact Gramian {} and {} %.", *(share(x, e) for e in (SAMPLING, EXACT) for x in (DENSE_ADAM, SPARSE))),
    ("sampling ends at {}, {} % of exact ALS.", maps("enwik8, Adagrad, 480 epochs"), share("enwik8, Adagrad, 480 epochs")),
    ("ends higher: {}, {} % of exact ALS", maps(START), share(START)),
    ("were added after looking: there SOGram has {} and SAGram per item {}.", *(of_row(SECOND_SPLIT, x) for x in (SOGRAM, ITEM))),
    ("On enwik8 sampling is on its plateau, with effective ranks of {}, and", rank(SMALL_START, SAMPLING)),
    ("the exact Gramian gains {}, SOGram {}. At", *(signed(of(SMALL_START, x, "64")) for x in (EXACT, SOGRAM))),
    ("sampling from the smaller start has {} over SOGram from .1", SMALLER_OVER_SOGRAM),
    ("under sparse Adam at B = 1,024: {}", PER_PAIR),
    ("SOGram (α = 0.1) has {}, SAGram per item {}, at {} and {} % of exact ALS on the two, NOT TRAINED; under sparse", *DENSE_SPLITS, *(share_of(row(f"{x}-dense-adam", ITEM)["of exact ALS"]) for x in SPLITS[1:])),
    ("NOT TRAINED either, they have {} and {}, the exact Gramian {}. SOGram with α = 0.01 and 0.001 loses {:.0f} to {:.0f} % on each", *(splits(SPLITS, f"{name}{SPARSE_RUNS}{end}", f"sampling{SPARSE_RUNS}") for name, end in (("sogram", "-alpha-0.1"), ("sagram", "-cache-item"), ("exact", ""))), *losses_on_splits()),
]  # fmt: skip
UNDER_SGD = [
    ("NOT TRAINED after 1,920 by SAGram per item, at {} % of exact ALS", share(SGD, ITEM)),
    ("α = 0.1 has {} after 1,890 epochs", ON_GPU),
    ("The exact Gramian has {} (three seeds on the H200, after", percent(sgd_exact())),
    ("sampling has {} over sampling with 16·k", HIGHER_AT_K),
]  # fmt: skip
LAG = [
    ("{:.1f} times [{:.1f}, {:.1f}] as good", *geometric(np.exp(without_momentum("enwik8", "0.01")))),
    ("in the five above it loses {} to {} %** (table below)", *(f"{x:.0f}" for x in five_losses())),
    ("sampling ends at {}, {} % of exact ALS, which is {} over sampling with momentum", maps(NO_MOMENTUM), share(NO_MOMENTUM), logs(f"enwik8/paper-sampling{SPARSE_RUNS}-momentum-0", f"enwik8/paper-sampling{SPARSE_RUNS}")),
    ("SOGram with α = 0.1 has {} (with momentum {}) and an effective rank of {} of 64 ({}), with α = 0.01 {} ({}).", of(NO_MOMENTUM, SOGRAM), of(SPARSE, SOGRAM), rank(NO_MOMENTUM, SOGRAM), rank(SPARSE, SOGRAM), mean(NO_MOMENTUM, HUNDREDTH), mean(SPARSE, HUNDREDTH)),
    ("{} is left of {} (five", of_row("miwiki-no-momentum", SOGRAM), of(MIWIKI, SOGRAM)),
    ("is then {} better than with momentum on miwiki, and {} on enwik8", *(lift(np.exp(without_momentum(x, "0.1"))) for x in ("miwiki", "enwik8"))),
    ("so that its mean, {}, is no ceiling", of(NO_MOMENTUM, EXACT)),
    ("it has {}. The theorem's", of(NO_MOMENTUM, ITEM)),
    ("the exact Gramian has {}. - **How", of_row("miwiki-no-momentum", EXACT)),
    ("goes from {} to {} at a fifth of η and to {} at a 25th, where the exact Gramian has {} (three", *(mean(x) for x in (SPARSE, f"{SPARSE}, η/5", f"{SPARSE}, η/25")), mean(f"{SPARSE}, η/25", EXACT)),
    ("has {}, half of sampling's, an effective rank of {} of 128 (sampling {}), and loses {} %", error("fr-scale, sparse Adam", SOGRAM), *(rank("fr-scale, sparse Adam", x) for x in (SOGRAM, SAMPLING)), mean("fr-scale, sparse Adam").strip("−% ")),
    ("sparse Adam {}, a sixth and a ninth of sampling's, and loses {} %", error(TITLES_SPARSE, SOGRAM), mean(TITLES_SPARSE).strip("−% ")),
    ("On enwik8 under sparse Adam its effective rank is {} of 64, sampling's {}; but at η/5 it is {}, and", rank(SPARSE, SOGRAM), rank(SPARSE, SAMPLING), rank(f"{SPARSE}, η/5", SOGRAM)),
]  # fmt: skip
CORPORA = [
    ("{} with SOGram, {} with sampling", *(on_training("enwik8-titles", x) for x in (SOGRAM, SAMPLING))),
    ("SOGram has {} at B = 16·k (the first five seeds {}; three were added after looking, and have {} by themselves), SAGram per item {}.", of(ADAGRAD_TITLES, SOGRAM), *(logs(f"enwik8-titles/paper-sogram{BF16}-alpha-0.1", f"enwik8-titles/paper-sampling{BF16}", **x) for x in ({"last": 5}, {"first": 5})), of(ADAGRAD_TITLES, ITEM)),
    ("SOGram {} and {}, SAGram per item {} and {}. An interval", *(of_row(f"enwik8-titles-split{x}", e) for e in (SOGRAM, ITEM) for x in (1, 2))),
    ("has {} for SOGram and {} for SAGram per item; SOGram with α = 0.01 has {}, with 0.001 {}.", TITLES_SOGRAM, splits(TITLES, f"sagram{BF16}-cache-item", f"sampling{BF16}"), TITLES_HUNDREDTH, TITLES_LEAST),
    ("sampling {}, {} % of exact ALS; SOGram {} with α = 0.1, {} with 0.01.", maps("miwiki, Adagrad"), share("miwiki, Adagrad"), *(of("miwiki, Adagrad", x) for x in (SOGRAM, HUNDREDTH))),
    ("SOGram has {} and {} with α = 0.1; over the three {}, and {} with 0.01", *(of_row(f"miwiki-split{x}-adagrad", SOGRAM) for x in (1, 2)), WIKI_SOGRAM, WIKI_HUNDREDTH),
    ("SAGram per item's error is {} (sampling {}), its lift {} (over left items)", *(error("fr-scale, sparse Adam", x) for x in (ITEM, SAMPLING)), by_left_items("fr-scale, sparse Adam", ITEM)),
    ("SAGram per item has {}, with an error of {} (sampling {}). SOGram with α = 0.01 has {}, with an error of {}.", by_left_items("en-scale, Adagrad", ITEM), error("en-scale, Adagrad", ITEM), error("en-scale, Adagrad", SAMPLING), by_left_items("en-scale, Adagrad", HUNDREDTH), error("en-scale, Adagrad", HUNDREDTH)),
]  # fmt: skip
SIMPLE = [
    ("{} with SOGram and with sampling at inputs of 256", same(on_training(WIDE_TABLE, x) for x in (SOGRAM, SAMPLING))),
    ("in {} to {} times fewer steps", *speed_up().split(" to ")),
    ("with inputs of 50 SOGram has {} over it", logs(SIMPLE_RUNS[0], f"simple-scale/paper-sagram{BF16}-cache-item")),
    ("ends near sampling with inputs of 256, {} (five", of(WIDE, HUNDREDTH)),
    ("below with 50, {}. With α = 0.001 it has {} (five seeds) and {} (with 50 one seed", mean("simple-scale, Adagrad", HUNDREDTH), of(WIDE, LEAST), mean("simple-scale, Adagrad", LEAST)),
    ("SOGram has {} and {} over left items, SAGram per item {} on both", *(of_row(f"simple-scale-copy{x}-wider-inputs-adagrad", SOGRAM) for x in (1, 2)), same(percent(row(f"simple-scale-copy{x}-wider-inputs-adagrad", ITEM)["lift [95 %]"]) for x in (1, 2))),
    ("at {} % of exact ALS; [2]", share_of(row("simple-scale-copy1-wider-inputs-adagrad", ITEM)["of exact ALS"])),
    ("wider-inputs-adagrad.csv), at {} %)", share_of(row("simple-scale-copy2-wider-inputs-adagrad", ITEM)["of exact ALS"])),
    ("over the three draws: SOGram {}, SAGram per item {}.", WIDE_SOGRAM, WIDE_ITEM),
    ("sampling ends at {}, {} over SOGram's twenty epochs, and SOGram at {}, {} % of exact ALS and {} over sampling", map_of_row("simple-scale-twice-as-long"), percent(between(f"{WIDE_RUNS[1]}-epochs-40", WIDE_RUNS[0])), map_of_row("simple-scale-twice-as-long", SOGRAM), share_of(row("simple-scale-twice-as-long", SOGRAM)["of exact ALS"]), of_row("simple-scale-twice-as-long", SOGRAM)),
    ("{} at η/1.6, {} at η and {} at 1.6 η (seed 0", map_of_row("simple-scale-wider-inputs-rates", optimizer=".*η/1.6.*"), at_the_end(f"paper-sampling{WIDER}"), map_of_row("simple-scale-wider-inputs-rates", optimizer=".* 1.6 η.*")),
    ("SOGram ends at {} and sampling at {} (one seed", tried(SOGRAM), tried(SAMPLING)),
    ("after twenty SOGram has {} there", of_row("simple-scale-faster", SOGRAM)),
    ("three seeds had {} and eight {}; the last five were added whatever they would be, and have {} by themselves", *(logs(*WIDE_RUNS, last=x) for x in (3, 8)), logs(*WIDE_RUNS, first=3)),
    ("With inputs of 50 there were three: {}; the five that were added have {}", logs(*SIMPLE_RUNS, last=3), logs(*SIMPLE_RUNS, first=3)),
]  # fmt: skip
AT_K += [
    ("on miwiki under Adagrad over three splits {} with α = 0.1 and {} with 0.01, which is {} over 0.1", *at_a_constant_rate()[:2], between_alphas()),
    ("where early stopping ends, it has {} and {}.", *at_the_best_point()),
    ("under Adagrad has {} at Simple's size with inputs of 256 (three draws) and {} on the titles (three splits), the exact Gramian under sparse Adam {} on enwik8", *at_a_constant_rate()[2:]),
]  # fmt: skip
OPTIMIZERS += [
    ("on miwiki {}.", percent(final_map("miwiki").loc["SAGram β=1, per pair", "lift over sampling [95 %]"])),
    ("On the titles under Adagrad ([table](../results/reference/factorial/enwik8-titles-same-batches.csv)) the two have {} and {}.", *(of_row("enwik8-titles-same-batches", x) for x in ("sampling, shared B", "sampling, B = B′"))),
    ("one B for both sides has {}; the gradient batch itself, with the gradient through both Gramians (equation 15), {}, at half", *(of_row("enwik8-same-batches", x) for x in ("sampling, shared B", "sampling, B = B′"))),
    ("over the exact Gramian it has {}.", logs(f"enwik8/paper-sampling{SPARSE_RUNS}-batch-gradient", f"enwik8/paper-exact{SPARSE_RUNS}")),
]  # fmt: skip
UNDER_SGD += [
    ("end at {}, {} and {} (one", map_of_row("enwik8-sgd-four-times-as-long"), *(map_of_row("enwik8-sgd-longer", optimizer=f".* {x} epochs") for x in (480, 960))),
    ("After 3,840 epochs (seed 0, over left items, [table](../results/reference/factorial/enwik8-sgd-twice-its-plateau.csv)) 0.001 ends at {}, after 1,920 with the same seed at {}, and has {} over sampling, which ends at {}.", map_of_row(TWICE_SGD, LEAST), pages.number(seeds(SGD_RUNS["α = 0.001"])[0], 4), of_row(TWICE_SGD, LEAST), map_of_row(TWICE_SGD)),
    ("the error of its Ĝ is {} when η begins to fall, and {} at the end (left side). SOGram has {} with α = 0.1 (the same seed after 1,920: {}), and {} with 0.01 ({}), at {} % of exact ALS.", *twice_sgd_errors(), *(x for name, label in ((SOGRAM, "SOGram, α = 0.1"), (HUNDREDTH, "α = 0.01")) for x in (of_row(TWICE_SGD, name), percents(seeds(SGD_RUNS[label])[0] / seeds(SGD_RUNS["sampling"])[0]))), share_of(row(TWICE_SGD, HUNDREDTH)["of exact ALS"])),
    ("which had {} and {} % with α = 0.1", *(percents(x).removesuffix(" %") for x in seeds(TITLES_SGD_RUNS["sogram", 1024], 2) / seeds(TITLES_SGD_RUNS["sampling", 1024], 2))),
    ("after two seeds SAGram per item had {} at k", lift(seeds(TITLES_SGD_RUNS["sagram", 64], 2) / seeds(TITLES_SGD_RUNS["sampling", 64], 2)).partition(" [")[0]),
]  # fmt: skip
LAG += [
    ("SOGram's error is {} (left, right), sampling's {} and SAGram per item's {} ([table]", *(error_of_row("enwik8-dense-adam", x) for x in (SOGRAM, SAMPLING, ITEM))),
    ("it loses at least as much, {} (SOGram {}; five seeds", *(of_row("enwik8-lag", x) for x in (SAGA, SOGRAM))),
    ("it gains nearly as much, {} (SOGram {}; three seeds", *(of_row("simple-scale-lag", x) for x in (SAGA, SOGRAM))),
    ("a quarter of sampling's, it has {} over sampling at sampling's own, and {} % of exact ALS (", AT_ITS_RATE, share("enwik8, Adam, η/4", SOGRAM)),
    ("at the better of the two rates SOGram has {} at B = k and {} at 16·k", *(logs(f"enwik8/paper-sogram-optimizer-sparse-adam-learning-rate-0.002-dense-learning-rate-0.0002-alpha-0.1{x}", f"enwik8/paper-sampling{SPARSE_RUNS}{x}") for x in ("-gramian-batch-size-64", ""))),
    ("two of them end at {} and {}, so", *(pages.number(x, 4) for x in sorted(seeds(f"enwik8/paper-exact{SPARSE_RUNS}-momentum-0"))[:2])),
]  # fmt: skip
CORPORA += [
    ("it ends below sampling on each split: {}, and with three seeds {} and {}.", of(HALF, SOGRAM), *(of_row(f"miwiki-split{x}-k-32", SOGRAM) for x in (1, 2))),
    ("(five seeds each, two of them added after looking: the first three had {} on both", same(lift(np.exp(log_lifts(f"{x}/paper-sogram{BF16}-alpha-0.1", f"{x}/paper-sampling{BF16}", last=3))).partition(" [")[0] for x in TITLES[1:])),
    ("sampling's best MAP@10, {}, is at a fifth", best_on_the_wiki()),
    ("Popularity ranks at {}, exact ALS after ten sweeps at {}.", *(pages.number(x, 4) for x in (popularity("fr-scale/paper-sampling-products-bfloat16"), optimum("fr-scale")))),
    ("Sampling with B = 8·k has {} over sampling with B = k", percent(between(*(f"fr-scale/paper-sampling-products-bfloat16{x}" for x in ("", "-gramian-batch-size-128"))))),
    ("SOGram (α = 0.1) has {} ([table](../results/reference/factorial/fr-scale-adagrad.csv)", of_row("fr-scale-adagrad", SOGRAM)),
    ("it has {} and {}, together {}, undecided (the second by itself, over left items, {})", *(percents(french("validation", x)) for x in (0, 1)), lift(french("validation", x) for x in (0, 1)), percent(FRENCH["lift by left items"].loc[SOGRAM, 1])),
    ("SAGram per item has {} (one seed, [runs]", percents(french("validation", 0, ITEM))),
    ("Towers reach {} to {} % of exact ALS there, and training MAP@10 is higher too, by {} and {} %", *french_shares(), *(signless(french("training", x)) for x in (0, 1))),
    ("SOGram (α = 0.1) has {} and the exact Gramian {} ([table](../results/reference/factorial/movielens-1m-adagrad.csv)", *(of_row("movielens-1m-adagrad", x) for x in (SOGRAM, EXACT))),
]  # fmt: skip
STATEMENTS = [*TABLE_2, *ANSWERS, *AT_K, *LENGTH, *OPTIMIZERS, *UNDER_SGD, *LAG, *CORPORA, *SIMPLE]


@pytest.mark.parametrize(
    ("page", "statement"),
    [(REPLICATION, x) for x in README] + [(WORDS, x) for x in STATEMENTS],
    ids=lambda x: x[0][:50] if isinstance(x, tuple) else "",
)
def test_a_statement(page, statement):
    text, *values = statement
    assert text.format(*values) in " ".join(page.split())


def test_where_the_growth_of_the_lift_is_decided():
    told = ("PASS", "FAIL", "NOT DECIDED", "BETTER THAN CLAIMED")
    own = (v for v in pages.verdicts() if v["claim"] == "lift-grows-enwik8" and v["outcome"] in told)
    assert {(v["dataset"], v["case"], v["outcome"]) for v in own} == {
        ("enwik8-titles-smaller-start", "α = 0.1", "NOT DECIDED"),
        ("enwik8-titles-adam", "α = 0.1", "FAIL"),
    }


# No number without a sentence

PAPER = [
    claim.paper.removeprefix("0") for claim in CLAIMS if claim.id.startswith(("table-2-", "movielens-sign"))
]
STATED = " ".join(
    [
        *(text.format(*values) for text, *values in (*README, *STATEMENTS)),
        *ROWS,
        *at_k_rows(),
        *length_table(),
        *PAPER,
    ]
).replace("−", "-")
OWN = " ".join(SECTION.split("### Planted topics")[0].split())
LIFT = r"([+-]?\d+\.\d) ?% \[([+-]?\d+\.\d)%?, ([+-]?\d+\.\d)%?\]"


@pytest.mark.parametrize(
    "text", [" ".join(pages.read("README.md").split()), WORDS], ids=["README", "findings"]
)
def test_every_lift_with_an_interval_is_stated(text):
    found = lifts_in(text)
    assert found and found <= lifts_in(STATED)


@pytest.mark.parametrize("text", [REPLICATION, OWN], ids=["README", "findings"])
def test_every_percentage_with_a_decimal_and_every_map_is_stated(text):
    known = percentages(STATED)
    assert percentages(text) <= known | {("", value) for _, value in known}
    four = r"(?<!\d)\.\d{4}\b"
    assert set(re.findall(four, text)) <= set(re.findall(four, STATED))


def test_every_pair_of_errors_is_stated():
    errors = r"(?<!\d)(\.\d\d) and (\.\d\d)\b"
    assert set(re.findall(errors, OWN)) <= set(re.findall(errors, STATED))


def lifts_in(text: str) -> set[tuple[float, ...]]:
    return {tuple(map(float, found)) for found in re.findall(LIFT, text.replace("−", "-"))}


def percentages(text: str) -> set[tuple[str, str]]:
    """Sign, which may be empty, and value of those with a decimal; without the ends of intervals."""
    means = re.sub(r"\[[^\]]*\]", "", text.replace("−", "-"))
    return set(re.findall(r"(?<![\d.])([+-]?)(\d+\.\d) ?%", means))
