"""The main result in one paragraph, with all numbers from finished runs."""

from __future__ import annotations

from collections.abc import Mapping

from fedeas.paper.artefacts import references_sheet
from fedeas.paper.published import published, setting
from fedeas.paper.run_plans import allocation_of
from fedeas.paper.studies import FEDAVG, FEDEAS, HEADLINE
from fedeas.paper.tables import Entry
from fedeas.paper.workbook import Workbook
from fedeas.runs.comparison import Difference, Verdict, listed, signed


def headline(book: Workbook) -> str:
    """The comparison of policies at equal budget, as a paragraph."""
    table, where = book.table(references_sheet), setting(HEADLINE)
    rows = {name: dict(zip(table.columns, row, strict=True)) for name, row in table.rows.items()}
    level = next(column for column in table.columns if column.startswith(str(book.study.window)))
    reached = {name: entry for name, row in rows.items() if (entry := row[level]) is not None and entry.ours}
    if FEDEAS.title not in reached:
        return f"FedEAS has not been run on {book.study.title(where)}."
    total = allocation_of(book.study.config(where, FEDEAS)).total
    differences = {
        name: entry.ours
        for name, row in rows.items()
        if (entry := row["minus FedEAS, points"]) is not None and isinstance(entry.ours, Difference)
    }
    said = [
        f"On {book.study.title(where)}, under the {book.study.protocol} protocol, FedEAS reaches "
        f"{_level(reached[FEDEAS.title])} with {total:,} synthetic images. This is the accuracy in "
        f"{book.study.window}: mean ± standard deviation over n seeds."
    ]
    if FEDAVG.title in reached:
        said.append(f"FedAvg, without synthetic images, reaches {_level(reached[FEDAVG.title])}{_work(rows)}.")
    if differences:
        shown = (
            f"{name} {signed(found.mean, 2)} ({found.range_text(2) or 'one seed'})"
            for name, found in differences.items()
        )
        said.append(f"Differences to FedEAS in points, with 95 % intervals paired by seed: {', '.join(shown)}.")
        said.append(_conclusion(differences))
    return " ".join([*said, _papers()])


def _level(entry: Entry) -> str:
    assert entry.ours is not None
    return f"{entry.ours.text(2)} % (n = {entry.ours.seeds})"


def _work(rows: Mapping[str, Mapping[str, Entry | None]]) -> str:
    """How many steps FedAvg takes, relative to FedEAS."""
    own, other = (rows[method.title]["steps"] for method in (FEDAVG, FEDEAS))
    if own is None or other is None or own.ours is None or other.ours is None:
        return ""
    return f" with {100 * own.ours.mean / other.ours.mean:.0f} % of FedEAS's training steps"


def _conclusion(differences: Mapping[str, Difference]) -> str:
    """The conclusion from the differences to FedEAS, including those that are undecided."""
    names = {verdict: [name for name, each in differences.items() if each.verdict is verdict] for verdict in Verdict}
    shown = [f"higher than {listed(names[Verdict.LOWER])}"] if names[Verdict.LOWER] else []
    shown += [f"lower than {listed(names[Verdict.HIGHER])}"] if names[Verdict.HIGHER] else []
    said = [f"FedEAS is {' and '.join(shown)}."] if shown else []
    open_ = [*names[Verdict.UNDECIDED], *names[Verdict.ONE_SEED]]
    said += [f"These seeds show no difference between FedEAS and {listed(open_)}."] if open_ else []
    return " ".join(said)


def _papers() -> str:
    own, base = (published().printed(method.name, setting(HEADLINE)) for method in (FEDEAS, FEDAVG))
    return f"The paper reports {own} % for FedEAS and {base} % for FedAvg under its own protocol."
