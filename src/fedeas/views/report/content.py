"""The content of the report's page: the numbers, tables and charts that its template shows."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from fedeas.core.foreign_text import listed
from fedeas.planning import scores
from fedeas.runs.comparison import BEST, IT, SECOND, Measured, conclusion, fixed, ranks
from fedeas.runs.methods import differing, joined, values_of
from fedeas.views import charts
from fedeas.views.figures import MOST_CLIENTS
from fedeas.views.methods import Breakdown, MethodRuns, matched, reference
from fedeas.views.report.samples import samples_of

MOST_NAMED = 2  # methods in a sentence of the result; the table has all

Content = dict[str, Any]


class Cell(NamedTuple):
    """A text with small notes below it; `mark` is "best", "second" or empty."""

    text: str
    notes: Sequence[str] = ()
    mark: str = ""


def page_content(methods: Sequence[MethodRuns]) -> Content:
    """All that the template shows; without a finished method, it shows no results.

    The rows of tables have texts, `Cell`s and methods.
    """
    runs = [each for method in methods for each in method.runs]
    finished = [method for method in methods if method.finished]
    results = {**_comparison(finished), **_work(finished), **_by_class_and_client(finished)} if finished else {}
    drawn = [method for method in methods if method.drawn]
    thresholds = sorted({method.config.rounds.threshold for method in methods})
    settings = [each.settings for each in runs]
    keys = differing(settings)
    environments = [each.run.environment() for each in runs]
    facts = dict.fromkeys(key for each in environments for key in each if key != "unknown")
    unknown = [words for each in environments for words in each.get("unknown") or ()]
    return {
        "methods": methods,
        "runs": runs,
        "finished": finished,
        "dataset": joined(each.run.config.data.dataset for each in runs),
        "clients": listed([*map(str, sorted({each.run.config.partition.clients for each in runs}))]),
        "drawn": drawn,
        "curves": charts.convergence(drawn, thresholds) if drawn else None,
        "most_clients": MOST_CLIENTS,
        "samples": samples_of(methods),
        **results,
        **_plans(methods),
        "keys": keys,
        "differences": [
            [method, *(values_of([each.settings for each in method.runs], key) for key in keys)] for method in methods
        ],
        "shared": {key: values_of(settings, key) for key in settings[0] if key not in keys},
        "environment": {key: joined(each.get(key) for each in environments) for key in facts}
        | ({"could not be verified": joined(unknown)} if unknown else {}),
        "directories": [
            [each.run.path.name, method, str(each.run.config.seed), each.progress]
            for method in methods
            for each in sorted(method.runs, key=lambda each: each.run.config.seed)
        ],
    }


def _comparison(finished: Sequence[MethodRuns]) -> Content:
    """What each reference method shows, the table of accuracies, and a chart of the differences with an interval.

    The user's choice of a reference is first, then those that most methods are compared with.
    """
    reference_of = {method: reference(method, finished) for method in finished}
    references = list(dict.fromkeys(reference_of.values()))
    apart = {each: each.seeds.minus(to.seeds) for each, to in reference_of.items() if each is not to}
    conclusions = []
    for chosen in sorted(references, key=lambda to: (not to.is_chosen, -[*reference_of.values()].count(to))):
        compared = {each.name: found for each, found in apart.items() if found and reference_of[each] is chosen}
        conclusions.append({"method": chosen, "differences": conclusion(IT, compared, most=MOST_NAMED)})

    windows, marks = {method.seeds.window for method in finished}, dict[str, str]()
    for group in matched(finished):
        found_ranks = ranks({each.name: each.seeds.percents() for each in group})
        marks |= {name: {BEST: "best", SECOND: "second"}[rank] for name, rank in found_ranks.items()}
    compares = len(finished) > 1
    rows: list[list[object]] = []
    for method, to in reference_of.items():
        found = apart.get(method)
        difference = Cell("reference") if method is to else Cell("-", ["no seed in common"])
        if found is not None:
            named = [f"minus {to.name}"] * (len(references) > 1)
            interval = [found.range_text(2)] if found.interval else []
            difference = Cell(fixed(found.mean, 2), [*named, *interval, found.verdict])
        window = [str(method.seeds.window)] * (len(windows) > 1)
        reached = Cell(method.accuracy.text(2), window, marks.get(method.name, ""))
        ends = [method.seeds.percent(key).text(2) for key in ("final", "peak")]
        rows.append([method, str(len(method.seeds)), reached, *[difference] * compares, *ends])
    shown = [(each, reference_of[each], found) for each, found in apart.items() if found and found.interval]
    return {
        "references": [each.name for each in references] if compares else [],
        "conclusions": conclusions,
        "windows": [*map(str, windows)],
        "accuracy": rows,
        "apart": charts.differences(shown) if shown else None,
        "against": sorted({to.name for _, to, _ in shown}),
    }


def _work(finished: Sequence[MethodRuns]) -> Content:
    """A table of work and other measures, and a chart of accuracy against samples."""
    rows: list[list[object]] = []
    for method in finished:
        seeds = method.seeds
        # The finished method without generation that is otherwise the same.
        plain = (each for each in finished if not each.total and each.setting == method.setting)
        base = next(plain, None) if method.total else None
        gain = scores.accuracy_per_thousand(method.accuracy.mean - base.accuracy.mean, method.total) if base else None
        removed, generated = seeds.average("imbalance_removed"), round(seeds.average("generated") or 0)
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
            _number(gain, 2),
            _number(seeds.average("steps"), 0),
            _number(seeds.average("samples"), 0),
            _number(seeds.average("seconds", "generate"), 1),
            _number(seeds.average("seconds", "train"), 1),
        ])  # fmt: skip
    return {
        "thresholds": [f"{100 * each:g} %" for each in {method.config.rounds.threshold for method in finished}],
        "work": rows,
        "price": charts.price(finished, f"accuracy, %, mean of {joined(str(each.seeds.window) for each in finished)}"),
        "matched": matched(finished),
    }


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else fixed(value, decimals)


def _by_class_and_client(finished: Sequence[MethodRuns]) -> Content:
    """Charts and a table of accuracies by class and by client; methods with other classes have their own chart."""
    found = [each for method in finished if (each := Breakdown.of(method)) is not None]
    rows: list[list[object]] = []
    groups: dict[tuple[str, ...], list[Breakdown]] = {}
    for each in found:
        lowest = int(np.nanargmin(each.mean_classes))
        worst = Measured.of(each.classes[:, lowest].tolist())
        texts = ["-" if value is None else value.text(2) for value in (worst, *each.fairness)]
        rows.append([each.method, Cell(texts[0], [f"class {each.names[lowest]}"]), *texts[1:]])
        groups.setdefault(each.names, []).append(each)
    known = [each for each in found if each.clients]
    return {
        "fairness": rows,
        "by_class": [(charts.by_class(same), [each.method for each in same]) for same in groups.values()],
        "by_client": (charts.by_client(known), [each.method for each in known]) if known else None,
    }


def _plans(methods: Sequence[MethodRuns]) -> Content:
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
    federations: list[Content] = []
    for members in tables.values():
        known = {method: planned for method in members if (planned := method.runs[0].planned) is not None}
        plans: dict[bytes, list[MethodRuns]] = {}
        for method, (_, plan) in known.items():
            if method.total:
                plans.setdefault(plan.n.tobytes(), []).append(method)
        counts, _ = known[members[0]]
        captions = [f"real: {counts.total:,} samples"]
        captions += [f"{', '.join(each.name for each in s)}: {s[0].total:,} synthetic" for s in plans.values()]
        specs = charts.heat_maps(counts, [counts.n, *(known[same[0]][1].n for same in plans.values())])
        federations.append({"methods": members, "counts": counts, "maps": [*zip(specs, captions, strict=True)]})
    return {"without_plan": reasons, "federations": federations}
