"""Sheets filled from finished runs, as Markdown, CSV and LaTeX: our number, the paper's, and how far they are apart."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from io import StringIO

from fedeas.paper.cells import Cell, Sheet
from fedeas.paper.results import Measured, Results

NOT_RUN = "not run"
BEST, SECOND = 1, 2


@dataclass(frozen=True)
class Entry:
    """A cell with what was found for it; `rank` is 1 for the best of its column, 2 for the second, else 0.

    `absent` says why there is no number, if there is none; `over` has the seeds that our number is a mean of.
    """

    ours: Measured | None
    paper: Decimal | None
    decimals: int
    absent: str = NOT_RUN
    rank: int = 0
    over: tuple[int, ...] = ()

    @property
    def number(self) -> str:
        """Our mean, or why there is none."""
        return self.absent if self.ours is None else self._shown(self.ours.mean)

    def spread(self, count: bool) -> str:
        """Deviation over seeds, if there are two; and, if wanted, how many there are."""
        if self.ours is None:
            return ""
        deviation = [] if self.ours.spread is None else [f"± {self._shown(self.ours.spread)}"]
        return ", ".join(deviation + [f"n={self.ours.seeds}"] * (count and self.ours.seeds > 0))

    @property
    def printed(self) -> str:
        """The paper's number with its digits."""
        return "" if self.paper is None else f"{self.paper:,}"

    @property
    def difference(self) -> str:
        """Ours minus the paper's, signed."""
        if self.ours is None or self.paper is None:
            return ""
        return f"{self.ours.mean - float(self.paper):+,.{self.decimals}f}".replace("-", "−")

    def _shown(self, value: float) -> str:
        return f"{value:,.{self.decimals}f}".replace("-", "−")


@dataclass(frozen=True)
class Filled:
    """A sheet with its entries; None where the paper has no cell."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Entry | None, ...]]
    note: str

    @property
    def seeds(self) -> set[int]:
        """How many seeds the numbers rest on, if they differ each of them."""
        entries = (entry for row in self.rows.values() for entry in row)
        found = {entry.ours.seeds for entry in entries if entry is not None and entry.ours is not None}
        return found - {0}  # what follows from counts needs none

    @property
    def counts_seeds(self) -> bool:
        """Whether each cell must say how many there are."""
        return len(self.seeds) > 1

    @property
    def remarks(self) -> str:
        """The note, after how many seeds there are if all numbers rest on the same."""
        (seeds,) = self.seeds if len(self.seeds) == 1 else (0,)
        counted = {0: "", 1: "One seed each. "}.get(seeds, f"Mean ± deviation over n = {seeds} seeds. ")
        return f"{counted}{self.note}".strip()


def fill(sheet: Sheet, results: Results) -> Filled:
    """What the finished runs give for each cell."""
    entries = {name: [_entry(cell, results) for cell in row] for name, row in sheet.rows.items()}
    for place, column in enumerate(sheet.columns if sheet.ranked else ()):
        if column not in sheet.unranked:
            _rank({name: row for name, row in entries.items() if name not in sheet.aside}, place)
    mixed = results.mixed_generators(config for cell in sheet.cells for config in cell.configs)
    warnings = [f"Not all runs had the same generator called {name}." for name in mixed]
    note = " ".join([*warnings, *([sheet.note] if sheet.note else [])])
    return Filled(sheet.title, sheet.columns, {name: tuple(row) for name, row in entries.items()}, note)


def _entry(cell: Cell | None, results: Results) -> Entry | None:
    if cell is None:
        return None
    if not cell.configs:
        value = cell.measure()
        return Entry(None if value is None else Measured(value, None, 0), cell.paper, cell.decimals)
    found, over = results.measured(cell.configs, cell.measure), tuple(results.shared_seeds(cell.configs))
    seeds = len(over)
    if found is not None and found.seeds == seeds:
        return Entry(found, cell.paper, cell.decimals, over=over)
    # A mean over the seeds that have a number would favour what fails more often.
    part = f" by {seeds - found.seeds} of {seeds} seeds" if found is not None else ""
    return Entry(None, cell.paper, cell.decimals, f"{cell.otherwise}{part}" if seeds else NOT_RUN)


def _rank(rows: dict[str, list[Entry | None]], place: int) -> None:
    """Mark the best and the second of a column by the digits that are shown, once there is something to compare.

    Means over different seeds are no such thing: one lucky seed would be called better than the mean of ten.
    """
    shown = {name: round(e.ours.mean, e.decimals) for name, row in rows.items() if (e := row[place]) and e.ours}
    over = {entry.over for name in shown if (entry := rows[name][place]) is not None}
    best = sorted(set(shown.values()), reverse=True)[:SECOND]
    for name, value in shown.items() if len(shown) > 1 and len(over) == 1 else ():
        entry = rows[name][place]
        assert entry is not None
        rows[name][place] = replace(entry, rank=best.index(value) + 1 if value in best else 0)


def markdown(table: Filled) -> str:
    """For docs: in each cell our number, and below it the paper's with the difference. Best bold, second underlined."""
    lines = [f"### {table.title}", "", _line(["", *table.columns]), _line(["---", *["---:"] * len(table.columns)])]
    for name, row in table.rows.items():
        lines.append(_line([name, *(_markdown_entry(entry, table.counts_seeds) for entry in row)]))
    return "\n".join([*lines, "", *([table.remarks, ""] if table.remarks else [])])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_entry(entry: Entry | None, count: bool) -> str:
    if entry is None:
        return ""
    marks = {BEST: "**{}**", SECOND: "<u>{}</u>"}
    spread = entry.spread(count)
    ours = marks.get(entry.rank, "{}").format(entry.number) + (f" ({spread})" if spread else "")
    if not entry.printed:
        return ours
    return f"{ours}<br>paper {entry.printed}" + (f", {entry.difference}" if entry.difference else "")


def comma_separated(table: Filled) -> str:
    """A line for each cell, with unrounded numbers; empty where there is none."""
    text = StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    write(["row", "column", "ours", "spread", "seeds", "paper", "difference", "rank", "status"])
    for name, row in table.rows.items():
        for column, entry in zip(table.columns, row, strict=True):
            if entry is not None:
                write([name, column, *_csv_entry(entry)])
    return text.getvalue()


def _csv_entry(entry: Entry) -> list[object]:
    ours, paper = entry.ours, entry.paper
    apart = "" if ours is None or paper is None else ours.mean - float(paper)
    own = ["", "", 0] if ours is None else [ours.mean, "" if ours.spread is None else ours.spread, ours.seeds]
    status = entry.absent if ours is None else "" if ours.seeds else "from counts"
    return [*own, "" if paper is None else paper, apart, entry.rank or "", status]


def latex(table: Filled) -> str:
    """A ``tabular`` for booktabs: best bold, second underlined, the paper's number and the difference in brackets."""
    lines = [f"% {table.title}. {table.remarks}", rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(["", *map(_escaped, table.columns)]) + r" \\", r"\midrule"]
    for name, row in table.rows.items():
        cells = [_latex_entry(entry, table.counts_seeds) for entry in row]
        lines.append(" & ".join([_escaped(name), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_entry(entry: Entry | None, count: bool) -> str:
    if entry is None:
        return "--"
    marks = {BEST: r"\textbf{{{}}}", SECOND: r"\underline{{{}}}"}
    ours = marks.get(entry.rank, "{}").format(entry.number)
    brackets = ", ".join(filter(None, (entry.printed, entry.difference)))
    text = f"{ours} {entry.spread(count)} {f'({brackets})' if brackets else ''}"
    return _escaped(" ".join(text.split())).replace("±", r"$\pm$").replace("−", "$-$")


def _escaped(text: str) -> str:
    for letter in "&%_#":
        text = text.replace(letter, f"\\{letter}")
    return text
