"""Beyond the paper: what else can be done with the same images? Policies, losses, and one pool for all clients."""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedeas import FedEAS
from fedeas.config import RunConfig
from reproduction.methods import FEDAVG, FEDEAS, Method, with_total
from reproduction.published import Setting
from reproduction.results import accuracy, final, steps
from reproduction.studies import HELD_OUT, Study, plan_of
from reproduction.tables import Cell, Rows, Sheet, generated, imbalance_removed, minus, placed

EQUAL_STEPS = "equal steps"
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
"""Methods that answer side questions, with a note for each: verdicts and advice do not rest on them."""

POOL = "Pool to the mean"
WHOLE = "Pool to the mean, whole budget"
LARGEST = "Pool to the largest class"

Contrast = tuple[str, str]  # the method with a choice, and the one without it
CONTRASTS: tuple[Contrast, ...] = (
    *((f"{title}, {BALANCED_TITLE}", title) for title in (FEDAVG.title, FEDEAS.title, "KL", POOL)),
    *((WHOLE, POOL), (LARGEST, POOL), (CEILING, FEDEAS.title)),
)
# What other images do to FedEAS, at each budget, because the budget decides how many images repeat.
SIDE: tuple[Contrast, ...] = ((DISJOINT, FEDEAS.title), (WHOLE, DISJOINT), (DISJOINT, GAUSSIAN), (REAL, GENERATED))


def methods_at(study: Study, where: Setting, beta: float) -> dict[str, Method]:
    """The methods that are compared at the budget of FedEAS with this beta, by title."""
    budget = FedEAS(beta).spec
    ours = replace(FEDEAS, policy=budget)
    kl = Method("KL", policy=with_total("kl", budget))
    pool = Method(POOL, policy=f"pool(distinct={budget})", generator=SHARED)
    plan, images = (plan_of(study.config(where, method)) for method in (pool, ours))
    # With other images it shows what is lost because images are generated, or because real ones repeat.
    others = {GENERATED: "{generator}", REAL: HELD_OUT} if study.protocol == "clean" else {}
    if study.profile.places_real_images:
        others = {DISJOINT: f"{HELD_OUT}(disjoint=true)", GAUSSIAN: "gaussian"}
    each = images.total // plan.n.shape[1]  # a plain pool if some client needs more images of a class
    whole = f"shared(of={{generator}}, each={each})" if each >= max(1, plan.n.max()) else SHARED
    methods = [
        FEDAVG,
        _balanced(FEDAVG),
        replace(FEDAVG, title=SAMPLING, sampling="balanced"),
        *([replace(FEDAVG, title=CEILING, central=True)] if study.protocol == "clean" else []),
        ours,
        Method("Uniform", policy=with_total("uniform", budget)),
        Method("Greedy", policy=with_total("greedy", budget)),
        kl,
        pool,
        replace(pool, title=WHOLE, generator=whole),
        Method(LARGEST, policy=f"pool(distinct={budget}, fill=max)", generator=SHARED),
        *map(_balanced, (ours, kl, pool)),
        *(replace(ours, held_out=True, title=title, generator=source) for title, source in others.items()),
    ]
    return {method.title: method for method in methods}


def _balanced(method: Method) -> Method:
    return replace(method, title=f"{method.title}, {BALANCED_TITLE}", loss=BALANCED)


# The methods that are compared in all settings; the others are compared in the first one alone.
EVERYWHERE = frozenset({"FedAvg", "FedEAS", "Uniform", "Greedy", "KL", POOL, WHOLE, f"FedEAS, {BALANCED_TITLE}"})
# The methods that are also compared at equal work: clients of a pool have more images, and so take more steps.
POOLS_CONTROL = frozenset({"FedEAS", POOL, WHOLE, LARGEST})
CONTROL = POOLS_CONTROL | {"FedAvg", "KL"}  # in the first setting
BALANCED_CONTROL = frozenset(
    f"{title}, {BALANCED_TITLE}" for title in ("FedAvg", "FedEAS", "KL", POOL)
)  # middle budget


class Comparison(NamedTuple):
    """The runs that are compared at one budget, by the titles of their methods."""

    beta: float
    equal_steps: bool
    runs: Mapping[str, RunConfig]

    @property
    def name(self) -> str:
        """The budget, and whether steps are equal."""
        return f"beta = {self.beta:g}" + f", {EQUAL_STEPS}" * self.equal_steps


def comparisons_in(study: Study, where: Setting) -> list[Comparison]:
    """One for each budget, and in some settings one for each in which all clients take equally many steps."""
    profile, is_first = study.profile, where == study.beyond[0]
    methods = {beta: methods_at(study, where, beta) for beta in profile.betas}
    found = list[Comparison]()
    for place, beta in enumerate(profile.betas):
        compared: Set[str] = EVERYWHERE | {LARGEST} if profile.largest_everywhere else EVERYWHERE
        if is_first:
            compared = methods[beta].keys() if profile.compares_most else compared | {DISJOINT, GENERATED, REAL}
        # A pool that is full at a smaller budget is run only once: the first run with the images of the last one.
        runs = dict[str, RunConfig]()
        for title in methods[beta].keys() & compared:
            own = [methods[each][title] for each in profile.betas[: place + 1] if title in methods[each]]
            last, *earlier = (study.config(where, method) for method in reversed(own))
            for run in earlier:
                is_same = run.generator == last.generator and np.array_equal(plan_of(run).n, plan_of(last).n)
                last = run if is_same else last
            runs[title] = last
        found.append(Comparison(beta, False, {title: runs[title] for title in methods[beta] if title in runs}))
    # Controls keep a run for each budget: those on digits come from two machines, which round differently.
    for beta in profile.betas if where.id in profile.equal_steps else ():
        middle = BALANCED_CONTROL if beta == profile.betas[len(profile.betas) // 2] else frozenset[str]()
        compared = CONTROL | middle if is_first else POOLS_CONTROL
        chosen = {title: replace(own, equal_steps=True) for title, own in methods[beta].items() if title in compared}
        found.append(Comparison(beta, True, {title: study.config(where, method) for title, method in chosen.items()}))
    return found


def sheets_in(study: Study, where: Setting) -> list[Sheet]:
    """A table for each comparison in a setting."""
    images = ("images made", "placed", "imbalance removed, %")
    columns = (*images, study.level, "minus FedEAS, points", "final, %", "steps")
    sheets, level = list[Sheet](), (study.level,)
    for beta, equal_steps, runs in comparisons_in(study, where):
        how = f", {study.profile.equal_steps[where.id]} steps for each client and round" if equal_steps else ""
        rows: Rows = {}
        for title, run in runs.items():
            reached = (Cell((run,), accuracy), minus(run, runs[FEDEAS.title]), Cell((run,), final))
            work = Cell((run,), steps, None, 0)
            rows[title] = (generated(run), placed(run), imbalance_removed(run), *reached, work)
        share = 100 * plan_of(runs[FEDEAS.title]).summary.synthetic_share
        notes = [f"FedEAS's images are {share:.0f} % of the data that it trains on."]
        notes += ["An image of a pool is made once and placed at many clients."]
        if study.profile.places_real_images:
            notes += ["Images made are the different real images that a method uses."]
        notes += dict.fromkeys(about for name, about in ASIDE.items() if name in runs)
        title = study.heading(f"The images of FedEAS with beta = {beta:g}{how}", where)
        sheets.append(Sheet(title, columns, rows, level, tuple(ASIDE), " ".join(notes), by_method=True))
    return sheets
