"""Checks for parts of one's own: each raises an AssertionError that names the law that does not hold.

>>> from fedeas import FedEAS
>>> check_policy(FedEAS(beta=4))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedeas.core.arrays import IntArray
from fedeas.core.errors import InputError, PolicyError
from fedeas.generators.base import Generator, image_index
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import AllocationPolicy, Policy, parse_policy
from fedeas.planning.policies.base import samples_in

if TYPE_CHECKING:
    from fedeas.algorithms import FedAvg

__all__ = ["check_algorithm", "check_generator", "check_policy"]


def check_algorithm(algorithm: FedAvg) -> None:
    """Check that an algorithm keeps the laws that runs rely on, on three clients of a small model; needs torch."""
    from fedeas.testing.algorithms import check_algorithm as check

    check(algorithm)


def check_generator(generator: Generator, count: int = 12) -> None:
    """Check that a generator makes uint8 images of its shape, each a function of its address alone.

    Args:
        generator: what is checked; a function of one's own becomes one through `fedeas.generators.custom.load_custom`.
        count: how many images are drawn, several times each.
    """
    assert hasattr(generator, "sample"), "no generator; of a function, fedeas.generators.custom.load_custom makes one"
    rng = np.random.default_rng(0)
    labels = rng.integers(0, generator.num_classes, count)
    index = image_index(client=3, count=count)
    images = _drawn(generator, labels, index)
    again = _drawn(generator, labels, index)
    assert np.array_equal(again, images), "images differ when the same addresses are drawn twice"
    backwards = _drawn(generator, labels[::-1].copy(), index[::-1].copy())
    assert np.array_equal(backwards[::-1], images), "images differ when the addresses come in another order"
    for place in (0, count - 1):
        alone = _drawn(generator, labels[[place]], index[[place]])
        address = f"label {labels[place]} and index {index[place]}"
        assert np.array_equal(alone[0], images[place]), f"{address}: the image differs when it is drawn alone"
    for label in (-1, generator.num_classes):
        try:
            generator.sample(np.array([label]), image_index(client=0, count=1))
        except InputError:
            continue
        raise AssertionError(f"label {label} is not refused, but there are {generator.num_classes} classes")
    assert len(generator.fingerprint) >= 16, "fingerprint must be a hash of what determines the images"
    assert generator.batch_size >= 1, f"batch_size is {generator.batch_size}; it must be 1 or more"


def _drawn(generator: Generator, labels: IntArray, index: IntArray) -> NDArray[np.uint8]:
    images = generator.sample(labels, index)
    wanted = (labels.size, *generator.shape)
    assert isinstance(images, np.ndarray), f"sample must give an array, not {type(images).__name__}"
    assert images.dtype == np.uint8, f"images must be uint8, not {images.dtype}"
    assert images.shape == wanted, f"images must be {wanted}, not {images.shape}"
    return images


TABLES = 12


def check_policy(policy: AllocationPolicy) -> None:
    """Check that a policy keeps the laws that plans and runs rely on.

    It gives an `Allocation` of the shape of the counts, the same each time, and leaves the counts as they are. If it
    says that it is local, a client's row depends on that client alone. If it has a `budget`, it spends it exactly. If
    it has a spec, the spec is read back. A `PolicyError` says that counts leave no room for a budget; such tables are
    passed over.
    """
    assert isinstance(getattr(policy, "is_local", None), bool), "is_local must be True or False"
    if isinstance(policy, Policy) and "<locals>" not in type(policy).__qualname__:  # else its name cannot be found
        assert parse_policy(policy.spec) == policy, f"the spec {policy.spec!r} is not read back as the same policy"
    checked = 0
    for counts in tables():
        try:
            plan = policy.allocate(counts)
        except PolicyError:
            continue
        except InputError as error:
            raise AssertionError(f"allocate fails for the counts {counts.n.tolist()}: {error}") from error
        checked += 1
        table = f"for the counts {counts.n.tolist()}"
        assert isinstance(plan, Allocation), f"allocate must give an Allocation, not {type(plan).__name__}"
        assert plan.n.shape == counts.n.shape, f"the allocation is {plan.n.shape} for counts of {counts.n.shape}"
        assert plan.n.min() >= 0, f"negative numbers of samples {table}"
        again = policy.allocate(LabelCounts(counts.n.copy()))
        assert np.array_equal(plan.n, again.n), f"two allocations differ {table}"
        budget = getattr(policy, "budget", None)
        if isinstance(budget, int | np.integer | Policy):
            wanted = samples_in(budget, [counts])  # type: ignore[arg-type]
            assert plan.total == wanted, f"{plan.total} samples are spent of a budget of {wanted}, {table}"
        for client in range(len(counts)) if policy.is_local else ():
            alone, row = policy.allocate(counts[[client]]).n[0], plan.n[client]
            rows = f"client {client} gets {row.tolist()} among the others, {alone.tolist()} alone"
            assert np.array_equal(row, alone), f"is_local, but {rows}, {table}"
    assert checked, "the policy refuses every table of counts"


def tables() -> Iterator[LabelCounts]:
    """Small tables: skewed ones of several sizes, a balanced one, one client, one class each."""
    rng = np.random.default_rng(0)
    for number in range(TABLES):
        clients, classes = 1 + number % 5, 2 + number % 4
        n = rng.integers(0, 40, (clients, classes)) * (rng.random((clients, classes)) < 0.6)
        n[np.arange(clients), rng.integers(0, classes, clients)] += 1  # no client is empty
        yield LabelCounts(n)
    yield LabelCounts(np.full((3, 4), 7))
    yield LabelCounts([[10, 0]])
    yield LabelCounts(np.diag([5, 1, 30]))
