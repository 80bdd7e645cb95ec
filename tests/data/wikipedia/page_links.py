"""The links and categories of one page, in order: what the reader of XML dumps registers for many at once."""

import re

from gramrun.data.wikipedia.titles import FILES, SiteInfo, Target, parse_target
from gramrun.data.wikipedia.wikitext import _LABEL, _TARGET, is_membership, raw_targets, searched

_LINK_OR_PICTURE = re.compile(rf"\[\[(?:{_TARGET}(?:{_LABEL})?+(\]\]|(?=\[\[)))?+")


def find_links(text: str, site: SiteInfo) -> list[Target]:
    """Find the targets of a page's links within its wiki, in order, with repetitions.

    A picture is a link to its file. Memberships in categories are no links, nor are targets in other wikis
    and in namespaces with negative numbers (``Special:``), which have no pages.
    """
    targets = []
    for raw, end in _LINK_OR_PICTURE.findall(searched(text)):
        target = parse_target(raw, site) if raw else None
        if target is None or target.interwiki or target.namespace < 0 or is_membership(raw, target):
            continue
        # A link that does not end before the next one is a picture, or none.
        if end or (target.namespace == FILES and not raw.lstrip().startswith(":")):
            targets.append(target)
    return targets


def find_categories(text: str, site: SiteInfo) -> list[str]:
    """Find the titles of the categories that a page is in, in order, with repetitions."""
    found = ((raw, parse_target(raw, site)) for raw in raw_targets(searched(text)))
    return [target.title for raw, target in found if target is not None and is_membership(raw, target)]
