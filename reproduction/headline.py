"""The main result in a few paragraphs, with all numbers from finished runs and from the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean

from fedeas.runs import Measured, Verdict
from reproduction.artefacts import POLICIES_AT_EQUAL_BUDGET
from reproduction.ledger import View, contains, difference_text, published_gap
from reproduction.measures import steps
from reproduction.methods import FEDAVG, FEDEAS, MISSING_ONLY, UNIFORM
from reproduction.profiles import HEADLINE
from reproduction.published import published, setting
from reproduction.studies import PROTOCOLS, Protocol, plan_of
from reproduction.text import listed, signed

WHERE = setting(HEADLINE)
NAMED = (FEDEAS, MISSING_ONLY, UNIFORM, FEDAVG)
STARTS = {
    Verdict.LOWER: "FedEAS is higher than",
    Verdict.HIGHER: "FedEAS is lower than",
    Verdict.UNDECIDED: "No difference is shown between FedEAS and",
    Verdict.ONE_SEED: "One seed cannot tell FedEAS from",
    Verdict.NO_SPREAD: "Seeds that all differ by the same amount cannot tell FedEAS from",
}


def headline(view: View) -> str:
    """The comparison of policies at equal budget: our result, the paper's, and what our intervals leave out."""
    level, fedavg = (Measured.of(list(view.values(WHERE, method).values())) for method in (FEDEAS, FEDAVG))
    if level is None:
        return f"> FedEAS has not been run on {WHERE.title}."
    config = view.study.config(WHERE, FEDEAS)
    plan = plan_of(config)
    share = f"which are {100 * plan.summary.synthetic_share:.0f} % of the training data at {plan.allocation.policy}"
    said = [
        f"On {WHERE.title}, under the {view.protocol} protocol, FedEAS reaches {level.text(2)} % (n = {level.seeds}) "
        f"with {plan.total:,} synthetic images, {share}. This is the accuracy in {view.study.window}: mean ± standard "
        "deviation over n seeds."
    ]
    if fedavg is not None:
        own, other = (view.values(WHERE, method, measure=steps).values() for method in (FEDAVG, FEDEAS))
        work = f" with {100 * mean(own) / mean(other):.0f} % of FedEAS's training steps" if own and other else ""
        said.append(f"FedAvg, without synthetic images, reaches {fedavg.text(2)} % (n = {fedavg.seeds}){work}.")
    others = {each.title: view.mean_of(WHERE, each, FEDEAS) for each in POLICIES_AT_EQUAL_BUDGET if each != FEDEAS}
    differences = {title: found for title, found in others.items() if found is not None}
    if differences:
        numbers = {title: (signed(each.mean, 2), each.range_text(2)) for title, each in differences.items()}
        shown = ", ".join(f"{title} {apart} ({ends or 'no interval'})" for title, (apart, ends) in numbers.items())
        said.append(f"Differences to FedEAS in points, with 95 % intervals paired by seed: {shown}.")
    names = {verdict: [key for key, each in differences.items() if each.verdict is verdict] for verdict in STARTS}
    said += [f"{start} {listed(names[verdict])}." for verdict, start in STARTS.items() if names[verdict]]
    levels = [f"{published().printed(each.name, WHERE)} % for {each.title}" for each in NAMED]
    paper = [f"The paper reports {listed(levels)}, under its own protocol.", *_paper_gap(view)]
    left_out = list[str]()  # by the intervals
    if not config.partition.redraw:
        left_out.append(
            "All seeds of a method have the same split of the data among clients and the same synthetic images, so "
            "the intervals do not say what another split or other images would give."
        )
    if len(differences) > 1:
        left_out.append(
            f"Each of the {len(differences)} intervals to FedEAS stands alone: they are not corrected for the number "
            "of comparisons, while the verdicts of “Beyond FedEAS” are corrected for all comparisons of an experiment."
        )
    return "\n>\n".join(f"> {' '.join(paragraph)}" for paragraph in (said, paper, left_out) if paragraph)


def _paper_gap(view: View) -> Iterator[str]:
    """The paper's FedEAS minus its Uniform beside ours, under each protocol that has been run."""
    views = [View(protocol, view.results) for protocol in PROTOCOLS]
    ours = {each.protocol: found for each in views if (found := each.mean_of(WHERE, FEDEAS, UNIFORM)) is not None}
    if ours:
        paper = published_gap(WHERE, UNIFORM)
        shown = [f"by {difference_text(found)} under the {protocol} protocol" for protocol, found in ours.items()]
        yield f"Its FedEAS is above its Uniform by {paper} points, ours {listed(shown)}."
        yield _reproduced({protocol: contains(found, paper) for protocol, found in ours.items()})


def _reproduced(inside: Mapping[Protocol, bool | None]) -> str:
    """Whether our intervals contain the paper's number, by protocol; None where there is no interval.

    >>> _reproduced({"clean": False, "paper": None})
    "The paper's number is outside our interval under the clean protocol: we do not reproduce it."
    """
    places = {False: "outside", True: "inside"}
    found = {where: [name for name, each in inside.items() if each is answer] for answer, where in places.items()}
    sides = [(where, listed(names), "s" * (len(names) > 1)) for where, names in found.items() if names]
    parts = [f"{where} our interval under the {names} protocol{plural}" for where, names, plural in sides]
    if not parts:
        return "With one seed there is no interval, so this does not show whether we reproduce it."
    return f"The paper's number is {listed(parts)}" + ("." if found["inside"] else ": we do not reproduce it.")
