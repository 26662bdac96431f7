"""Parts of texts: lists of names in a sentence, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_NAMED = 6


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def first_of(names: Sequence[str]) -> str:
    """The first names for a sentence, and how many there are besides.

    >>> first_of("ab"), first_of("abcdefgh")
    ('a, b', 'a, b, c, d, e, f and 2 more')
    """
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown_table(["name", "value"], [["a", "1"]]))
    | name | value |
    | --- | --- |
    | a | 1 |
    """
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))
