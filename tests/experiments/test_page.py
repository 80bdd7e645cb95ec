"""RESULTS.md and report.html from made sections with real drawings; the page is opened in a real browser."""

import base64
import hashlib
import html.parser
import json
import math
import re
import shutil
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
    assert headings[:4] == [
        "The paper's claims", "Every comparison", "Claims that were not tested here", "Contents"
    ]  # fmt: skip
    assert headings[4:] == [section.title for section in report.sections]
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


# In a browser.

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser():
    if not (BROWSER and DRIVER):
        pytest.skip("no Chromium and chromedriver are installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    for flag in (*flags, "--force-prefers-reduced-motion"):  # a head must not move while it is clicked
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser, page, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    return browser


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_in_a_browser(browser, page, width):
    browser.get_log("performance"), browser.get_log("browser")
    opened(browser, page, width)
    assert browser.get_log("browser") == []
    requests = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {r["params"]["request"]["url"] for r in requests if r["method"] == "Network.requestWillBeSent"}
    assert page.as_uri() in urls
    assert {url for url in urls if not url.startswith("data:")} == {page.as_uri()}
    browser.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    wide, seen = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide == seen > width - 20  # but for a scroll bar
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure img')].map((s) => s.getBoundingClientRect())"
        ".map((r) => [r.width, r.height])"
    )
    assert len(sizes) == 3
    assert all(w > 200 and h > 100 for w, h in sizes)
    anchors = browser.execute_script(
        "return [...document.querySelectorAll('nav a')].map((a) => a.getAttribute('href'))"
    )
    assert len(anchors) == 5  # the claims, three sections, how it was made
    assert all(browser.find_elements("css selector", anchor) for anchor in anchors)
    assert browser.execute_script("return document.compatMode") == "CSS1Compat"


def test_a_figure_that_was_not_drawn_is_a_plain_error(report):
    figure = Figure("absent", "Nothing.")
    with pytest.raises(InputError, match=r"absent\.svg: cannot be read"):
        page_module.write_report(replace(report, sections=[replace(report.sections[1], figures=(figure,))]))


def column(browser, place):
    return browser.execute_script(
        "const rows = document.querySelectorAll('#section-gramian-error table')[0].tBodies[0].rows;"
        "return [...rows].map((row) => row.cells[arguments[0]].textContent)",
        place,
    )


def test_heads_sort_numbers_as_numbers_both_ways_and_by_keyboard(browser, page):
    opened(browser, page, 1280)
    heads = browser.find_elements("css selector", "#section-gramian-error table thead th")[:5]
    names = [head.text for head in heads]
    before = column(browser, 0)
    for place in (1, 2, 3):
        for direction, backwards in (("ascending", False), ("descending", True)):
            heads[place].find_element("tag name", "button").click()
            assert heads[place].get_attribute("aria-sort") == direction
            numbers = [page_module.leading_number(text) for text in column(browser, place)]
            assert (
                numbers == sorted(numbers, reverse=backwards) != sorted(map(str, numbers), reverse=backwards)
            )
            assert [h.get_attribute("aria-sort") for h in heads].count("none") == 4
    for _ in range(2):  # what has no number is last, in both directions
        heads[4].find_element("tag name", "button").send_keys("\ue007")  # Enter
        texts = column(browser, 4)
        assert texts.count("–") == 9 and set(texts[-9:]) == {"–"}
    heads[0].find_element("tag name", "button").send_keys(" ")
    wanted = ["SAGram β=1, per item", "sampling", "SOGram α=0.01", "SOGram α=0.1"]  # 0.01 before 0.1
    assert column(browser, 0) == sorted(before, key=wanted.index) != before
    assert [head.text for head in heads] == names
