"""The main result in one paragraph, with all numbers from finished runs."""

from __future__ import annotations

from statistics import mean

from fedeas.paper.artefacts import POLICIES_AT_EQUAL_BUDGET
from fedeas.paper.ledger import View
from fedeas.paper.measures import steps
from fedeas.paper.published import published, setting
from fedeas.paper.run_plans import allocation_of
from fedeas.paper.studies import FEDAVG, FEDEAS, HEADLINE, study
from fedeas.runs.comparison import Measured, conclusion, signed


def headline(view: View) -> str:
    """The comparison of policies at equal budget, as a paragraph."""
    where, chosen = setting(HEADLINE), study("full", view.protocol)
    fedeas, fedavg = (Measured.of(list(view.values(where, method).values())) for method in (FEDEAS, FEDAVG))
    if fedeas is None:
        return f"FedEAS has not been run on {where.title}."
    total = allocation_of(chosen.config(where, FEDEAS)).total
    said = [
        f"On {where.title}, under the {view.protocol} protocol, FedEAS reaches {_level(fedeas)} with {total:,} "
        f"synthetic images. This is the accuracy in {chosen.window}: mean ± standard deviation over n seeds."
    ]
    if fedavg is not None:
        said.append(f"FedAvg, without synthetic images, reaches {_level(fedavg)}{_work(view)}.")
    others = {each.title: view.minus(where, each, FEDEAS) for each in POLICIES_AT_EQUAL_BUDGET if each != FEDEAS}
    differences = {name: found for name, found in others.items() if found is not None}
    if differences:
        shown = (
            f"{name} {signed(found.mean, 2)} ({found.range_text(2) or 'no interval'})"
            for name, found in differences.items()
        )
        said.append(f"Differences to FedEAS in points, with 95 % intervals paired by seed: {', '.join(shown)}.")
        said.append(conclusion(FEDEAS.title, differences))
    own, base = (published().printed(method.name, where) for method in (FEDEAS, FEDAVG))
    said.append(f"The paper reports {own} % for FedEAS and {base} % for FedAvg under its own protocol.")
    return " ".join(said)


def _level(ours: Measured) -> str:
    return f"{ours.text(2)} % (n = {ours.seeds})"


def _work(view: View) -> str:
    """How many steps FedAvg takes, relative to FedEAS; empty if runs did not record them."""
    own, other = (view.values(setting(HEADLINE), method, measure=steps).values() for method in (FEDAVG, FEDEAS))
    return f" with {100 * mean(own) / mean(other):.0f} % of FedEAS's training steps" if own and other else ""
