"""One pool for all clients: no pool of as many images is placed more often, and its size is what a run makes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import label_counts

from fedeas import FedEAS, FullBalance, LabelCounts, PolicyError, Pool
from fedeas.planning.policies import SharedAllocation
from reproduction.published import example_counts

fills = st.sampled_from(["mean", "max"])


@given(label_counts(max_clients=4, max_classes=3, max_count=6), fills, st.integers(0, 9))
def test_no_pool_of_as_many_images_is_placed_more_often(counts, fill, images):
    policy = Pool(distinct=images, fill=fill)
    lacking = policy.lacking(counts)
    pools = (sizes for sizes in product(range(images + 1), repeat=counts.num_classes) if sum(sizes) <= images)
    assert policy.allocate(counts).total == max(int(np.minimum(lacking, sizes).sum()) for sizes in pools)


@given(label_counts(), fills, st.integers(0, 300))
def test_it_makes_its_images_unless_clients_lack_fewer(counts, fill, images):
    policy = Pool(distinct=images, fill=fill)
    plan = policy.allocate(counts)
    assert plan.generated == plan.distinct == min(images, int(policy.lacking(counts).max(axis=0).sum()))
    assert (plan.n <= policy.lacking(counts)).all()


@given(label_counts(), fills, st.integers(0, 60), st.integers(0, 60))
def test_a_larger_pool_takes_nothing_away(counts, fill, images, more):
    small, large = (Pool(distinct=size, fill=fill).allocate(counts).n for size in (images, images + more))
    assert (small <= large).all()


@given(label_counts())
def test_a_large_pool_filled_to_the_largest_class_is_full_balance(counts):
    everything = Pool(distinct=FullBalance(), fill="max").allocate(counts)
    assert np.array_equal(everything.n, FullBalance().allocate(counts).n)


def test_images_that_serve_equally_many_clients_are_spread_over_classes():
    counts = LabelCounts([[30, 0, 0, 0], [0, 30, 30, 30]])
    assert Pool(distinct=8).allocate(counts).n.tolist() == [[0, 2, 2, 2], [2, 0, 0, 0]]


def test_at_the_budget_of_fedeas_a_pool_makes_fewer_images_and_removes_more():
    counts = example_counts()
    ours, pool = FedEAS(12).allocate(counts), Pool(distinct=FedEAS(12)).allocate(counts)
    assert isinstance(pool, SharedAllocation)
    assert pool.generated < ours.generated == ours.total < pool.total


@pytest.mark.parametrize("wrong", [{"distinct": -1}, {"distinct": 1.5}, {"distinct": 3, "fill": "all"}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(PolicyError):
        Pool(**wrong)
