"""Rewrite the tables of config keys in configs/README.md: python tests/update_documentation.py."""

import re
from pathlib import Path

from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import documented_keys

PATH = Path(__file__).parents[1] / "configs" / "README.md"

if __name__ == "__main__":
    text = PATH.read_text(encoding="utf-8")
    for kind in (RunConfig, BaselineConfig, PrepareConfig):
        begin = f"<!-- keys: {kind.__name__} -->\n"
        pattern = re.escape(begin) + r".*?(?=<!-- end -->)"
        text = re.sub(pattern, lambda _: begin + documented_keys(kind), text, flags=re.S)  # noqa: B023
    PATH.write_text(text, encoding="utf-8")
