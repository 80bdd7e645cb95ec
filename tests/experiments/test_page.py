"""RESULTS.md and report.html from sections with real figures and hostile text."""

import base64
import hashlib
import html.parser
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.report import page as page_module
from experiments.report.claims import CLAIMS
from experiments.report.sections import Figure, Section, Table, spread
from experiments.report.verdicts import gather, judge
from gramrun import runs
from gramrun.base.errors import InputError
from gramrun.base.files import read_json, write_json, write_text
from gramrun.base.provenance import provenance
from gramrun.config import RunConfig
from gramrun.config.loading import dump_config, load_config
from gramrun.runs import directory, plotting

METHODS = ("sampling", "SOGram α=0.1", "SOGram α=0.01", "SAGram β=1, per item")
HOSTILE = '<script>alert("x")</script> & "quoted" | barred </style>'
SEEDS = (0, 1, 2)
CONFIG = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"


def error_figure(folder, name, seed):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        [(m, s, t, side) for m in METHODS for s in SEEDS for t in range(40) for side in ("left", "right")],
        columns=["estimator", "seed", "step", "side"],
    ).assign(batch_size=1024, alpha=np.nan)
    frame["epoch"], frame["seconds"] = frame["step"] / 10, frame["step"] * 0.1
    frame["error"] = np.exp(-frame["step"] / 20) + generator.uniform(0.01, 0.05, len(frame))
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        plotting.save(plotting.gram_error_figure(frame), folder / f"{name}.{suffix}")


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
    for place, name in enumerate(("enwik8", "movielens")):
        error_figure(folder / "gramian_error", name, place)
    error_figure(folder / "map_curves", "enwik8", 9)
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
        f"Report {HOSTILE}", "make reproduce PROFILE=quick", folder, sections, verdicts, provenance(), "today"
    )


@pytest.fixture(scope="module")
def page(report):
    return page_module.write_report(report).with_name("report.html")


class Reader(html.parser.HTMLParser):
    """Collects what a test asks about: ids, addresses, texts and the tags that are open at the end."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses, self.texts, self.scripts = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "src", "xlink:href", "action", "srcset"):
                self.addresses.append(value)
            assert not name.startswith("on"), name

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_loads_nothing_and_allows_one_script(page):
    text = page.read_text(encoding="utf-8")
    read = Reader(text)
    assert len(read.ids) == len(set(read.ids))
    inner = [address[1:] for address in read.addresses if address.startswith("#")]
    assert set(inner) <= set(read.ids) and len(inner) > 4
    assert all(a.startswith(("#", "data:")) for a in read.addresses)
    assert text.count("data:image/svg+xml;base64,") == 3 and "<svg" not in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy.replace("&#39;", "'")
    assert "default-src 'none'" in policy
    config = read_json(page.with_name("runs.json"))["gramian_error"][1]["config_hash"]
    assert config in text and "3 runs, 4.5 minutes" in text and "1 thread a run" in text


def test_text_is_shown_as_it_is_and_never_run(page):
    read = Reader(page.read_text(encoding="utf-8"))
    assert read.scripts == 1
    shown = " ".join(read.texts)
    assert shown.count('<script>alert("x")</script>') >= 6  # title, verdict, captions, heads, cells
    assert "A second paragraph" in shown


def test_markdown_has_the_claims_first_and_every_table_is_one(page, report):
    text = page.with_name("RESULTS.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.*)$", text, flags=re.M)
    assert headings[:3] == [
        "The paper's claims", "Claims that were not tested here", "Contents"
    ]  # fmt: skip
    assert headings[3:] == [section.title for section in report.sections]
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        bars = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()]
        assert len(set(bars)) == 1, block
    for link in re.findall(r"\]\((\w+/[^)]+\.png)\)", text):
        assert (report.folder / link).exists(), link
    assert "**PASS** 2" in text
    kept = read_json(page.with_name("runs.json"))
    assert [run["seed"] for run in kept["gramian_error"]] == list(SEEDS)
    assert {run["data_hash"] for run in kept["gramian_error"]} == {"f6958ff4f7ec0397aaaa"}
    assert kept["corpus_sizes"] == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1254 ± .0005", 0.1254), ("−4.0 %", -4.0), ("+1.8 %", 1.8), ("1,511", 1511), ("4.6M", 4.6e6),
        ("85K", 85000), ("[0.1, 0.2]", 0.1), (".5", 0.5), ("1e-3", 1e-3), ("2.5e+06", 2.5e6), ("9 of 10", 9),
        ("< 0.001", 0.001), ("≈ 3", 3), ("SOGram α=0.1", None), ("–", None), ("", None), ("3rd", None), ("1e−07", 1e-7),
    ],
)  # fmt: skip
def test_the_number_that_a_cell_begins_with(text, value):
    assert page_module.leading_number(text) == value


def test_columns_of_numbers():
    assert page_module.numeric_column(pd.Series(["1,511", "–", "0.2 ± 0.1", None]))
    assert not page_module.numeric_column(pd.Series(["1,511", "none"]))
    assert not page_module.numeric_column(pd.Series(["–", ""]))


def test_a_figure_that_was_not_drawn_is_a_plain_error(report):
    figure = Figure("absent", "Nothing.")
    with pytest.raises(InputError, match=r"absent\.svg: cannot be read"):
        page_module.write_report(replace(report, sections=[replace(report.sections[1], figures=(figure,))]))
