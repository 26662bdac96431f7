"""The content of the report's page: texts, tables and charts for its template."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.foreign_text import listed
from fedeas.planning import scores
from fedeas.runs.comparison import IT, Measured, conclusion, fixed
from fedeas.runs.methods import differing, joined, values_of
from fedeas.views.figures import MOST_CLIENTS
from fedeas.views.report import figures
from fedeas.views.report.figures import Spec
from fedeas.views.report.methods import Breakdown, MethodRuns, RunSnapshot, marks_of, matched, reference
from fedeas.views.report.samples import samples_of

MOST_NAMED = 2  # methods in a sentence of the result; the table has all


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
    """All that the template shows; without a finished method, it shows no results."""
    runs = [each for method in methods for each in method.runs]
    finished = [method for method in methods if method.finished]
    results = {**_comparison(finished), **_work(finished), **_by_class_and_client(finished)} if finished else {}
    return {
        "methods": methods,
        "runs": runs,
        "finished": finished,
        "unfinished": [each for each in runs if not each.finished],
        "dataset": joined(each.run.config.data.dataset for each in runs),
        "clients": listed([*map(str, sorted({each.run.config.partition.clients for each in runs}))]),
        "curves": _curves(methods),
        "most_clients": MOST_CLIENTS,
        "samples": samples_of(methods),
        **results,
        **_plans(methods),
        **_setup(methods, runs),
    }


def _comparison(finished: Sequence[MethodRuns]) -> dict[str, Any]:
    """What each reference method shows, the table of accuracies, and a chart of the differences with an interval.

    The user's choice of a reference is first, then those that most methods are compared with.
    """
    reference_of = {method: reference(method, finished) for method in finished}
    references = list(dict.fromkeys(reference_of.values()))
    apart = {each: each.seeds.minus(to.seeds) for each, to in reference_of.items() if each is not to}
    conclusions: list[dict[str, Any]] = []
    for chosen in sorted(references, key=lambda to: (not to.is_chosen, -[*reference_of.values()].count(to))):
        compared = {each.name: found for each, found in apart.items() if found and reference_of[each] is chosen}
        about = {"accuracy": chosen.accuracy.text(2), "final": chosen.seeds.percent("final").text(2)}
        differences = conclusion(IT, compared, most=MOST_NAMED)
        conclusions.append({"method": chosen, "differences": differences, **about})

    windows, marks = {method.seeds.window for method in finished}, marks_of(finished)
    one_reference, compares = len(references) == 1, len(finished) > 1
    rows: list[list[object]] = []
    for method, to in reference_of.items():
        window, found = [str(method.seeds.window)] * (len(windows) > 1), apart.get(method)
        difference = Cell("reference") if method is to else Cell("-", ["no seed in common"])
        if found is not None:
            named = [] if one_reference else [f"minus {to.name}"]
            interval = [found.range_text(2)] if found.interval else []
            difference = Cell(fixed(found.mean, 2), [*named, *interval, found.verdict])
        reached = Cell(method.accuracy.text(2), window, marks.get(method.name, ""))
        ends = [method.seeds.percent(key).text(2) for key in ("final", "peak")]
        rows.append([method, str(len(method.seeds)), reached, *[difference] * compares, *ends])
    accuracy = f"{min(windows)}, %" if len(windows) == 1 else "accuracy, %"
    difference_to = f"minus {references[0].name}, points" if one_reference else "difference, points"
    head = ["method", "n", accuracy, *[difference_to] * compares, "final, %", "peak, %"]

    shown = [(each, reference_of[each], found) for each, found in apart.items() if found and found.interval]
    names = {to.name for _, to, _ in shown}
    against = names.pop() if len(names) == 1 else "the reference that the table names"
    caption = f"Paired differences of accuracy to {against}, with their 95 % intervals. Hollow: no difference shown."
    said = "; ".join(f"{each.name} minus {to.name}: {fixed(found.mean, 2)} points" for each, to, found in shown)
    return {
        "references": [each.name for each in references] if compares else [],
        "conclusions": conclusions,
        "accuracy": Table("Accuracy, mean ± deviation over seeds", head, rows),
        "apart": Chart(figures.differences(shown), f"Differences of accuracy. {said}", caption) if shown else None,
    }


def _work(finished: Sequence[MethodRuns]) -> dict[str, Any]:
    """A table of work and other measures, and charts of accuracy against samples and of time."""
    thresholds = _thresholds(finished)
    times: dict[MethodRuns, tuple[float, float, float]] = {}
    rows: list[list[object]] = []
    for method in finished:
        seeds = method.seeds
        # The finished method without generation that is otherwise the same.
        plain = (each for each in finished if not each.total and each.setting == method.setting)
        base = next(plain, None) if method.total else None
        gain = method.accuracy.mean - base.accuracy.mean if base else 0.0
        removed, generated = seeds.average("imbalance_removed"), round(seeds.average("generated") or 0)
        generation, training, total = (seeds.average("seconds", name) for name in ("generate", "train", "total"))
        rest = (total or 0) - (generation or 0) - (training or 0)
        times[method] = generation or 0, training or 0, max(rest, 0.0)
        # The median over seeds; a seed that never reaches the threshold counts as infinity.
        reached = [each["rounds_to_threshold"] for each in seeds.summaries.values()]
        middle, never = median(math.inf if each is None else each for each in reached), reached.count(None)
        missed = [f"{never} of {len(reached)} never"] if never else []
        rows.append([
            method,
            Cell(f"{generated:,}", [f"of {method.total:,} planned"] * (generated != method.total)),
            _number(None if removed is None else 100 * removed, 1),
            Cell("never") if math.isinf(middle) else Cell(f"{middle:g}", missed),
            _number(seeds.average("gamma_hat"), 3),
            _number(scores.accuracy_per_thousand(gain, method.total) if base else None, 2),
            _number(seeds.average("steps"), 0),
            _number(seeds.average("samples"), 0),
            _number(generation, 1),
            _number(training, 1),
        ])  # fmt: skip
    aim = f"{100 * thresholds[0]:g} %" if len(thresholds) == 1 else "the threshold"
    head = [
        "method", "samples generated", "imbalance removed, %", f"rounds to {aim}", "median Gamma-hat", "eta",
        "steps", "images seen", "generation, s", "training, s",
    ]  # fmt: skip

    said = "; ".join(f"{each.name}: {each.accuracy.mean:.1f} % with {each.total:,}" for each in finished)
    caption = "Samples as planned, on a logarithmic scale that begins at 0."
    caption += " Bars: ± one standard deviation over seeds." if any(each.accuracy.spread for each in finished) else ""
    caption += " Points of the same number are side by side." if matched(finished) else ""
    price = figures.price(finished, f"accuracy, %, mean of {joined(str(each.seeds.window) for each in finished)}")
    seconds = "; ".join(f"{each.name}: {', '.join(f'{part:.1f}' for part in parts)}" for each, parts in times.items())
    spent = "Means over the runs of a method. The rest is communication, aggregation, measuring and testing. "
    return {
        "work": Table("Work and other measures, averaged over seeds", head, rows),
        "price": Chart(price, f"Accuracy against synthetic samples. {said}", caption, finished),
        "times": Chart(
            figures.times(times),
            f"Seconds for generation, training and the rest. {seconds}",
            f"{spent}At the end of each bar: the sum.",
        ),
    }


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else fixed(value, decimals)


def _by_class_and_client(finished: Sequence[MethodRuns]) -> dict[str, Any]:
    """Charts and a table of accuracies by class and by client; methods with other classes have their own chart."""
    found = [each for method in finished if (each := Breakdown.of(method)) is not None]
    rows: list[list[object]] = []
    worst: dict[MethodRuns, str] = {}
    groups: dict[tuple[str, ...], list[Breakdown]] = {}
    for each in found:
        lowest = int(np.nanargmin(each.mean_classes))
        worst[each.method] = _measured(Measured.of(each.classes[:, lowest].tolist()))
        class_cell = Cell(worst[each.method], [f"class {each.names[lowest]}"])
        rows.append([each.method, class_cell, *map(_measured, each.fairness)])
        groups.setdefault(each.names, []).append(each)
    head = ["method", "worst class, %", "worst tenth of clients, %", "average client, %", "best tenth of clients, %"]
    by_class = []
    for same in groups.values():
        methods = [each.method for each in same]
        said = "; ".join(f"{method.name}: worst {worst[method]} %" for method in methods)
        caption = "Accuracy of each class on the server's test set, mean over seeds."
        by_class.append(Chart(figures.by_class(same), f"Accuracy by class. {said}", caption, methods))
    known = [each for each in found if each.clients]
    said = "; ".join(f"{each.method.name}: worst tenth {_measured(each.fairness[0])} %" for each in known)
    caption = "Each client's accuracy is that of its classes, weighted by how many samples of each it holds."
    alt, methods = f"Accuracy by client. {said}", [each.method for each in known]
    return {
        "by_class": by_class,
        "by_client": Chart(figures.by_client(known), alt, caption, methods) if known else None,
        "fairness": Table("Accuracy by class and by client, mean ± deviation over seeds", head, rows) if rows else None,
    }


def _measured(value: Measured | None) -> str:
    return "-" if value is None else value.text(2)


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


def _plans(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    """Heat maps of each table of real counts and of the different plans for it.

    Methods whose plan cannot be shown are listed by the reason.
    """
    reasons: dict[str, list[MethodRuns]] = {}
    tables: dict[tuple[object, ...], list[MethodRuns]] = {}
    for method in methods:
        first = method.runs[0]
        if first.planned is None:
            lost = "counts and plan are not part of kept results"
            reasons.setdefault(lost if first.run.is_kept else "the counts stayed with the clients", []).append(method)
        else:
            real = first.planned[0].n
            tables.setdefault((real.shape, real.tobytes()), []).append(method)
    federations: list[dict[str, Any]] = []
    for members in tables.values():
        plans: dict[bytes, list[MethodRuns]] = {}
        known = {method: planned for method in members if (planned := method.runs[0].planned) is not None}
        for method, (_, plan) in known.items():
            if method.total:
                plans.setdefault(plan.n.tobytes(), []).append(method)
        counts, _ = known[members[0]]
        captions = [f"real: {counts.total:,} samples"]
        captions += [f"{_names(same)}: {same[0].total:,} synthetic" for same in plans.values()]
        specs = figures.heat_maps(counts, [counts.n, *(known[same[0]][1].n for same in plans.values())])
        maps = [
            Chart(spec, f"Heat map of clients by classes, {caption}", caption)
            for spec, caption in zip(specs, captions, strict=True)
        ]
        federations.append({"methods": members, "counts": counts, "maps": maps})
    return {"without_plan": reasons, "federations": federations}


def _setup(methods: Sequence[MethodRuns], runs: Sequence[RunSnapshot]) -> dict[str, Any]:
    """Configs, what ``env.json`` of the runs says, what the runs could not verify, and directories."""
    settings = [each.settings for each in runs]
    keys = differing(settings)
    rows = [[method, *(values_of([each.settings for each in method.runs], key) for key in keys)] for method in methods]
    listed_runs = [
        [each.run.path.name, method, str(each.run.config.seed), each.progress]
        for method in methods
        for each in sorted(method.runs, key=lambda each: each.run.config.seed)
    ]
    found = [each.run.environment() for each in runs]
    unknown = [words for each in found for words in each.get("unknown") or ()]
    facts = dict.fromkeys(key for each in found for key in each if key != "unknown")
    environment = {key: joined(each.get(key) for each in found) for key in facts}
    return {
        "differences": Table("What differs", ["method", *keys], rows) if keys else None,
        "shared": {key: values_of(settings, key) for key in settings[0] if key not in keys},
        "environment": environment | ({"could not be verified": joined(unknown)} if unknown else {}),
        "directories": Table("Run directories", ["directory", "method", "seed", "status"], listed_runs),
    }


def _thresholds(methods: Sequence[MethodRuns]) -> list[float]:
    return sorted({method.config.rounds.threshold for method in methods})


def _names(methods: Iterable[MethodRuns]) -> str:
    return ", ".join(method.name for method in methods)
