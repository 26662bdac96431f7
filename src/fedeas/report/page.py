"""One HTML page about the results of runs: self-contained, without scripts, for a screen, a phone or paper."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from statistics import median

from fedeas import __version__
from fedeas.core.files import written_whole
from fedeas.core.foreign_text import for_html
from fedeas.errors import InputError
from fedeas.generators.quality.grid import strip
from fedeas.planning import scores
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.plotting.figures import MOST_CLIENTS
from fedeas.report import figures
from fedeas.report.figures import MethodCurves, Point, Spent
from fedeas.report.html import facts, figure, number_of, table
from fedeas.report.methods import (
    MethodRuns,
    RunSnapshot,
    baseline,
    differing,
    joined,
    marks_of,
    matched,
    methods_of,
    read_snapshot,
    reference,
    values_of,
)
from fedeas.report.samples import COLUMNS, Row, Samples, samples_of
from fedeas.runs.comparison import conclusion, fixed
from fedeas.runs.store import Run

TILE = 56  # approximate size of an image in a grid, in pixels of the screen


def write_report(runs: Sequence[Run], path: str | os.PathLike[str], title: str = "FedEAS report") -> None:
    """Write one self-contained HTML file about these runs, finished or not.

    Runs that differ only in their seed count as one method. Unfinished runs are drawn and listed, but are not in the
    tables.
    """
    if not runs:
        raise InputError("a report needs at least one run; make one with `fedeas run`")
    page = _page(methods_of([read_snapshot(run) for run in runs]), title)
    with written_whole(path) as part:
        part.write_text(page, "utf-8")


def _result(methods: Sequence[MethodRuns]) -> str:
    """The page's conclusion: for each federation its reference method, and the differences to it."""
    finished = [method for method in methods if method.finished]
    if not finished:
        return "None of these runs has finished yet; the curves show how far they are."
    references = dict.fromkeys(reference(method, finished) for method in finished)
    return " ".join(_conclusion(chosen, finished) for chosen in references)


def _conclusion(chosen: MethodRuns, finished: Sequence[MethodRuns]) -> str:
    seeds = chosen.seeds
    budget = f"With {number_of(chosen.total, 'synthetic sample')}" if chosen.total else "Without synthetic samples"
    reached = f"<span>{seeds.percent('accuracy').text(2)} %</span> accuracy in {for_html(seeds.window)}"
    last = f"<span>{seeds.percent('final').text(2)} %</span> at the end (<span>n = {len(seeds)}</span>)."
    others = [method for method in finished if method is not chosen and reference(method, finished) is chosen]
    differences = {method.name: method.seeds.minus(seeds) for method in others}
    shown = conclusion(chosen.name, {name: each for name, each in differences.items() if each is not None})
    return f"{budget}, <b>{for_html(chosen.name)}</b> reaches {reached} and {last} {for_html(shown)}"


def _accuracy_table(finished: Sequence[MethodRuns]) -> str:
    windows = {method.seeds.window for method in finished}
    level = f"{min(windows)}, %" if len(windows) == 1 else "accuracy, %"
    references = dict.fromkeys(reference(each, finished) for each in finished)
    apart = f"minus {next(iter(references)).name}, points" if len(references) == 1 else "difference, points"
    marks = marks_of(finished)
    rows = [
        [
            _key(method),
            str(len(method.seeds)),
            _level(method, marks.get(method.name, ""), named=len(windows) > 1),
            _compared(method, finished, named=len(references) > 1),
            method.seeds.percent("final").text(2),
            method.seeds.percent("peak").text(2),
        ]
        for method in finished
    ]
    return table("Accuracy, mean ± deviation over seeds", ["method", "n", level, apart, "final, %", "peak, %"], rows)


def _level(method: MethodRuns, mark: str, named: bool) -> str:
    """Accuracy in the window, with its mark and, if windows differ, its rounds."""
    notes = [f"<em>{mark}</em>"] * bool(mark) + [for_html(method.seeds.window)] * named
    small = f"<small>{', '.join(notes)}</small>" if notes else ""
    return f"<span class='{mark}'>{method.accuracy.text(2)}</span>{small}"


def _compared(method: MethodRuns, methods: Sequence[MethodRuns], named: bool) -> str:
    """The paired difference to the reference, its interval and its verdict."""
    chosen = reference(method, methods)
    if method is chosen:
        return "reference" if len(methods) > 1 else "-"
    found = method.seeds.minus(chosen.seeds)
    if found is None:
        return "-<small>no seed in common</small>"
    notes = [f"minus {for_html(chosen.name)}"] * named + [found.range_text(2)] * bool(found.interval) + [found.verdict]
    return f"{fixed(found.mean, 2)}{''.join(f'<small>{note}</small>' for note in notes)}"


def _work_table(finished: Sequence[MethodRuns]) -> str:
    thresholds = _thresholds(finished)
    aim = f"{100 * thresholds[0]:g} %" if len(thresholds) == 1 else "the threshold"
    head = [
        "method", "samples generated", "imbalance removed, %", f"rounds to {aim}", "median Gamma-hat", "eta",
        "steps", "images seen", "generation, s", "training, s",
    ]  # fmt: skip
    return table("Work and other measures, averaged over seeds", head, [_work_row(each, finished) for each in finished])


def _work_row(method: MethodRuns, methods: Sequence[MethodRuns]) -> list[str]:
    seeds, base = method.seeds, baseline(method, methods)
    gain = method.accuracy.mean - base.accuracy.mean if base else 0.0
    removed = seeds.average("imbalance_removed")
    return [
        _key(method),
        _generated(method),
        _number(None if removed is None else 100 * removed, 1),
        _rounds_to_threshold([each["rounds_to_threshold"] for each in seeds.summaries.values()]),
        _number(seeds.average("gamma_hat"), 3),
        _number(scores.efficiency(gain, method.total) if base and method.total else None, 2),
        _number(seeds.average("steps"), 0),
        _number(seeds.average("samples"), 0),
        _number(seeds.average("seconds", "generate"), 1),
        _number(seeds.average("seconds", "train"), 1),
    ]


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else fixed(value, decimals)


def _rounds_to_threshold(rounds: Sequence[int | None]) -> str:
    """The median over seeds; a seed that never reaches the threshold counts as infinity."""
    never, middle = rounds.count(None), median(math.inf if each is None else each for each in rounds)
    some = f"<small>{never} of {len(rounds)} never</small>" if never else ""
    return "never" if math.isinf(middle) else f"{middle:g}{some}"


def _generated(method: MethodRuns) -> str:
    generated = round(method.seeds.average("generated") or 0)
    planned = f"<small>of {method.total:,} planned</small>" if generated != method.total else ""
    return f"{generated:,}{planned}"


def _result_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    yield f"<p class='lead'>{_result(methods)}</p>"
    finished = [method for method in methods if method.finished]
    if not finished:
        return
    yield _accuracy_table(finished)
    yield f"<p class='note'>{ACCURACY_NOTE}</p>"
    yield _work_table(finished)
    yield f"<p class='note'>{WORK_NOTE}</p>"
    waiting = [each for method in methods for each in method.runs if not each.finished]
    if waiting:
        names = ", ".join(f"{for_html(each.run.path.name)} ({each.progress})" for each in waiting)
        yield f"<p class='note'>Not in the tables: {names}.</p>"


def _convergence_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    curves = {method: _curves(method) for method in methods}
    drawn = [method for method, curve in curves.items() if curve.finished or curve.unfinished]
    if drawn:
        source = figures.convergence([curves[method] for method in drawn], _thresholds(methods))
        words = "Line: mean over seeds. Band: from the lowest to the highest seed. Dashed: the threshold."
        words += " Dotted: runs that are unfinished." if any(curve.unfinished for curve in curves.values()) else ""
        keys = "".join(f"<li>{_key(method)}</li>" for method in drawn)
        alt = f"Accuracy over rounds of {', '.join(method.name for method in drawn)}"
        yield figure(source, alt, words, f"<ul class='key'>{keys}</ul>")


def _curves(method: MethodRuns) -> MethodCurves:
    evaluated = [each for each in method.runs if each.accuracy_curve.rounds]
    finished, unfinished = (
        [each.accuracy_curve for each in evaluated if each.finished is done] for done in (True, False)
    )
    return MethodCurves(method.look, finished, unfinished)


def _price_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    finished = [method for method in methods if method.finished]
    points = [
        Point(each.name, each.look, each.total, each.accuracy.mean, each.accuracy.spread or 0) for each in finished
    ]
    if points:
        said = "; ".join(f"{point.name}: {point.accuracy:.1f} % with {point.samples:,}" for point in points)
        words = PRICE_NOTE + (" Points of the same number are side by side." if matched(methods) else "")
        windows = joined(str(each.seeds.window) for each in finished)
        source = figures.price(points, f"accuracy, %, mean of {windows}")
        yield figure(source, f"Accuracy against synthetic samples. {said}", words)


def _plans_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    federations: dict[tuple[object, ...], list[MethodRuns]] = {}
    for method in methods:
        if (planned := method.runs[0].planned) is None:
            yield f"<p>{for_html(method.name)}: the counts stayed with the clients.</p>"
            continue
        table = planned[0].n
        federations.setdefault((table.shape, table.tobytes()), []).append(method)
    for members in federations.values():
        if len(federations) > 1:
            yield f"<h3>{for_html(', '.join(method.name for method in members))}</h3>"
        yield from _federation(members)


def _federation(methods: Sequence[MethodRuns]) -> Iterator[str]:
    """Heat maps of one table of real counts, and of the different plans for it."""
    counts, _ = _planned(methods[0])
    plans: dict[bytes, list[MethodRuns]] = {}
    for method in methods:
        if method.total:
            plans.setdefault(_planned(method)[1].n.tobytes(), []).append(method)
    tables = [counts.n, *(_planned(same[0])[1].n for same in plans.values())]
    captions = [f"real: {counts.total:,} samples"]
    captions += [f"{', '.join(each.name for each in same)}: {same[0].total:,} synthetic" for same in plans.values()]
    maps, scale = figures.heat_maps(tables)
    shape = f"{counts.num_clients:,} clients and {counts.num_classes:,} classes"
    of_many = f"; shown are the {MOST_CLIENTS} clients that hold most" if counts.num_clients > MOST_CLIENTS else ""
    yield f"<p>{shape}, one colour scale for all{of_many}.</p><div class='maps'>"
    for source, caption in zip(maps, captions, strict=True):
        yield figure(source, f"Heat map of clients by classes, {caption}", for_html(caption))
    yield f"</div>{figure(scale, 'Colour scale of the heat maps: samples, white is none')}"


def _planned(method: MethodRuns) -> tuple[LabelCounts, Allocation]:
    planned = method.runs[0].planned
    assert planned is not None
    return planned


def _samples_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    for found in samples_of(methods):
        if not found.rows:
            yield f"<p>The images of {_generator(found)} are not, or no longer, kept in the bank beside the runs.</p>"
            continue
        strips = "".join(_strip(row) for row in found.rows)
        yield f"<figure><div class='strips'>{strips}</div><figcaption>{_uncurated(found)}</figcaption></figure>"


def _strip(row: Row) -> str:
    """A strip of images, enlarged by a whole number if there is room, so that all pixels are equal squares."""
    png, width, height = strip(row.images, COLUMNS)
    scale = max(1, round(TILE / height))
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    alt = f"{number_of(len(row.images), 'synthetic image')} of class {row.name}"
    look = f"width:{scale * width}px;margin-bottom:min({scale}px,1vw)"
    return f"<span>{for_html(row.name)}</span><img src='{source}' alt='{for_html(alt)}' style='{look}'>\n"


def _uncurated(found: Samples) -> str:
    """The caption of a grid: which images it shows, and that they are uncurated."""
    shown = sum(len(row.images) for row in found.rows)
    users = for_html(", ".join(method.name for method in found.methods))
    part = f"; {len(found.rows)} of {found.classes:,} classes" if len(found.rows) < found.classes else ""
    numbers = f"{shown:,} of the {number_of(found.trained_on, 'synthetic image')} that {users} trained on"
    return f"{numbers}: the first images of each class in the bank, uncurated{part}. Generator: {_generator(found)}."


def _generator(found: Samples) -> str:
    """The generator's description, which names the sampler, and its fingerprint in the bank."""
    return for_html(f"{found.about.description}, fingerprint {found.about.fingerprint[:8]}")


def _time_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    spent = [_spent(method) for method in methods if method.finished]
    if spent:
        said = "; ".join(f"{each.name}: {each.generation:.1f}, {each.training:.1f}, {each.rest:.1f}" for each in spent)
        words = "The rest is communication, aggregation, measuring and testing. At the end of each bar: the sum."
        alt = f"Seconds for generation, training and the rest. {said}"
        yield figure(figures.times(spent), alt, words)


def _spent(method: MethodRuns) -> Spent:
    generation, training, total = (
        method.seeds.average("seconds", name) or 0 for name in ("generate", "train", "total")
    )
    return Spent(method.name, method.look, generation, training, max(total - generation - training, 0.0))


def _setup_section(methods: Sequence[MethodRuns]) -> Iterator[str]:
    runs = [each for method in methods for each in method.runs]
    keys = differing(methods)
    if keys:
        rows = [[_key(method), *(for_html(values_of(method.runs, key)) for key in keys)] for method in methods]
        yield table("What differs", ["method", *keys], rows, "words")
    shared = {key: values_of(runs, key) for key in runs[0].settings if key not in keys}
    yield "<h3>What all runs share</h3>" + facts(shared)
    yield "<h3>Environment</h3>" + (facts(_environment(runs)) or "<p>Not recorded.</p>")
    listed = [
        [for_html(each.run.path.name), _key(method), str(each.run.config.seed), each.progress]
        for method in methods
        for each in sorted(method.runs, key=lambda each: each.run.config.seed)
    ]
    yield table("Run directories", ["directory", "method", "seed", "status"], listed, "words")


def _environment(runs: Iterable[RunSnapshot]) -> dict[str, str]:
    found = [each.run.environment() for each in runs]
    keys = dict.fromkeys(key for each in found for key in each)
    return {key: joined(each.get(key) for each in found) for key in keys}


def _thresholds(methods: Sequence[MethodRuns]) -> list[float]:
    return sorted({method.config.rounds.threshold for method in methods})


def _key(method: MethodRuns) -> str:
    """The method's name after a dash in the style of its line."""
    dash = f"<i style='border-top:3px {method.look.dash} {method.look.colour}'></i>"
    return f"<span class='name'>{dash}{for_html(method.name)}</span>"


SECTIONS: dict[str, Callable[[Sequence[MethodRuns]], Iterator[str]]] = {
    "Result": _result_section,
    "Accuracy over rounds": _convergence_section,
    "Accuracy against samples": _price_section,
    "Where the samples go": _plans_section,
    "Synthetic images": _samples_section,
    "Where the time goes": _time_section,
    "What was run": _setup_section,
}


def _page(methods: Sequence[MethodRuns], title: str) -> str:
    told = {name: "\n".join(tell(methods)) for name, tell in SECTIONS.items()}
    sections = [f"<section>\n<h2>{name}</h2>\n{content}\n</section>" for name, content in told.items() if content]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{for_html(title)}</title>
<style>{_css()}</style>
</head>
<body>
<main>
<h1>{for_html(title)}</h1>
<p class="about">{for_html(_about(methods))}</p>
{chr(10).join(sections)}
<footer>Made by FedEAS {for_html(__version__)} from the run directories above.</footer>
</main>
</body>
</html>
"""


def _css() -> str:
    return resources.files(__package__).joinpath("style.css").read_text("utf-8")


def _about(methods: Sequence[MethodRuns]) -> str:
    runs = [each for method in methods for each in method.runs]
    unfinished = sum(not each.finished for each in runs)
    words = f"{number_of(len(methods), 'method')}, {number_of(len(runs), 'run')}"
    words += f", {unfinished:,} of them unfinished" if unfinished else ""
    data, clients = values_of(runs, "data.dataset"), values_of(runs, "partition.clients")
    return f"{words}; {data} split over {clients} clients"


PRICE_NOTE = "Samples as planned, on a logarithmic scale that begins at 0. Bars: ± one standard deviation over seeds."


ACCURACY_NOTE = """Accuracy is the mean over the last tenth of a run’s rounds, which are named; final is the accuracy
after the last round, peak that of the best. Differences pair runs of the same seed. Below each is its 95&nbsp;%
Student-t interval: a method is higher or lower only if the interval does not contain 0; otherwise no difference is
shown. Intervals are not corrected for their number: among many, some are wrong by chance. Best and second are marked
among methods that generate the same number of samples, and only if the intervals of their differences to all lower ones
exclude a tie."""


WORK_NOTE = """Steps of SGD are those of all clients in all rounds; images seen are those that these steps trained on,
each as often as it was seen. Rounds to the threshold: median over seeds. Gamma-hat: how far the clients’ updates
disagree, 0 if they do not; median over rounds, mean over seeds. Eta: points of accuracy gained over the same method
without generation, for each thousand samples planned. Seconds are for one run."""
