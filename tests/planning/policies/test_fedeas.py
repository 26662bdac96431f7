"""The paper's rule against its equations, written out in 60 digits."""

from decimal import ROUND_FLOOR, Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import dirichlet_counts, label_counts

from fedeas import FedEAS, LabelCounts, PolicyError
from fedeas.core import arrays


def exact_budget(row, beta, gamma=Decimal("0.5"), entropy=True):
    """b_k by Eq. (cap); a value within 1e-40 of a whole number is that number."""
    with localcontext() as context:
        context.prec = 60
        size, classes = Decimal(sum(row)), len(row)
        bits = -sum(Decimal(c) / size * (Decimal(c) / size).ln() for c in row if c)
        skew = 1 - bits / Decimal(classes).ln() if entropy else Decimal(1)
        level = (size / classes) ** gamma * skew * Decimal(repr(beta))
        nearest = level.to_integral_value()
        return int(nearest if abs(level - nearest) < Decimal("1e-40") else level.to_integral_value(ROUND_FLOOR))


@given(label_counts(max_count=5000), st.one_of(st.integers(1, 50), st.sampled_from([0.1, 0.3, 0.6, 1.1, 2.3, 7.7])))
def test_budgets_equal_the_equation_in_sixty_digits(counts, beta):
    budgets = FedEAS(beta).budgets(counts)
    assert budgets.tolist() == [exact_budget(row, beta) for row in counts.n.tolist()]


@given(label_counts(max_count=5000), st.integers(1, 20))
def test_both_ablations_equal_the_equation(counts, beta):
    rows = counts.n.tolist()
    without = FedEAS(beta, entropy=False).budgets(counts)
    linear = FedEAS(beta, gamma=1).budgets(counts)
    assert without.tolist() == [exact_budget(row, beta, entropy=False) for row in rows]
    assert linear.tolist() == [exact_budget(row, beta, gamma=Decimal(1)) for row in rows]


@given(st.integers(1, 300), st.integers(2, 20), st.integers(1, 40))
def test_whole_numbers_before_the_floor_stay_whole(root, classes, beta):
    """A one-class client of size C m^2 has b = m beta exactly; an epsilon in the logarithm would lose one."""
    row = [classes * root**2] + [0] * (classes - 1)
    assert FedEAS(beta).budgets(LabelCounts([row]))[0] == root * beta


@given(st.integers(2, 12), st.integers(1, 50), st.integers(1, 40))
def test_whole_numbers_from_halved_entropy_stay_whole(base, root, beta):
    """`base` of base^2 classes held equally: normalised entropy one half, up to rounding, times sqrt of a square."""
    each = 4 * base * root**2
    row = [each] * base + [0] * (base**2 - base)
    assert FedEAS(beta).budgets(LabelCounts([row]))[0] == root * beta


@given(label_counts(), st.integers(1, 40))
def test_only_classes_below_the_budget_and_the_mean_are_filled(counts, beta):
    policy = FedEAS(beta)
    budgets = policy.budgets(counts)[:, None]
    filled = counts.plus(policy.allocate(counts)).n
    below_mean = counts.n * counts.num_classes < counts.sizes[:, None]
    assert np.array_equal(filled, np.where(below_mean & (counts.n < budgets), budgets, counts.n))


@given(label_counts(), st.integers(1, 40))
def test_as_printed_fills_every_class_below_the_budget(counts, beta):
    policy = FedEAS(beta, fill="all")
    filled = counts.plus(policy.allocate(counts)).n
    assert np.array_equal(filled, np.maximum(counts.n, policy.budgets(counts)[:, None]))


@given(label_counts(), st.floats(0.1, 30), st.floats(1, 3))
def test_a_larger_beta_never_generates_less(counts, beta, factor):
    assert (FedEAS(beta * factor).allocate(counts).n >= FedEAS(beta).allocate(counts).n).all()


def test_a_budget_below_one_generates_nothing():
    counts = LabelCounts([[6, 2, 1]])
    assert FedEAS(1).scale(counts)[0] < 1
    assert FedEAS(1).allocate(counts).total == 0


@pytest.mark.parametrize("threaded_cells", [1, 10**9])
def test_blocks_and_threads_do_not_change_the_result(monkeypatch, threaded_cells):
    counts = dirichlet_counts(500, 10, 0.1, 400)
    whole = FedEAS(12).allocate(counts).n
    monkeypatch.setattr(arrays, "BLOCK_CELLS", 30)
    monkeypatch.setattr(arrays, "THREADED_CELLS", threaded_cells)
    monkeypatch.setattr(arrays, "cores", lambda: 3)
    assert np.array_equal(FedEAS(12).allocate(LabelCounts(counts.n)).n, whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 0}, "beta must be a finite number above 0, not 0"),
        ({"beta": -1.5}, "beta must be a finite number above 0, not -1.5"),
        ({"beta": float("nan")}, "beta must be a finite number above 0, not nan"),
        ({"beta": float("inf")}, "beta must be a finite number above 0, not inf"),
        ({"beta": "12"}, "beta must be a finite number above 0, not '12'"),
        ({"beta": True}, "beta must be a finite number above 0, not True"),
        ({"gamma": -1}, "gamma must be a finite number, 0 or more, not -1"),
        ({"entropy": 1}, "entropy must be true or false, not 1"),
        ({"fill": "some"}, "fill must be 'below-mean' or 'all', not 'some'"),
    ],
)
def test_hyperparameters_out_of_range_are_refused(arguments, message):
    with pytest.raises(PolicyError) as caught:
        FedEAS(**arguments)
    assert str(caught.value) == message
