"""The base of all policies, and what budgeted policies share: reading a budget and spreading it evenly."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from fedeas.core.arrays import BoolArray, IntArray
from fedeas.core.errors import InputError, PolicyError
from fedeas.core.spec import Described, check_fields
from fedeas.planning.counts import Allocation, LabelCounts, as_counts

ReadParts = Callable[[], Iterator[LabelCounts]]
"""Start to read a table again, part by part."""
Placer = Callable[[LabelCounts], IntArray]
"""The allocation of the next part; parts come in order."""


class Needs(StrEnum):
    """What clients must reveal for a policy."""

    NOTHING = "nothing"
    NUMBERS = "numbers"
    COUNTS = "counts"


@runtime_checkable
class AllocationPolicy(Protocol):
    """Anything that turns label counts into an allocation."""

    is_local: ClassVar[bool]

    def allocate(self, counts: LabelCounts) -> Allocation:
        """How many synthetic samples each client generates of each class."""


class Policy(Described):
    """Base of policies: frozen dataclasses whose fields are the hyperparameters.

    Whatever a subclass defines as `allocate` also takes arrays, nested lists and data frames, and its answer is
    checked. A subclass defines either `allocate` or `in_parts`.
    """

    is_local: ClassVar[bool] = False
    """Whether a client needs only its own row, so that its counts never have to leave it."""
    description: ClassVar[str] = ""
    """What it does, in one line for a new user."""
    colour: ClassVar[str] = ""
    """The name of its colour in all figures; empty if it takes one that is free."""
    budget_field: ClassVar[str] = ""
    """The name of the field with its budget; empty if it has none."""

    def __post_init__(self) -> None:
        check_fields(self, PolicyError)
        if self.budget_field:
            check_budget(getattr(self, self.budget_field))

    def __init_subclass__(cls, **options: Any) -> None:
        """Let `allocate` take any table of counts."""
        super().__init_subclass__(**options)
        if "allocate" not in cls.__dict__:
            return
        allocate = cls.allocate

        @wraps(allocate)
        def checked(self: Policy, counts: Any) -> Allocation:
            table = as_counts(counts)
            return checked_allocation(self, allocate(self, table), table)

        cls.allocate = checked  # type: ignore[method-assign]

    def allocate(self, counts: LabelCounts) -> Allocation:
        """How many synthetic samples each client generates of each class."""
        table = as_counts(counts)
        return Allocation(self.in_parts(lambda: iter([table]))(table), self.spec).named_as(table)

    def in_parts(self, parts: ReadParts) -> Placer:
        """Read the parts of a table as often as it takes to know how many samples each client of the next part gets."""
        raise NotImplementedError

    @property
    def can_plan_in_parts(self) -> bool:
        """Whether it can plan a table in parts, and its budget needs no other clients."""
        budget = getattr(self, self.budget_field, None)
        return type(self).in_parts is not Policy.in_parts and (not isinstance(budget, Policy) or budget.is_local)

    @property
    def needs(self) -> Needs:
        """What clients must reveal so that each can have its row of the allocation."""
        return Needs.NOTHING if self.is_local else Needs.COUNTS

    def images_asked(self, counts: LabelCounts) -> int | None:
        """The budget as a number, of which a pool may need only a part; None if it has no budget."""
        return samples_in(getattr(self, self.budget_field), [counts]) if self.budget_field else None

    @classmethod
    def suits(cls, counts: LabelCounts) -> bool:
        """Whether it can spend a budget on these counts."""
        return True


def checked_allocation(policy: AllocationPolicy, plan: Allocation, counts: LabelCounts) -> Allocation:
    """The answer of a policy with the names of the counts; refuse one that does not fit them."""
    if not isinstance(plan, Allocation):
        raise InputError(f"{policy_name(policy)}: allocate must give an Allocation, not {type(plan).__name__}")
    if plan.n.shape != counts.n.shape:
        raise InputError(f"{policy_name(policy)}: the allocation is {plan.n.shape} for counts of {counts.n.shape}")
    return plan.named_as(counts)


def policy_name(policy: AllocationPolicy) -> str:
    """The spec of a policy; of a user's own policy without a spec, the name of its class."""
    return str(getattr(policy, "spec", type(policy).__name__))


Budget = int | Policy

MAX_BUDGET = 10**15
TOO_MUCH = f"{{}} must be at most {MAX_BUDGET:,} samples"


def check_budget(budget: object) -> None:
    """Refuse a budget that is neither a whole number of samples nor a policy whose total is matched."""
    if isinstance(budget, Policy):
        return
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise PolicyError(f"budget must be a whole number of samples or a policy to match, not {budget!r}")
    if not 0 <= budget <= MAX_BUDGET:
        raise PolicyError(f"budget must be 0 or more, not {budget}" if budget < 0 else TOO_MUCH.format("budget"))


def samples_in(budget: Budget, parts: Iterable[LabelCounts]) -> int:
    """The number of samples B to spend: the budget itself, or the total of the policy that it matches."""
    return sum(budget.allocate(part).total for part in parts) if isinstance(budget, Policy) else int(budget)


def spread_evenly(total: int, places: int, first: int = 0, count: int | None = None) -> IntArray:
    """Spread `total` over `places` in equal parts; the first places get one more until the remainder is spent.

    With `first` and `count`, return only those places.

    >>> spread_evenly(8, 3)
    array([3, 3, 2])
    """
    each, rest = divmod(total, max(1, places))
    stop = places if count is None else first + count
    return each + (np.arange(first, stop) < rest).astype(np.int64)


@dataclass(frozen=True)
class Budgeted(Policy):
    """A policy that spends exactly `budget` samples: a number, or the total of another policy on the same counts.

    ``Uniform(budget=FedEAS(12))`` is the paper's matched-budget protocol.
    """

    budget: Budget
    budget_field = "budget"


@dataclass(frozen=True)
class Spread(Budgeted):
    """A budgeted policy that spreads its budget evenly over some of the client-class pairs, in client-major order.

    A client can compute its row from a few numbers: the budget, and how many pairs receive samples before its own.
    """

    @property
    def needs(self) -> Needs:
        """Numbers, unless the budget itself depends on all counts."""
        matched = self.budget
        return Needs.NUMBERS if not isinstance(matched, Policy) or matched.is_local else Needs.COUNTS

    def receives(self, row: IntArray) -> BoolArray:
        """The classes of which a client with these counts generates samples."""
        raise NotImplementedError

    def in_parts(self, parts: ReadParts) -> Placer:
        """Count the pairs, and give each its part; refuse if there are none."""
        total, before = samples_in(self.budget, parts()), 0
        pairs = sum(int(np.count_nonzero(self.receives(part.n))) for part in parts())
        self.check_pairs(total, pairs)

        def place(part: LabelCounts) -> IntArray:
            nonlocal before
            receiving = self.receives(part.n)
            here = int(np.count_nonzero(receiving))
            samples = np.zeros_like(part.n)
            np.place(samples, receiving, spread_evenly(total, pairs, before, here))
            before += here
            return samples

        return place

    def check_pairs(self, total: int, pairs: int) -> None:
        """Refuse a budget that no pair can receive."""
        if total and not pairs:
            raise PolicyError(
                f"{self.name()} cannot place {total:,} samples: every client holds every class; use another policy"
            )
