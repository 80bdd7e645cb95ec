"""MediaWiki's title rules: from the text between ``[[`` and ``]]`` to namespace and title.

Reference: MediaWiki, ``MediaWikiTitleCodec::splitTitleString`` and ``Parser::handleInternalLinks2``; the
names, prefixes and limits are its defaults. A dump does not contain the aliases of its wiki (``WP:`` for
``Wikipedia:``): such a target is a title of namespace 0 that no page has.
"""

from __future__ import annotations

import html.entities
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

FILES = 6
CATEGORIES = 14
FIRST_LETTER = "first-letter"
CASE_SENSITIVE = "case-sensitive"
MAXIMUM_TITLE_BYTES = 255

# The names that every wiki knows, whatever its language; the numbers begin at -2.
_NAMES = (
    "Media|Special||Talk|User|User talk|Project|Project talk|File|File talk|MediaWiki|MediaWiki talk|"
    "Template|Template talk|Help|Help talk|Category|Category talk"
)
CANONICAL_NAMESPACES: Mapping[int, str] = dict(enumerate(_NAMES.split("|"), start=-2))
_DEFAULT_ALIASES = {"image": FILES, "image_talk": FILES + 1}

# A title with one of these before its colon lies in another wiki. The languages are those of the Wikipedias
# of 2024 (database names with hyphens, and the newer codes of eight of them). A pattern, such as two or
# three letters, would take the article "CSI: Miami" for one. Prefixes of other sites (``RFC:``) are not
# listed: they name no page of the wiki either, and so end as red links.
_PREFIXES = """
    aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar
    bat-smg bbc bcl be be-tarask be-x-old bg bh bi bjn blk bm bn bo bpy br bs bug bxr ca cbk-zam cdo ce ceb
    ch cho chr chy ckb co cr crh cs csb cu cv cy cz da dag de dga din diq dk dsb dty dv dz ee el eml en eo es
    et eu ext fa fat ff fi fiu-vro fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe
    gsw gu guc gur guw gv ha hak haw he hi hif ho hr hsb ht hu hy hyw hz ia id ie ig ii ik ilo inh io is it
    iu ja jam jbo jp jv ka kaa kab kbd kbp kcg kg ki kj kk kl km kn ko koi kr krc ks ksh ku kv kw ky la lad
    lb lbe lez lfn lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh mhr mi min mk ml mn
    mni mnw mo mr mrj ms mt mus mwl my myv mzn na nah nan nap nds nds-nl ne new ng nia nl nn no nov nqo nrm
    nso nv ny oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro
    roa-rup roa-tara ru rue rup rw sa sah sat sc scn sco sd se sg sgs sh shi shn si simple sk skr sl sm smn
    sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy te tet tg th ti tk tl tly tn to tpi tr trv ts tt
    tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh
    zh-cn zh-tw zh-cfr zh-classical zh-min-nan zh-yue zu
    w wikipedia wikt wiktionary n wikinews b wikibooks q wikiquote s wikisource v wikiversity voy wikivoyage
    species wikispecies m meta metawikipedia c commons d wikidata f wikifunctions mw wmf foundation incubator
    outreach bugzilla mediazilla phab sep11 nost nostalgia
"""
INTERWIKI = frozenset(_PREFIXES.split())

_URL = re.compile(
    r"(?:https?:|ftps?:|ircs?:|git:|svn:|ssh:|gopher:|telnet:|worldwind:|nntp:)?//|mailto:|news:"
)
_REFERENCE = re.compile(r"&(?:([A-Za-z0-9]+;)|#([0-9]{1,9});|#[xX]([0-9A-Fa-f]{1,8});)")
_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]+")  # of the direction of writing, which MediaWiki drops
_BLANKS = re.compile("[ _\xa0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_ILLEGAL = re.compile(
    "[\x00-\x1f\x7f<>\\[\\]{}|\ufffd]|%[0-9A-Fa-f]{2}|&(?:[^\x00-/:-@\\[-`{-\x7f]+|#[0-9]+|#x[0-9A-Fa-f]+);|~~~"
    r"|(?:^|/)\.\.?(?:/|$)"
)
# What most targets are: words of ASCII that none of the rules but blanks and the first letter's touches.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9,'()!-]*+(?: [A-Za-z0-9,'()!-]++)*+")


@dataclass(frozen=True)
class SiteInfo:
    """The ``<siteinfo>`` of a dump.

    Attributes:
        namespaces: names by number, with blanks; "" for namespace 0.
        cases: per namespace "first-letter" (the first letter is always a capital) or "case-sensitive".
        prefix: of links from other wikis, such as "en": the first label of the wiki's address.
    """

    namespaces: Mapping[int, str]
    cases: Mapping[int, str]
    prefix: str = ""

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Namespaces by name in small letters with underscores: own names first, then those of all wikis."""
        canonical = {_folded(name): number for number, name in CANONICAL_NAMESPACES.items() if name}
        own = {_folded(name): number for number, name in self.namespaces.items() if name}
        return _DEFAULT_ALIASES | canonical | own

    @cached_property
    def _own(self) -> Mapping[str, int]:
        return {name: number for number, name in self.namespaces.items() if name}

    def split(self, title: str) -> tuple[int, str]:
        """Split a page's full title, as the site writes it, into namespace and title with underscores."""
        name, _, rest = title.partition(":")
        number = self._own.get(name) if rest else None
        return (0, title.replace(" ", "_")) if number is None else (number, rest.replace(" ", "_"))


@dataclass(frozen=True)
class Target:
    """The target of a link.

    Attributes:
        namespace: 0 where `interwiki` is given.
        title: as in the tables: underscores for blanks, without the namespace's name.
        interwiki: the prefix of the other wiki that has the page, or "".
    """

    namespace: int
    title: str
    interwiki: str = ""


def parse_target(raw: str, site: SiteInfo) -> Target | None:
    """Parse the text of a link before ``|`` or ``]]``.

    Args:
        raw: such as ``:category:foo_bar #History``; character references and %-escapes are decoded.
        site: the wiki with the link; its own prefix (``en:`` in the English one) is dropped.

    Returns:
        The target, or None if MediaWiki makes no link to another page: for a section alone, a URL, or a
        title that is empty, too long or has a character that titles must not have.
    """
    if _PLAIN.fullmatch(raw) and len(raw) <= MAXIMUM_TITLE_BYTES:
        return Target(0, _capitalised(raw.replace(" ", "_"), 0, site))
    text = raw
    if "%" in text:
        text = unquote(text, errors="replace")
    if "&" in text:
        text = unicodedata.normalize("NFC", _REFERENCE.sub(_decoded, text))
    text = _BLANKS.sub("_", _MARKS.sub("", text)).strip("_")
    if _URL.match(text.lower()):
        return None
    for _ in range(2):  # one is the link's ("no membership, no picture"), one the title's ("namespace 0")
        text = text[1:].lstrip("_") if text.startswith(":") else text
    return _split(text.partition("#")[0].rstrip("_"), site)


def _split(text: str, site: SiteInfo) -> Target | None:
    namespace, home = 0, False
    name, colon, rest = text.partition(":")
    if colon and _folded(name) == site.prefix and site.prefix in INTERWIKI:
        home, text = True, rest.lstrip("_")
        name, colon, rest = text.partition(":")
    if colon:
        folded = _folded(name)
        if folded in site.numbers:
            namespace, text = site.numbers[folded], rest.lstrip("_")
        elif folded in INTERWIKI:
            return None if home else Target(0, rest.strip("_"), folded)
    if not text or text.startswith(":") or _ILLEGAL.search(text):
        return None
    title = _capitalised(text, namespace, site)
    return None if len(title.encode()) > MAXIMUM_TITLE_BYTES else Target(namespace, title)


def _folded(name: str) -> str:
    return name.strip(" _").replace(" ", "_").lower()


def _capitalised(title: str, namespace: int, site: SiteInfo) -> str:
    if site.cases.get(namespace, FIRST_LETTER) != FIRST_LETTER:
        return title
    first = title[0]
    if first == "i" and site.prefix in ("az", "kaa", "tr"):
        return f"İ{title[1:]}"
    # MediaWiki leaves what has no single capital (ß), and Georgian, whose capitals only headings use.
    capital = first if "ა" <= first <= "ჿ" else first.upper()
    return capital + title[1:] if len(capital) == 1 else title


def _decoded(reference: re.Match[str]) -> str:
    """One character reference decoded; a character that no text may hold as U+FFFD."""
    name, decimal, hexadecimal = reference.groups()
    if name:
        return html.entities.html5.get(name, reference[0])
    number = int(decimal) if decimal else int(hexadecimal, 16)
    allowed = 0x20 <= number < 0xD800 or 0xE000 <= number < 0xFFFE or 0x10000 <= number <= 0x10FFFF
    return chr(number) if allowed else "\ufffd"
