"""Tables that fit the terminal without cutting a name or a number, and that are complete in a pipe or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

TIGHT: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
"""Fits eighty columns."""

GAP = 2  # columns that a tight table takes beside each of its own
UNLIMITED = 1000  # columns of a pipe or a file


def output() -> Console:
    """The console for results. A pipe or a file has room for any table, unless COLUMNS sets its width."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNLIMITED
    return console


@dataclass(frozen=True)
class FittedTable:
    """A table by columns. It leaves out columns that do not fit, and names them below.

    Args:
        title: above the table.
        columns: the cells of each column by its head; columns get room in this order.
        justify: all columns but the first.
        notes: below the table.
    """

    title: Text
    columns: Mapping[str, Sequence[Text]]
    justify: Literal["left", "right"] = "left"
    notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first, *others = self.columns
        fitting, room = {first}, options.max_width - self._width(first)
        for head in others:
            if (width := self._width(head)) <= room:
                fitting.add(head)
                room -= width
        shown = {head: cells for head, cells in self.columns.items() if head in fitting}
        hidden = [head for head in self.columns if head not in shown]
        more = [f"No room for: {'; '.join(hidden)}. A wider window or a pipe shows them."] if hidden else []
        caption = "\n".join([*self.notes, *more]) or None
        table = Table(title=self.title, caption=caption, title_justify="left", caption_justify="left", **TIGHT)
        for head in shown:
            table.add_column(
                stacked(head), justify="left" if head == first else self.justify, no_wrap=head != first, overflow="fold"
            )
        for row in zip(*shown.values(), strict=True):
            table.add_row(*row)
        yield table

    def _width(self, head: str) -> int:
        texts = [stacked(head), *(cell.plain for cell in self.columns[head])]
        return GAP + max(cell_len(line) for text in texts for line in text.split("\n"))


def stacked(head: str) -> str:
    r"""Each word of a column's head on its own line, which makes the column narrow.

    >>> stacked("rounds 55-60, %")
    'rounds\n55-60\n%'
    """
    return "\n".join(head.replace(",", "").split())
