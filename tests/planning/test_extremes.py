"""Extreme but legal federations: results against rational arithmetic, and decimals of fifty places for logarithms."""

from decimal import Decimal, getcontext
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from fedeas import (
    Allocation,
    BySize,
    CostAware,
    FedEAS,
    FullBalance,
    Greedy,
    InputError,
    LabelCounts,
    MissingOnly,
    Optimal,
    Uniform,
    imbalance,
    imbalance_removed,
    select_beta,
)
from fedeas.data.partition import dirichlet
from fedeas.planning.scores import negative_gain

BILLIONS = 2 * 10**9
LARGE = 7 * 10**8
"""Three such classes are about what a client may hold."""
RANDOM = np.random.default_rng(0)

FEDERATIONS = {
    "one client": [[7, 0, 2]],
    "one client with one sample": [[0, 1, 0]],
    "one sample a client": np.eye(12, dtype=int),
    "ten thousand classes": RANDOM.integers(0, 3, (3, 10_000)),
    "one of ten thousand classes": np.eye(10_000, dtype=int)[[5, 9_999]],
    "a million million samples": [[BILLIONS - k, k, 0] for k in range(500)],
    "hundreds of millions of a class": [[LARGE, 7, 0], [2 * 10**8, LARGE, LARGE]],
    "almost balanced hundreds of millions": [[LARGE, LARGE + 1, LARGE]],
    "almost balanced": [[BILLIONS // 4, BILLIONS // 4 + 1, BILLIONS // 4]],
    "alpha 0.001": dirichlet(np.repeat(np.arange(10), 500), 4, 1e-3, seed=2).counts.n,
    "alpha a million": dirichlet(np.repeat(np.arange(10), 500), 20, 1e6, seed=2).counts.n,
}


@pytest.fixture(params=FEDERATIONS)
def counts(request):
    return LabelCounts(FEDERATIONS[request.param])


def exact_imbalance(counts, allocation=None):
    """Eq. (surrogate) in rational numbers."""
    joined = counts.n if allocation is None else counts.n + allocation.n
    total, classes = counts.total, counts.num_classes
    parts = Fraction(0)
    for real, row in zip(counts.sizes.tolist(), joined.tolist(), strict=True):
        size = sum(row)
        # sum (n/N - 1/C)^2 = sum n^2 / N^2 - 1/C
        parts += real * (Fraction(sum(count**2 for count in row), size**2) - Fraction(1, classes))
    return parts / total


def test_imbalance_is_that_of_rational_arithmetic(counts):
    for allocation in (None, FedEAS(beta=3).allocate(counts), Uniform(budget=10**12).allocate(counts)):
        exact = exact_imbalance(counts, allocation)
        assert imbalance(counts, allocation) == pytest.approx(float(exact), rel=1e-9, abs=1e-18)


def test_full_balance_leaves_nothing(counts):
    plan = FullBalance().allocate(counts)
    assert exact_imbalance(counts, plan) == imbalance(counts, plan) == 0
    assert plan.total == sum(counts.num_classes * max(row) - sum(row) for row in counts.n.tolist())


@pytest.mark.parametrize("beta", [0.5, 12.0, 1e4])
def test_budgets_are_those_of_fifty_decimals(counts, beta):
    getcontext().prec = 50
    for row, budget in list(zip(counts.n.tolist(), FedEAS(beta=beta).budgets(counts).tolist(), strict=True))[:20]:
        size, classes = Decimal(sum(row)), Decimal(counts.num_classes)
        entropy = sum((-n / size * (n / size).ln() for n in map(Decimal, filter(None, row))), Decimal(0))
        level = (size / classes).sqrt() * (1 - entropy / classes.ln()) * Decimal(beta)
        slack = Decimal("1e-9") * max(level, Decimal(1))  # where the level is a whole number, its floor is rounding's
        assert floor(level - slack) <= budget <= floor(level + slack)


def test_negative_gains_are_decided_exactly(counts):
    found = negative_gain(counts)
    for k, row in list(enumerate(counts.n.tolist()))[:5]:
        size, squares = sum(row), sum(count**2 for count in row)
        assert found[k].tolist() == [count * size > squares for count in row]


@pytest.mark.parametrize("budget", [0, 1, 10**12 + 7])
def test_budgets_are_spent_to_the_last_sample(counts, budget):
    kinds = [Uniform, BySize] + ([MissingOnly] if (counts.n == 0).any() else [])
    for kind in kinds:
        assert sum(map(sum, kind(budget=budget).allocate(counts).n.tolist())) == budget
    shares = BySize(budget=budget).allocate(counts).per_client.tolist()
    for share, size in zip(shares, counts.sizes.tolist(), strict=True):
        assert 0 <= share - budget * size // counts.total <= 1


def test_greedy_and_the_optimum_agree_where_a_client_has_one_sample():
    counts = LabelCounts(np.eye(6, dtype=int))
    for budget in (1, 5, 30):
        greedy, best = Greedy(budget=budget).allocate(counts), Optimal(budget=budget).allocate(counts)
        assert greedy.total == best.total == budget
        assert exact_imbalance(counts, best) <= exact_imbalance(counts, greedy)
    assert exact_imbalance(counts, Greedy(budget=30).allocate(counts)) == 0


def test_the_share_removed_is_rational_arithmetics(counts):
    before = exact_imbalance(counts)
    plan = FedEAS(beta=12).allocate(counts)
    exact = 1 - exact_imbalance(counts, plan) / before if before else 0
    assert imbalance_removed(counts, plan) == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


def next_class_by_gain(row, real):
    """The class of largest gain and that gain, Eq. (gain) times N / 2, in rational numbers."""
    size, squares = sum(row), sum(count**2 for count in row)
    column = min(range(len(row)), key=lambda column: (row[column], column))
    return Fraction(real * (squares - row[column] * size), size**3), column


@pytest.mark.parametrize("budget", [1, 23, 60, 100])
def test_greedy_is_the_loop_over_samples_for_thousands_of_millions_of_them(budget):
    few = LARGE - np.array([[20, 11, 0], [0, 3, 3], [7, 7, 40]])
    plan = Greedy(budget=budget).allocate(LabelCounts(few))
    rows = few.tolist()
    for _ in range(budget):
        gains = [next_class_by_gain(row, sum(real)) for row, real in zip(rows, few.tolist(), strict=True)]
        client = max(range(len(rows)), key=lambda k: (gains[k][0], -k))
        rows[client][gains[client][1]] += 1
    assert plan.n.tolist() == (np.array(rows) - few).tolist()


@pytest.mark.parametrize("budget", [10, LARGE + 7, 3 * LARGE])
def test_the_optimum_of_thousands_of_millions_of_samples_is_certified(budget):
    counts = LabelCounts([[LARGE, 7, 0], [2 * 10**8, LARGE, LARGE], [5, 0, 10**6]])
    greedy, best = Greedy(budget=budget).allocate(counts), Optimal(budget=budget).allocate(counts)
    assert greedy.total == best.total == budget
    assert exact_imbalance(counts, best) <= exact_imbalance(counts, greedy) + Fraction(1, 10**15)
    assert best.gap < 1e-12


@pytest.mark.parametrize("price", [1e-9, 0.1, 0.9])
def test_the_best_at_a_price_is_within_a_sample_of_rational_arithmetics(price):
    counts = LabelCounts([[LARGE, 7, 0, LARGE // 10]])
    size = counts.total
    for have, made in zip(counts.n[0].tolist(), CostAware(price=price).allocate(counts).n[0].tolist(), strict=True):
        lack = max(Fraction(size, 4) - have, Fraction(0))

        def benefit(samples, lack=lack):
            worth = 4 * samples * lack**3 / (size * (lack + samples) ** 2) if lack else 0
            return worth - Fraction(price) * samples

        near = max(2, made // LARGE)
        assert benefit(made) >= max(benefit(max(made - near, 0)), benefit(made + near))


@pytest.mark.parametrize("name", ["a million million samples", "hundreds of millions of a class"])
def test_a_million_million_samples_are_planned_by_the_two_conditions(name):
    counts = LabelCounts(FEDERATIONS[name])
    plan = FedEAS(beta=select_beta(counts, min_removed=0.1).roundest).allocate(counts)
    assert 1 - exact_imbalance(counts, plan) / exact_imbalance(counts) >= Fraction(1, 10)
    assert Fraction(plan.total, counts.total + plan.total) < Fraction(1, 4)


def test_a_count_beyond_a_client_is_refused_and_a_total_beyond_64_bits_is_exact():
    with pytest.raises(InputError, match="too large"):
        LabelCounts([[10**14, 1]])
    huge = Allocation(np.full((10, 2), 2**61))
    assert huge.per_client[0] == 2**62
    assert huge.total == 10 * 2**62
