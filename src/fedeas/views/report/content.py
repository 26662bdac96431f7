"""The content of the report's page: texts, tables and charts for its template."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.sentences import listed
from fedeas.generators.quality.grid import strip
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.runs.comparison import IT, Measured, conclusion, fixed
from fedeas.runs.methods import differing, joined, values_of
from fedeas.views.figures import MOST_CLIENTS
from fedeas.views.report import figures
from fedeas.views.report.breakdown import Breakdown, breakdown_of
from fedeas.views.report.figures import Apart, Spec
from fedeas.views.report.methods import MethodRuns, RunSnapshot, baseline, marks_of, matched, reference
from fedeas.views.report.samples import Row, samples_of

MOST_NAMED = 2  # methods in a sentence of the result; the table has all
PHASES = ("generate", "train", "total")  # of which the seconds are shown, the last as the rest
TILE = 56  # approximate size of an image in a grid, in pixels of the screen


class Cell(NamedTuple):
    """A text with small notes below it; `mark` is "best", "second" or empty."""

    text: str
    notes: Sequence[str] = ()
    mark: str = ""


class Table(NamedTuple):
    """A table; cells are texts, `Cell`s and methods, and the first of a row is its head."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


class Chart(NamedTuple):
    """A figure of Plotly, its description, its caption, and the methods in its legend, in the order of their groups."""

    spec: Spec
    alt: str
    caption: str = ""
    methods: Sequence[MethodRuns] = ()


def page_content(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    """All that the template shows."""
    runs = [each for method in methods for each in method.runs]
    finished = [method for method in methods if method.finished]
    return {
        "methods": methods,
        "runs": runs,
        "unfinished": [each for each in runs if not each.finished],
        "dataset": joined(each.run.config.data.dataset for each in runs),
        "clients": listed([*map(str, sorted({each.run.config.partition.clients for each in runs}))]),
        "references": [each.name for each in _references(finished)] if len(finished) > 1 else [],
        "conclusions": _conclusions(finished),
        "accuracy": _accuracy_table(finished) if finished else None,
        "work": _work_table(finished) if finished else None,
        "apart": _differences(finished),
        "curves": _curves(methods),
        "price": _price(finished) if finished else None,
        **_by_class_and_client(finished),
        "without_plan": _reasons_for_no_plan(methods),
        "federations": _federations(methods),
        "most_clients": MOST_CLIENTS,
        "samples": samples_of(methods),
        "strip_of": _strip,
        "times": _times(finished) if finished else None,
        **_setup(methods, runs),
    }


def _references(finished: Sequence[MethodRuns]) -> list[MethodRuns]:
    """The methods that the others are compared with, one for each federation."""
    return list(dict.fromkeys(reference(method, finished) for method in finished))


def _conclusions(finished: Sequence[MethodRuns]) -> list[dict[str, Any]]:
    """What each reference method shows: the user's choice first, then those that most methods are compared with."""
    found = []
    for chosen in _references(finished):
        others = [method for method in finished if method is not chosen and reference(method, finished) is chosen]
        compared = {method.name: apart for method in others if (apart := method.seeds.minus(chosen.seeds)) is not None}
        about = {
            "method": chosen,
            "others": len(others),
            "accuracy": chosen.accuracy.text(2),
            "final": chosen.seeds.percent("final").text(2),
            "differences": conclusion(IT, compared, most=MOST_NAMED),
        }
        found.append(about)
    return sorted(found, key=lambda each: (not each["method"].is_chosen, -each["others"]))


def _accuracy_table(finished: Sequence[MethodRuns]) -> Table:
    windows = {method.seeds.window for method in finished}
    references, compares = _references(finished), len(finished) > 1
    difference = f"minus {references[0].name}, points" if len(references) == 1 else "difference, points"
    head = [
        "method",
        "n",
        f"{min(windows)}, %" if len(windows) == 1 else "accuracy, %",
        *[difference] * compares,
        "final, %",
        "peak, %",
    ]
    marks = marks_of(finished)
    rows = [
        [
            method,
            str(len(method.seeds)),
            Cell(method.accuracy.text(2), [str(method.seeds.window)] * (len(windows) > 1), marks.get(method.name, "")),
            *[_compared(method, finished, named=len(references) > 1)] * compares,
            method.seeds.percent("final").text(2),
            method.seeds.percent("peak").text(2),
        ]
        for method in finished
    ]
    return Table("Accuracy, mean ± deviation over seeds", head, rows)


def _compared(method: MethodRuns, methods: Sequence[MethodRuns], named: bool) -> Cell:
    """The paired difference to the reference, its interval and its verdict."""
    chosen = reference(method, methods)
    if method is chosen:
        return Cell("reference")
    found = method.seeds.minus(chosen.seeds)
    if found is None:
        return Cell("-", ["no seed in common"])
    notes = [f"minus {chosen.name}"] * named + [found.range_text(2)] * bool(found.interval) + [found.verdict]
    return Cell(fixed(found.mean, 2), notes)


def _differences(finished: Sequence[MethodRuns]) -> Chart | None:
    """The paired differences to the reference methods that have an interval, drawn; one seed has none."""
    shown: list[Apart] = []
    for method in finished:
        chosen = reference(method, finished)
        found = None if method is chosen else method.seeds.minus(chosen.seeds)
        if found is not None and found.interval is not None:
            shown.append(Apart(method.name, chosen.name, method.look, found))
    if not shown:
        return None
    said = "; ".join(f"{each.name} minus {each.reference}: {fixed(each.found.mean, 2)} points" for each in shown)
    references = {each.reference for each in shown}
    to = min(references) if len(references) == 1 else "the reference that the table names"
    caption = f"Paired differences of accuracy to {to}, with their 95 % intervals. Hollow: no difference shown."
    return Chart(figures.differences(shown), f"Differences of accuracy. {said}", caption)


def _work_table(finished: Sequence[MethodRuns]) -> Table:
    thresholds = _thresholds(finished)
    aim = f"{100 * thresholds[0]:g} %" if len(thresholds) == 1 else "the threshold"
    head = [
        "method", "samples generated", "imbalance removed, %", f"rounds to {aim}", "median Gamma-hat", "eta",
        "steps", "images seen", "generation, s", "training, s",
    ]  # fmt: skip
    return Table("Work and other measures, averaged over seeds", head, [_work_row(each, finished) for each in finished])


def _work_row(method: MethodRuns, methods: Sequence[MethodRuns]) -> list[object]:
    seeds, base = method.seeds, baseline(method, methods)
    gain = method.accuracy.mean - base.accuracy.mean if base else 0.0
    removed, generated = seeds.average("imbalance_removed"), round(seeds.average("generated") or 0)
    return [
        method,
        Cell(f"{generated:,}", [f"of {method.total:,} planned"] * (generated != method.total)),
        _number(None if removed is None else 100 * removed, 1),
        _rounds_to_threshold([each["rounds_to_threshold"] for each in seeds.summaries.values()]),
        _number(seeds.average("gamma_hat"), 3),
        _number(scores.accuracy_per_thousand(gain, method.total) if base and method.total else None, 2),
        _number(seeds.average("steps"), 0),
        _number(seeds.average("samples"), 0),
        _number(seeds.average("seconds", "generate"), 1),
        _number(seeds.average("seconds", "train"), 1),
    ]


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else fixed(value, decimals)


def _rounds_to_threshold(rounds: Sequence[int | None]) -> Cell:
    """The median over seeds; a seed that never reaches the threshold counts as infinity."""
    never, middle = rounds.count(None), median(math.inf if each is None else each for each in rounds)
    if math.isinf(middle):
        return Cell("never")
    return Cell(f"{middle:g}", [f"{never} of {len(rounds)} never"] * bool(never))


def _curves(methods: Sequence[MethodRuns]) -> Chart | None:
    """Accuracy over rounds of the methods that have any."""
    drawn = [method for method in methods if method.curves(finished=True) or method.curves(finished=False)]
    if not drawn:
        return None
    several = any(len(each.curves(finished=True)) > 1 for each in drawn)
    caption = "Line: mean over seeds. Band: from the lowest to the highest seed. " * several + "Dashed: the threshold."
    caption += " Dotted: runs that are unfinished." if any(each.curves(finished=False) for each in drawn) else ""
    alt = f"Accuracy over rounds of {_names(drawn)}"
    return Chart(figures.convergence(drawn, _thresholds(methods)), alt, caption, drawn)


def _price(finished: Sequence[MethodRuns]) -> Chart:
    """Accuracy against the number of synthetic samples."""
    said = "; ".join(f"{each.name}: {each.accuracy.mean:.1f} % with {each.total:,}" for each in finished)
    caption = "Samples as planned, on a logarithmic scale that begins at 0."
    caption += " Bars: ± one standard deviation over seeds." if any(each.accuracy.spread for each in finished) else ""
    caption += " Points of the same number are side by side." if matched(finished) else ""
    spec = figures.price(finished, f"accuracy, %, mean of {joined(str(each.seeds.window) for each in finished)}")
    return Chart(spec, f"Accuracy against synthetic samples. {said}", caption, finished)


def _by_class_and_client(finished: Sequence[MethodRuns]) -> dict[str, Any]:
    """Charts and a table of accuracies by class and by client; methods with other classes have their own chart."""
    found = [each for method in finished if (each := breakdown_of(method)) is not None]
    groups: dict[tuple[str, ...], list[Breakdown]] = {}
    for each in found:
        groups.setdefault(each.names, []).append(each)
    known = [each for each in found if each.clients]
    return {
        "by_class": [_class_chart(same) for same in groups.values()],
        "by_client": _client_chart(known) if known else None,
        "fairness": _fairness_table(found) if found else None,
    }


def _class_chart(same: Sequence[Breakdown]) -> Chart:
    methods = [each.method for each in same]
    said = "; ".join(f"{each.method.name}: worst {_worst_class(each).text} %" for each in same)
    caption = "Accuracy of each class on the server's test set, mean over seeds."
    return Chart(figures.by_class(same), f"Accuracy by class. {said}", caption, methods)


def _client_chart(known: Sequence[Breakdown]) -> Chart:
    methods = [each.method for each in known]
    said = "; ".join(f"{each.method.name}: worst tenth {_measured(each.tenth(worst=True))} %" for each in known)
    caption = "Each client's accuracy is that of its classes, weighted by how many samples of each it holds."
    return Chart(figures.by_client(known), f"Accuracy by client. {said}", caption, methods)


def _fairness_table(found: Sequence[Breakdown]) -> Table:
    head = ["method", "worst class, %", "worst tenth of clients, %", "average client, %", "best tenth of clients, %"]
    rows = [
        [
            each.method,
            _worst_class(each),
            _measured(each.tenth(worst=True)),
            _measured(each.average_client),
            _measured(each.tenth(worst=False)),
        ]
        for each in found
    ]
    return Table("Accuracy by class and by client, mean ± deviation over seeds", head, rows)


def _worst_class(each: Breakdown) -> Cell:
    """The class with the lowest mean over seeds."""
    worst = int(np.nanargmin(each.mean_classes))
    return Cell(_measured(Measured.of(each.classes[:, worst].tolist())), [f"class {each.names[worst]}"])


def _measured(value: Measured | None) -> str:
    return "-" if value is None else value.text(2)


def _reasons_for_no_plan(methods: Iterable[MethodRuns]) -> dict[str, list[MethodRuns]]:
    """Methods whose plan cannot be shown, by the reason."""
    reasons: dict[str, list[MethodRuns]] = {}
    for method in methods:
        if method.runs[0].planned is None:
            kept = method.runs[0].run.is_kept
            reason = "counts and plan are not part of kept results" if kept else "the counts stayed with the clients"
            reasons.setdefault(reason, []).append(method)
    return reasons


def _federations(methods: Sequence[MethodRuns]) -> list[dict[str, Any]]:
    """Methods by their table of real counts, with heat maps."""
    federations: dict[tuple[object, ...], list[MethodRuns]] = {}
    for method in methods:
        if method.runs[0].planned is not None:
            table = _planned(method)[0].n
            federations.setdefault((table.shape, table.tobytes()), []).append(method)
    return [_federation(members) for members in federations.values()]


def _federation(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    """Heat maps of one table of real counts, and of the different plans for it."""
    counts, _ = _planned(methods[0])
    plans: dict[bytes, list[MethodRuns]] = {}
    for method in methods:
        if method.total:
            plans.setdefault(_planned(method)[1].n.tobytes(), []).append(method)
    tables = [counts.n, *(_planned(same[0])[1].n for same in plans.values())]
    captions = [f"real: {counts.total:,} samples"]
    captions += [f"{_names(same)}: {same[0].total:,} synthetic" for same in plans.values()]
    maps = [
        Chart(spec, f"Heat map of clients by classes, {caption}", caption)
        for spec, caption in zip(figures.heat_maps(counts, tables), captions, strict=True)
    ]
    return {"methods": methods, "counts": counts, "maps": maps}


def _planned(method: MethodRuns) -> tuple[LabelCounts, Allocation]:
    planned = method.runs[0].planned
    assert planned is not None
    return planned


def _strip(row: Row) -> dict[str, str]:
    """A strip of images, enlarged by a whole number if there is room, so that all pixels are equal squares."""
    png, width, height = strip(row.images)
    scale = max(1, round(TILE / height))
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return {"source": source, "look": f"width:{scale * width}px;border-bottom:min({scale}px,1vw) solid #fff"}


def _times(finished: Sequence[MethodRuns]) -> Chart:
    spent: dict[MethodRuns, tuple[float, float, float]] = {}
    for method in finished:
        generation, training, total = (method.seeds.average("seconds", name) or 0 for name in PHASES)
        spent[method] = generation, training, max(total - generation - training, 0.0)
    said = "; ".join(f"{method.name}: {', '.join(f'{part:.1f}' for part in parts)}" for method, parts in spent.items())
    caption = (
        "Means over the runs of a method. The rest is communication, aggregation, measuring and testing. "
        "At the end of each bar: the sum."
    )
    return Chart(figures.times(spent), f"Seconds for generation, training and the rest. {said}", caption)


def _setup(methods: Sequence[MethodRuns], runs: Sequence[RunSnapshot]) -> dict[str, Any]:
    """Configs, environments and directories."""
    settings = [each.settings for each in runs]
    keys = differing(settings)
    rows = [[method, *(values_of([each.settings for each in method.runs], key) for key in keys)] for method in methods]
    listed = [
        [each.run.path.name, method, str(each.run.config.seed), each.progress]
        for method in methods
        for each in sorted(method.runs, key=lambda each: each.run.config.seed)
    ]
    return {
        "differences": Table("What differs", ["method", *keys], rows) if keys else None,
        "shared": {key: values_of(settings, key) for key in settings[0] if key not in keys},
        "environment": _environment(runs),
        "directories": Table("Run directories", ["directory", "method", "seed", "status"], listed),
    }


def _environment(runs: Iterable[RunSnapshot]) -> dict[str, str]:
    """What ``env.json`` of the runs says, and what the runs could not verify."""
    found = [each.run.environment() for each in runs]
    unknown = [words for each in found for words in each.get("unknown") or ()]
    keys = dict.fromkeys(key for each in found for key in each if key != "unknown")
    facts = {key: joined(each.get(key) for each in found) for key in keys}
    return facts | ({"could not be verified": joined(unknown)} if unknown else {})


def _thresholds(methods: Sequence[MethodRuns]) -> list[float]:
    return sorted({method.config.rounds.threshold for method in methods})


def _names(methods: Iterable[MethodRuns]) -> str:
    return ", ".join(method.name for method in methods)
