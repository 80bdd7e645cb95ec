"""Numbers of configs/README.md, derived again from the published searches, studies and runs."""

import re

import pages
import pandas as pd
import pytest
from test_findings import BF16, REFERENCE, seeds, share_of
from test_statements import EXACT, map_of_row, more_epochs, row, signless
from test_study_findings import MOVIES, reported, shown

PAGE = pages.read("configs/README.md")
WORDS = " ".join(PAGE.split())


OPTIMIZERS = {
    "Adam (dense)": "adam",
    "sparse Adam": "sparse-adam",
    "Adagrad, sums from 0": "adagrad",
    "Adagrad, sums from 0.1, on sums over the batch": "adagrad",
    "SGD on means": "sgd",
}


@pytest.mark.parametrize(("title", "optimizer"), OPTIMIZERS.items())
def test_the_search_of_optimizers(title, optimizer):
    """Best of six, then of three, beside exact ALS of the tuning split."""
    search = pd.read_csv(REFERENCE / "training" / "search-enwik8.csv", index_col="optimizer")
    solved = float(search["tuning_map@10"]["exact ALS of the same objective"])
    assert f"objective has {pages.number(solved, 4)} there:\n\n| optimizer" in PAGE
    cells_of = pages.line(PAGE, f"| {title} |")
    for stage, first in (("search-enwik8", 1), ("enwik8-length", 3)):
        tried = pd.read_csv(REFERENCE / "training" / f"{stage}.csv", na_values="failed").dropna()
        sums = tried["reduction"] == "sum"
        own = tried[(tried["optimizer"] == optimizer) & (sums == ("on sums" in title))]
        best, *others = own.sort_values("tuning_map@10", ascending=False).to_dict("records")
        shown = [float(x) for x in re.findall(r"\d*\.\d+", cells_of[first])]
        expected = [best[key] for key in ("tuning_map@10", "learning_rate", "dense_learning_rate")]
        assert shown == pytest.approx(expected, rel=0.01)
        maps = [pages.number(row["tuning_map@10"], 4) for row in others]
        if stage == "enwik8-length":
            assert cells_of[first + 1 :] == [
                f"{best['tuning_map@10'] / solved:.0%}".replace("%", " %"), ", ".join(maps)
            ]  # fmt: skip
        else:
            assert cells_of[first + 1].startswith(f"{maps[-1]} to {maps[0]}")


def test_the_search_of_a_smaller_start():
    search = pd.read_csv(REFERENCE / "training" / "search-enwik8.csv", index_col="optimizer")
    tried = pd.read_csv(REFERENCE / "training" / "enwik8-adagrad-start.csv", dtype=str)
    found = tried.set_index(["table_scale", "learning_rate", "dense_learning_rate"])["tuning_map@10"]
    points = [
        "{}, {} and {}".format(*(found[scale, eta, "0.00241"][1:] for scale in ("0.03", "0.01", "0.003")))
        for eta in ("0.06", "0.0975")
    ]
    best = float(found.max()) / float(search["tuning_map@10"]["exact ALS of the same objective"])
    assert (
        f"the start of .1 has {found['0.1', '0.0975', '0.00241'][1:]}; .03, .01 and .003 have {points[0]} at "
        f".06 / .00241, {100 * best:.0f} % of exact ALS, and {points[1]} at .0975 / .00241"
    ) in WORDS


def test_the_starts_of_the_configs():
    """Sampling on tuning splits, by `table_scale`."""

    def found(table: str, *keys: str, **where: str) -> pd.Series:
        frame = pd.read_csv(REFERENCE / "training" / f"{table}.csv", dtype=str)
        for key, value in where.items():
            frame = frame[frame[key] == value]
        return frame.set_index(list(keys))["tuning_map@10"].str[1:]

    dense = found("enwik8-start", "table_scale", optimizer="adam")
    assert (
        f"(`table_scale`) end at {dense['0.01']}, {dense['0.03']} and {dense['0.1']} under dense Adam"
        in WORDS
    )
    gain = 100 * (float(dense["0.03"]) / float(dense["0.1"]) - 1)
    assert f"dense Adam gains {gain:.1f} % from .03".replace("0.", ".") in WORDS
    for output, words in (
        ("linear", "Under sparse Adam .01, .03, .1 and .3 end"),
        ("relu", "with a ReLU output"),
    ):
        *three, last = found("enwik8-start", "table_scale", optimizer="sparse-adam", output=output)
        assert f"{words} at {', '.join(three)} and {last}" in WORDS
    sums = {"optimizer": "adagrad on sums from 0.1"}
    titles = found(
        "enwik8-titles", "epochs", "table_scale", learning_rate="0.2", dense_learning_rate="0.00241", **sums
    )
    small, usual = ([titles[epochs, scale] for epochs in ("20", "40")] for scale in ("0.03", "0.1"))
    assert (
        f".03 has {small[0]} after 20 epochs and {small[1]} after 40, where .1 has {usual[0]} and {usual[1]}"
        in WORDS
    )
    simple = found("simple-scale", "table_scale", "learning_rate", input_dim="50", epochs="6", **sums)
    best, before = simple["0.01", "0.0975"], simple["0.1", "0.0975"]
    others = simple["0.03", "0.0975"], simple["0.01", "0.156"], simple["0.003", "0.06"]
    assert (
        f".01 has {best} where .1 has {before}; .03 has {others[0]}, .01 at .156 {others[1]} and .003 at .06 {others[2]}"
        in WORDS
    )


def test_the_search_of_sogram_s_rate():
    tried = pd.read_csv(REFERENCE / "training" / "enwik8-sogram-adam.csv", dtype=str)
    *points, last = (x[1:] for x in tried["tuning_map@10"])
    share = tried["learning_rate"].astype(float) / 0.0136
    *shares, least = (f"{x:.2g}".replace("0.", ".") for x in share)
    assert f"at {', '.join(points)} and {last} at {', '.join(shares)} and {least} of them" in WORDS
    best = pd.read_csv(REFERENCE / "training" / "enwik8-length.csv")["tuning_map@10"].max()
    assert f"sampling has {pages.number(best, 4)}" in WORDS


KINDS = {
    "adam": "dense Adam", "sparse-adam": "sparse Adam", "adagrad on sums from 0.1": "Adagrad on sums", "sgd": "SGD on means",
}  # fmt: skip


def tried_rows() -> list[str]:
    """Every point that was tried from `table_scale` .1 on the larger corpora, the best first."""

    def points(corpus: str) -> pd.DataFrame:
        return pd.read_csv(REFERENCE / "training" / f"{corpus}.csv", dtype=str)

    simple, later = points("simple-scale"), points("simple-scale-estimators")
    later = later[(later["estimator"] == "sampling") & (later["learning_rate"] != "0.0975")]
    later = later.rename(columns={"6": "tuning_map@10"}).assign(
        optimizer="adagrad on sums from 0.1", input_dim="50", table_scale="0.1"
    )
    tables = [
        ("simple-scale", pd.concat([simple, later])),
        ("enwik8-titles", points("enwik8-titles").assign(input_dim="50")),
        ("fr-scale", points("fr-scale").assign(input_dim="100", table_scale="0.1", epochs="")),
    ]
    rows = []
    for corpus, table in tables:
        own = table[(table["table_scale"] == "0.1") & table["epochs"].isin(["", "6", "20"])]
        own = own.assign(height=pd.to_numeric(own["tuning_map@10"], errors="coerce")).sort_values(
            "height", ascending=False, kind="stable"
        )
        for width in sorted(own["input_dim"].unique(), key=int):
            for key, optimizer in KINDS.items():
                these = own[(own["input_dim"] == width) & (own["optimizer"] == key)]
                cells = [
                    re.sub(r"(?<!\d)0\.", ".", f"{x['tuning_map@10'].replace('failed', 'diverges')} at {x['learning_rate']} / {x['dense_learning_rate']}")
                    for _, x in these.iterrows()
                ]  # fmt: skip
                if cells:
                    rows.append(f"| {corpus}, {width} | {optimizer} | {' · '.join(cells)} |")
    return rows


@pytest.mark.parametrize("row", tried_rows())
def test_what_was_tried_on_larger_corpora(row):
    assert f"\n{row}\n" in PAGE


def rate_rows() -> list[str]:
    """How far the first layer moves, and the effective rank, at each dense learning rate on MovieLens 1M."""
    rows = reported("dense_learning_rate/movielens-1m.md")
    cells = [rows[x][i].partition(" ")[0] for x in ("0.05", "0.005", "0.0005") for i in (3, 1)]
    return [f"{float(x):.{digits}f}" for x, digits in zip(cells, (2, 1) * 3, strict=True)]


def first(name: str, estimator: str = "sampling") -> tuple[str, str]:
    """MAP@10 and the share of exact ALS at B = 1,024."""
    return map_of_row(name, estimator), share_of(row(name, estimator)["of exact ALS"])


def tuning(table: str, **where: str) -> str:
    frame = pd.read_csv(REFERENCE / "training" / f"{table}.csv", dtype=str)
    (value,) = frame.loc[(frame[[*where]] == [*where.values()]).all(axis=1), "tuning_map@10"]
    return value.removeprefix("0")


ALS = {key: shown(cells[0]) for key, cells in reported(f"baselines/{MOVIES}").items()}
OTHER_STARTS = (
    pd.read_csv(REFERENCE / "training" / "enwik8-titles.csv")
    .query("epochs == 20 and table_scale != 0.1 and not (table_scale == 0.03 and learning_rate == 0.2)")[
        "tuning_map@10"
    ]
    .astype(float)
)
STATEMENTS = [
    ("exact ALS reaches {} with γ = (0, 0) and {} with (1, 0) (left, right; λ = 30), and {} with (1, 1) and λ = 1", *(ALS[f"exact ALS, {x}"] for x in ("γ = 0, λ = 30", "γ left = 1, right = 0, λ = 30", "γ = 1 and λ = 1 (the paper's)"))),
    ("has changed by {} of its initial size after 100 steps, and the effective rank of the Gramian is {} of 35. With 0.005 these are {} and {}, with 0.0005 they are {} and {}, and", *rate_rows()),
    ("the towers reach {} % of exact ALS on the real split with sampling and {} % with the exact Gramian", *(first("enwik8-dense-adam", x)[1] for x in ("sampling", EXACT))),
    ("have .01 / .001 for as long: {} on the tuning split, and {} and {} % on the real one", tuning("enwik8-start", optimizer="sparse-adam", output="linear", table_scale="0.1"), *(first("enwik8", x)[1] for x in ("sampling", EXACT))),
    ("Adagrad at its rates of the table ranks higher, {} against {}", *(first(x)[0] for x in ("miwiki-adagrad", "miwiki"))),
    ("On the real split .03 ends {} % higher under sparse Adam", signless(float(first("enwik8-smaller-start")[0]) / float(first("enwik8")[0]))),
    ("it leaves the towers at {} % of exact ALS then, and at {} % after [1,920]", *(first(x)[1] for x in ("enwik8-sgd", "enwik8-sgd-to-its-plateau"))),
    ("exact ALS {};", tuning("simple-scale", optimizer="exact ALS of the same objective")),
    ("after 20 epochs, {} (Adagrad, eight seeds, flat since epoch 16) and {} (one seed), both {} % of exact ALS; from .01 Adagrad ends at {} ({} %, one seed)", first("simple-scale")[0], *first("simple-scale-sparse-adam"), *first("simple-scale-smaller-start")),
    ("With inputs of 256 towers from .1 reach {1} % ({0}; sparse Adam at", *first("simple-scale-wider-inputs")),
    ("after 20 epochs it has {} % of exact ALS, after 40 it has {} %", *(first(x)[1] for x in ("enwik8-titles-half-as-long", "enwik8-titles"))),
    ("80 epochs add [{}](", more_epochs(40)[0].lstrip("+").partition(" [")[0]),
    ("Seven other points of start and η have {} to {} after 20", *(pages.number(f(OTHER_STARTS), 4) for f in (min, max))),
]  # fmt: skip


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda x: x[0][:50])
def test_a_statement(statement):
    text, *values = statement
    assert text.format(*values) in WORDS


def test_what_the_words_around_them_say():
    simple = map(first, ("simple-scale", "simple-scale-sparse-adam"))
    assert len({share for _, share in simple}) == 1
    assert float(map_of_row("simple-scale-faster")) < seeds(f"simple-scale/paper-sampling{BF16}")[0]
    assert len(OTHER_STARTS) == 7
