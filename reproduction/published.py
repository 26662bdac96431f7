"""The numbers that the paper prints, from ``published.toml``, and the partitions behind its tables."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

import fedeas
from fedeas import InputError, LabelCounts

Row = tuple[Decimal | None, ...]
"""A method's numbers, with the digits that the paper prints; None for a cell that it leaves empty."""

EXAMPLE = "c10-k20-a0.1"  # the partition of the paper's figures


class Setting(NamedTuple):
    """One column of the paper's tables."""

    id: str
    dataset: str
    clients: int
    alpha: Decimal
    participation: Decimal

    @property
    def title(self) -> str:
        """A readable name: ``CIFAR-10, K=20, alpha=0.1``."""
        return f"{self.dataset.upper().replace('CIFAR', 'CIFAR-')}, K={self.clients}, alpha={self.alpha}"

    @property
    def config(self) -> dict[str, Any]:
        """The sections of a run's config that describe its clients."""
        partition = {"scheme": "paper", "clients": self.clients, "alpha": float(self.alpha)}
        return {"data": {"dataset": self.dataset, "protocol": "paper"}, "partition": partition}

    def counts(self) -> LabelCounts:
        """The label counts of the clients' training parts."""
        return fedeas.RunPlan.of(self.config).counts


class Numbers(dict[str, Any]):
    """A table of a data file, whose entries are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        """The entry of this name."""
        return self[name]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The columns of the tables, in the paper's order."""
        return tuple(Setting(**{**each, "clients": int(each.clients)}) for each in self.setting)

    def printed(self, name: str, where: Setting, numbers: Mapping[str, Row] | None = None) -> Decimal | None:
        """A method's number in a setting, by default its accuracy; None if the paper prints none."""
        row: Row | None = (self.accuracy if numbers is None else numbers).get(name)
        return None if row is None else row[[each.id for each in self.setting].index(where.id)]

    def round_of(self, name: str, where: Setting) -> Decimal | None:
        """The first round of a method at the threshold; None if the paper prints none."""
        rounds = self.convergence.rounds.get(name, ())
        return dict(zip(self.convergence.setting, rounds, strict=False)).get(where.id)


def _exact(value: Any) -> Any:
    """A value of a data file with exact numbers, and None for a cell that the paper leaves empty."""
    if isinstance(value, dict):
        return Numbers({name: _exact(each) for name, each in value.items()})
    if isinstance(value, list):
        return tuple(map(_exact, value))
    return None if value == "-" else Decimal(value) if isinstance(value, int) else value


@cache
def published(name: str = "published.toml") -> Numbers:
    """All numbers that the paper prints, or those in another data file."""
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return Numbers(_exact(tomllib.loads(text, parse_float=Decimal)))


def recorded() -> Numbers:
    """Facts of the partitions that the paper does not print."""
    return published("recorded.toml")


def setting(name: str) -> Setting:
    """The setting of this id, such as ``c10-k20-a0.1``."""
    known = {one.id: one for one in published().settings}
    if name not in known:
        raise InputError(f"unknown setting {name!r}; known are {', '.join(known)}")
    return known[name]


@cache
def example_counts() -> LabelCounts:
    """The partition of the paper's figures: CIFAR-10 over 20 clients, alpha = 0.1."""
    return setting(EXAMPLE).counts()
