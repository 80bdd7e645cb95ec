"""A small wiki as an XML export, for tests and the smoke test: titles and categories have frequent values.

python tests/small_wiki.py FILE
"""

import random
import sys
from pathlib import Path

_HEAD = """<mediawiki version="0.3"><siteinfo><sitename>Small</sitename><base>http://en.wikipedia.org/wiki/x</base>
<case>first-letter</case><namespaces><namespace key="0" /><namespace key="14">Category</namespace></namespaces>
</siteinfo>
"""
_PAGE = "<page><title>{}</title><id>{}</id><revision><text>{}</text></revision></page>\n"


def write_wiki(path: Path, pages: int = 120, links: int = 10, seed: int = 0) -> Path:
    """Write `pages` articles of four topics, each with `links` links at most, mostly within its topic.

    Args:
        path: the file to write.
        pages: how many articles.
        links: draws of a link from each.
        seed: of the draws.
    """
    draw = random.Random(seed)
    titles = [
        f"{('Red', 'Blue', 'Green', 'Gold')[n % 4]} {('river', 'city')[n // 4 % 2]} {n}" for n in range(pages)
    ]
    body = []
    for n, title in enumerate(titles):
        far = [draw.randrange(pages) for _ in range(links // 5)]
        near = [min(int(draw.paretovariate(0.7)) * 4 + n % 4, pages - 1) for _ in range(links - len(far))]
        linked = " ".join(f"[[{titles[m]}]]" for m in [*far, *near])
        body.append(_PAGE.format(title, 10 + n, f"{linked} [[Category:Topic {n % 4}]]"))
    path.write_text(f"{_HEAD}{''.join(body)}</mediawiki>")
    return path


if __name__ == "__main__":
    write_wiki(Path(sys.argv[1]), 400, 20)
