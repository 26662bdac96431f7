"""The numbers that the paper prints, from ``published.toml``, and the partitions behind its tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedeas.errors import InputError
from fedeas.planning.counts import LabelCounts

# A number with the digits that the paper prints, or None for an empty cell.
PrintedNumber = Annotated[Decimal | None, BeforeValidator(lambda cell: None if cell == "-" else cell)]
Row = tuple[PrintedNumber, ...]

EXAMPLE = "c10-k20-a0.1"  # the partition of the paper's figures


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setting(_Plain):
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

    def counts(self) -> LabelCounts:
        """The label counts of the clients' training parts, as shipped; `paper_replay` recomputes them."""
        text = resources.files(__package__).joinpath("partitions", f"{self.id}.csv").read_text("utf-8")
        header, *rows = (line.split(",") for line in text.splitlines())
        table = np.array(rows, dtype=np.int64)
        return LabelCounts(table[:, 1:], clients=table[:, 0].tolist(), classes=header[1:])


class Fact(_Plain):
    """One number in the paper's text; if the counts give another one, `disagrees` says why."""

    id: str
    says: str
    value: Decimal
    where: str = ""
    disagrees: str = ""


class Totals(_Strict):
    """Samples generated in each setting."""

    beta: Decimal
    fedeas: Row
    full_balance: Row


class BetaSweep(_Plain):
    """Accuracy, gain over FedAvg and efficiency for each beta."""

    beta: Row
    total: Row
    fedavg: Decimal
    fedeas: Row
    fedeas_gain: Row
    fedeas_eta: Row
    uniform: Row
    uniform_gain: Row
    uniform_eta: Row
    full_balance: Decimal
    full_balance_gain: Decimal
    full_balance_eta: Decimal
    full_balance_total: Decimal


class Ablation(_Plain):
    """The budget rule without one of its factors."""

    beta: Decimal
    variant: tuple[str, ...]
    total: Row
    accuracy: Row


class GammaHat(_Plain):
    """Median dissimilarity of the clients' updates."""

    method: tuple[str, ...]
    median: Row
    reduction: Row


class Convergence(_Strict):
    """First round at an accuracy threshold."""

    threshold: Decimal
    setting: tuple[str, ...]
    fedeas: Row
    missing_only: Row


class Combination(_Plain):
    """FedEAS with SCAFFOLD."""

    setting: str
    both: Decimal
    fedeas: Decimal
    scaffold: Decimal


class WallClock(_Plain):
    """Generation and training on the paper's machine."""

    fedeas_minutes: Decimal
    full_balance_minutes: Decimal
    ratio: Decimal


class Published(_Plain):
    """All numbers that the paper prints."""

    title: str
    authors: tuple[str, ...]
    settings: tuple[Setting, ...] = Field(alias="setting")
    totals: Totals
    accuracy: dict[str, Row]
    peak: dict[str, Row]
    beta_sweep: BetaSweep
    ablation: Ablation
    gamma_hat: GammaHat
    convergence: Convergence
    generator_change: dict[str, Decimal]
    combination: Combination
    wall_clock: WallClock
    facts: tuple[Fact, ...] = Field(alias="fact")

    def printed(self, numbers: Mapping[str, Row], name: str, where: Setting) -> Decimal | None:
        """The number of a method in a setting, from `accuracy` or `peak`; None if the paper prints none."""
        places = [each.id for each in self.settings]
        return numbers[name][places.index(where.id)] if name in numbers else None

    def round_of(self, name: str, where: Setting) -> Decimal | None:
        """The first round of a method at the threshold; None if the paper prints none."""
        rows = {"fedeas": self.convergence.fedeas, "missing-only": self.convergence.missing_only}
        return dict(zip(self.convergence.setting, rows.get(name, ()), strict=False)).get(where.id)


class RecordedRow(_Plain):
    """Whole numbers in the order of the settings, or of the sweep."""

    value: tuple[int, ...]


class Recorded(_Plain):
    """Facts of the partitions that the paper does not print."""

    draws: RecordedRow
    as_printed: RecordedRow
    as_printed_sweep: RecordedRow
    facts: tuple[Fact, ...] = Field(alias="fact")


@cache
def published() -> Published:
    """The paper's numbers."""
    return Published.model_validate(_toml("published.toml"))


@cache
def recorded() -> Recorded:
    """Facts of the partitions that the paper does not print."""
    return Recorded.model_validate(_toml("recorded.toml"))


def setting(name: str) -> Setting:
    """The setting of this id, such as ``c10-k20-a0.1``."""
    known = {one.id: one for one in published().settings}
    if name not in known:
        raise InputError(f"unknown setting {name!r}; known are {', '.join(known)}")
    return known[name]


def example_counts() -> LabelCounts:
    """The partition of the paper's figures: CIFAR-10 over 20 clients, alpha = 0.1.

    >>> example_counts().total
    45007
    """
    return setting(EXAMPLE).counts()


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text("utf-8"), parse_float=Decimal)
