"""Parts that were tried and removed from FedEAS: their runs, and the page with their results."""

import csv
import json
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from fedeas.runs import Difference, read_runs
from reproduction.beyond import BALANCED_TITLE, comparisons_in
from reproduction.methods import FEDEAS
from reproduction.published import Setting, setting
from reproduction.results import Results, accuracy, mean_of
from reproduction.studies import Protocol, Study, beyond_study
from reproduction.text import markdown_table, mean_cell

SERVER = "server-training"  # the part that was among the planned comparisons; the others were side questions
PARTS = {
    SERVER: "The images stay at the server, which trains the initial model on them for twenty passes before the first "
    "round (`train.server_epochs=20`). Clients then train on real images alone.",
    "fedlc": "A loss: cross-entropy with the margin n_c^(-1/4) taken off the logit of class c, of which a client has "
    "n_c samples (`train.loss=fedlc`).",
    "fedrs": "A loss: cross-entropy in which the logits of classes that a client lacks are halved "
    "(`train.loss=fedrs`).",
    "round-bias": "A policy that brings the labels of each round's participants together closest to equal shares "
    "(`policy=round-bias(budget=...)`).",
    "feedback": "A policy that spends a budget in stages, each where the model of the stage before recognises the "
    "held-out images least (`fedeas.run_in_stages`).",
    "target": "The class shares of all clients together as the target of the policies Greedy, Optimal and KL, instead "
    "of equal shares (`target=global`).",
}


class TriedRun(NamedTuple):
    """A run with one of these parts."""

    fingerprint: str
    part: str
    profile: str
    protocol: str
    setting: str
    betas: str  # of the tables that showed it, with semicolons between
    arm: str  # the name that its method had in these tables
    seed: str


@cache
def tried_runs() -> list[TriedRun]:
    """All runs of ``tried.csv``."""
    with Path(__file__).with_name("tried.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return [TriedRun(*row) for row in rows]


def ranked_in(study: Study, where: Setting) -> int:
    """How many of a setting's planned comparisons, which widen intervals, were made with a part that is gone."""
    here = study.profile.name, study.protocol, where.id
    made = {run.betas for run in tried_runs() if run.part == SERVER and run[2:5] == here}
    return 0 if study.redraw else len(made)


KEPT = Path(__file__).with_name("results")
HEADS = ("method", "experiment", "mean over budgets (95 %)", "at single budgets (95 %)")
ABOUT = (
    "Differences in points of accuracy, paired by seed. Intervals have seeds as units, and each is taken alone. "
    "The runs are in `reproduction/results/tried.parquet`, with the fingerprints and configs that they had; "
    "`reproduction/tried.csv` says what each was."
)
TRIALS = {"feedback": "tried-feedback.json", "target": "tried-long-tail.json"}  # benchmarks, without runs


def tried_markdown(results: Results) -> str:
    """A section for each part, with a sentence about it and its results."""
    runs = {run.fingerprint: run.summary() for run in read_runs(KEPT / "tried.parquet")}
    sections = list[str]()
    for part, about in PARTS.items():
        if part in TRIALS:
            trial: dict[str, Any] = json.loads((KEPT / TRIALS[part]).read_text("utf-8"))
            heads = list(dict.fromkeys(head for row in trial["rows"] for head in row))
            rows = [[str(row.get(head, "")) for head in heads] for row in trial["rows"]]
            shown = f"{trial['question']}.\n\n{markdown_table(heads, rows)}"
        else:
            shown = _comparisons(part, runs, results)
        sections.append(f"## {part}\n\n{about}\n\n{shown}")
    return "\n\n".join([*sections, ABOUT])


def _comparisons(part: str, runs: dict[str, dict[str, Any]], results: Results) -> str:
    """The experiments with a part: differences to methods without it, also to balanced softmax if it is a loss."""
    place = attrgetter("profile", "protocol", "setting", "arm")
    made = sorted((run for run in tried_runs() if run.part == part), key=place)
    paired, means = list[list[str]](), list[float]()
    for (profile, in_words, name, arm), group in groupby(made, place):
        protocol: Protocol = "paper" if in_words == "paper" else "clean"
        chosen, where = beyond_study(profile, protocol), setting(name)
        compared = {f"{each.beta:g}": each.runs for each in comparisons_in(chosen, where) if not each.equal_steps}
        made_at: dict[str, dict[int, float]] = {}  # accuracies by beta and seed
        for run in group:
            for beta in run.betas.split(";"):
                made_at.setdefault(beta, {})[int(run.seed)] = accuracy(runs[run.fingerprint])
        without = arm.partition(", ")[0] if ", " in arm else FEDEAS.title
        is_loss = part.startswith("fed") and without == FEDEAS.title
        for other in [without, *[f"{without}, {BALANCED_TITLE}"] * is_loss]:
            minus = dict[str, dict[int, float]]()  # points above the other method, of the seeds that both have
            for beta, levels in made_at.items():
                base = results.known([compared[beta][other]], accuracy)
                minus[beta] = {seed: levels[seed] - level for seed, level in base.items()}
            cells = [f"{mean_cell(Difference.of([*by.values()]))} at beta = {beta}" for beta, by in minus.items()]
            mean = mean_of([*minus.values()])
            experiment = f"{chosen.title(where)}, {protocol}"
            paired.append(
                [
                    f"{arm}, instead of {other}",
                    experiment,
                    mean_cell(mean),
                    "; ".join(cells) * (without == FEDEAS.title),
                ]
            )
            means += [mean.mean] if other == without and protocol == "clean" and mean else []
    is_one = len(means) > 1 and len({run.arm for run in made}) == 1
    over = f"\n\nMean over {len(means)} clean experiments: {mean_cell(Difference.of(means))}." * is_one
    return f"{markdown_table(HEADS, paired)}{over}"
