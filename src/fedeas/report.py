"""One HTML page that tells what came of some runs: self-contained, without scripts, for a screen, a phone or paper."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from statistics import mean, median, stdev
from typing import Any

from fedeas import __version__, report_figures, scores
from fedeas.counts import Allocation, LabelCounts
from fedeas.errors import InputError
from fedeas.files import written_whole
from fedeas.plots import MOST_CLIENTS
from fedeas.report_figures import Course, Curve, Look, Point, Spent
from fedeas.store import Record, Run

# A path says more about whose machine it was than about the run.
NOT_SHOWN = ("seed", "label", "data.root")


@dataclass(frozen=True, eq=False)
class Recorded:
    """What a run directory holds at this moment."""

    run: Run
    rounds: list[Record]
    summary: Record | None
    counts: LabelCounts
    plan: Allocation

    @property
    def finished(self) -> bool:
        """Whether there is a summary."""
        return self.summary is not None

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        done, wanted = len(self.rounds), self.run.config.rounds.total
        return f"finished, {done:,} rounds" if self.finished else f"unfinished, {done:,} of {wanted:,} rounds"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config with sections joined to their keys by dots, without what sets no method apart."""
        flat = _flat(self.run.config.model_dump())
        return {key: value for key, value in flat.items() if key not in NOT_SHOWN}

    @property
    def course(self) -> Course:
        """Accuracy over the rounds that were evaluated."""
        evaluated = [record for record in self.rounds if record.get("accuracy") is not None]
        return Course([record["round"] for record in evaluated], [record["accuracy"] for record in evaluated])


@dataclass(frozen=True, eq=False)
class Method:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[Recorded, ...]
    look: Look

    @cached_property
    def summaries(self) -> list[Record]:
        """Of the finished runs."""
        return [each.summary for each in self.runs if each.summary is not None]

    @property
    def config(self) -> Any:
        """The config, which all its runs share but for the seed."""
        return self.runs[0].run.config

    @property
    def total(self) -> int:
        """B: partitions have a seed of their own, so that the plan is the same whatever the run's seed."""
        return int(self.summaries[0]["total"]) if self.summaries else self.runs[0].plan.total

    @property
    def accuracy(self) -> float:
        """Mean over the finished seeds, in percent."""
        return mean(self.accuracies)

    @property
    def accuracies(self) -> list[float]:
        """Of the finished seeds, in percent."""
        return [100 * each["accuracy"] for each in self.summaries]

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over the finished seeds, where there are two at least."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def federation(self) -> tuple[object, ...]:
        """Methods are comparable where this is the same: the data and who holds them."""
        return self.config.data.dataset, self.config.data.protocol, self.config.partition

    @property
    def setting(self) -> str:
        """The same for methods that differ in nothing but what is generated."""
        without = {"seed": 0, "policy": "no-generation", "generator": ""}
        return str(self.config.model_copy(update=without).fingerprint)

    def average(self, *keys: str) -> float:
        """A number of the summaries, found by these keys, averaged over seeds."""
        found: list[Any] = list(self.summaries)
        for key in keys:
            found = [each[key] for each in found]
        return float(mean(found))


def write_report(runs: Sequence[Run], path: str | os.PathLike[str], title: str = "FedEAS report") -> None:
    """Write one self-contained HTML file about these runs, finished or not.

    Runs that differ only in their seed count as one method. Those that are still under way are drawn and listed but
    have no part in the table.
    """
    if not runs:
        raise InputError("a report needs at least one run; make one with `fedeas run`")
    page = _page(methods_of([_recorded(run) for run in runs]), title)
    with written_whole(path) as part:
        part.write_text(page, "utf-8")


def methods_of(runs: Sequence[Recorded]) -> list[Method]:
    """Runs by method, in the order of samples and then of falling accuracy, each with a name and a look of its own."""
    groups: dict[str, dict[int, Recorded]] = {}
    for each in runs:
        config = each.run.config
        seeds = groups.setdefault(config.model_copy(update={"seed": 0}).fingerprint, {})
        twin = seeds.setdefault(config.seed, each)
        if twin is not each:
            raise InputError(f"{each.run.path}: the same config and seed as {twin.run.path}; give one of them")
    methods = [Method("", tuple(seeds.values()), Look("")) for seeds in groups.values()]
    methods.sort(key=lambda method: (method.total, -method.accuracy if method.summaries else math.inf))
    looks = report_figures.looks([method.config.policy.partition("(")[0] for method in methods])
    named = zip(methods, _names(methods), looks, strict=True)
    return [replace(method, name=name, look=look) for method, name, look in named]


def _recorded(run: Run) -> Recorded:
    try:
        summary = run.summary() if run.finished else None
        recorded = Recorded(run, run.rounds(), summary, *run.allocation())
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{run.path}: not a whole run directory ({reason}); run it again") from None
    if not recorded.rounds:
        raise InputError(f"{run.path}: no round is recorded yet; wait for the first or leave this run out")
    return recorded


def _names(methods: Sequence[Method]) -> list[str]:
    """Labels where they tell methods apart, else policy and algorithm, else these and whatever differs."""
    specs = [f"{method.config.policy} + {method.config.algorithm}" for method in methods]
    labels = [{each.run.config.label for each in method.runs} for method in methods]
    names = [label.pop() if len(label) == 1 else spec for label, spec in zip(labels, specs, strict=True)]
    names = [spec if names.count(name) > 1 else name for name, spec in zip(names, specs, strict=True)]
    return [name + _apart(method, methods, names) for name, method in zip(names, methods, strict=True)]


def _apart(method: Method, methods: Sequence[Method], names: Sequence[str]) -> str:
    """What sets the method apart from others of its name, if there are any."""
    mine = names[methods.index(method)]
    namesakes = [other for other, name in zip(methods, names, strict=True) if name == mine]
    keys = _differing(namesakes) if len(namesakes) > 1 else []
    return "".join(f", {key}={_values(method.runs, key)}" for key in keys)


def _baseline(method: Method, methods: Sequence[Method]) -> Method | None:
    """The finished method without generation that is otherwise the same."""
    without = (each for each in methods if each.summaries and not each.total)
    return next((each for each in without if each.setting == method.setting), None)


def _matched(methods: Iterable[Method]) -> list[list[Method]]:
    """Finished methods that generate the same number of samples for the same federation, best first."""
    groups: dict[tuple[object, ...], list[Method]] = {}
    for method in methods:
        if method.summaries and method.total:
            groups.setdefault((*method.federation, method.total), []).append(method)
    return [sorted(group, key=lambda each: -each.accuracy) for group in groups.values() if len(group) > 1]


def _marks(methods: Sequence[Method]) -> dict[Method, str]:
    """Best and second at each matched budget; equals share a mark, and of two there is no second."""
    marks: dict[Method, str] = {}
    for group in _matched(methods):
        ranks = sorted({method.accuracy for method in group}, reverse=True)
        marks |= {method: "best" for method in group if method.accuracy == ranks[0]}
        if len(group) > 2 and len(ranks) > 1:
            marks |= {method: "second" for method in group if method.accuracy == ranks[1]}
    return marks


def _result(methods: Sequence[Method]) -> str:
    """The main result in one sentence."""
    finished = [method for method in methods if method.summaries]
    if not finished:
        return "None of these runs has finished yet; the curves show how far they are."
    group = max(_matched(methods), key=len, default=[])
    best = group[0] if group else max(finished, key=lambda method: (method.total > 0, method.accuracy))
    base = _baseline(best, methods) if best.total else None
    others = [f"{_difference(best, base)}, which uses none"] if base else []
    others += [f"{_difference(best, group[1])}, the next best at this budget"] if group else []
    budget = f"With {best.total:,} synthetic samples" if best.total else "Without synthetic samples"
    number = f"<span>{_accuracy(best)} %</span>"
    reached = f"{budget}, <b>{escape(best.name)}</b> reaches {number} accuracy (<span>n = {len(best.summaries)}</span>)"
    return reached + (f": {', and '.join(others)}." if others else ".")


def _difference(method: Method, other: Method) -> str:
    points = method.accuracy - other.accuracy
    if abs(points) < 0.05:
        return f"level with {escape(other.name)}"
    within = abs(points) <= max(method.spread or 0, other.spread or 0)
    doubt = " (within one standard deviation over seeds)" if within else ""
    return f"{abs(points):.1f} points {'more' if points > 0 else 'less'} than {escape(other.name)}{doubt}"


def _accuracy(method: Method) -> str:
    return f"{method.accuracy:.2f}" + ("" if method.spread is None else f" ± {method.spread:.2f}")


def _result_table(methods: Sequence[Method]) -> str:
    thresholds = _thresholds(methods)
    aim = f"{100 * thresholds[0]:g} %" if len(thresholds) == 1 else "the threshold"
    head = [
        "method", "accuracy, %", "peak, %", f"rounds to {aim}", "samples generated", "imbalance removed, %",
        "median Gamma-hat", "eta", "generation, s", "training, s",
    ]  # fmt: skip
    marks = _marks(methods)
    rows = [_result_row(method, methods, marks.get(method, "")) for method in methods if method.summaries]
    return _table("Methods, averaged over seeds", head, rows)


def _result_row(method: Method, methods: Sequence[Method], mark: str) -> list[str]:
    base = _baseline(method, methods)
    gain = method.accuracy - base.accuracy if base else 0.0
    hats = [each["gamma_hat"] for each in method.summaries if each["gamma_hat"] is not None]
    note = f"n = {len(method.summaries)}" + (f", <em>{mark}</em>" if mark else "")
    return [
        _key(method),
        f"<span class='{mark}'>{_accuracy(method)}</span><small>{note}</small>",
        f"{100 * method.average('peak'):.2f}",
        _rounds_to_threshold([each["rounds_to_threshold"] for each in method.summaries]),
        _generated(method),
        f"{100 * method.average('imbalance_removed'):.1f}",
        f"{mean(hats):.3f}" if hats else "-",
        f"{scores.efficiency(gain, method.total):.2f}" if base and method.total else "-",
        f"{method.average('seconds', 'generate'):,.1f}",
        f"{method.average('seconds', 'train'):,.1f}",
    ]


def _rounds_to_threshold(rounds: Sequence[int | None]) -> str:
    """The median, for which a seed that never gets there counts as late as can be."""
    never, middle = rounds.count(None), median(math.inf if each is None else each for each in rounds)
    some = f"<small>{never} of {len(rounds)} never</small>" if never else ""
    return "never" if math.isinf(middle) else f"{middle:g}{some}"


def _generated(method: Method) -> str:
    generated = round(method.average("generated"))
    planned = f"<small>of {method.total:,} planned</small>" if generated != method.total else ""
    return f"{generated:,}{planned}"


def _result_section(methods: Sequence[Method]) -> Iterator[str]:
    yield f"<p class='lead'>{_result(methods)}</p>"
    if not any(method.summaries for method in methods):
        return
    yield _result_table(methods)
    yield f"<p class='note'>{RESULT_NOTE}</p>"
    waiting = [each for method in methods for each in method.runs if not each.finished]
    if waiting:
        names = ", ".join(f"{escape(each.run.path.name)} ({each.progress})" for each in waiting)
        yield f"<p class='note'>Not in the table: {names}.</p>"


def _convergence_section(methods: Sequence[Method]) -> Iterator[str]:
    curves = {method: _curve(method) for method in methods}
    drawn = [method for method, curve in curves.items() if curve.finished or curve.unfinished]
    if drawn:
        source = report_figures.convergence([curves[method] for method in drawn], _thresholds(methods))
        words = "Line: mean over seeds. Band: from the lowest to the highest seed. Dashed: the threshold."
        words += " Dotted: runs that are unfinished." if any(curve.unfinished for curve in curves.values()) else ""
        keys = "".join(f"<li>{_key(method)}</li>" for method in drawn)
        alt = f"Accuracy over rounds of {', '.join(method.name for method in drawn)}"
        yield _figure(source, alt, words, f"<ul class='key'>{keys}</ul>")


def _curve(method: Method) -> Curve:
    evaluated = [each for each in method.runs if each.course.rounds]
    finished, unfinished = ([each.course for each in evaluated if each.finished is done] for done in (True, False))
    return Curve(method.look, finished, unfinished)


def _price_section(methods: Sequence[Method]) -> Iterator[str]:
    finished = [method for method in methods if method.summaries]
    points = [Point(each.name, each.look, each.total, each.accuracy, each.spread or 0.0) for each in finished]
    if points:
        said = "; ".join(f"{point.name}: {point.accuracy:.1f} % with {point.samples:,}" for point in points)
        words = PRICE_NOTE + (" Points of the same number stand side by side." if _matched(methods) else "")
        yield _figure(report_figures.price(points), f"Accuracy against synthetic samples. {said}", words)


def _plans_section(methods: Sequence[Method]) -> Iterator[str]:
    federations: dict[tuple[object, ...], list[Method]] = {}
    for method in methods:
        counts = method.runs[0].counts
        federations.setdefault((counts.n.shape, counts.n.tobytes()), []).append(method)
    for members in federations.values():
        if len(federations) > 1:
            yield f"<h3>{escape(', '.join(method.name for method in members))}</h3>"
        yield from _federation(members)


def _federation(methods: Sequence[Method]) -> Iterator[str]:
    """Heat maps of one table of real counts and of the different plans made for it."""
    counts = methods[0].runs[0].counts
    plans: dict[bytes, list[Method]] = {}
    for method in methods:
        if method.total:
            plans.setdefault(method.runs[0].plan.n.tobytes(), []).append(method)
    tables = [counts.n, *(same[0].runs[0].plan.n for same in plans.values())]
    captions = [f"real: {counts.total:,} samples"]
    captions += [f"{', '.join(each.name for each in same)}: {same[0].total:,} synthetic" for same in plans.values()]
    maps, scale = report_figures.heat_maps(tables)
    shape = f"{counts.num_clients:,} clients and {counts.num_classes:,} classes"
    of_many = f"; shown are the {MOST_CLIENTS} clients that hold most" if counts.num_clients > MOST_CLIENTS else ""
    yield f"<p>{shape}, one colour scale for all{of_many}.</p><div class='maps'>"
    for source, caption in zip(maps, captions, strict=True):
        yield _figure(source, f"Heat map of clients by classes, {caption}", escape(caption))
    yield f"</div>{_figure(scale, 'Colour scale of the heat maps: samples, white is none')}"


def _time_section(methods: Sequence[Method]) -> Iterator[str]:
    spent = [_spent(method) for method in methods if method.summaries]
    if spent:
        said = "; ".join(f"{each.name}: {each.generation:.1f}, {each.training:.1f}, {each.rest:.1f}" for each in spent)
        words = "The rest is communication, aggregation, measuring and testing. At the end of each bar: the sum."
        alt = f"Seconds for generation, training and the rest. {said}"
        yield _figure(report_figures.times(spent), alt, words)


def _spent(method: Method) -> Spent:
    generation, training, total = (method.average("seconds", name) for name in ("generate", "train", "total"))
    return Spent(method.name, method.look, generation, training, max(total - generation - training, 0.0))


def _setup_section(methods: Sequence[Method]) -> Iterator[str]:
    runs = [each for method in methods for each in method.runs]
    differing = _differing(methods)
    if differing:
        rows = [[_key(method), *(escape(_values(method.runs, key)) for key in differing)] for method in methods]
        yield _table("What differs", ["method", *differing], rows, "words")
    shared = {key: _values(runs, key) for key in runs[0].settings if key not in differing}
    yield "<h3>What all runs share</h3>" + _facts(shared)
    yield "<h3>Environment</h3>" + (_facts(_environment(runs)) or "<p>Not recorded.</p>")
    listed = [
        [escape(each.run.path.name), _key(method), str(each.run.config.seed), each.progress]
        for method in methods
        for each in sorted(method.runs, key=lambda each: each.run.config.seed)
    ]
    yield _table("Run directories", ["directory", "method", "seed", "status"], listed, "words")


def _differing(methods: Sequence[Method]) -> list[str]:
    """Keys of the config whose values are not the same in all runs."""
    found = [each.settings for method in methods for each in method.runs]
    return [key for key in found[0] if any(each[key] != found[0][key] for each in found)]


def _values(runs: Iterable[Recorded], key: str) -> str:
    return _joined(each.settings[key] for each in runs)


def _environment(runs: Iterable[Recorded]) -> dict[str, str]:
    found = [each.run.environment() for each in runs]
    keys = dict.fromkeys(key for each in found for key in each)
    return {key: _joined(each.get(key) for each in found) for key in keys}


def _joined(values: Iterable[object]) -> str:
    """The different ones of these values, in words."""
    texts = (value if isinstance(value, str) and value else json.dumps(value) for value in values)
    return ", ".join(dict.fromkeys({"null": "none", '""': "none"}.get(text, text) for text in texts))


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _thresholds(methods: Sequence[Method]) -> list[float]:
    return sorted({method.config.rounds.threshold for method in methods})


def _key(method: Method) -> str:
    """The method's name behind a dash that looks like its line."""
    dash = f"<i style='border-top:3px {method.look.dash} {method.look.colour}'></i>"
    return f"<span class='name'>{dash}{escape(method.name)}</span>"


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """Cells are HTML already; a wide table scrolls in its own box."""
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th scope='row'>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>\n" for row in rows
    )
    parts = f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody>"
    box = f"class='scroll' role='region' tabindex='0' aria-label='{caption}'"
    return f"<div {box}><table class='{kind}'>{parts}</table></div>"


def _facts(facts: dict[str, str]) -> str:
    pairs = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items())
    return f"<dl>{pairs}</dl>" if pairs else ""


def _figure(source: str, alt: str, caption: str = "", above: str = "") -> str:
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{above}<img src='{source}' alt='{escape(alt)}'>{words}</figure>"


SECTIONS: dict[str, Callable[[Sequence[Method]], Iterator[str]]] = {
    "Result": _result_section,
    "Accuracy over rounds": _convergence_section,
    "Accuracy against samples": _price_section,
    "Where the samples go": _plans_section,
    "Where the time goes": _time_section,
    "What was run": _setup_section,
}


def _page(methods: Sequence[Method], title: str) -> str:
    told = {name: "\n".join(tell(methods)) for name, tell in SECTIONS.items()}
    sections = [f"<section>\n<h2>{name}</h2>\n{content}\n</section>" for name, content in told.items() if content]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{CSS}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="about">{escape(_about(methods))}</p>
{chr(10).join(sections)}
<footer>Made by FedEAS {escape(__version__)} from the run directories above.</footer>
</main>
</body>
</html>
"""


def _about(methods: Sequence[Method]) -> str:
    runs = [each for method in methods for each in method.runs]
    unfinished = sum(not each.finished for each in runs)
    words = f"{_number_of(len(methods), 'method')}, {_number_of(len(runs), 'run')}"
    words += f", {unfinished:,} of them unfinished" if unfinished else ""
    data, clients = _values(runs, "data.dataset"), _values(runs, "partition.clients")
    return f"{words}; {data} split over {clients} clients"


def _number_of(count: int, name: str) -> str:
    return f"{count:,} {name}" + ("" if count == 1 else "s")


PRICE_NOTE = "Samples as planned, on a logarithmic scale that begins at 0. Bars: ± one standard deviation over seeds."

RESULT_NOTE = """Accuracy is the mean over the last 20 rounds of each run, ± the sample standard deviation over n seeds.
Best and second are marked among methods that generate the same number of samples. Rounds to the threshold: median over
seeds. Gamma-hat: how far the clients’ updates disagree, 0 if they do not; median over rounds, mean over seeds. Eta:
points of accuracy gained over the same method without generation, for each thousand samples planned. Seconds are for
one run."""

CSS = """
:root { color-scheme: light; --ink: #222; --soft: #5f6368; --line: #dcdfe3 }
* { box-sizing: border-box }
body { margin: 0; background: #fff; color: var(--ink); font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; -webkit-text-size-adjust: 100%; print-color-adjust: exact }
main { max-width: 64rem; margin: 0 auto; padding: 3rem 2rem 4rem }
h1 { margin: 0; font-size: 2rem; line-height: 1.2; letter-spacing: -.01em }
h2 { margin: 0 0 1.25rem; font-size: 1.35rem; line-height: 1.3 }
h3, caption { margin: 2.25rem 0 .75rem; font-size: 1rem; font-weight: 600; text-align: left; line-height: 1.4 }
section { margin-top: 3.5rem; padding-top: 1.75rem; border-top: 1px solid var(--line) }
p { max-width: 46rem; margin: 0 0 1rem; overflow-wrap: anywhere }
.about { margin-top: .5rem; color: var(--soft) }
p span { white-space: nowrap }
.lead { font-size: 1.2rem; line-height: 1.55; margin-bottom: 2rem }
.note, figcaption, footer { color: var(--soft); font-size: .875rem; line-height: 1.55 }
.scroll { overflow-x: auto; margin: 0 0 1.25rem }
table { border-collapse: separate; border-spacing: 0; font-size: .9rem; line-height: 1.4;
  font-variant-numeric: tabular-nums }
caption { margin: 0; padding-bottom: .75rem }
th, td { padding: .55rem .7rem; vertical-align: top; text-align: left; border-top: 1px solid var(--line) }
thead th { vertical-align: bottom; color: var(--soft); font-weight: 500; font-size: .8rem;
  border: 0 }
tbody tr:first-child > * { border-top-color: var(--ink) }
tbody tr:last-child > * { border-bottom: 1px solid var(--line) }
tbody th { font-weight: 500; position: sticky; left: 0; background: #fff; overflow-wrap: break-word; min-width: 9rem }
.numbers { width: 100% }
.numbers td, .numbers th + th { text-align: right }
.numbers td { white-space: nowrap }
.words td { overflow-wrap: anywhere; min-width: 5rem }
th:first-child { padding-left: 0 }
small { display: block; color: var(--soft); font-size: .78rem }
em { font-style: normal; font-weight: 600; color: var(--ink) }
.best { font-weight: 700 }
.second { text-decoration: underline; text-underline-offset: .2em }
.name { display: inline-block; padding-left: 1.6rem; text-indent: -1.6rem }
i { display: inline-block; width: 1.1rem; margin-right: .5rem; vertical-align: .25em }
figure { margin: 0 0 1.25rem; break-inside: avoid }
img { display: block; width: 46rem; max-width: 100%; height: auto }
figcaption { max-width: 46rem; margin-top: .6rem; overflow-wrap: anywhere }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: 0 0 .75rem; padding: 0; list-style: none;
  font-size: .9rem }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr)); gap: 1rem 1.5rem }
.maps figure { display: flex; flex-direction: column-reverse; justify-content: flex-end }
.maps figcaption { margin: 0 0 .4rem; color: var(--ink) }
.maps img, .maps + figure img { width: 20rem }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(14rem, 100%), 1fr)); gap: .6rem 1.5rem;
  margin: 0 0 1rem }
dt { color: var(--soft); font-size: .8rem }
dd { margin: 0; font-size: .9rem; overflow-wrap: anywhere }
footer { margin-top: 4rem }
@media (max-width: 40rem) { main { padding: 1.75rem 1rem 3rem } h1 { font-size: 1.6rem } .lead { font-size: 1.1rem }
  section { margin-top: 2.5rem } th, td { padding: .5rem .55rem }
  tbody th { overflow-wrap: anywhere } }
@media print { main { max-width: none; padding: 0 } .scroll { overflow: visible } h2, h3, caption { break-after: avoid }
  tr { break-inside: avoid } table { font-size: .68rem } th, td { padding: .3rem .35rem } tbody th { min-width: 0 } }
"""
