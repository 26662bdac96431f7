"""The paper's tables, and the numbers of its figures, as cells that runs can fill."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from fedeas import FedEAS
from fedeas.config import RunConfig
from reproduction import results as measures
from reproduction.beyond import sheets_in
from reproduction.federated import federated_sheets
from reproduction.methods import (
    ABLATION,
    FEDAVG,
    FEDEAS,
    FULL_BALANCE,
    GENERATORS,
    METHODS,
    POLICIES,
    UNIFORM,
    Method,
    with_total,
)
from reproduction.published import EXAMPLE, Setting, published, setting
from reproduction.results import Measure
from reproduction.studies import ANOTHER_START, HEADLINE, IMAGENET, MAIN, Study
from reproduction.studies import study as study_of
from reproduction.tables import NOT_REACHED, Cell, Rows, Sheet, generated, imbalance_removed, minus, placed


@dataclass(frozen=True)
class Artefact:
    """Something to reproduce: tables, or a figure that needs no runs and so has no tables."""

    name: str
    title: str
    make: Callable[[Study], Sheet | list[Sheet]] = lambda study: []

    def sheets(self, study: Study) -> list[Sheet]:
        """The tables to fill."""
        made = self.make(study)
        return made if isinstance(made, list) else [made]

    def configs(self, study: Study) -> list[RunConfig]:
        """The runs that the artefact needs, each once, with seed 0."""
        sheets = [sheet for sheet in self.sheets(study) if not sheet.is_complete]
        needed = [config for sheet in sheets for cell in sheet.cells for config in cell.configs]
        return list({config.fingerprint: config for config in needed}.values())


ARTEFACTS = list[Artefact]()
Make = TypeVar("Make", bound=Callable[[Study], Sheet | list[Sheet]])


def artefact(name: str, title: str) -> Callable[[Make], Make]:
    """Decorate the function that makes the tables of an artefact."""

    def kept(make: Make) -> Make:
        ARTEFACTS.append(Artefact(name, title, make))
        return make

    return kept


@artefact("table1", "main accuracy table, and that of another start")
def accuracy_sheets(study: Study) -> list[Sheet]:
    """Table 1, and beside runs from ImageNet those that started from the other CIFAR dataset, of which none is made."""
    note = "Full-Balance is not ranked: it generates many times more images "
    note += "(`python -m reproduction counts` shows how many)."
    title = f"Accuracy, %: mean of {study.window}"
    sheets = [_by_setting(study, title, measures.accuracy, "accuracy", note=note)]
    if study.start == IMAGENET:
        other = study_of(study.profile.name, study.protocol, ANOTHER_START, study.precision, study.redraw)
        about = f"These runs are kept to show how much the start matters. {note}"
        kept = _by_setting(
            other, f"Another start: {title[0].lower()}{title[1:]}", measures.accuracy, "accuracy", note=about
        )
        sheets.append(replace(kept, is_complete=True))
    return sheets


@artefact("peak", "peak accuracy table of the supplement")
def peak_sheet(study: Study) -> Sheet:
    """The peak table of the supplement."""
    return _by_setting(study, "Peak accuracy, %: best of all rounds", measures.peak, "peak")


@artefact("fig1", "demand of each client, and accuracy at equal budget")
def allocation_sheet(study: Study) -> Sheet:
    """The numbers of Fig. 1(b), in both settings."""
    title = f"Accuracy of policies at equal budget, %: mean of {study.window}"
    return _by_setting(study, title, measures.accuracy, "accuracy", MAIN, POLICIES[:4])


def _by_setting(
    study: Study, title: str, measure: Measure, printed: str,
    settings: Sequence[str] = (), methods: Sequence[Method] = tuple(METHODS.values()), note: str = "",
) -> Sheet:  # fmt: skip
    """Methods by settings, by default all of the study's, without the cells that the paper leaves out."""
    wheres = [setting(name) for name in settings] or study.settings
    rows: Rows = {}
    for method in methods:
        numbers = [(where, published().printed(method.name, where, published()[printed])) for where in wheres]
        cells = [None if number is None else _cell(study, where, method, measure, number) for where, number in numbers]
        rows[method.title] = tuple(cells)
    columns = tuple(map(study.title, wheres))
    return Sheet(study.named(title), columns, rows, ranked=columns, aside=(FULL_BALANCE.title,), note=note)


@artefact("sweep", "beta sweep with efficiency, of the supplement")
@artefact("fig5", "accuracy over budgets, and the choice of beta")
def sweep_sheet(study: Study) -> Sheet:
    """The beta table of the supplement."""
    where, sweep = setting(EXAMPLE), published().beta_sweep
    base = study.config(where, FEDAVG)

    def gains(run: RunConfig, name: str, place: int | None = None) -> Iterator[Cell]:
        printed = [sweep[key] if place is None else sweep[key][place] for key in (name, f"{name}_gain", f"{name}_eta")]
        level, gain, efficiency = map(study.printed, printed)
        yield _accuracy(run, level)
        yield Cell((run, base), measures.gain, gain, compares=True)
        yield Cell((run, base), measures.efficiency, efficiency, 3)

    rows: Rows = {}
    for place, beta in enumerate(sweep.beta):
        budget = FedEAS(float(beta)).spec
        own = study.config(where, Method(f"FedEAS {beta}", policy=budget))
        even = study.config(where, Method(f"Uniform {beta}", policy=with_total("uniform", budget)))
        total = placed(own, study.printed(sweep.total[place]))
        rows[f"FedEAS, beta = {beta}"] = (total, *gains(own, "fedeas", place), *gains(even, "uniform", place))
    full = study.config(where, FULL_BALANCE)
    most = placed(full, study.printed(sweep.full_balance_total))
    rows["Full-Balance"] = (most, *gains(full, "full_balance"), *[None] * 3)
    rows["FedAvg"] = (None, _accuracy(base, study.printed(sweep.fedavg)), *[None] * 5)
    columns = ("samples", study.level, "gain", "eta", f"Uniform, {study.level}", "Uniform gain", "Uniform eta")
    note = "Uniform generates as many images as FedEAS. Gain: points above FedAvg. Eta: gain for each thousand images."
    return Sheet(study.heading("Budget sweep", where), columns, rows, note=note)


@artefact("table2", "ablation of the budget's factors")
def ablation_sheet(study: Study) -> Sheet:
    """Table 2, at the betas that give the printed totals."""
    where, printed = setting(EXAMPLE), published().ablation
    rows: Rows = {}
    for (title, policy), total, level in zip(ABLATION.items(), printed.total, printed.accuracy, strict=True):
        config = study.config(where, Method(title, policy=policy.spec))
        rows[title] = (placed(config, study.printed(total)), _accuracy(config, study.printed(level)))
    note = "The paper states beta = 8 for all three rows. Its totals follow from the values of beta shown here."
    return Sheet(study.heading("Budget factors", where), ("samples", study.level), rows, note=note)


@artefact("gamma", "dissimilarity of updates, supplement A")
def gamma_sheet(study: Study) -> Sheet:
    """The table of supplement A."""
    where, printed = setting(EXAMPLE), published().gamma_hat
    base = study.config(where, FEDAVG)
    rows: Rows = {}
    for name, median in printed.median.items():
        own = study.config(where, METHODS[name])
        reduction = Cell((own, base), measures.gamma_reduction, study.printed(printed.reduction.get(name)), 1)
        level = Cell((own,), measures.gamma_hat, study.printed(median), 4)
        rows[METHODS[name].title] = (level, None if own == base else reduction)
    note = "Over trainable parameters only. The paper's values look as if they included BatchNorm's step counter."
    title = study.heading("Gamma-hat, median over rounds", where)
    return Sheet(title, ("median", "less than FedAvg, %"), rows, note=note)


@artefact("fig4", "convergence, with rounds to 70 %")
def convergence_sheet(study: Study) -> Sheet:
    """The numbers of Fig. 4."""
    printed = published().convergence
    wheres = [setting(name) for name in printed.setting]
    rows: Rows = {}
    for method in (METHODS[name] for name in printed.rounds):
        rows[method.title] = tuple(_first_round(study, where, method) for where in wheres)
    note = "Each seed counts with its own first round. The figure marks the first round of the mean curve, which may "
    note += "be another one."
    title = study.named(f"First round at {printed.threshold}% accuracy")
    return Sheet(title, tuple(map(study.title, wheres)), rows, note=note)


@artefact("generators", "SD-Turbo instead of the DDPM")
def generator_sheet(study: Study) -> Sheet:
    """The section on another generator."""
    where, printed, profile = setting(EXAMPLE), published().generator_change, study.profile
    rows = Rows()
    titles = profile.generator, profile.other_generator
    for title, (name, source) in zip(titles, GENERATORS.items(), strict=True):
        runs = [study.config(where, replace(method, generator=source)) for method in (FEDEAS, UNIFORM)]
        cells = [Cell((run,), measures.peak) for run in runs]
        rows[title] = (*cells, Cell(tuple(runs), measures.peak_gain, study.printed(printed[name]), compares=True))
    columns = ("FedEAS, peak %", "Uniform, peak %", "FedEAS above Uniform")
    return Sheet(study.heading("Another generator", where), columns, rows)


@artefact("combination", "FedEAS with SCAFFOLD")
def combination_sheet(study: Study) -> Sheet:
    """FedEAS with SCAFFOLD."""
    printed = published().combination
    where = setting(printed.setting)
    scaffold, rows = METHODS["scaffold"], Rows()
    rivals = {FEDEAS.combined(scaffold): printed.both, FEDEAS: printed.fedeas, scaffold: printed.scaffold}
    for each, number in rivals.items():
        level = Cell((study.config(where, each),), measures.accuracy)
        peak, final = _cell(study, where, each, measures.peak, number), _cell(study, where, each, measures.final, None)
        rows[each.title] = (peak, level, final)
    note = "The paper quotes peak accuracies for this comparison."
    columns = ("peak, %", study.level, "final, %")
    return Sheet(study.heading("FedEAS with SCAFFOLD", where), columns, rows, ranked=columns, note=note)


@artefact("wall-clock", "time of FedEAS and of Full-Balance")
def wall_clock_sheet(study: Study) -> Sheet:
    """The time of FedEAS and of Full-Balance."""
    where, printed = setting(EXAMPLE), published().wall_clock
    own, full = (study.config(where, method) for method in (FEDEAS, FULL_BALANCE))
    rows: Rows = {}
    for name, runs, measure, number in (
        ("FedEAS, minutes", (own,), measures.minutes, printed.fedeas_minutes),
        ("Full-Balance, minutes", (full,), measures.minutes, printed.full_balance_minutes),
        ("Full-Balance over FedEAS", (full, own), measures.time_ratio, printed.ratio),
    ):
        rows[name] = (Cell(runs, measure, study.printed(number), 1, "images reused"),)
    note = "The paper measured on one RTX 4090; the machine of our runs is recorded with them. Runs that reused images "
    note += "from the bank are not timed; run this command in a new folder to time all."
    return Sheet(study.heading("Generation and training", where), ("",), rows, note=note)


@artefact("references", "Greedy and Optimal at FedEAS's budget, beyond the paper")
def references_sheet(study: Study) -> Sheet:
    """Beyond the paper: does minimising the imbalance score give more accuracy?"""
    where, level = setting(HEADLINE), study.level
    columns = ("imbalance removed, %", level, "minus FedEAS, points", "final, %", "steps", "images seen")
    note = "All but FedAvg generate the same number of images. Greedy, the reference of the paper's Fig. 2(b), and "
    note += "Optimal minimise the label imbalance; the paper has no accuracies for them."
    rows: Rows = {}
    for each in POLICIES:
        rows[each.title] = (imbalance_removed(study.config(where, each)), *_reached(study, where, each))
    title = study.heading("Policies at equal budget", where)
    return Sheet(title, columns, rows, ranked=(level, "final, %"), note=note, by_method=True)


@artefact("measures", "peak, first round at 70 % and Gamma-hat of the same runs")
def measures_sheet(study: Study) -> Sheet:
    """Other measures of the same runs."""
    where, rows = setting(HEADLINE), Rows()
    columns = ("peak, %", f"first round at {published().convergence.threshold} %", "Gamma-hat")
    for each in POLICIES:
        updates = _cell(study, where, each, measures.gamma_hat, None, 3)
        rows[each.title] = (_peak(study, where, each), _first_round(study, where, each), updates)
    note = "Peak: the best round, chosen on the test set and therefore optimistic."
    return Sheet(study.heading("Other measures", where), columns, rows, note=note, by_method=True)


@artefact("settings", "each column of the main table with differences and work")
def setting_sheets(study: Study) -> list[Sheet]:
    """Each column of the main table as its own table, with differences, work and peaks."""
    level, aside = study.level, (FULL_BALANCE.title,)
    columns, sheets = (level, "minus FedEAS, points", "final, %", "steps", "images seen", "peak, %"), list[Sheet]()
    for where in study.settings:
        shown = [method for name, method in METHODS.items() if published().printed(name, where) is not None]
        rows = {each.title: (*_reached(study, where, each), _peak(study, where, each)) for each in shown}
        title = study.named(study.title(where))
        sheets.append(Sheet(title, columns, rows, ranked=(level, "final, %"), aside=aside, by_method=True))
    return sheets


def _reached(study: Study, where: Setting, method: Method) -> tuple[Cell | None, ...]:
    """Accuracy in the window, its difference to FedEAS, the final accuracy, and the work."""
    own, fedeas = study.config(where, method), study.config(where, FEDEAS)
    return (
        Cell((own,), measures.accuracy, study.printed(published().printed(method.name, where))),
        minus(own, fedeas),
        Cell((own,), measures.final),
        Cell((own,), measures.steps, None, 0, "not recorded"),
        Cell((own,), measures.images_seen, None, 0, "not recorded"),
    )


def _first_round(study: Study, where: Setting, method: Method) -> Cell:
    """The first round at the threshold."""
    number = published().round_of(method.name, where)
    return replace(_cell(study, where, method, measures.rounds_to_threshold, number, 0), otherwise=NOT_REACHED)


def _peak(study: Study, where: Setting, method: Method) -> Cell:
    return _cell(study, where, method, measures.peak, published().printed(method.name, where, published().peak))


@artefact("sources", "one shared pool, and real images, instead of the generator")
def source_sheets(study: Study) -> list[Sheet]:
    """Beyond the paper: does the allocation limit accuracy, or the generator? Real images need the clean protocol."""
    return [*([real_images_sheet(study)] if study.protocol == "clean" else []), pool_sheet(study)]


def real_images_sheet(study: Study) -> Sheet:
    """Real images that no client has, instead of generated ones; all runs leave out the same images."""
    where = setting(HEADLINE)
    nothing = replace(FEDAVG, held_out=True)
    base = study.config(where, nothing)
    usual, real = (_by_both(study, where, replace(nothing, generator=name)) for name in ("{generator}", "held-out"))
    rows: Rows = {FEDAVG.title: (Cell((base,), measures.accuracy), None, None, None)}
    for source, runs in {"generated images": usual, "real images": real}.items():
        for title, run in runs.items():
            apart = [minus(run, other) for other in (base, runs[FEDEAS.title], usual[title])]
            rows[f"{title}, {source}"] = (Cell((run,), measures.accuracy), *apart)
    columns = (study.level, "minus FedAvg, points", "minus FedEAS with such images", "real minus generated")
    note = "In all rows the same fifth of the training images goes to no client; these are the real images. "
    note += "The generator was trained on all training images, these among them."
    title = study.heading("Real images instead of generated ones", where)
    return Sheet(title, columns, rows, note=note, by_method=True)


def pool_sheet(study: Study) -> Sheet:
    """One pool of images that all clients share, instead of images of their own."""
    where = setting(HEADLINE)
    sources = ("{generator}", "shared(of={generator})")
    own, pool = (_by_both(study, where, replace(FEDAVG, generator=source)) for source in sources)
    rows: Rows = {}
    for source, runs in {"own images": own, "one pool": pool}.items():
        for title, run in runs.items():
            apart = [minus(run, other) for other in (runs[FEDEAS.title], own[title])]
            rows[f"{title}, {source}"] = (placed(run), generated(run), Cell((run,), measures.accuracy), *apart)
    columns = ("images placed", "distinct images", study.level, "minus FedEAS with such images", "pool minus own")
    note = "Only distinct images are generated; one of a pool is placed at several clients."
    return Sheet(study.heading("One pool for all clients", where), columns, rows, note=note, by_method=True)


def _by_both(study: Study, where: Setting, source: Method) -> dict[str, RunConfig]:
    """The runs of Uniform and FedEAS, by title, with this source of images."""
    runs = {method.title: replace(source, title=method.title, policy=method.policy) for method in (UNIFORM, FEDEAS)}
    return {title: study.config(where, method) for title, method in runs.items()}


def _accuracy(run: RunConfig, printed: Decimal | None) -> Cell:
    """Accuracy in the window, and the final accuracy below it."""
    return Cell((run,), measures.accuracy, printed, with_final=True)


def _cell(
    study: Study, where: Setting, method: Method, measure: Measure, number: Decimal | None, decimals: int = 2
) -> Cell:
    own = (study.config(where, method),)
    return Cell(own, measure, study.printed(number), decimals, with_final=measure is measures.accuracy)


ARTEFACTS += [  # what needs no runs
    Artefact("fig2", "concentration of imbalance, and imbalance removed"),
    Artefact("fig3", "overview of the budgets"),
    Artefact("closed-form", "two-client case of supplement B"),
    Artefact("samples", "uncurated samples of the generator"),
]
BEYOND = "policies, losses and shared pools with as many images as FedEAS"
EXPERIMENTS = [  # of our own, which ``all`` leaves out
    Artefact("beyond", BEYOND, lambda study: [each for where in study.beyond for each in sheets_in(study, where)]),
    Artefact("federated", "generators that the clients of a run train, beside pooled ones", federated_sheets),
]


def artefacts(name: str) -> list[Artefact]:
    """The artefact or experiment of this name, or all artefacts for ``all``."""
    return ARTEFACTS if name == "all" else [each for each in (*ARTEFACTS, *EXPERIMENTS) if each.name == name]
