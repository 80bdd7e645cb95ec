"""YAML text → plain values, never code, and never more of them than a configuration can need.

An alias stands for its whole anchor, so that a few lines may unfold to billions of values ("billion laughs"),
or to themselves. PyYAML shares the objects, and whoever walks through them would not end.
"""

from __future__ import annotations

from typing import Any

import yaml

LARGEST_TEXT = 1 << 18  # characters; PyYAML reads about 100,000 a second
LARGEST_VALUES = 10_000  # the longest configuration of this repository has about 100


class YamlError(ValueError):
    """A text that is no YAML or that unfolds without bound.

    Attributes:
        line: where, counted from 1; None where nothing tells.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


def parse_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """Read one YAML document.

    Returns:
        Its nodes, which know their lines (None for an empty text), and its values.

    Raises:
        YamlError: says what is wrong, in words that may follow a place and a colon.
    """
    if len(text) > LARGEST_TEXT:
        raise YamlError(f"too long: no configuration needs more than {LARGEST_TEXT:,} characters")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None and _unfolded(node, {}) > LARGEST_VALUES:
            raise YamlError(
                f"too large: its aliases unfold to more than {LARGEST_VALUES:,} values; write them out"
            )
        return node, yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise YamlError(f"not valid YAML: {problem}", mark.line + 1 if mark else None) from None
    except RecursionError:
        raise YamlError("not valid YAML: it is nested too deeply, or an alias holds itself") from None
    except YamlError:
        raise
    except (ValueError, LookupError, OverflowError, TypeError, AttributeError) as error:
        # An impossible date, a number of 5,000 digits, a tag on a value of another kind.
        raise YamlError(f"not valid YAML: {error}") from None


def _unfolded(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, aliases written out; without end where it holds itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = LARGEST_VALUES + 1  # while its children are counted: one that is met again
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_unfolded(part, known) for part in parts)
    return known[id(node)]
