"""Types and checks that reading and writing of tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.planning.counts import LabelCounts

SizeCheck = Callable[[int, int], None]
"""Called with the numbers of clients and classes; may refuse a table before it takes memory."""


class Chunk(NamedTuple):
    """Some rows of a table: their counts, the client column as the file gives it, and where they start."""

    counts: LabelCounts
    names: Any
    first_row: int


def format_of(path: PathLike, *allowed: str) -> str:
    """The file's ending; refuse one that is not allowed."""
    suffix = Path(path).suffix.lower()
    if allowed and suffix not in allowed:
        ending = repr(suffix) if suffix else "a name without an ending"
        raise InputError(f"{path}: cannot tell the format from {ending}; use {', '.join(allowed)}")
    return suffix


@contextmanager
def shifted(first_row: int, names: Any = None) -> Iterator[None]:
    """Turn the row of a part into the row of the file, with the client's name."""
    try:
        yield
    except InputError as error:
        if error.row is None:
            raise
        client = "" if names is None else f" (client {str(names[error.row].as_py())!r})"
        raise InputError(f"{client}{error.message}", row=error.row + first_row) from None
