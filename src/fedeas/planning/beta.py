"""Choose beta from label counts alone: by the two conditions of the paper, or a limit on images, time or share.

b_k = floor(s_k beta) rises by one at beta = m / s_k for m = 1, 2, ..., so total and imbalance are step functions of
beta whose steps are known exactly. `beta_path` lists them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import InputError
from fedeas.core.spec import number
from fedeas.planning import scores
from fedeas.planning.beta_curve import BetaCurve
from fedeas.planning.counts import LabelCounts, Table, as_counts
from fedeas.planning.policies import FedEAS, FullBalance
from fedeas.planning.policies.base import MAX_BUDGET, TOO_MUCH
from fedeas.planning.policies.fedeas import ROUNDING_SLACK
from fedeas.planning.policies.prices import bisect_price
from fedeas.planning.validation import MAX_SQUARED

MIN_REMOVED, MAX_SHARE = 0.5, 0.25  # the paper's two conditions on beta

SHARE = number("between 0 and 1", lambda value: 0 < value < 1)
TIME, RATE = number("0 or more", lambda value: value >= 0), number("above 0", lambda value: value > 0)

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
    hi = _end_of(curve, images_for_share(counts, max_share))
    if math.isinf(hi):
        return BetaInterval(hi, hi, BALANCED)
    first, path = _first_that_removes(curve, hi, min_removed)
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
    counts = as_counts(counts)
    scale = policy.scale(counts)
    if _has_gaps(scale, end):
        return _sampled_path(BetaCurve(policy, counts), end)
    return _listed_path(policy, counts, scale, end)


def _listed_path(policy: FedEAS, counts: LabelCounts, scale: FloatArray, end: float) -> BetaPath:
    steps = _steps_below(scale, end)
    client = np.repeat(np.arange(counts.num_clients), steps)
    level = np.arange(1, client.size + 1) - np.repeat(np.cumsum(steps) - steps, steps)
    raised = np.empty(client.size, dtype=np.int64)  # classes that get one more sample at each step
    limit, length = policy.fillable(counts), max(1, 2**20 // counts.num_classes)
    for start in range(0, client.size, length):
        part = slice(start, start + length)
        below = np.minimum(level[part], limit[client[part]])
        raised[part] = (counts.n[client[part]] < below[:, None]).sum(axis=1)
    beta = level / scale[client]
    order = np.argsort(beta, kind="stable")
    beta, totals = beta[order], np.cumsum(raised[order])
    kind = np.int64 if counts.sizes.max() <= MAX_SQUARED else np.float64
    # A step takes the raised classes from level - 1 to level, and so lowers I.
    squares = (counts.n.astype(kind) ** 2).sum(axis=1)[client] + _sum_so_far(raised * (2 * level - 1), level)
    sizes = counts.sizes[client] + _sum_so_far(raised, level)
    squares_before, sizes_before = squares - raised * (2 * level - 1), sizes - raised
    lowered = counts.weights[client] * (squares_before / sizes_before**2.0 - squares / sizes**2.0)
    drop = np.cumsum(lowered[order])
    apart = beta[1:] > beta[:-1] * (1 + ROUNDING_SLACK)  # the policy takes closer steps together
    last = np.append(apart, np.ones(min(beta.size, 1), dtype=bool))
    initial = scores.imbalance(counts) or np.inf  # balanced clients: the removed share is 0
    return BetaPath(np.append(0.0, beta[last]), np.append(0, totals[last]), np.append(0.0, drop[last] / initial))


def beta_for_total(policy: FedEAS, counts: Table, total: int) -> BetaForTotal:
    """The largest beta whose total is at most `total`, exact to the last bit, and the shortfall.

    Of `policy`, only gamma, entropy and fill are used, not its beta. If no beta reaches the total, because every
    client is balanced, beta is infinite.

    >>> found = beta_for_total(FedEAS(), LabelCounts([[90, 10, 0], [0, 20, 80]]), 50)
    >>> round(found.beta, 3), found.total, found.shortfall
    (5.412, 49, 1)
    """
    return _largest_within(BetaCurve(policy, as_counts(counts)), _checked_total(total))


def _checked_total(total: object) -> int:
    if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 0:
        raise InputError(f"total must be a whole number of samples, 0 or more, not {total!r}")
    if total > MAX_BUDGET:
        raise InputError(TOO_MUCH.format("total"))
    return int(total)


def _largest_within(curve: BetaCurve, total: int) -> BetaForTotal:
    below, above = 0.0, 1.0
    while (spent := curve.total(above)) <= total:
        below, above = above, above * 2
        if above > ENDLESS_BETA and curve.total(above) == spent:
            return BetaForTotal(math.inf, spent, total - spent)
    beta = bisect_price(lambda at: curve.total(at.middle) > total, above, below).too_low
    spent = curve.total(beta)
    return BetaForTotal(beta, spent, total - spent)


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
    known = TIME.holds(minutes) and RATE.holds(images_per_second)
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
    counts = as_counts(counts)
    curve = BetaCurve(policy, counts)
    end = _end_of(curve, FullBalance().allocate(counts).total)
    if math.isinf(end):
        return end
    first, path = _first_that_removes(curve, end, min_removed)
    if first is None:
        raise InputError(
            f"no beta removes {min_removed:.1%} of the imbalance, {path.removed.max():.1%} is the most; ask for less"
        )
    return first


def _first_that_removes(curve: BetaCurve, end: float, share: float) -> tuple[float | None, BetaPath]:
    """The smallest beta below `end` that removes this share, and the path; if that has gaps, beta is bisected."""
    scale = curve.policy.scale(curve.counts)
    has_gaps = _has_gaps(scale, end)
    path = _sampled_path(curve, end) if has_gaps else _listed_path(curve.policy, curve.counts, scale, end)
    met = path.removed >= share
    if not met.any():
        return None, path
    place = int(met.argmax())
    first = float(path.beta[place])
    if place and has_gaps:
        before = float(path.beta[place - 1])
        first = bisect_price(lambda at: curve.removed(at.middle) >= share, first, before).enough
    return first, path


def _has_gaps(scale: FloatArray, end: float) -> bool:
    """Whether the path up to this beta has more than `MAX_STEPS` steps."""
    return float(_steps_below(scale, end).sum(dtype=np.float64)) > MAX_STEPS


def _sampled_path(curve: BetaCurve, end: float) -> BetaPath:
    betas = np.linspace(0.0, end, PLACES + 1, endpoint=False)
    totals, removed = (np.array(values) for values in zip(*map(curve.at, betas.tolist()), strict=True))
    return BetaPath(betas, totals, removed)


def _end_of(curve: BetaCurve, total: int) -> float:
    """The smallest beta that generates more than `total` samples."""
    last = _largest_within(curve, _checked_total(total)).beta
    if math.isinf(last):
        return last
    # The float just found differs from the step m / s_k by a rounding error; return the step itself.
    scale = curve.policy.scale(curve.counts)
    scale = scale[scale > 0]
    steps = np.rint(scale * last) / scale
    return float(steps[np.abs(steps - last).argmin()])


def _steps_below(scale: FloatArray, end: float) -> IntArray:
    """How many m = 1, 2, ... of each client have m / s_k < end."""
    if math.isinf(end):  # only when no beta generates anything
        return np.zeros(scale.size, dtype=np.int64)
    return np.maximum(np.ceil(scale * end * (1 - ROUNDING_SLACK)).astype(np.int64) - 1, 0)


def _sum_so_far(values: IntArray, level: IntArray) -> IntArray:
    """Running sums that start again with each client, at level 1."""
    sums = np.cumsum(values)
    starts = np.flatnonzero(level == 1)
    return np.asarray(sums - np.repeat((sums - values)[starts], np.diff(np.append(starts, values.size))))


def _check_share(name: str, value: float) -> None:
    if not SHARE.holds(value):
        raise InputError(f"{name} must be {SHARE.words}, not {value!r}")
