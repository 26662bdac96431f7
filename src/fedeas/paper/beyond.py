"""Beyond the paper: what else can be done with the same images? Policies, losses, and one pool for all clients."""

from __future__ import annotations

from dataclasses import replace

from fedeas.config import RunConfig
from fedeas.paper.cells import generated, imbalance_removed, level_of, minus, placed
from fedeas.paper.published import setting
from fedeas.paper.run_plans import allocation_of, counts_of
from fedeas.paper.studies import FEDAVG, FEDEAS, HEADLINE, Method, Study, at_one_budget
from fedeas.paper.table_spec import Cell, Sheet, accuracy, final, steps
from fedeas.planning import scores
from fedeas.planning.policies import FedEAS

BALANCED = "balanced-softmax"
BALANCED_TITLE = "balanced softmax"
SHARED = "shared(of={generator})"
CEILING = "Central training"
SERVER_EPOCHS = 20


def methods_at(beta: float) -> list[Method]:
    """The methods that are compared at the budget of FedEAS with this beta, FedEAS first."""
    budget = FedEAS(beta).spec
    ours = replace(FEDEAS, policy=budget)
    kl = Method("KL", policy=at_one_budget("kl", budget))
    pool = Method("Pool to the mean", policy=f"pool(distinct={budget})", generator=SHARED)
    return [
        ours,
        Method("Uniform", policy=at_one_budget("uniform", budget)),
        Method("Greedy", policy=at_one_budget("greedy", budget)),
        kl,
        pool,
        Method("Pool to the largest class", policy=f"pool(distinct={budget}, fill=max)", generator=SHARED),
        *map(_balanced, (ours, kl, pool)),
        replace(ours, title="The images at the server", server_epochs=SERVER_EPOCHS),
    ]


def _balanced(method: Method) -> Method:
    return replace(method, title=f"{method.title}, {BALANCED_TITLE}", loss=BALANCED)


def beyond_sheets(study: Study) -> list[Sheet]:
    """A table for each budget, and for each one in which all clients take equally many steps."""
    betas = study.profile.betas
    without = [FEDAVG, _balanced(FEDAVG), replace(FEDAVG, title="FedAvg, balanced sampling", sampling="balanced")]
    if study.protocol == "clean":
        without.append(replace(FEDAVG, title=CEILING, central=True))
    methods = {beta: [*without, *methods_at(beta)] for beta in betas}
    tables = [_sheet(study, beta, methods[beta]) for beta in betas]
    return [*tables, *(_control_sheet(study, beta, methods[beta]) for beta in betas)]


CONTROL = frozenset({"FedAvg", "FedEAS", "KL", "Pool to the mean", "Pool to the largest class"})
"""The methods that are also compared at equal work."""

BALANCED_CONTROL = frozenset(f"{title}, {BALANCED_TITLE}" for title in ("FedAvg", "FedEAS", "KL", "Pool to the mean"))
"""The methods that are compared so at the middle budget alone."""


def _control_sheet(study: Study, beta: float, methods: list[Method]) -> Sheet:
    betas = study.profile.betas
    compared = CONTROL | (BALANCED_CONTROL if beta == betas[len(betas) // 2] else frozenset())
    control = [replace(each, equal_steps=True) for each in methods if each.title in compared]
    return _sheet(study, beta, control, f", {study.profile.equal_steps} steps for each client and round")


def _sheet(study: Study, beta: float, methods: list[Method], how: str = "") -> Sheet:
    where = setting(HEADLINE)
    runs = {method.title: study.config(where, method) for method in methods}
    base = runs[FEDEAS.title]
    columns = (
        "images made", "placed", "imbalance removed, %", level_of(study), "minus FedEAS, points", "final, %", "steps",
    )  # fmt: skip
    rows = {title: _row(run, base) for title, run in runs.items()}
    title = study.named(f"The images of FedEAS with beta = {beta:g}{how}, {study.title(where)}")
    note = f"They are {_share(base):.0f} % of the data that FedEAS trains on. "
    note += "An image of a pool is made once and placed at many clients."
    if CEILING in runs:
        note += " Central training has all real images in one place and is not ranked."
    return Sheet(title, columns, rows, ranked=(level_of(study),), aside=(CEILING,), note=note, by_method=True)


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


def _share(run: RunConfig) -> float:
    return 100 * scores.synthetic_share(counts_of(run), allocation_of(run))
