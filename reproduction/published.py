"""The numbers that the paper prints, from ``published.toml``, and the partitions behind its tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

import fedeas
from fedeas import InputError, LabelCounts

# A number with the digits that the paper prints, or None for an empty cell.
PrintedNumber = Annotated[Decimal | None, BeforeValidator(lambda cell: None if cell == "-" else cell)]
Row = tuple[PrintedNumber, ...]
FullRow = tuple[Decimal, ...]  # without empty cells

EXAMPLE = "c10-k20-a0.1"  # the partition of the paper's figures


class _Numbers(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setting(_Numbers):
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


class Fact(_Numbers):
    """One number in the paper's text; if the counts give another one, `disagrees` says why."""

    id: str
    says: str
    value: Decimal
    where: str = ""
    disagrees: str = ""


class _Totals(_Numbers):  # Samples generated in each setting.
    beta: Decimal
    fedeas: FullRow
    full_balance: Row


class _BetaSweep(_Numbers):  # Accuracy, gain over FedAvg and efficiency for each beta.
    beta: FullRow
    total: FullRow
    fedavg: Decimal
    fedeas: FullRow
    fedeas_gain: FullRow
    fedeas_eta: FullRow
    uniform: FullRow
    uniform_gain: FullRow
    uniform_eta: FullRow
    full_balance: Decimal
    full_balance_gain: Decimal
    full_balance_eta: Decimal
    full_balance_total: Decimal


class _Ablation(_Numbers):  # The budget rule without one of its factors.
    beta: Decimal
    total: FullRow
    accuracy: FullRow


class _GammaHat(_Numbers):  # Median dissimilarity of the clients' updates, by method.
    median: dict[str, Decimal]
    reduction: dict[str, Decimal]


class _Convergence(_Numbers):  # First rounds at an accuracy threshold, by method and in these settings.
    threshold: Decimal
    setting: tuple[str, ...]
    rounds: dict[str, FullRow]


class _Combination(_Numbers):  # FedEAS with SCAFFOLD.
    setting: str
    both: Decimal
    fedeas: Decimal
    scaffold: Decimal


class _WallClock(_Numbers):  # Generation and training on the paper's machine.
    fedeas_minutes: Decimal
    full_balance_minutes: Decimal
    ratio: Decimal


class Published(_Numbers):
    """All numbers that the paper prints."""

    title: str
    authors: tuple[str, ...]
    settings: tuple[Setting, ...] = Field(alias="setting")
    totals: _Totals
    accuracy: dict[str, Row]
    peak: dict[str, Row]
    beta_sweep: _BetaSweep
    ablation: _Ablation
    gamma_hat: _GammaHat
    convergence: _Convergence
    generator_change: dict[str, Decimal]
    combination: _Combination
    wall_clock: _WallClock
    facts: tuple[Fact, ...] = Field(alias="fact")

    def printed(self, name: str, where: Setting, numbers: Mapping[str, Row] | None = None) -> Decimal | None:
        """A method's number in a setting, by default its accuracy; None if the paper prints none."""
        row = (self.accuracy if numbers is None else numbers).get(name)
        return None if row is None else row[[each.id for each in self.settings].index(where.id)]

    def round_of(self, name: str, where: Setting) -> Decimal | None:
        """The first round of a method at the threshold; None if the paper prints none."""
        rounds = self.convergence.rounds.get(name, ())
        return dict(zip(self.convergence.setting, rounds, strict=False)).get(where.id)


class _Recorded(_Numbers):  # Not printed in the paper; in the order of the settings, or of the sweep.
    draws: tuple[int, ...]
    as_printed: tuple[int, ...]
    as_printed_sweep: tuple[int, ...]
    facts: tuple[Fact, ...] = Field(alias="fact")


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text("utf-8"), parse_float=Decimal)


@cache
def published() -> Published:
    """The paper's numbers."""
    return Published.model_validate(_toml("published.toml"))


@cache
def recorded() -> _Recorded:
    """Facts of the partitions that the paper does not print."""
    return _Recorded.model_validate(_toml("recorded.toml"))


def setting(name: str) -> Setting:
    """The setting of this id, such as ``c10-k20-a0.1``."""
    known = {one.id: one for one in published().settings}
    if name not in known:
        raise InputError(f"unknown setting {name!r}; known are {', '.join(known)}")
    return known[name]


@cache
def example_counts() -> LabelCounts:
    """The partition of the paper's figures: CIFAR-10 over 20 clients, alpha = 0.1.

    >>> example_counts().total
    45007
    """
    return setting(EXAMPLE).counts()
