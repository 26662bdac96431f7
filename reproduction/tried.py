"""Parts that were tried and removed from FedEAS, and their runs."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from reproduction.published import Setting
from reproduction.studies import Study

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
"""The parts in a sentence each."""


class TriedRun(NamedTuple):
    """A run with one of these parts; `arm` is the name that its method had in the tables of this study.

    `betas` names the budgets of the tables that showed it, with semicolons between.
    """

    fingerprint: str
    part: str
    profile: str
    protocol: str
    setting: str
    betas: str
    arm: str
    seed: str


@cache
def tried_runs() -> list[TriedRun]:
    """All runs of ``tried.csv``."""
    with Path(__file__).with_name("tried.csv").open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return [TriedRun(*row) for row in rows]


def ranked_in(study: Study, where: Setting) -> int:
    """How many of a setting's planned comparisons with FedEAS were made with a part that is gone.

    They still count when intervals are widened for the number of comparisons.
    """
    here = study.profile.name, study.protocol, where.id
    made = {run.betas for run in tried_runs() if run.part == SERVER and run[2:5] == here}
    return 0 if study.redraw else len(made)
