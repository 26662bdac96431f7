"""FedEAS: how much synthetic data each federated client needs, and where it should go.

>>> import fedeas
>>> counts = fedeas.LabelCounts([[900, 80, 20], [10, 300, 690]])
>>> plan = fedeas.plan(counts, beta=6)
>>> plan.n
array([[ 0,  0, 52],
       [33,  0,  0]])

`plan` decides how many images, `generate` makes them, `augment` joins them to a client's dataset, `run` trains a
federation, and `report` shows runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedeas.calls.plans import plan
from fedeas.core import VERSION
from fedeas.core.errors import FedEASError, InputError, PolicyError, SpecError, extra_for
from fedeas.planning.beta import (
    BetaForTotal,
    BetaInterval,
    BetaPath,
    beta_for_removed,
    beta_for_total,
    beta_path,
    images_for_share,
    images_in_minutes,
    select_beta,
    shortened_beta,
)
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.plan import Plan, Summary
from fedeas.planning.policies import (
    KL,
    AllocationPolicy,
    BySize,
    CertifiedAllocation,
    CostAware,
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
from fedeas.planning.scores import (
    accuracy_per_thousand,
    budget_path,
    budget_ratio,
    client_imbalance,
    concentration,
    heterogeneity_left,
    imbalance,
    imbalance_removed,
    imbalance_split,
    marginal_gain,
    synthetic_share,
)
from fedeas.planning.tables import read_allocation, read_counts, write_allocation, write_counts

if TYPE_CHECKING:
    from fedeas.calls.augmentation import Augmented as Augmented
    from fedeas.calls.augmentation import augment as augment
    from fedeas.calls.images import SyntheticImages as SyntheticImages
    from fedeas.calls.images import generate as generate
    from fedeas.calls.running import RunPlan as RunPlan
    from fedeas.calls.running import partition as partition
    from fedeas.calls.running import run as run
    from fedeas.views.report import report as report

__version__ = VERSION

__all__ = [
    "KL",
    "Allocation",
    "AllocationPolicy",
    "BetaForTotal",
    "BetaInterval",
    "BetaPath",
    "BySize",
    "CertifiedAllocation",
    "CostAware",
    "FedEAS",
    "FedEASError",
    "FullBalance",
    "Greedy",
    "InputError",
    "LabelCounts",
    "MissingOnly",
    "NoGeneration",
    "Optimal",
    "Plan",
    "Policy",
    "PolicyError",
    "Pool",
    "SpecError",
    "Summary",
    "Uniform",
    "accuracy_per_thousand",
    "beta_for_removed",
    "beta_for_total",
    "beta_path",
    "budget_path",
    "budget_ratio",
    "client_imbalance",
    "concentration",
    "heterogeneity_left",
    "images_for_share",
    "images_in_minutes",
    "imbalance",
    "imbalance_removed",
    "imbalance_split",
    "marginal_gain",
    "parse_policy",
    "plan",
    "read_allocation",
    "read_counts",
    "select_beta",
    "shortened_beta",
    "synthetic_share",
    "write_allocation",
    "write_counts",
]


_LAZY = {
    "Augmented": "calls.augmentation",
    "RunPlan": "calls.running",
    "SyntheticImages": "calls.images",
    "augment": "calls.augmentation",
    "generate": "calls.images",
    "partition": "calls.running",
    "report": "views.report",
    "run": "calls.running",
}
"""Names that are loaded on first use, and their modules: they need torch or matplotlib, which planning does not."""


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *_LAZY, "__version__"])


def __getattr__(name: str) -> Any:
    """Load what needs torch or matplotlib on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra_for(f"fedeas.{name}"):
        return getattr(import_module(f"fedeas.{_LAZY[name]}"), name)
