"""Names in sentences, and text from elsewhere: in one form of Unicode, and safe for the place where it is shown.

Names of clients and classes, paths and messages can hold anything: terminal escape sequences, markup, HTML,
spreadsheet formulas. Each function for showing it is for one kind of place.
"""

import html
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

FORM: Final = "NFC"
MOST_NAMED = 6  # names of a long list that `first_of` shows

# Joiners are invisible, but Persian, Hindi and many emoji are not written without them.
JOINERS = "\u200c\u200d"

# A spreadsheet reads a cell that begins like this as a formula, unless it is a number.
_FORMULA = re.compile(r"(?![-+]?[\d.]+\Z)'*[=+\-@\t\r\n]")

FORMULA_IN_CSV = (r"^'('*[=+\-@\t\r\n])", r"\1")
"""Pattern and replacement that undo `for_csv`; both Python and Arrow can use them."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|$~:])")


def in_one_form(name: str) -> str:
    """The name in one form of Unicode: file systems and tables store letters such as "ä" in two."""
    return unicodedata.normalize(FORM, name)


def printable(text: object) -> str:
    r"""One line in which control characters and marks that reverse the direction are written as escapes.

    >>> printable("a\x1b[31m\nb")
    'a\\x1b[31m\\nb'
    """
    line = str(text)
    for each in set() if line.isprintable() else set(line) - set(JOINERS):
        if not each.isprintable() and unicodedata.category(each) != "Zs":
            line = line.replace(each, each.encode("unicode_escape").decode("ascii"))
    return line


def for_html(text: object) -> str:
    """Text for an HTML page, inside an element or a quoted attribute."""
    return html.escape(printable(text))


def for_markdown(text: object) -> str:
    r"""Text for Markdown, escaped so that it does not become a link or a picture.

    >>> for_markdown("[x](y)")
    '\\[x\\]\\(y\\)'
    """
    return _MARKDOWN.sub(r"\\\1", printable(text))


def for_csv(text: str) -> str:
    """Text for a cell of a CSV file: a spreadsheet shows it instead of running it as a formula.

    >>> for_csv("=1+1"), for_csv("-1"), for_csv("ann")
    ("'=1+1", '-1', 'ann')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_csv(text: str) -> str:
    """The text that `for_csv` wrote."""
    return re.sub(*FORMULA_IN_CSV, text)


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
