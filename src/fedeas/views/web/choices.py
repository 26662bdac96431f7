"""What a user of the page chooses: label counts, a policy and the size of its budget; and the files to download.

Label counts come from a file, one of the paper's partitions, or a draw. The size of an upload is limited before it is
parsed, since a small file can describe a huge table.
"""

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedeas.calls.client_counts import CountSource, plan_arguments, saved_split
from fedeas.core.errors import InputError
from fedeas.data.names import KNOWN
from fedeas.data.partition import PAPER_SEED, dirichlet
from fedeas.planning.beta import MAX_SHARE, MIN_REMOVED
from fedeas.planning.columns import ColumnNames
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.examples import DEFAULT, find_example
from fedeas.planning.policies import Policy
from fedeas.planning.request import Limits, choose_policy
from fedeas.planning.tables import CountTable, write_allocation
from fedeas.views.web import MAX_MEGABYTES

MAX_CLASSES = 1_000
MAX_CELLS = 500_000
MAX_DRAWS = 200  # a person waits
ELSEWHERE = "plan it with `fedeas plan`, which reads tables of any size"


def paper(name: str) -> CountSource:
    """One of the paper's eight partitions, by its id."""
    chosen = find_example(name)
    split = {"scheme": "paper", "clients": chosen.clients, "alpha": float(chosen.alpha), "seed": PAPER_SEED}
    command = f"fedeas partition {chosen.dataset} --scheme paper --clients {chosen.clients} --alpha {chosen.alpha}"
    return CountSource(
        chosen.title,
        chosen.counts,
        "--example" if name == DEFAULT else "counts.csv",
        "" if name == DEFAULT else f"{command} --out counts.csv",
        {
            "data": {"dataset": chosen.dataset, "protocol": "paper"},
            "partition": split,
            "rounds": {"participation": chosen.participation},
        },
    )


def drawn_from(dataset: str, clients: int, alpha: float, seed: int) -> CountSource:
    """A Dirichlet split of a dataset with known class sizes; a run with the same settings has the same counts."""
    known = KNOWN[dataset]
    split = dirichlet(known.labels(merged=False), clients, alpha, seed=seed, max_draws=MAX_DRAWS)
    counts = LabelCounts(split.counts.n, classes=known.classes)
    _check_size(*counts.n.shape)
    command = f"fedeas partition {dataset} --clients {clients} --alpha {alpha} --seed {seed} --out counts.csv"
    partition = {"scheme": "dirichlet", "clients": clients, "alpha": alpha, "seed": seed}
    title = f"{dataset} over {clients} clients, Dirichlet({alpha:g})"
    return CountSource(title, counts, made_by=command, config={"data": {"dataset": dataset}, "partition": partition})


def drawn(clients: int, classes: int, per_class: int, alpha: float, seed: int) -> CountSource:
    """A Dirichlet split of equally large classes."""
    _check_size(clients, classes)
    split = dirichlet(np.repeat(np.arange(classes), per_class), clients, alpha, seed=seed, max_draws=MAX_DRAWS)
    return CountSource(f"{classes} classes over {clients} clients, Dirichlet({alpha:g})", split.counts)


def read_upload(
    name: str, content: bytes, num_classes: int | None = None, columns: ColumnNames | None = None
) -> CountSource:
    """The table in an uploaded file; `num_classes` and `columns` as for `read_counts`."""
    ending = Path(name).suffix.lower()
    if ending not in (".csv", ".parquet", ".npz"):
        raise InputError(f"{name}: cannot tell the format; upload a .csv, .parquet or .npz file")
    if len(content) > MAX_MEGABYTES * 10**6:
        raise InputError(f"{name}: larger than {MAX_MEGABYTES} MB; {ELSEWHERE}")
    with TemporaryDirectory(prefix="fedeas-planner-") as folder:
        path = Path(folder) / f"table{ending}"
        path.write_bytes(content)
        try:
            if ending == ".npz":
                split = saved_split(path, name)
                _check_size(*split.counts.n.shape)
                return split
            table = CountTable(path, columns)
            counts = table.counts(num_classes, _check_size)
        except InputError as error:  # name the boxes of the page in place of the options of the command line
            message = str(error).replace(str(path), name).replace(" (--classes)", "")
            boxes = r"write \2 into 'Column of the \1')"
            words = re.sub(r"give --(client|label|count)-column ([^(].*?)\)", boxes, message)
            words = re.sub(r"--(client|label|count)-column", r"'Column of the \1'", words)
            where = "" if words == message else "; see 'Columns, if they are not recognised'"
            raise InputError(f"{words}{where}") from None
    return CountSource(name, counts, plan_arguments(name, num_classes, columns), how=table.how)


def _check_size(clients: int, classes: int) -> None:
    if classes > MAX_CLASSES or clients * classes > MAX_CELLS:
        raise InputError(
            f"{clients:,} clients x {classes:,} classes are too many for this page, which shows "
            f"{MAX_CLASSES:,} classes and {MAX_CELLS:,} counts at most; {ELSEWHERE}"
        )


class Size(StrEnum):
    """Ways to choose the size of the budget."""

    BETA = "beta"
    TOTAL = "at most so many images"
    MINUTES = "at most so many minutes"
    SHARE = "synthetic share below"
    REMOVED = "imbalance removed, at least"
    AUTO = "the paper's two conditions"


SIZE_WORDS = {
    Size.BETA: "FedEAS's one parameter: twice the beta is about twice the images for every client.",
    Size.TOTAL: "The largest beta that stays within this many images.",
    Size.MINUTES: "The largest beta whose images are generated in this time.",
    Size.SHARE: "The largest beta that keeps the synthetic part of all data below this.",
    Size.REMOVED: "The smallest beta that removes this much of the label imbalance.",
    Size.AUTO: (
        f"The roundest beta that removes {MIN_REMOVED:.0%} of the imbalance with less than {MAX_SHARE:.0%} of all "
        "data synthetic."
    ),
}

NO_LIMIT = Limits()


@dataclass(frozen=True)
class Choice:
    """The spec of a policy, and how the size of its budget is limited."""

    spec: str = "fedeas"
    limits: Limits = NO_LIMIT

    def resolved(self, counts: LabelCounts) -> Policy:
        """The policy itself."""
        return choose_policy(self.spec, self.limits, counts)

    def commands(self, federation: CountSource) -> str:
        """The command that gives the same numbers, after the command that makes the table, if there is one."""
        chosen = [] if self.spec == "fedeas" else ["--policy", self.spec]
        for name, value in vars(self.limits).items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                chosen.append(option)
            elif value is not None and value is not False:  # 0 is a limit
                chosen += [option, f"{value:.12g}"]
        plan = " ".join(["fedeas plan", federation.arguments, *map(shlex.quote, chosen)])
        return "\n".join(line for line in (federation.made_by, plan) if line)


def table_file(counts: LabelCounts, allocation: Allocation | None = None, ending: str = ".csv") -> bytes:
    """The allocation, or the counts, as ``.csv`` or ``.parquet``, as ``fedeas plan --out`` writes it."""
    with TemporaryDirectory(prefix="fedeas-planner-") as folder:
        path = Path(folder) / f"allocation{ending}"
        write_allocation(path, counts, Allocation(counts.n) if allocation is None else allocation)
        return path.read_bytes()
