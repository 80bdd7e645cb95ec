"""Speed of reading wikitext: two regular expressions beside mwparserfromhell, on the same pages.

    python -m experiments.wikitext_speed DUMP [--rounds 5] [--every 50]

DUMP is any export XML, such as enwik8. Each round times every step on the same pages, one in `--every`, and
what is reported are megabytes of wikitext a second and the ratios within a round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import mwparserfromhell
import pandas as pd

from experiments.timing import RESULTS
from gramrun.base.files import write_json, write_text
from gramrun.base.provenance import provenance
from gramrun.data.titles import SiteInfo, parse_target
from gramrun.data.wikitext import find_categories, find_links, raw_targets, searched
from gramrun.data.xml_dump import read_pages

REFERENCE = "mwparserfromhell"


def contenders(site: SiteInfo) -> dict[str, Callable[[str], object]]:
    """What is timed, by name: a function of one page's wikitext."""

    def by_tree(text: str) -> object:
        tree = mwparserfromhell.parse(text, skip_style_tags=True)
        return [parse_target(str(link.title), site) for link in tree.ifilter_wikilinks()]

    return {
        REFERENCE: by_tree,
        "find_links and find_categories": lambda text: (find_links(text, site), find_categories(text, site)),
        "raw_targets alone": lambda text: raw_targets(searched(text)),
    }


def measure(texts: list[str], steps: dict[str, Callable[[str], object]], rounds: int) -> pd.DataFrame:
    """Megabytes of UTF-8 a second, by round (rows) and step (columns)."""
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    rows = []
    for _ in range(rounds):
        row = {}
        for name, step in steps.items():
            started = time.perf_counter()
            for text in texts:
                step(text)
            row[name] = megabytes / (time.perf_counter() - started)
        rows.append(row)
    return pd.DataFrame(rows)


def table(frame: pd.DataFrame) -> str:
    """A Markdown table of speeds and of ratios to mwparserfromhell."""
    lines = ["| step | MB/s, median (min–max) | ratio, median (min–max) |", "|---|---|---|"]
    for name in frame:
        speed, ratio = frame[name], frame[name] / frame[REFERENCE]
        lines.append(
            f"| {name} | {speed.median():.1f} ({speed.min():.1f}–{speed.max():.1f}) "
            f"| {ratio.median():.1f} ({ratio.min():.1f}–{ratio.max():.1f}) |"
        )
    return "\n".join(lines)


def heading(dump: Path, every: int) -> str:
    """What was run, on what."""
    return (
        f"`python -m experiments.wikitext_speed {dump.name} --every {every}`, wikitext of one article in "
        f"{every}; ratios to mwparserfromhell."
    )


def main() -> None:
    """Time the steps; write results/bench/wikitext_speed.{json,md}."""
    parser = argparse.ArgumentParser(description="Time wikitext readers, interleaved.")
    parser.add_argument("dump", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every", type=int, default=50)
    arguments = parser.parse_args()
    site, pages = read_pages(arguments.dump, allow_cut_off=True)
    texts = [page.text for page in pages if page.redirect is None][:: arguments.every]
    frame = measure(texts, contenders(site), arguments.rounds)
    write_json(
        RESULTS / "wikitext_speed.json", {**provenance(), "pages": len(texts), "MB/s": frame.to_dict("list")}
    )
    write_text(
        RESULTS / "wikitext_speed.md", f"{heading(arguments.dump, arguments.every)}\n\n{table(frame)}\n"
    )
    print(table(frame))
    print(f"wrote {RESULTS}/wikitext_speed.md")


if __name__ == "__main__":
    main()
