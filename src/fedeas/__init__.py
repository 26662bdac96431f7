"""FedEAS: how much synthetic data each federated client needs, and where it should go.

>>> import fedeas
>>> counts = fedeas.LabelCounts([[900, 80, 20], [10, 300, 690]])
>>> plan = fedeas.FedEAS(beta=6).allocate(counts)
>>> plan.n
array([[ 0,  0, 52],
       [33,  0,  0]])
"""

from typing import TYPE_CHECKING, Any

from fedeas.errors import FedEASError, InputError, PolicyError, SpecError
from fedeas.planning.beta import (
    BetaForTotal,
    BetaInterval,
    BetaPath,
    beta_for_removed,
    beta_for_total,
    beta_path,
    images_for_share,
    images_in,
    rounded_down,
    select_beta,
)
from fedeas.planning.counts import Allocation, LabelCounts
from fedeas.planning.policies import (
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
    Uniform,
    parse_policy,
)
from fedeas.planning.scores import (
    budget_path,
    budget_ratio,
    client_imbalance,
    concentration,
    efficiency,
    gain,
    imbalance,
    imbalance_split,
    removed,
    residual,
    synthetic_share,
)
from fedeas.planning.summary import Summary
from fedeas.planning.tables import read_counts, write_allocation, write_counts

if TYPE_CHECKING:
    from fedeas.augmentation import Augmented as Augmented
    from fedeas.augmentation import augment as augment

__version__ = "0.1.0"

__all__ = [
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
    "Policy",
    "PolicyError",
    "SpecError",
    "Summary",
    "Uniform",
    "beta_for_removed",
    "beta_for_total",
    "beta_path",
    "budget_path",
    "budget_ratio",
    "client_imbalance",
    "concentration",
    "efficiency",
    "gain",
    "images_for_share",
    "images_in",
    "imbalance",
    "imbalance_split",
    "parse_policy",
    "read_counts",
    "removed",
    "residual",
    "rounded_down",
    "select_beta",
    "synthetic_share",
    "write_allocation",
    "write_counts",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "Augmented", "__version__", "augment"])


def __getattr__(name: str) -> Any:
    """Load `augment` and `Augmented` on first use: they need torch, which planning does not."""
    if name not in ("Augmented", "augment"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedeas.data.cache import train_extra

    with train_extra():
        from fedeas import augmentation
    return getattr(augmentation, name)
