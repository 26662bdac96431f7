"""The main result in a few paragraphs, with all numbers from finished runs and from the paper."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean

from fedeas.runs import Difference, Measured, Verdict
from reproduction.artefacts import POLICIES_AT_EQUAL_BUDGET
from reproduction.ledger import View, published_gap
from reproduction.measures import steps
from reproduction.methods import FEDAVG, FEDEAS, MISSING_ONLY, UNIFORM, Method
from reproduction.profiles import HEADLINE
from reproduction.published import published, setting
from reproduction.standings import contains, difference_text
from reproduction.studies import PROTOCOLS, Protocol, plan_of
from reproduction.text import listed, signed

WHERE = setting(HEADLINE)


def headline(view: View) -> str:
    """The comparison of policies at equal budget: our result, the paper's, and what our intervals leave out."""
    fedeas = _measured(view, FEDEAS)
    if fedeas is None:
        return f"FedEAS has not been run on {WHERE.title}."
    others = {each.title: view.minus(WHERE, each, FEDEAS) for each in POLICIES_AT_EQUAL_BUDGET if each != FEDEAS}
    differences = {title: found for title, found in others.items() if found is not None}
    paragraphs = [
        f"{_result(view, fedeas)} {_comparison(differences)}".strip(),
        f"{_paper_levels()} {_paper_gap(view)}".strip(),
        _left_out(view, differences),
    ]
    lines = "\n\n".join(filter(None, paragraphs)).splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _measured(view: View, method: Method) -> Measured | None:
    return Measured.of(list(view.values(WHERE, method).values()))


def _result(view: View, fedeas: Measured) -> str:
    """FedEAS's accuracy and images, and FedAvg's accuracy."""
    plan = plan_of(view.study.config(WHERE, FEDEAS))
    share = 100 * plan.summary.synthetic_share
    said = (
        f"On {WHERE.title}, under the {view.protocol} protocol, FedEAS reaches {_level(fedeas)} with {plan.total:,} "
        f"synthetic images, which are {share:.0f} % of the training data at {plan.allocation.policy}. "
        f"This is the accuracy in {view.study.window}: mean ± standard deviation over n seeds."
    )
    fedavg = _measured(view, FEDAVG)
    if fedavg is None:
        return said
    return f"{said} FedAvg, without synthetic images, reaches {_level(fedavg)}{_work(view)}."


def _comparison(differences: Mapping[str, Difference]) -> str:
    """The differences of other methods to FedEAS, and what they show."""
    if not differences:
        return ""
    shown = (
        f"{title} {signed(found.mean, 2)} ({found.range_text(2) or 'no interval'})"
        for title, found in differences.items()
    )
    said = f"Differences to FedEAS in points, with 95 % intervals paired by seed: {', '.join(shown)}."
    starts = {
        Verdict.LOWER: "FedEAS is higher than",
        Verdict.HIGHER: "FedEAS is lower than",
        Verdict.UNDECIDED: "No difference is shown between FedEAS and",
        Verdict.ONE_SEED: "One seed cannot tell FedEAS from",
        Verdict.NO_SPREAD: "Seeds that all differ by the same amount cannot tell FedEAS from",
    }
    names = {verdict: [title for title, each in differences.items() if each.verdict is verdict] for verdict in starts}
    return " ".join([said, *(f"{start} {listed(names[each])}." for each, start in starts.items() if names[each])])


def _paper_levels() -> str:
    methods = (FEDEAS, MISSING_ONLY, UNIFORM, FEDAVG)
    levels = [f"{published().printed(each.name, WHERE)} % for {each.title}" for each in methods]
    return f"The paper reports {listed(levels)}, under its own protocol."


def _paper_gap(view: View) -> str:
    """The paper's FedEAS minus its Uniform beside ours, under each protocol that has been run."""
    views = [View(protocol, view.results) for protocol in PROTOCOLS]
    ours = {each.protocol: found for each in views if (found := each.minus(WHERE, FEDEAS, UNIFORM)) is not None}
    if not ours:
        return ""
    paper = published_gap(WHERE, UNIFORM)
    shown = [f"by {difference_text(found)} under the {protocol} protocol" for protocol, found in ours.items()]
    said = f"Its FedEAS is above its Uniform by {paper} points, ours {listed(shown)}."
    return f"{said} {_reproduced({protocol: contains(found, paper) for protocol, found in ours.items()})}"


def _reproduced(inside: Mapping[Protocol, bool | None]) -> str:
    """Whether our intervals contain the paper's number, by protocol; None where there is no interval.

    >>> _reproduced({"clean": False, "paper": None})
    "The paper's number is outside our interval under the clean protocol: we do not reproduce it."
    """
    places = {False: "outside", True: "inside"}
    found = {where: [name for name, each in inside.items() if each is answer] for answer, where in places.items()}
    parts = [
        f"{where} our interval under the {listed(names)} protocol{'s' * (len(names) > 1)}"
        for where, names in found.items()
        if names
    ]
    if not parts:
        return "With one seed there is no interval, so this does not show whether we reproduce it."
    return f"The paper's number is {listed(parts)}" + ("." if found["inside"] else ": we do not reproduce it.")


def _left_out(view: View, differences: Mapping[str, Difference]) -> str:
    """What the intervals do not cover."""
    said = []
    if not view.study.config(WHERE, FEDEAS).partition.redraw:
        said.append(
            "All seeds of a method have the same split of the data among clients and the same synthetic images, so "
            "the intervals do not say what another split or other images would give."
        )
    if len(differences) > 1:
        said.append(
            f"Each of the {len(differences)} intervals to FedEAS stands alone: they are not corrected for the number "
            "of comparisons, while the verdicts of “Beyond FedEAS” are corrected for all comparisons of an experiment."
        )
    return " ".join(said)


def _level(ours: Measured) -> str:
    return f"{ours.text(2)} % (n = {ours.seeds})"


def _work(view: View) -> str:
    """How many steps FedAvg takes, relative to FedEAS; empty if runs did not record them."""
    own, other = (view.values(WHERE, method, measure=steps).values() for method in (FEDAVG, FEDEAS))
    return f" with {100 * mean(own) / mean(other):.0f} % of FedEAS's training steps" if own and other else ""
