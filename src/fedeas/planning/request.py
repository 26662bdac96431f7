"""Turn a user's request into a policy and a plan: limits become budgets, and large files are planned in parts."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedeas.core.arrays import frozen
from fedeas.core.errors import InputError, PolicyError
from fedeas.core.files import PathLike
from fedeas.core.spec import find_class, read_call, read_spec
from fedeas.planning.beta import (
    MAX_SHARE,
    MIN_REMOVED,
    beta_for_removed,
    beta_for_total,
    images_for_share,
    images_in_minutes,
    select_beta,
    shortened_beta,
)
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.plan import Summary
from fedeas.planning.policies import (
    KL,
    POLICIES,
    BySize,
    FedEAS,
    FullBalance,
    Greedy,
    MissingOnly,
    NoGeneration,
    Optimal,
    Policy,
    Pool,
    Uniform,
    parse_policy,
)
from fedeas.planning.policies.base import check_budget
from fedeas.planning.tables import CountTable, PlannedParts, write_parts

PART_CELLS = 2**18
WHOLE_CELLS = 2**21
"""Tables with more counts are planned in parts where that is possible: it takes much less memory and about as long."""


@dataclass(frozen=True)
class Limits:
    """How a user limits the budget: in at most one way; with `auto`, the last two fields are its conditions."""

    beta: float | None = None
    total: int | None = None
    minutes: float | None = None
    images_per_second: float | None = None
    auto: bool = False
    max_share: float | None = None
    min_removed: float | None = None

    def __post_init__(self) -> None:
        ways = [self.beta, self.total, self.minutes, self.auto or None]
        if not self.auto:
            ways += [self.max_share, self.min_removed]
        if sum(way is not None for way in ways) > 1:
            raise InputError(
                "give the budget in one way: beta, total, minutes, auto, or a single limit; for two limits add auto"
            )
        if (self.minutes is None) != (self.images_per_second is None):
            raise InputError("a time limit needs both: minutes and images per second")

    @property
    def given(self) -> bool:
        """Whether any limit is set."""
        return self != Limits()

    @property
    def needs_counts(self) -> bool:
        """Whether the limit can only be turned into a policy once the whole table is known."""
        return self.given and self.beta is None

    def images(self, counts: LabelCounts | None) -> int | None:
        """The limit as a number of images; None if it limits something else, or needs counts that are not given."""
        if self.minutes is not None and self.images_per_second is not None:
            return images_in_minutes(self.minutes, self.images_per_second)
        if counts is not None and self.max_share is not None and not self.auto:
            return images_for_share(counts, self.max_share)
        return self.total


def choose_policy(text: str, limits: Limits, counts: LabelCounts | None = None) -> Policy:
    """The policy for a spec and a limit; counts are needed if the limit depends on them.

    A policy that takes a budget, and whose spec leaves it out, such as ``uniform`` or ``kl(smoothing=2)``, takes the
    limit as its budget, or matches FedEAS.

    >>> choose_policy("uniform", Limits(beta=8)).spec
    'uniform(budget=fedeas(beta=8))'
    >>> choose_policy("kl(smoothing=2)", Limits(total=30)).spec
    'kl(budget=30, smoothing=2)'
    >>> choose_policy("fedeas", Limits(total=5), LabelCounts([[9, 0]])).spec
    'fedeas(beta=2.8)'
    """
    call = read_call(text, POLICIES, "policy")
    field = (POLICIES.get(call.name) or find_class(call.name, "policy", Policy)).budget_field
    if field and field not in call.arguments:
        images = limits.images(counts)
        budget = _fedeas_within(FedEAS(), limits, counts) if images is None else images
        check_budget(budget)
        return read_spec(text, POLICIES, "policy", Policy, left_out={field: budget})
    policy = parse_policy(text)
    if limits.given:
        if policy.budget_field or (isinstance(policy, FedEAS) and "beta" in call.arguments):
            raise PolicyError(
                f"{policy.spec} has its budget already; give the budget once, in the policy or as a limit"
            )
        if not isinstance(policy, FedEAS):
            raise PolicyError(f"{policy.spec} takes no beta, total or limit; leave them out, or choose another policy")
    return _fedeas_within(policy, limits, counts) if isinstance(policy, FedEAS) else policy


def _fedeas_within(policy: FedEAS, limits: Limits, counts: LabelCounts | None) -> FedEAS:
    if limits.beta is not None:
        return replace(policy, beta=limits.beta)
    if counts is None or not limits.given:
        return policy
    if limits.auto:
        least = MIN_REMOVED if limits.min_removed is None else limits.min_removed
        most = MAX_SHARE if limits.max_share is None else limits.max_share
        interval = select_beta(counts, policy, least, most)
        beta = interval.hi if math.isinf(interval.hi) else interval.roundest
    elif limits.min_removed is not None:
        beta = beta_for_removed(policy, counts, limits.min_removed)
    else:
        beta = beta_for_total(policy, counts, limits.images(counts) or 0).beta
        beta = beta if math.isinf(beta) else shortened_beta(policy, counts, beta)
    return policy if math.isinf(beta) else replace(policy, beta=beta)  # if all are balanced, any beta generates nothing


def reads_in_parts(file: CountTable, policy: Policy, limits: Limits) -> bool:
    """Whether a plan needs the table in parts only, one after the other."""
    if policy.is_local:
        return not limits.needs_counts
    known = not limits.needs_counts or limits.images(None) is not None
    return known and policy.can_plan_in_parts and file.in_parts and file.cells > WHOLE_CELLS


def plan_in_parts(file: CountTable, policy: Policy) -> PlannedParts:
    """The parts of a table with their allocations, which together are those of the whole table.

    It is read once for a local policy, several times for one budget for all clients.
    """
    if policy.is_local:
        yield from ((chunk, policy.allocate(chunk.counts)) for chunk in file.chunks())
        return
    place = policy.in_parts(lambda: (chunk.counts for chunk in file.chunks(PART_CELLS, named=False)))
    for chunk in file.chunks(PART_CELLS):
        yield chunk, Allocation(frozen(place(chunk.counts)), policy.spec)


def write_plan(parts: PlannedParts, spec: str, out: PathLike | None) -> Summary:
    """Write a plan to `out`, if given, part by part, and return its summary."""
    summaries: list[Summary] = []

    def summed() -> PlannedParts:
        for chunk, allocation in parts:
            yield chunk, allocation
            summaries.append(Summary.of(chunk.counts, allocation, chunk.names))

    if out is None:
        deque(summed(), maxlen=0)
    else:
        write_parts(out, spec, summed())
    return sum(summaries[1:], summaries[0])


def policy_left_out(compared: Iterable[Allocation]) -> str:
    """Which policy `compare_policies` left out, and why; empty if it left out none."""
    names = {each.policy.partition("(")[0] for each in compared}
    is_there = MissingOnly.name() in names
    return "" if is_there else f"{MissingOnly.name()} is left out: every client holds every class"


def compare_policies(counts: LabelCounts, policy: Policy, allocation: Allocation) -> list[Allocation]:
    """The allocation of `policy`, and those of the built-in policies that generate as many images (FedEAS: at most).

    No-Generation and Full-Balance are the references. Missing-only is left out if no pair is absent.
    """
    total = allocation.generated
    fedeas = policy if isinstance(policy, FedEAS) else _fedeas_within(FedEAS(), Limits(total=total), counts)
    simple = [kind(budget=total) for kind in (Uniform, BySize, MissingOnly) if kind.suits(counts)]
    searched = [kind(budget=total) for kind in (KL, Greedy, Optimal)]
    line_up: list[Policy] = [NoGeneration(), *simple, fedeas, *searched, Pool(distinct=total), FullBalance()]
    kinds = [type(each) for each in line_up]
    if type(policy) not in kinds:
        line_up.insert(kinds.index(FedEAS), policy)
    return [allocation if type(each) is type(policy) else each.allocate(counts) for each in line_up]
