"""Beyond the paper: runs whose clients train their generator themselves, beside runs with a pooled one."""

from __future__ import annotations

from dataclasses import replace

from fedeas.config import RunConfig
from fedeas.runs import Difference
from reproduction import results as measures
from reproduction.methods import FEDAVG, FEDEAS, MISSING_ONLY, UNIFORM, Method
from reproduction.published import EXAMPLE, Setting, setting
from reproduction.results import Results
from reproduction.studies import FEW_STEPS, HEADLINE, IMAGENET, Study, study
from reproduction.tables import Cell, Rows, Sheet, minus
from reproduction.text import fixed, signed

RECIPES = {
    "70 rounds of 20 updates": (FEW_STEPS, "rounds=70, steps=20"),
    "70 rounds of 20 updates, guided more": (
        "diffusion(solver=dpm-snr, steps=13, guidance=2.5, first=3.2)",
        "rounds=70, steps=20",
    ),
}
"""How images were drawn and clients trained, in the order in which it was tried; the last recipe counts."""
SEEDS = 3  # trainings of a recipe


def by_clients(method: Method, where: Setting, recipe: str, seed: int = 0) -> Method:
    """The method with a generator that the run's clients train, as many in a round as train the classifier."""
    each = round(where.clients * where.participation)
    drawn, trained = RECIPES[recipe]
    settings = f"of={drawn}, start=cifar100, clients={each}, {trained}, seed={seed}"
    return replace(method, generator=f"federated({settings})")


def federated_sheets(chosen: Study) -> list[Sheet]:
    """Policies with both generators, and what the training of the federated one costs a client."""
    return [_sheet(chosen, setting(name)) for name in (HEADLINE, EXAMPLE)]


def _sheet(chosen: Study, where: Setting) -> Sheet:
    base, last, rows = chosen.config(where, FEDAVG), [*RECIPES][-1], Rows()

    def level(run: RunConfig) -> Cell:
        return Cell((run,), measures.accuracy, with_final=True)

    megabytes = Cell((base,), measures.megabytes, decimals=0)
    rows[FEDAVG.title] = (level(base), None, None, None, megabytes, None, None)
    for method in (UNIFORM, MISSING_ONLY, FEDEAS):
        pooled = chosen.config(where, method)
        rows[f"{method.title}, pooled"] = (level(pooled), minus(pooled, base), None, None, None, None, None)
        every = [(name, seed) for name in RECIPES for seed in range(SEEDS if name == last else 1)]
        for name, seed in every if method is FEDEAS else [(last, 0)]:
            own = chosen.config(where, by_clients(method, where, name, seed))
            rows[f"{method.title}, federated: {name}, training {seed}"] = (
                level(own),
                minus(own, base),
                minus(own, pooled),
                Cell((own, base, pooled), measures.gain_recovered, decimals=1),
                Cell((own,), measures.megabytes, decimals=0),
                Cell((own,), measures.generator_megabytes, decimals=0),
                Cell((own,), measures.generator_seconds, decimals=0),
            )
    compared = (chosen.level, "minus FedAvg, points", "minus pooled, points", "of the pooled gain, %")
    columns = (*compared, "MB a client, run", "MB a client, generator", "s of its training")
    note = "MB: all tensors that a client receives and sends, on average. Trainings differ in the generator's seed. "
    note += "Seconds are those of a GPU that other runs used at the same time."
    return Sheet(chosen.heading("Generators that clients train", where), columns, rows, note=note, by_method=True)


def federated_markdown(runs: Results) -> str:
    """The main result with the last recipe in short: accuracy, difference to the pooled generator, and bytes."""
    chosen, where, recipe = study("full", "clean", IMAGENET), setting(HEADLINE), [*RECIPES][-1]
    base, pooled = chosen.config(where, FEDAVG), chosen.config(where, FEDEAS)
    own = chosen.config(where, by_clients(FEDEAS, where, recipe))

    def found(measure: measures.Measure, *configs: RunConfig) -> Difference | None:
        return Difference.of([*runs.known(configs, measure).values()])

    level, kept = found(measures.accuracy, own), found(measures.gain_recovered, own, base, pooled)
    apart, gain = (found(measures.gain, own, other) for other in (pooled, base))
    costs = measures.generator_megabytes, measures.megabytes, measures.generator_seconds, measures.generated
    cost = [found(each, own) for each in costs]
    if level is None or apart is None or gain is None or kept is None or None in cost:
        return f"> No run on {where.title} has used a generator that its clients trained."
    generator, run, seconds, images = (each.mean for each in cost if each is not None)
    below, above = (f"{signed(each.mean, 2)} ({each.range_text(2) or 'no interval'})" for each in (apart, gain))
    said = (
        f"On {where.title}, the run's own clients trained the generator ({recipe}). FedEAS reaches "
        f"{level.text(2)} % (n = {level.seeds}). The difference to FedAvg is {above} points. The difference to "
        f"FedEAS with a generator that was trained on the clients' pooled images is {below} points, so "
        f"{kept.text(1)} % of that gain is left. The generator costs a client {fixed(generator, 0)} MB, the "
        f"{chosen.profile.rounds} rounds of training cost it {fixed(run, 0)} MB. Its training took "
        f"{fixed(seconds, 0)} s of a shared GPU; a client then makes {fixed(images / where.clients, 0)} images on "
        "average. In brackets: 95 % intervals, paired by seed. Clean protocol, start ImageNet, one training of the "
        "generator."
    )
    return f"> {said}"
