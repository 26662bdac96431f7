"""Names of clients, classes and samples, in one form."""

from __future__ import annotations

import unicodedata
from typing import Final

FORM: Final = "NFC"


def in_one_form(name: str) -> str:
    """The name in one form of Unicode: file systems and tables store letters such as "ä" in two.

    >>> in_one_form("a\u0308") == "\u00e4"
    True
    """
    return unicodedata.normalize(FORM, name)
