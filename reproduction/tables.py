"""Tables: their cells, filled from finished runs, and written as Markdown, CSV and LaTeX."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from io import StringIO

from fedeas.config import RunConfig
from fedeas.runs import Difference, Measured, ranks
from reproduction.results import Measure, Results, final, gain
from reproduction.studies import plan_of
from reproduction.text import fixed, markdown_table, signed

NOT_RUN, NOT_REACHED = "not run", "not reached"


@dataclass(frozen=True)
class Cell:
    """A number in a table."""

    configs: tuple[RunConfig, ...]  # the runs that it needs; none for a number that follows from label counts
    measure: Measure  # of their summaries
    paper: Decimal | None = None  # the paper's number
    decimals: int = 2
    otherwise: str = "none"  # shown if the runs have no such number
    compares: bool = False  # whether it is a difference of two runs, shown with its interval
    with_final: bool = False  # whether the final accuracy of its run is shown, too


Rows = dict[str, tuple[Cell | None, ...]]
"""By the name of the row; None where there is no number."""


@dataclass(frozen=True)
class Sheet:
    """A table to be filled."""

    title: str
    columns: tuple[str, ...]
    rows: Rows
    ranked: tuple[str, ...] = ()  # columns whose best and second row are marked
    aside: tuple[str, ...] = ()  # rows that are not ranked
    note: str = ""
    by_method: bool = False  # whether each row is one method; a column then shows its number of seeds
    is_complete: bool = False  # whether no more runs are made for it

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, row by row."""
        return (cell for row in self.rows.values() for cell in row if cell is not None)


def placed(run: RunConfig, printed: Decimal | None = None) -> Cell:
    """Synthetic samples of all clients."""
    return Cell((), lambda: float(plan_of(run).total), printed, 0)


def generated(run: RunConfig) -> Cell:
    """Different images of a run, which have to be made: each once, however many clients share it."""
    return Cell((), lambda: float(plan_of(run).distinct), None, 0)


def imbalance_removed(run: RunConfig) -> Cell:
    """How much of the label imbalance the plan removes, in percent."""
    return Cell((), lambda: 100 * plan_of(run).summary.removed, None, 1)


def minus(run: RunConfig, other: RunConfig) -> Cell | None:
    """Points of accuracy above another run; no cell if it is the same run."""
    return None if run == other else Cell((run, other), gain, compares=True)


def half_digit(printed: Decimal) -> float:
    """How far the exact number may be from a printed one, which is rounded."""
    return 0.5 * 10.0 ** int(printed.as_tuple().exponent)


@dataclass
class Entry:
    """A filled cell, and its parts as text."""

    ours: Measured | None  # if it is None, `absent` says why
    paper: Decimal | None
    decimals: int
    absent: str = NOT_RUN
    values: Mapping[int, float] = field(default_factory=dict)  # by seed, if the number comes from runs
    final: Measured | None = None  # the final accuracy, if the cell shows it
    rank: int = 0  # 1 for the best of its column, 2 for the second

    def __post_init__(self) -> None:
        ours, paper, decimals = self.ours, self.paper, self.decimals
        self.number = self.absent if ours is None else fixed(ours.mean, decimals)
        paired = isinstance(ours, Difference) and ours.interval is not None  # shown with the interval of a difference
        self.interval = [ours.range_text(decimals), ours.verdict] if isinstance(ours, Difference) and paired else []
        spread = None if ours is None or paired else ours.spread
        self.deviation = "" if spread is None else f"± {fixed(spread, decimals)}"
        self.last = "" if self.final is None else f"final {self.final.text(decimals)}"
        self.printed = "" if paper is None else f"{paper:,}"
        apart = None if ours is None or paper is None else ours.mean - float(paper)
        self.difference = "" if apart is None else signed(apart, decimals)
        self.place = ""  # of the paper's number: inside or outside the 95 % interval of our mean
        level = None if ours is None else Difference(ours.mean, ours.spread, ours.seeds)
        if level is not None and level.interval is not None and paper is not None:
            (low, high), digit = level.interval, half_digit(paper)
            is_inside = low - digit <= float(paper) <= high + digit
            self.place = f"{'inside' if is_inside else 'outside'} {level.range_text(decimals)}"

    def text(self, count: bool) -> str:
        """Our number, with its rank, deviation, interval, verdict and, if wanted, seeds; below it the paper's."""
        number = {1: f"**{self.number}**", 2: f"<u>{self.number}</u>"}.get(self.rank, self.number)
        seeds = [f"n={self.ours.seeds}"] if count and self.ours and self.ours.seeds else []
        inside = ", ".join([*self.interval, *seeds])
        ours = " ".join(filter(None, (number, self.deviation, inside and f"({inside})")))
        paper = ", ".join(filter(None, (self.printed and f"paper {self.printed}", self.difference, self.place)))
        return "<br>".join(filter(None, (ours, self.last, paper)))


@dataclass(frozen=True)
class Filled:
    """A filled sheet; an entry is None if the paper has no cell there."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[Entry | None, ...]]
    note: str
    by_method: bool = False

    @property
    def entries(self) -> list[Entry]:
        """All entries, row by row."""
        return [entry for row in self.rows.values() for entry in row if entry is not None]

    @property
    def heads(self) -> list[str]:
        """The heads of the columns; if each row is one method, the first column is its number of seeds."""
        return [*["n"] * self.by_method, *self.columns]

    def shown(self, name: str) -> tuple[Entry | None, ...]:
        """The entries of a row as displayed; a method that was not run says so only once."""
        row = self.rows[name]
        if not self.by_method or self._seeds_of(name):
            return row
        missing = [entry for entry in row if entry is not None and entry.ours is None]
        again = [entry for entry in missing[1:] if entry.paper is None]
        return tuple(None if any(entry is each for each in again) else entry for entry in row)

    def written(self) -> Iterator[list[str]]:
        """Each row in Markdown, with its seeds if it is one method; a cell shows its own where they differ."""
        for name in self.rows:
            cells, usual = list[str](), self._seeds_of(name)
            for entry in self.shown(name):
                differs = entry is not None and entry.ours is not None and entry.ours.seeds != usual
                count = differs if self.by_method else len(self.seeds) > 1
                cells.append("" if entry is None else entry.text(count))
            yield [name, *[str(usual)] * self.by_method, *cells]

    def _seeds_of(self, name: str) -> int:
        return max((entry.ours.seeds for entry in self.rows[name] if entry is not None and entry.ours), default=0)

    @property
    def seeds(self) -> set[int]:
        """The different numbers of seeds behind the entries."""
        return {entry.ours.seeds for entry in self.entries if entry.ours} - {0}  # numbers from counts need no seeds

    @property
    def remarks(self) -> str:
        """The note below the table; before it the number of seeds, unless each entry shows it, and about intervals."""
        (seeds,) = self.seeds if len(self.seeds) == 1 else (0,)
        said = {0: "", 1: "One seed each. "}.get(seeds, f"Mean ± deviation over n = {seeds} seeds. ")
        if self.by_method and self.seeds:
            said = "Mean ± standard deviation over n seeds. "
        if any(entry.interval for entry in self.entries):
            said += "Differences are paired by seed, with 95 % intervals. "
        elif any(isinstance(entry.ours, Difference) and entry.ours.seeds == 1 for entry in self.entries):
            said += "With one seed differences have no interval. "
        if any(entry.place for entry in self.entries):
            said += "Inside or outside: whether the 95 % interval of our mean contains the paper's number. "
        return f"{said}{self.note}".strip()


def fill(sheet: Sheet, results: Results) -> Filled:
    """Fill each cell of a sheet from the finished runs."""
    rows = {name: [None if cell is None else _entry(cell, results) for cell in row] for name, row in sheet.rows.items()}
    for place in map(sheet.columns.index, sheet.ranked):
        column = {name: entry for name, row in rows.items() if name not in sheet.aside and (entry := row[place])}
        for name, rank in ranks({name: entry.values for name, entry in column.items()}).items():
            rows[name][place] = replace(column[name], rank=rank)
    ambiguous = results.ambiguous_names(config for cell in sheet.cells for config in cell.configs)
    notes = filter(None, [*(f"Not all runs had the same {name}." for name in ambiguous), sheet.note])
    entries = {name: tuple(row) for name, row in rows.items()}
    return Filled(sheet.title, sheet.columns, entries, " ".join(notes), sheet.by_method)


def _entry(cell: Cell, results: Results) -> Entry:
    if not cell.configs:
        value = cell.measure()
        return Entry(None if value is None else Measured(value, None, 0), cell.paper, cell.decimals)
    found, values = results.values(cell.configs, cell.measure), results.known(cell.configs, cell.measure)
    if len(values) < len(found):  # a mean over only the seeds that have a number would be biased
        some = f" by {len(found) - len(values)} of {len(found)} seeds" * bool(values)
        return Entry(None, cell.paper, cell.decimals, f"{cell.otherwise}{some}")
    ours = (Difference if cell.compares else Measured).of(list(values.values()))
    finals = results.known(cell.configs, final) if cell.with_final else {}
    return Entry(ours, cell.paper, cell.decimals, values=values, final=Measured.of([*finals.values()]))


def markdown(*tables: Filled) -> str:
    """Tables in Markdown: our number (best bold, second underlined), final accuracy, the paper's, the difference."""
    lines = list[str]()
    for table in tables:
        lines += [f"### {table.title}", "", markdown_table(["", *table.heads], table.written(), "---:"), ""]
        lines += [table.remarks, ""] if table.remarks else []
    return "\n".join(lines)


def comma_separated(*tables: Filled) -> str:
    """Tables in CSV: a line for each cell, with unrounded numbers; empty if there is none."""
    text = StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    unknown, between = [None] * 3, ("final", "final spread", "low", "high", "verdict")
    write(["table", "row", "column", "ours", "spread", "seeds", *between, "paper", "difference", "rank", "status"])
    for table in tables:
        for name, row in table.rows.items():
            for column, entry in ((column, entry) for column, entry in zip(table.columns, row, strict=True) if entry):
                ours, paper = entry.ours, entry.paper
                apart = None if ours is None or paper is None else ours.mean - float(paper)
                own = [None, None, 0] if ours is None else [ours.mean, ours.spread, ours.seeds]
                last = [None, None] if entry.final is None else [entry.final.mean, entry.final.spread]
                ends = [*(ours.interval or unknown[:2]), ours.verdict] if isinstance(ours, Difference) else unknown
                status = entry.absent if ours is None else "" if ours.seeds else "from counts"
                write([table.title, name, column, *own, *last, *ends, paper, apart, entry.rank or "", status])
    return text.getvalue()
