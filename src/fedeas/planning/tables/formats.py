"""What reading and writing of tables share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedeas.core.errors import InputError
from fedeas.core.files import PathLike
from fedeas.planning.counts import LabelCounts


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
