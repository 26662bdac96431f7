"""Beyond the paper: what else can be done with the same images? Policies, losses, and one pool for all clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedeas.config import RunConfig
from fedeas.paper.measures import accuracy, final, steps
from fedeas.paper.published import Setting, setting
from fedeas.paper.run_plans import allocation_of, counts_of
from fedeas.paper.studies import FEDAVG, FEDEAS, Method, Study, at_one_budget
from fedeas.paper.table_spec import Cell, Sheet, generated, imbalance_removed, minus, placed
from fedeas.planning import scores
from fedeas.planning.policies import FedEAS

BALANCED = "balanced-softmax"
BALANCED_TITLE = "balanced softmax"
SHARED = "shared(of={generator})"
SAMPLING = "FedAvg, balanced sampling"
CEILING = "Central training"
LARGEST = "Pool to the largest class"
SERVER = "The images at the server"
SERVER_EPOCHS = 20


def methods_at(study: Study, beta: float) -> dict[str, Method]:
    """The methods that are compared at the budget of FedEAS with this beta, by title."""
    budget = FedEAS(beta).spec
    ours = replace(FEDEAS, policy=budget)
    kl = Method("KL", policy=at_one_budget("kl", budget))
    pool = Method("Pool to the mean", policy=f"pool(distinct={budget})", generator=SHARED)
    methods = [
        *_without_images(study),
        ours,
        Method("Uniform", policy=at_one_budget("uniform", budget)),
        Method("Greedy", policy=at_one_budget("greedy", budget)),
        kl,
        pool,
        Method(LARGEST, policy=f"pool(distinct={budget}, fill=max)", generator=SHARED),
        *map(_balanced, (ours, kl, pool)),
        replace(ours, title=SERVER, server_epochs=SERVER_EPOCHS),
    ]
    return {method.title: method for method in methods}


def _without_images(study: Study) -> list[Method]:
    central = [replace(FEDAVG, title=CEILING, central=True)] if study.protocol == "clean" else []
    return [FEDAVG, _balanced(FEDAVG), replace(FEDAVG, title=SAMPLING, sampling="balanced"), *central]


def _balanced(method: Method) -> Method:
    return replace(method, title=f"{method.title}, {BALANCED_TITLE}", loss=BALANCED)


LEFT_OUT = frozenset({SAMPLING, CEILING, LARGEST})
"""The methods that are compared in the first setting alone; the last one takes many times the steps of the others."""

CONTROL = frozenset({"FedAvg", "FedEAS", "KL", "Pool to the mean", LARGEST})
"""The methods that are also compared at equal work, in the first setting."""

BALANCED_CONTROL = frozenset(f"{title}, {BALANCED_TITLE}" for title in ("FedAvg", "FedEAS", "KL", "Pool to the mean"))
"""The methods that are compared so at the middle budget alone."""


def beyond_sheets(study: Study) -> list[Sheet]:
    """The tables of all settings that the profile compares in."""
    return [sheet for name in study.profile.beyond for sheet in sheets_in(study, setting(name))]


class Comparison(NamedTuple):
    """The runs that are compared at one budget, by the titles of their methods."""

    beta: float
    equal_steps: bool
    runs: Mapping[str, RunConfig]


def comparisons_in(study: Study, where: Setting) -> list[Comparison]:
    """One for each budget; in the first setting also one for each in which all clients take equally many steps."""
    betas, is_first = study.profile.betas, where.id == study.profile.beyond[0]
    usual = [_comparison(study, where, beta, leave_out=frozenset() if is_first else LEFT_OUT) for beta in betas]
    return [*usual, *(_control(study, where, beta) for beta in betas if is_first)]


def _control(study: Study, where: Setting, beta: float) -> Comparison:
    betas = study.profile.betas
    compared = CONTROL | (BALANCED_CONTROL if beta == betas[len(betas) // 2] else frozenset())
    return _comparison(study, where, beta, methods_at(study, beta).keys() - compared, equal_steps=True)


def _comparison(
    study: Study, where: Setting, beta: float, leave_out: Set[str], equal_steps: bool = False
) -> Comparison:
    # Controls keep a run for each budget: those on digits come from two machines, which round differently.
    budgets = [beta] if equal_steps else [each for each in study.profile.betas if each <= beta]
    runs = {
        title: _first_alike(
            [study.config(where, replace(methods_at(study, each)[title], equal_steps=equal_steps)) for each in budgets]
        )
        for title in methods_at(study, beta)
        if title not in leave_out
    }
    return Comparison(beta, equal_steps, runs)


def sheets_in(study: Study, where: Setting) -> list[Sheet]:
    """A table for each comparison in a setting."""
    return [_sheet(study, where, each) for each in comparisons_in(study, where)]


def _sheet(study: Study, where: Setting, compared: Comparison) -> Sheet:
    how = f", {study.profile.equal_steps} steps for each client and round" if compared.equal_steps else ""
    base = compared.runs[FEDEAS.title]
    columns = (
        "images made", "placed", "imbalance removed, %", study.level, "minus FedEAS, points", "final, %", "steps",
    )  # fmt: skip
    rows = {title: _row(run, base) for title, run in compared.runs.items()}
    title = study.heading(f"The images of FedEAS with beta = {compared.beta:g}{how}", where)
    share = scores.synthetic_share(counts_of(base), allocation_of(base))
    note = f"They are {100 * share:.0f} % of the data that FedEAS trains on. "
    note += "An image of a pool is made once and placed at many clients."
    if CEILING in compared.runs:
        note += " Central training has all real images in one place and is not ranked."
    return Sheet(title, columns, rows, ranked=(study.level,), aside=(CEILING,), note=note, by_method=True)


def _first_alike(runs: Sequence[RunConfig]) -> RunConfig:
    """The first run whose plan is that of the last one: a pool that is full at a smaller budget is run only once."""
    plan = allocation_of(runs[-1]).n
    return next(run for run in runs if np.array_equal(allocation_of(run).n, plan))


def _row(run: RunConfig, base: RunConfig) -> tuple[Cell | None, ...]:
    return (
        generated(run),
        placed(run),
        imbalance_removed(run),
        Cell((run,), accuracy),
        minus(run, base),
        Cell((run,), final),
        Cell((run,), steps, None, 0),
    )
