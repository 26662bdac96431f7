"""The run directories of a folder as the page lists them, including unreadable ones.

A page refreshes every few seconds, so a directory is read again only when its files have changed.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from fedeas.core.foreign_text import for_html
from fedeas.core.locks import is_held
from fedeas.runs.accuracy_curves import RoundRange
from fedeas.runs.store import LOCK, ROUNDS, RunState, RunStore, read_run
from fedeas.views.charts import Spec, convergence
from fedeas.views.figures import LIGHT, Screen
from fedeas.views.methods import RunSnapshot, grouped_by_method

MOST_RUNS = 200
MOST_METHODS = 24  # lines of the figure
# Below the figure, for narrow screens; it may take all the room that `drawn` adds for it.
LEGEND = {
    "orientation": "h", "xref": "container", "x": 0, "yref": "container", "y": 0, "yanchor": "bottom",
    "tracegroupgap": 0, "maxheight": 1,
}  # fmt: skip
LEGEND_LINE, LEGEND_CHARACTERS = 20, 50  # pixels and characters of a line of the legend on a narrow screen
FILES = ("config.json", ROUNDS, "summary.json")

Stamps = tuple[tuple[int, int], ...]
"""When each of the `FILES` of a run directory was last written, and its length; zeros for a missing file."""


class ListedRun(NamedTuple):
    """One run directory: its content, if it can be read, and what the page lists of it.

    `accuracy` is the mean over the rounds of the `window`, once the run is finished; `latest` is the last evaluation.
    """

    name: str
    policy: str = ""
    algorithm: str = ""
    state: str = ""
    seed: int | None = None
    accuracy: float | None = None
    window: str = ""
    latest: float | None = None
    seen: str = ""
    changed: datetime | None = None
    under_way: bool = False
    content: RunSnapshot | None = None


class Listing(NamedTuple):
    """Run directories, the latest first, and how many more there are."""

    runs: list[ListedRun]
    left_out: int

    @property
    def any_under_way(self) -> bool:
        """Whether any run is in progress, so that the list should be refreshed."""
        return any(run.under_way for run in self.runs)


def listed(folder: Path) -> Listing:
    """The run directories below the folder; one that cannot be read has the reason as its state."""
    folders = RunStore(folder).folders()
    found: list[tuple[int, Stamps, Path]] = []
    for path in folders:
        files = []
        for name in FILES:
            try:
                about = (path / name).stat()
                files.append((about.st_mtime_ns, about.st_size))
            except OSError:  # not there yet, or removed since the folder was listed
                files.append((0, 0))
        (config, _), (rounds, _), _ = files
        found.append((rounds or config, tuple(files), path))  # when its last round ended or, before the first, it began
    found.sort(reverse=True)
    runs = []
    for changed, stamps, path in found[:MOST_RUNS]:
        run = _read(path, changed, stamps)
        if run.content is not None and not run.content.finished:  # it is in progress if a process holds its lock
            under_way = is_held(path / LOCK)
            state = RunState.RUNNING if under_way else RunState.STOPPED
            run = run._replace(state=f"{state}: {run.state}", under_way=under_way)
        runs.append(run)
    return Listing(runs, len(found[MOST_RUNS:]))


@lru_cache(maxsize=2 * MOST_RUNS)
def _read(path: Path, changed: int, stamps: Stamps) -> ListedRun:
    """The run in a directory whose files have these stamps."""
    found = ListedRun(path.name, changed=datetime.fromtimestamp(changed / 1e9))
    try:
        run = read_run(path)
        if run.finished:
            run.check_summary()
        content = RunSnapshot(run, run.rounds(), run.summary() if run.finished else None, None)
        config, curve, done = run.config, content.curve, len(content.rounds)
        found = found._replace(
            policy=config.policy, algorithm=config.algorithm, seed=config.seed, seen=run.seen, content=content,
            latest=curve.accuracy[-1] if curve.rounds else None,
            state=f"{done:,} of {config.rounds.total:,} rounds{run.unverified}",
        )  # fmt: skip
        if content.summary is not None:
            accuracy, window = float(content.summary["accuracy"]), str(RoundRange(*content.summary["window"]))
            found = found._replace(state=f"finished{run.unverified}", accuracy=accuracy, window=window)
        return found
    except Exception as error:  # a damaged file may raise anything; the others are shown all the same
        reason = " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
        return ListedRun(path.name, state=f"cannot be read: {reason}", changed=found.changed)


def drawn(listed: Iterable[ListedRun], screen: Screen = LIGHT) -> tuple[Spec | None, int]:
    """The accuracy of the latest methods over rounds, if there is any, and how many methods have one.

    A dotted line ends in a dot if the run is in progress, and in a cross if it was stopped.
    """
    runs = {found: run for run in listed if (found := run.content) is not None and found.curve.rounds}
    order = list(runs)
    methods = sorted(grouped_by_method(order, screen=screen), key=lambda method: order.index(method.runs[0]))
    if not methods:
        return None, 0
    ends = {found: ("circle" if run.under_way else "x", f"{run.name}, {run.state}") for found, run in runs.items()}
    figure = convergence(methods[:MOST_METHODS], screen=screen, ends=ends)
    names = [wrap(method.name, LEGEND_CHARACTERS) for method in methods[:MOST_METHODS]]
    for trace in figure["data"]:
        trace["name"] = "<br>".join(map(for_html, names[int(trace["legendgroup"])]))
    height = 440 + LEGEND_LINE * sum(map(len, names))
    figure["layout"] |= {"showlegend": True, "legend": LEGEND, "height": height}
    return figure, len(methods)
