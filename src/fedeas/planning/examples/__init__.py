"""The paper's eight partitions as label counts: examples to plan with."""

from dataclasses import dataclass
from importlib import resources

import numpy as np

from fedeas.core.errors import InputError
from fedeas.planning.counts import LabelCounts


@dataclass(frozen=True)
class Example:
    """A partition of the paper; `paper_replay` recomputes its counts."""

    dataset: str
    clients: int
    alpha: str

    @property
    def id(self) -> str:
        """A short name, such as ``c10-k20-a0.1``."""
        return f"{self.dataset.replace('cifar', 'c')}-k{self.clients}-a{self.alpha}"

    @property
    def title(self) -> str:
        """A readable name: ``CIFAR-10, K=20, alpha=0.1``."""
        return f"{self.dataset.upper().replace('CIFAR', 'CIFAR-')}, K={self.clients}, alpha={self.alpha}"

    @property
    def participation(self) -> float:
        """The share of clients that train in a round."""
        return 10 / self.clients

    @property
    def counts(self) -> LabelCounts:
        """The label counts of the clients' training parts."""
        text = resources.files(__package__).joinpath(f"{self.id}.csv").read_text("utf-8")
        header, *rows = (line.split(",") for line in text.splitlines())
        table = np.array(rows, dtype=np.int64)
        return LabelCounts(table[:, 1:], clients=table[:, 0].tolist(), classes=header[1:])


EXAMPLES = tuple(
    Example(dataset, clients, alpha)
    for clients in (20, 100)
    for dataset, alpha in (("cifar10", "0.05"), ("cifar10", "0.1"), ("cifar10", "0.3"), ("cifar100", "0.1"))
)
"""All of them, in the order of the paper's tables."""

DEFAULT = "c10-k20-a0.1"
"""The partition of the paper's figures."""


def find_example(name: str = DEFAULT) -> Example:
    """The example of this name.

    >>> find_example().counts.total
    45007
    """
    known = {each.id: each for each in EXAMPLES}
    if name not in known:
        raise InputError(f"unknown example {name!r}; known are {', '.join(known)}")
    return known[name]
