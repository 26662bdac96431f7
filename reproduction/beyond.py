"""Beyond the paper: what else can be done with the same images? Policies, losses, and one pool for all clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedeas import FedEAS
from fedeas.config import RunConfig
from reproduction.measures import accuracy, final, steps
from reproduction.methods import FEDAVG, FEDEAS, Method, at_one_budget
from reproduction.profiles import HELD_OUT
from reproduction.published import Setting
from reproduction.studies import Study, plan_of
from reproduction.table_spec import Cell, Sheet, generated, imbalance_removed, minus, placed

BALANCED = "balanced-softmax"
BALANCED_TITLE = "balanced softmax"
SHARED = "shared(of={generator})"
SAMPLING = "FedAvg, balanced sampling"
DISJOINT = "FedEAS, disjoint images"
GAUSSIAN = "FedEAS, Gaussian images"
GENERATED = "FedEAS, generated images"
REAL = "FedEAS, real images"
CEILING = "Central training"
_APART = (
    "For generated and real images, a part of the training images goes to no client: the real ones. Neither is ranked."
)
ASIDE = {
    DISJOINT: "With disjoint images no two clients get the same one, as long as there are enough; they are not ranked.",
    GAUSSIAN: "Gaussian images come from a generator that was fitted to all training images; they are not ranked.",
    GENERATED: _APART,
    REAL: _APART,
    CEILING: f"{CEILING} has all real images in one place and is not ranked.",
}
"""Methods that answer side questions, with a note for each: they are run and shown, but not among the planned
comparisons, which verdicts and advice rest on."""

WHOLE = "Pool to the mean, whole budget"
LARGEST = "Pool to the largest class"


def methods_at(study: Study, where: Setting, beta: float) -> dict[str, Method]:
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
        replace(pool, title=WHOLE, generator=_whole_pool(study, where, pool, ours)),
        Method(LARGEST, policy=f"pool(distinct={budget}, fill=max)", generator=SHARED),
        *map(_balanced, (ours, kl, pool)),
        *_with_other_images(study, ours),
    ]
    return {method.title: method for method in methods}


def _whole_pool(study: Study, where: Setting, pool: Method, budget: Method) -> str:
    """A pool with as many images of each class as the budget has; the plain one if some client needs more of them."""
    plan, images = (plan_of(study.config(where, method)) for method in (pool, budget))
    each = images.total // plan.n.shape[1]
    return f"shared(of={{generator}}, each={each})" if each >= max(1, plan.n.max()) else SHARED


def _without_images(study: Study) -> list[Method]:
    central = [replace(FEDAVG, title=CEILING, central=True)] if study.protocol == "clean" else []
    return [FEDAVG, _balanced(FEDAVG), replace(FEDAVG, title=SAMPLING, sampling="balanced"), *central]


def _with_other_images(study: Study, ours: Method) -> list[Method]:
    """FedEAS with other images, to see what is lost because images are generated, or because real ones repeat."""
    apart = replace(ours, held_out=True)
    if study.profile.places_real_images:
        others = {DISJOINT: f"{HELD_OUT}(disjoint=true)", GAUSSIAN: "gaussian"}
    else:
        others = {GENERATED: "{generator}", REAL: HELD_OUT} if study.protocol == "clean" else {}
    return [replace(apart, title=title, generator=generator) for title, generator in others.items()]


def _balanced(method: Method) -> Method:
    return replace(method, title=f"{method.title}, {BALANCED_TITLE}", loss=BALANCED)


EVERYWHERE = frozenset(
    {"FedAvg", "FedEAS", "Uniform", "Greedy", "KL", "Pool to the mean", WHOLE, f"FedEAS, {BALANCED_TITLE}"}
)
"""The methods that are compared in all settings; the others are compared in the first one alone."""

POOLS_CONTROL = frozenset({"FedEAS", "Pool to the mean", WHOLE, LARGEST})
"""The methods that are also compared at equal work: clients of a pool have more images, and so take more steps."""

CONTROL = POOLS_CONTROL | {"FedAvg", "KL"}
"""The methods that are compared so in the first setting."""

BALANCED_CONTROL = frozenset(f"{title}, {BALANCED_TITLE}" for title in ("FedAvg", "FedEAS", "KL", "Pool to the mean"))
"""The methods that are compared so at the middle budget alone."""


def beyond_sheets(study: Study) -> list[Sheet]:
    """The tables of all settings that the profile compares in."""
    return [sheet for where in study.beyond for sheet in sheets_in(study, where)]


class Comparison(NamedTuple):
    """The runs that are compared at one budget, by the titles of their methods."""

    beta: float
    equal_steps: bool
    runs: Mapping[str, RunConfig]


def comparisons_in(study: Study, where: Setting) -> list[Comparison]:
    """One for each budget, and in some settings one for each in which all clients take equally many steps."""
    betas = study.profile.betas
    controls = betas if where.id in study.profile.equal_steps else ()
    usual = [_comparison(study, where, beta, _methods_compared(study, where, beta)) for beta in betas]
    return [*usual, *(_control(study, where, beta) for beta in controls)]


def _methods_compared(study: Study, where: Setting, beta: float) -> Set[str]:
    """The titles of the methods that are compared at this budget."""
    is_first = where == study.beyond[0]
    if is_first and study.profile.compares_most:
        return methods_at(study, where, beta).keys()
    compared = EVERYWHERE | {DISJOINT, GENERATED, REAL} if is_first else EVERYWHERE
    return compared | {LARGEST} if study.profile.largest_everywhere else compared


def _control(study: Study, where: Setting, beta: float) -> Comparison:
    betas = study.profile.betas
    middle = BALANCED_CONTROL if beta == betas[len(betas) // 2] else frozenset[str]()
    compared = CONTROL | middle if where == study.beyond[0] else POOLS_CONTROL
    return _comparison(study, where, beta, compared, equal_steps=True)


def _comparison(study: Study, where: Setting, beta: float, compared: Set[str], equal_steps: bool = False) -> Comparison:
    # Controls keep a run for each budget: those on digits come from two machines, which round differently.
    budgets = [beta] if equal_steps else [each for each in study.profile.betas if each <= beta]
    methods = {each: methods_at(study, where, each) for each in budgets}
    runs = {
        title: _first_alike(
            [
                study.config(where, replace(own[title], equal_steps=equal_steps))
                for own in methods.values()
                if title in own
            ]
        )
        for title in methods[beta]
        if title in compared
    }
    return Comparison(beta, equal_steps, runs)


def sheets_in(study: Study, where: Setting) -> list[Sheet]:
    """A table for each comparison in a setting."""
    return [_sheet(study, where, each) for each in comparisons_in(study, where)]


def _sheet(study: Study, where: Setting, compared: Comparison) -> Sheet:
    steps_each = study.profile.equal_steps.get(where.id)
    how = f", {steps_each} steps for each client and round" if compared.equal_steps else ""
    base = compared.runs[FEDEAS.title]
    columns = (
        "images made", "placed", "imbalance removed, %", study.level, "minus FedEAS, points", "final, %", "steps",
    )  # fmt: skip
    rows = {title: _row(run, base) for title, run in compared.runs.items()}
    title = study.heading(f"The images of FedEAS with beta = {compared.beta:g}{how}", where)
    share = plan_of(base).summary.synthetic_share
    note = f"FedEAS's images are {100 * share:.0f} % of the data that it trains on. "
    note += "An image of a pool is made once and placed at many clients."
    if study.profile.places_real_images:
        note += " Images made are the different real images that a method uses."
    notes = dict.fromkeys(about for name, about in ASIDE.items() if name in compared.runs)
    note = " ".join([note, *notes])
    return Sheet(title, columns, rows, ranked=(study.level,), aside=tuple(ASIDE), note=note, by_method=True)


def _first_alike(runs: Sequence[RunConfig]) -> RunConfig:
    """The first run with the images of the last one: a pool that is full at a smaller budget is run only once."""
    *_, last = runs
    return next(
        run for run in runs if run.generator == last.generator and np.array_equal(plan_of(run).n, plan_of(last).n)
    )


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
