"""Choose beta from label counts alone: by the two conditions of the paper, or a limit on images, time or share.

b_k = floor(s_k beta) rises by one at beta = m / s_k for m = 1, 2, ..., so total and imbalance are step functions of
beta whose steps are known exactly. `beta_path` lists them.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray, for_row_blocks
from fedeas.core.errors import InputError
from fedeas.core.spec import number
from fedeas.planning import scores
from fedeas.planning.counts import LabelCounts, Table, as_counts
from fedeas.planning.policies import FedEAS, FullBalance
from fedeas.planning.policies.base import MAX_BUDGET, TOO_MUCH
from fedeas.planning.policies.fedeas import MAX_LEVEL, ROUNDING_SLACK
from fedeas.planning.policies.prices import bisect_price
from fedeas.planning.policies.waterfill import SortedCounts, cells_of

MIN_REMOVED, MAX_SHARE = 0.5, 0.25  # the paper's two conditions on beta

SHARE = number("between 0 and 1", lambda value: 0 < value < 1)
RATE = number("0 or more", lambda value: value >= 0)

BALANCED = "every client is balanced already: there is nothing to generate"

# A total that no longer grows from this beta on never will: every client is balanced.
ENDLESS_BETA = 1e9

MAX_STEPS = 2**22
"""The most steps that a path lists, at some hundred bytes each; a longer path is sampled at `PLACES` betas."""
PLACES = 128


class BetaPath(NamedTuple):
    """FedEAS for every beta below some end: ``total[i]`` holds for ``beta[i] <= beta < beta[i + 1]``."""

    beta: FloatArray
    total: IntArray
    removed: FloatArray


class BetaForTotal(NamedTuple):
    """The largest beta that stays within a total, what it generates, and what it leaves unspent."""

    beta: float
    total: int
    shortfall: int


@dataclass(frozen=True)
class BetaInterval:
    """The betas [lo, hi) that meet both conditions; if there are none, `reason` says why."""

    lo: float
    hi: float
    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason

    def __contains__(self, beta: float) -> bool:
        return bool(self) and self.lo <= beta < self.hi

    @property
    def roundest(self) -> float:
        """The number in the interval with the fewest decimals; of several, the one nearest to the middle."""
        if not self:
            raise InputError(self.reason)
        middle = (self.lo + self.hi) / 2 if math.isfinite(self.hi) else self.lo
        for decimals in range(16):
            candidates = [round(middle + side * 10.0**-decimals, decimals) for side in (0, -1, 1)]
            inside = [beta for beta in candidates if beta in self and beta > 0]
            if inside:
                return min(inside, key=lambda beta: abs(beta - middle))
        return middle


class BetaCurve(SortedCounts):
    """Total and share of the imbalance removed as functions of beta, without plans; `policy.beta` is not used.

    With sorted counts and their running sums, what FedEAS generates at a beta follows from the number of classes that
    each client fills.

    >>> curve = BetaCurve(FedEAS(), LabelCounts([[100, 2, 0], [40, 40, 40]]))
    >>> curve.at(4.0)[0] == curve.total(4.0) == FedEAS(beta=4).allocate(curve.counts).total
    True
    """

    def __init__(self, policy: FedEAS, counts: LabelCounts) -> None:
        super().__init__(counts)
        self.policy, self._every = policy, np.arange(len(counts))
        self._scale, self._fillable = policy.scale(counts), policy.fillable(counts)
        self._initial = scores.imbalance(counts)

    def _filled(self, level: IntArray, client: IntArray) -> tuple[IntArray, IntArray]:
        """How many classes each of these clients fills up to its level, and the samples that this takes."""
        limit = np.minimum(level, self._fillable[client])
        classes = np.empty_like(level)

        def count(part: slice) -> None:
            rows = self.sorted[part if client is self._every else client[part]]
            classes[part] = np.count_nonzero(rows < limit[part, None], axis=1)

        for_row_blocks(count, len(level), self.counts.num_classes)
        return classes, classes * level - cells_of(self.sums, client, classes)

    def _squares(self, level: IntArray, classes: IntArray, client: IntArray) -> IntArray:
        """The sums of squares once so many classes are filled to this level."""
        rest = self.square_sums[client, -1] - cells_of(self.square_sums, client, classes)
        squares: IntArray = rest + classes * level**2
        return squares

    def total(self, beta: float) -> int:
        """The number of samples; more than any budget if the policy refuses this beta."""
        return self._at(beta)[0]

    def _at(self, beta: float) -> tuple[int, IntArray, IntArray, IntArray]:
        """The total, and each client's level, filled classes and samples."""
        level = replace(self.policy, beta=beta).budgets(self.counts) if beta > 0 else np.zeros_like(self._every)
        classes, samples = self._filled(level, self._every)
        refused = samples[level >= MAX_LEVEL].any() or samples.sum(dtype=np.float64) > MAX_BUDGET
        return MAX_BUDGET + 1 if refused else int(samples.sum()), level, classes, samples

    def at(self, beta: float) -> tuple[int, float]:
        """Total and the share of the imbalance that is removed; 0 if all clients are balanced."""
        total, level, classes, samples = self._at(beta)
        sizes, num_classes = self.counts.sizes + samples, self.counts.num_classes
        if num_classes * int(sizes.max()) ** 2 >= 2**63:  # squares would not fit 64 bits
            plan = replace(self.policy, beta=beta).allocate(self.counts) if beta > 0 else None
            return total, 0.0 if plan is None else scores.imbalance_removed(self.counts, plan)
        # I follows from sum_c (C n_c - N)^2 = C (C sum_c n_c^2 - N^2), in whole numbers.
        apart = num_classes * self._squares(level, classes, self._every) - sizes**2
        left = float((self.counts.weights * (apart / (num_classes * sizes.astype(np.float64) ** 2))).sum())
        return total, 1 - left / self._initial if self._initial > 0 else 0.0

    def largest_within(self, total: int) -> BetaForTotal:
        """The largest beta whose total is at most this."""
        below, above = 0.0, 1.0
        while (spent := self.total(above)) <= total:
            below, above = above, above * 2
            if above > ENDLESS_BETA and self.total(above) == spent:
                return BetaForTotal(math.inf, spent, total - spent)
        beta = bisect_price(lambda beta: self.total(beta) > total, above, below).too_low
        spent = self.total(beta)
        return BetaForTotal(beta, spent, total - spent)

    def end_of(self, total: int) -> float:
        """The smallest beta that generates more than `total` samples."""
        last = self.largest_within(total).beta
        if math.isinf(last):
            return last
        # The float just found differs from the step m / s_k by a rounding error; return the step itself.
        scale = self._scale[self._scale > 0]
        steps = np.rint(scale * last) / scale
        return float(steps[np.abs(steps - last).argmin()])

    def first_that_removes(self, end: float, share: float) -> tuple[float | None, BetaPath]:
        """The smallest beta below `end` that removes this share, and the path; if that has gaps, beta is bisected."""
        path = self.path(end)
        met = path.removed >= share
        if not met.any():
            return None, path
        place = int(met.argmax())
        first = float(path.beta[place])
        if place and self._steps_below(end) is None:
            before = float(path.beta[place - 1])
            first = bisect_price(lambda beta: self.at(beta)[1] >= share, first, before).enough
        return first, path

    def _steps_below(self, end: float) -> IntArray | None:
        """How many m = 1, 2, ... of each client have m / s_k < end; None if there are more than `MAX_STEPS`."""
        if math.isinf(end):  # only when no beta generates anything
            return np.zeros(self._scale.size, dtype=np.int64)
        steps = np.maximum(np.ceil(self._scale * end * (1 - ROUNDING_SLACK)).astype(np.int64) - 1, 0)
        return None if steps.sum(dtype=np.float64) > MAX_STEPS else steps

    def path(self, end: float) -> BetaPath:
        """Total and share removed for every beta below `end`, or at `PLACES` betas if there are too many steps."""
        steps = self._steps_below(end)
        if steps is None:
            betas = np.linspace(0.0, end, PLACES + 1, endpoint=False)
            totals, removed = (np.array(values) for values in zip(*map(self.at, betas.tolist()), strict=True))
            return BetaPath(betas, totals, removed)
        client = np.repeat(np.arange(steps.size), steps)
        level = np.arange(1, client.size + 1) - np.repeat(np.cumsum(steps) - steps, steps)
        classes, samples = self._filled(level, client)
        # What each step adds to the total and takes from I follows from the client's samples after the step before.
        sizes = self.counts.sizes[client]
        value = self._squares(level, classes, client) / (sizes + samples) ** 2.0
        initial = self.square_sums[client, -1] / sizes**2.0
        is_first = level == 1
        raised = samples - np.where(is_first, 0, np.roll(samples, 1))
        lowered = self.counts.weights[client] * (np.where(is_first, initial, np.roll(value, 1)) - value)
        beta = level / self._scale[client]
        order = np.argsort(beta, kind="stable")
        beta, totals, drop = beta[order], np.cumsum(raised[order]), np.cumsum(lowered[order])
        apart = beta[1:] > beta[:-1] * (1 + ROUNDING_SLACK)  # the policy takes closer steps together
        last = np.append(apart, np.ones(min(beta.size, 1), dtype=bool))
        whole = self._initial or np.inf  # balanced clients: the removed share is 0
        return BetaPath(np.append(0.0, beta[last]), np.append(0, totals[last]), np.append(0.0, drop[last] / whole))


def select_beta(
    counts: Table,
    policy: FedEAS | None = None,
    min_removed: float = MIN_REMOVED,
    max_share: float = MAX_SHARE,
) -> BetaInterval:
    """The betas that remove at least `min_removed` of I with a synthetic share below `max_share`.

    >>> interval = select_beta(LabelCounts([[90, 10, 0], [0, 20, 80]]))
    >>> interval.roundest in interval
    True
    """
    policy, counts = policy or FedEAS(), as_counts(counts)
    _check_share("min_removed", min_removed)
    curve = BetaCurve(policy, counts)
    hi = curve.end_of(images_for_share(counts, max_share))
    if math.isinf(hi):
        return BetaInterval(hi, hi, BALANCED)
    first, path = curve.first_that_removes(hi, min_removed)
    if first is None:
        return BetaInterval(
            hi,
            hi,
            f"no beta meets both conditions: below a synthetic share of {max_share:.1%} at most "
            f"{path.removed.max():.1%} of the imbalance goes, not {min_removed:.1%}; relax one of the two",
        )
    # A budget far above the largest class makes imbalance grow again.
    overshoots = (path.beta > first) & (path.removed < min_removed)
    return BetaInterval(first, float(path.beta[overshoots.argmax()]) if overshoots.any() else hi)


def beta_path(policy: FedEAS, counts: Table, end: float) -> BetaPath:
    """Total and share of I removed for all 0 <= beta < end, step by step; `policy.beta` is not used.

    There are about as many steps as samples in the last total. If there are more than `MAX_STEPS`, the path lists only
    some of them.
    """
    return BetaCurve(policy, as_counts(counts)).path(end)


def beta_for_total(policy: FedEAS, counts: Table, total: int) -> BetaForTotal:
    """The largest beta whose total is at most `total`, exact to the last bit, and the shortfall.

    Of `policy`, only gamma, entropy and fill are used, not its beta. If no beta reaches the total, because every
    client is balanced, beta is infinite.

    >>> found = beta_for_total(FedEAS(), LabelCounts([[90, 10, 0], [0, 20, 80]]), 50)
    >>> round(found.beta, 3), found.total, found.shortfall
    (5.412, 49, 1)
    """
    if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 0:
        raise InputError(f"total must be a whole number of samples, 0 or more, not {total!r}")
    if total > MAX_BUDGET:
        raise InputError(TOO_MUCH.format("total"))
    return BetaCurve(policy, as_counts(counts)).largest_within(int(total))


def shortened_beta(policy: FedEAS, counts: Table, beta: float) -> float:
    """Round beta down to as few decimals as give the same total, so that it can be typed."""
    curve = BetaCurve(policy, as_counts(counts))
    total = curve.total(beta)
    for decimals in range(16):
        short = math.floor(beta * 10.0**decimals) / 10.0**decimals
        if 0 < short <= beta and curve.total(short) == total:
            return short
    return beta


def images_in_minutes(minutes: float, images_per_second: float) -> int:
    """How many images can be generated in that time.

    >>> images_in_minutes(minutes=10, images_per_second=25)
    15000
    """
    known = RATE.holds(minutes) and RATE.holds(images_per_second) and images_per_second
    if not known or not math.isfinite(60 * minutes * images_per_second):
        raise InputError("minutes must be 0 or more and images per second above 0")
    return int(minutes * 60 * images_per_second * (1 + ROUNDING_SLACK))


def images_for_share(counts: Table, max_share: float) -> int:
    """The largest B with B / (N + B) below `max_share`.

    >>> images_for_share(LabelCounts([[60, 15]]), 0.25)  # 25 of 100 would not be below a quarter
    24
    """
    _check_share("the synthetic share", max_share)
    return math.ceil(as_counts(counts).total * max_share / (1 - max_share) * (1 - ROUNDING_SLACK)) - 1


def beta_for_removed(policy: FedEAS, counts: Table, min_removed: float) -> float:
    """The smallest beta that removes at least this share of the imbalance, with at most Full-Balance's total.

    If every client is balanced already, beta is infinite.
    """
    _check_share("min_removed", min_removed)
    curve = BetaCurve(policy, as_counts(counts))
    end = curve.end_of(FullBalance().allocate(curve.counts).total)
    if math.isinf(end):
        return end
    first, path = curve.first_that_removes(end, min_removed)
    if first is None:
        raise InputError(
            f"no beta removes {min_removed:.1%} of the imbalance, {path.removed.max():.1%} is the most; ask for less"
        )
    return first


def _check_share(name: str, value: float) -> None:
    if not SHARE.holds(value):
        raise InputError(f"{name} must be {SHARE.words}, not {value!r}")
