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

# ruff: noqa: I001 (it would give each name with `as`, which marks it as public, a statement of its own)
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedeas.errors import (
    FedEASError as FedEASError,
    InputError as InputError,
    PolicyError as PolicyError,
    SpecError as SpecError,
)
from fedeas.planning.beta import (
    BetaForTotal as BetaForTotal,
    BetaInterval as BetaInterval,
    BetaPath as BetaPath,
    beta_for_removed as beta_for_removed,
    beta_for_total as beta_for_total,
    beta_path as beta_path,
    images_for_share as images_for_share,
    images_in as images_in,
    rounded_down as rounded_down,
    select_beta as select_beta,
)
from fedeas.planning.counts import Allocation as Allocation, LabelCounts as LabelCounts
from fedeas.planning.plan import Plan as Plan
from fedeas.planning.policies import (
    KL as KL,
    AllocationPolicy as AllocationPolicy,
    BySize as BySize,
    CertifiedAllocation as CertifiedAllocation,
    CostAware as CostAware,
    FedEAS as FedEAS,
    Feedback as Feedback,
    FullBalance as FullBalance,
    Greedy as Greedy,
    MissingOnly as MissingOnly,
    NoGeneration as NoGeneration,
    Optimal as Optimal,
    Policy as Policy,
    Pool as Pool,
    RoundBias as RoundBias,
    Uniform as Uniform,
    parse_policy as parse_policy,
)
from fedeas.planning.scores import (
    budget_path as budget_path,
    budget_ratio as budget_ratio,
    client_imbalance as client_imbalance,
    concentration as concentration,
    efficiency as efficiency,
    gain as gain,
    imbalance as imbalance,
    imbalance_split as imbalance_split,
    removed as removed,
    residual as residual,
    synthetic_share as synthetic_share,
)
from fedeas.planning.summary import Summary as Summary
from fedeas.planning.tables import (
    read_counts as read_counts,
    write_allocation as write_allocation,
    write_counts as write_counts,
)
from fedeas.plans import plan as plan

if TYPE_CHECKING:
    from fedeas import report as report
    from fedeas.augmentation import Augmented as Augmented, augment as augment
    from fedeas.generation import SyntheticImages as SyntheticImages, generate as generate
    from fedeas.running import run as run

__version__ = "0.1.0"

__all__ = sorted(name for name, value in vars().items() if getattr(value, "__module__", "").startswith("fedeas."))
"""The names above that come from the package's modules."""

_LAZY = {
    "Augmented": "augmentation",
    "SyntheticImages": "generation",
    "augment": "augmentation",
    "generate": "generation",
    "run": "running",
}
"""Names that are loaded on first use, and their modules: they need torch, which planning does not."""


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *_LAZY, "__version__", "report"])


def __getattr__(name: str) -> Any:
    """Load what needs torch or matplotlib on first use."""
    if name == "report":
        return import_module("fedeas.report")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedeas.data.cache import train_extra

    with train_extra():
        return getattr(import_module(f"fedeas.{_LAZY[name]}"), name)
