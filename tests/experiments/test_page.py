"""RESULTS.md from sections with hostile text."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.report import page as page_module
from experiments.report.claims import CLAIMS
from experiments.report.sections import Figure, Section, Table, gather, spread
from experiments.report.verdicts import judge
from gramrun import runs
from gramrun.base.files import write_json, write_text
from gramrun.base.provenance import provenance
from gramrun.config import RunConfig
from gramrun.config.loading import dump_config, load_config
from gramrun.runs import directory

METHODS = ("sampling", "SOGram α=0.1", "SOGram α=0.01", "SAGram β=1, per item")
HOSTILE = '& "quoted" | barred'
SEEDS = (0, 1, 2)
CONFIG = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"


def made_run(path, seed):
    config = load_config(RunConfig, CONFIG, ["data.path=data/enwik8", f"train.seed={seed}", "train.steps=5"])
    path.mkdir(parents=True)
    write_text(path / directory.CONFIG, dump_config(config))
    manifest = runs.new_manifest("train", config, seed, "f6958ff4f7ec0397aaaa")
    write_json(path / directory.MANIFEST, {**manifest, "status": "finished", "seconds": 90.0, "threads": 1})
    return path


def long_table():
    values = np.random.default_rng(5).uniform(0.001, 0.9, 60)
    rows = [
        {
            "method": METHODS[place % 4],
            "validation MAP@10": spread((value, value + 0.001, value - 0.002)),
            "vs sampling": f"{100 * (value - 0.45):+,.1f} %".replace("-", "−"),
            "steps": f"{int(value * 1e5):,}",
            "note": "–" if place % 7 == 0 else f"{value:.1e}",
        }
        for place, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    directories = tuple(made_run(folder / "runs" / "enwik8" / f"sampling-seed{s}", s) for s in SEEDS)
    measured = {
        f"enwik8/{method}/left error B={size}": tuple(scale * (1 + 0.01 * s) for s in SEEDS)
        for method, scale in (("sampling", 0.3), ("SOGram α=0.01", 0.05))
        for size in (128, 1024)
    } | {"enwik8/trajectory steps": (600.0,)}
    sections = [
        Section(
            "gramian_error",
            "Gramian error on one trajectory",
            "Figure 2, Section 4.2",
            f"SOGram is nearer than `sampling`.\n\nA second paragraph: {HOSTILE}",
            (Table("errors", f"Caption: {HOSTILE}", long_table()),),
            (Figure("enwik8", "enwik8, three seeds."), Figure("movielens", f"MovieLens. {HOSTILE}")),
            measured,
            directories,
        ),
        Section(
            "map_curves",
            f"Curves {HOSTILE}",
            "",
            "Nothing to tell.",
            (Table("cells", "Odd cells.", pd.DataFrame({HOSTILE: [HOSTILE, None, math.nan, 0.25]})),),
            (Figure("enwik8", "The same again."),),
        ),
        Section("corpus_sizes", "Corpus sizes", "Table 1", "Two corpora.", (Table("sizes", "Sizes.", long_table()[:2]),)),
    ]  # fmt: skip
    verdicts = judge(CLAIMS, gather(sections))
    return page_module.Report(
        f"Report {HOSTILE}", "make reproduce PROFILE=quick", folder, sections, verdicts, provenance(), "today",
        note="All intervals are too narrow.",
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(report):
    return page_module.write_report(report)


def test_markdown_has_the_claims_first_and_every_table_is_one(page, report):
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.*)$", text, flags=re.M)
    assert headings[:3] == [
        "The paper's claims", "Claims that were not tested here", "Contents"
    ]  # fmt: skip
    assert headings[3:] == [section.title for section in report.sections]
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        bars = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()]
        assert len(set(bars)) == 1, block
    assert re.findall(r"\]\((\w+/[^)]+\.png)\)", text) == [
        "gramian_error/enwik8.png", "gramian_error/movielens.png", "map_curves/enwik8.png"
    ]  # fmt: skip
    assert "intervals are too narrow" in text  # the note
    assert "**PASS** 2" in text and "3 runs, 4.5 minutes" in text and "1 thread a run" in text
    assert re.search(r"\[runs.csv\]\(runs.csv\) \(3 on .+, 0\.1 hours\)", text)
    times = pd.read_csv(report.folder / "runs.csv")
    assert times["run"].tolist() == [f"enwik8/sampling-seed{seed}" for seed in SEEDS]
    assert times["seconds"].tolist() == [90.0] * 3 and times["threads"].tolist() == [1] * 3
    assert times["device"].tolist() == ["cpu"] * 3
    assert "- Seeds: 0, 1, 2\n- Data: enwik8 f6958ff4f7ec\n" in text


@pytest.mark.parametrize(
    "text",
    ["0.1254 ± .0005", "−4.0 %", "+1.8 %", "1,511", "4.6M", "85K", "[0.1, 0.2]", ".5", "2.5e+06", "9 of 10",
     "< 0.001", "≈ 3", "1e−07"],
)  # fmt: skip
def test_a_cell_that_begins_with_a_number(text):
    assert page_module.numeric_column(pd.Series([text]))


@pytest.mark.parametrize("text", ["SOGram α=0.1", "3rd", "none"])
def test_a_cell_of_text(text):
    assert not page_module.numeric_column(pd.Series([text]))


def test_columns_of_numbers():
    assert page_module.numeric_column(pd.Series(["1,511", "–", "0.2 ± 0.1", None]))
    assert not page_module.numeric_column(pd.Series(["1,511", "none"]))
    assert not page_module.numeric_column(pd.Series(["–", ""]))
