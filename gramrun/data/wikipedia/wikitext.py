r"""The links, categories and redirects of a page's wikitext, as MediaWiki registers them.

The rules, in the order in which MediaWiki applies them:

- Comments and ``<includeonly>`` are removed. The content of ``<nowiki>``, ``<pre>``, ``<math>``,
  ``<syntaxhighlight>`` and similar tags is not wikitext. A tag that is not closed is text; a comment that is
  not closed goes on to the end of the page.
- A link is ``[[target]]`` or ``[[target|label]]``, and its ``]]`` comes before the next ``[[``: of
  ``[[a|b [[c]] d]]`` only ``c`` is one. Only a picture's caption may hold links.
- A target with a line break or one of ``[ ] { } < >`` is none; so ``{{templates}}`` cannot be targets. They
  are not expanded; links in their arguments count, links that only their expansion holds cannot.
- ``[[Category:x]]`` makes the page a member, ``[[:Category:x]]`` is a link.

`mwparserfromhell` builds a tree of all markup, which takes a hundred times as long as the two
regular expressions here (``results/reference/bench/wikitext_speed.md``); the tests compare page by page.

Reference: MediaWiki, ``Preprocessor``, ``Parser::handleInternalLinks2``, ``WikitextContentHandler``.
"""

from __future__ import annotations

import re

from gramrun.data.wikipedia.titles import CATEGORIES, Target

HIDDEN_CATEGORY = "__HIDDENCAT__"

# Tags whose content MediaWiki and Wikipedia's extensions do not read as wikitext with links. Not listed are
# gallery, imagemap, poem, ref: their links count.
_TAGS = (
    "nowiki|pre|math|source|syntaxhighlight|ce|chem|score|timeline|hiero|graph|mapframe|maplink|templatedata|"
    "templatestyles|categorytree|inputbox|includeonly"
)
_OPENING = re.compile(rf"<(?:!--|({_TAGS})(?=\s|/?>))", re.IGNORECASE)
_CLOSING = {name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in _TAGS.split("|")}
# Replaces text that is not wikitext. Labels may hold it, titles may not. MediaWiki's markers begin with it.
_MARKER = "\x7f"

_TARGET = r"([^\[\]{}|<>\x00-\x1f\x7f]++)"
_LABEL = r"\|(?!\]\])[^\[\]]*+(?:(?:\](?!\])|\[(?!\[))[^\[\]]*+)*"
# Consumes every `[[`, link or not, as MediaWiki does; this keeps the time linear.
# No possessive groups: before Python 3.11.5 they match too little where they hold a choice (gh-106052).
_LINK = re.compile(rf"\[\[(?:{_TARGET}(?:{_LABEL})?\]\])?")
# The word is `redirect` or the wiki's own for it (#WEITERLEITUNG, #重定向), all of them one word.
_FIRST_LINK = re.compile(r"\[\[([^\[\]|\n]++)(?:\|[^\[\]]*+)?\]\]")
_REDIRECT = re.compile(r"\s*+[#＃][^\W\d_][^\s\[\]:]++\s*+(?::\s*+)?" + _FIRST_LINK.pattern)


def is_membership(raw: str, target: Target) -> bool:
    """Return whether a link to `target`, written as `raw`, makes its page a member of a category."""
    return target.namespace == CATEGORIES and not raw.lstrip().startswith(":")


def raw_targets(wikitext: str) -> list[str]:
    """Find the text before ``|`` or ``]]`` of every link; "" for a ``[[`` that begins none.

    Args:
        wikitext: the result of `searched`.
    """
    found: list[str] = _LINK.findall(wikitext)
    return found


def searched(text: str) -> str:
    """Return `text` without comments, and with a marker for each passage that is not wikitext."""
    opening = _OPENING.search(text)
    if opening is None:
        return text
    kept, kept_to = [], 0
    unclosed: set[str] = set()  # names without a closing tag from here on: asked once, so the time is linear
    bracket = -1
    while opening is not None:
        name = (opening[1] or "").lower()
        if not name:
            end, mark = text.find("-->", opening.end()) + 3, ""
            end = len(text) if end == 2 else end
        else:
            if bracket < opening.end():
                bracket = text.find(">", opening.end())
                if bracket < 0:
                    bracket = len(text)
            end, mark = _end_of_tag(text, name, bracket, unclosed), _MARKER if name != "includeonly" else ""
        if end:
            kept += [text[kept_to : opening.start()], mark]
            kept_to = end
        opening = _OPENING.search(text, end or opening.end())
    return "".join([*kept, text[kept_to:]])


def _end_of_tag(text: str, name: str, bracket: int, unclosed: set[str]) -> int:
    """Return the end of the element whose opening tag ends at `bracket`; 0 if it is not closed."""
    if bracket == len(text):
        return 0
    if text[bracket - 1] == "/":
        return bracket + 1
    if name in unclosed:
        return 0
    closing = _CLOSING[name].search(text, bracket + 1)
    if closing is not None:
        return closing.end()
    unclosed.add(name)
    return len(text) if name == "includeonly" else 0


def raw_redirect(text: str, *, flagged: bool = False) -> str | None:
    """Find the target of a redirecting page in its text.

    Args:
        text: the wikitext.
        flagged: whether the dump marks the page as a redirect; then the first link is the target.

    Returns:
        The text before ``|`` or ``]]``, or None.
    """
    found = (_FIRST_LINK.search if flagged else _REDIRECT.match)(text)
    return found[1] if found else None
