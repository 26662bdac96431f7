"""Greedy with feedback: the next part of a budget goes where the model is still weak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedeas.core.arrays import FloatArray
from fedeas.core.errors import PolicyError
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies.base import Policy, samples_in
from fedeas.planning.policies.baselines import Budgeted, NoGeneration
from fedeas.planning.policies.greedy import one_by_one
from fedeas.planning.policies.targets import Target, target_shares
from fedeas.planning.policies.waterfill import check_searchable

NOTHING = NoGeneration()

LEAST_IMPORTANCE = 0.01
"""What a sample of a class counts if all samples of the class are recognised already."""


@dataclass(frozen=True)
class Feedback(Budgeted):
    """Place each sample where its gain, Eq. (gain), times 1 - recall of its class is largest.

    A run in stages gives each stage a part of the budget, measures recall on images at the server that no client has,
    and spends the next part by it (`fedeas.run_in_stages`). Without recalls this is Greedy.

    Args:
        budget: samples to spend in this stage.
        recall: recall of each class so far, numbers from 0 to 1 with spaces between.
        after: the plan of the stages before, whose samples are kept.
        target: the shares that each client should have, as for Greedy.

    >>> Feedback(budget=4, recall="0.9 0.9 0.1").allocate(LabelCounts([[6, 1, 1], [2, 2, 1]])).n
    array([[0, 0, 3],
           [0, 0, 1]])
    """

    recall: str = ""
    after: Policy = NOTHING
    target: Target = "uniform"
    description: ClassVar[str] = "One image after the other where it helps most and the model is still weak."

    def __post_init__(self) -> None:
        super().__post_init__()
        _importance(self.recall)
        if not isinstance(self.after, Policy):
            raise PolicyError(f"after must be a policy, not {self.after!r}")

    def allocate(self, counts: LabelCounts) -> Allocation:
        """Spend this stage's budget on top of the plan before."""
        total, before = samples_in(self.budget, counts), self.after.allocate(counts)
        check_searchable(total)
        importance = _importance(self.recall)
        if importance is not None and len(importance) != counts.num_classes:
            raise PolicyError(
                f"recall has {len(importance)} numbers for {counts.num_classes} classes; give one for each"
            )
        shares = target_shares(counts, self.target)
        return Allocation(before.n + one_by_one(counts, shares, total, before.n, importance), self.spec)


def as_text(recall: Sequence[float | None]) -> str:
    """Recalls for a spec; a class that was not measured has 0.

    >>> as_text([0.5, None, 1.0])
    '0.5 0 1'
    """
    return " ".join(f"{each or 0:.3g}" for each in recall)


def _importance(recall: str) -> FloatArray | None:
    """1 - recall of each class; None if no recall is given."""
    try:
        numbers = np.array([float(word) for word in recall.split()])
    except ValueError:
        numbers = np.array([np.nan])
    if not ((numbers >= 0) & (numbers <= 1)).all():
        raise PolicyError(f"recall must be numbers from 0 to 1 with spaces between, not {recall!r}")
    return np.maximum(1 - numbers, LEAST_IMPORTANCE) if numbers.size else None
