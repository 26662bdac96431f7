"""What the experiment beyond the paper shows: each method against FedEAS, with all comparisons in mind."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from fedeas.runs import Difference, Verdict
from reproduction.beyond import ASIDE, BALANCED_TITLE, EQUAL_STEPS, LARGEST, POOL, WHOLE, comparisons_in
from reproduction.methods import FEDEAS
from reproduction.published import Setting
from reproduction.results import Results, gain
from reproduction.studies import Protocol, Study, beyond_study
from reproduction.text import markdown_table, mean_cell, signed
from reproduction.tried import ranked_in

# Policies by the titles of their methods.
ALLOCATIONS = {"Uniform": "uniform", "Greedy": "greedy", "KL": "kl"}
POOLS = {POOL: "pool", WHOLE: "pool with generator=shared(each=budget/classes)", LARGEST: "pool(fill=max)"}
BALANCED = (f"{FEDEAS.title}, {BALANCED_TITLE}",)  # `contrasts` has what balanced softmax adds to other methods
# Profile and protocol of the experiments on which the advice rests; each setting of a profile is one of its own.
EXPERIMENTS: tuple[tuple[str, Protocol], ...] = (
    ("digits", "clean"), ("digits", "paper"), ("fashion", "clean"), ("fashion-generated", "clean"),
    ("full", "clean"), ("cifar100", "clean"),
)  # fmt: skip


class Compared(NamedTuple):
    """A method's difference to FedEAS in one table."""

    table: str
    method: str
    difference: Difference
    verdict: Verdict  # among all planned comparisons
    by_seed: Mapping[int, float] = MappingProxyType({})  # the differences behind the mean

    @property
    def is_control(self) -> bool:
        """Whether all methods take equally many steps."""
        return self.table.endswith(EQUAL_STEPS)


@dataclass(frozen=True, eq=False)
class Findings:
    """All comparisons with FedEAS of one experiment."""

    dataset: str
    protocol: str
    compared: tuple[Compared, ...]  # the comparisons that have been made
    planned: tuple[tuple[str, str], ...]  # table and method of each comparison, made or not
    planned_seeds: int  # how many each comparison will have
    clients: str = ""  # their number and skew
    budgets: int = 1  # how many methods are compared at
    setup: str = ""  # the network, and where the images come from
    places_real_images: bool = False  # whether policies place real images instead of generated ones
    aside: tuple[Compared, ...] = ()  # side questions against FedEAS, which are not among the planned comparisons
    tried: int = 0  # comparisons that were planned and made with what is no longer a part of FedEAS

    @property
    def title(self) -> str:
        """The experiment's name, such as ``cifar10 (K=20, alpha=0.1, clean)``."""
        return f"{self.dataset} ({self.setting})"

    @property
    def setting(self) -> str:
        """Number and skew of the clients, and the protocol."""
        return ", ".join(filter(None, (self.clients, self.protocol)))

    @property
    def seeds(self) -> str:
        """How many seeds comparisons have, of how many that are planned."""
        found = [each.difference.seeds for each in self.compared] or [0]
        return " to ".join(map(str, sorted({min(found), max(found)}))) + f" of {self.planned_seeds}"

    @property
    def is_finished(self) -> bool:
        """Whether all comparisons have all their seeds."""
        enough = all(each.difference.seeds >= self.planned_seeds for each in self.compared)
        return enough and len(self.compared) == len(self.planned)


def findings_in(chosen: Study, where: Setting, results: Results) -> Findings:
    """The comparisons in a setting; side questions are apart, so that they do not change the verdicts."""
    profile, config, tried = chosen.profile, chosen.config(where, FEDEAS), ranked_in(chosen, where)
    pairs = [(each, title) for each in comparisons_in(chosen, where) for title in each.runs if title != FEDEAS.title]
    planned = tuple((each.name, title) for each, title in pairs if title not in ASIDE)
    made = list[Compared]()
    for each, title in pairs:
        by_seed = results.known([each.runs[title], each.runs[FEDEAS.title]], gain)
        if (found := Difference.of(list(by_seed.values()))) is not None:
            # A verdict needs all seeds: who looks earlier sees more by chance.
            enough = len(by_seed) >= profile.planned_seeds
            verdict = found.verdict_among(len(planned) + tried) if enough else Verdict.UNFINISHED
            made.append(Compared(each.name, title, found, verdict, by_seed))
    real = "real held-out images instead of generated ones"
    images = real if profile.places_real_images else f"images of generator {config.generator}"
    return Findings(
        profile.dataset or where.dataset, chosen.protocol, tuple(each for each in made if each.method not in ASIDE),
        planned, profile.planned_seeds, chosen.title(where).partition(", ")[2], len(profile.betas),
        f"{config.model.name}, {images}", profile.places_real_images,
        tuple(each for each in made if each.method in ASIDE), tried,
    )  # fmt: skip


def findings_of(chosen: Study, results: Results) -> list[Findings]:
    """The findings of a study, in each of its settings."""
    return [findings_in(chosen, where, results) for where in chosen.beyond]


def all_findings(results: Results) -> list[Findings]:
    """The findings of every experiment, started or not."""
    return [found for experiment in EXPERIMENTS for found in findings_of(beyond_study(*experiment), results)]


def findings_markdown(*settings: Findings) -> str:
    """For each setting a table of differences with their intervals and verdicts."""
    if not any(found.compared for found in settings):
        return NOTHING
    shown = list[str]()
    for found in settings:
        cells = {(each.method, each.table): marked(each.difference, each.verdict) for each in found.compared}
        tables = dict.fromkeys(each.table for each in found.compared)
        methods = dict.fromkeys(each.method for each in found.compared)
        rows = [[name, *(cells.get((name, table), "") for table in tables)] for name in methods]
        table = markdown_table(["instead of FedEAS", *tables], rows)
        level = 100 - 5 / max(1, len(found.planned) + found.tried)
        about = f"{len(found.compared)} of {len(found.planned)} planned comparisons with FedEAS were made, with "
        about += f"{found.seeds} planned seeds. A verdict needs all seeds, and uses a {level:.2f} % interval, so that "
        about += "all verdicts hold together with 95 % (Bonferroni)."
        text = f"{table}\n\n{about}" if found.compared else NOTHING
        shown.append(f"### {found.clients}\n\n{text}" if len(settings) > 1 else text)
    return "\n\n".join([*shown, LEGEND])


NOTHING = "Nothing has been compared yet."
LEGEND = (
    "Differences to FedEAS in points of accuracy. ▲ and ▼: shown to be higher or lower, with all comparisons of the "
    "experiment in mind. △ and ▽: only taken alone. Differences that miss runs are not marked. In brackets: the 95 % "
    "interval of the difference alone."
)


def marked(difference: Difference, verdict: Verdict) -> str:
    """A difference with its interval, and a full triangle for its verdict among all comparisons, or an empty one alone.

    >>> marked(Difference(2.0, 0.5, 3), Verdict.UNDECIDED), marked(Difference(2.0, 0.1, 3), Verdict.HIGHER)
    ('+2.00 (0.76 to 3.24) △', '+2.00 (1.75 to 2.25) ▲')
    """
    mark = f" ({difference.seeds} seeds)" if difference.seeds > 1 else " (one seed)"
    if verdict.is_given:
        alone = {Verdict.HIGHER: " △", Verdict.LOWER: " ▽"}.get(difference.verdict, "")
        mark = {Verdict.HIGHER: " ▲", Verdict.LOWER: " ▼"}.get(verdict, alone)
    return (mean_cell(difference) or signed(difference.mean, 2)) + mark
