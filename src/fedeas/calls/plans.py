"""Plan from Python in one call, as ``fedeas plan`` does."""

import os

from fedeas.core.errors import InputError
from fedeas.core.spec import refuse_class
from fedeas.planning.counts import Table, as_counts
from fedeas.planning.plan import Plan
from fedeas.planning.policies import AllocationPolicy
from fedeas.planning.policies.base import checked_allocation, policy_name
from fedeas.planning.request import Limits, choose_policy
from fedeas.planning.tables import CountTable


def plan(
    counts: Table | str | os.PathLike[str],
    policy: AllocationPolicy | str = "fedeas",
    *,
    beta: float | None = None,
    total: int | None = None,
    auto: bool = False,
    minutes: float | None = None,
    images_per_second: float | None = None,
    max_share: float | None = None,
    min_removed: float | None = None,
) -> Plan:
    """Plan how many synthetic samples each client generates of each class, as ``fedeas plan`` does.

    Args:
        counts: label counts: a dictionary {client: {class: count}}, an array, nested lists, a pandas or Arrow table or
            `LabelCounts`; or, as on the command line, the path of a table or of a saved split (.npz), or a dataset with
            clients such as ``folder:DIR``.
        policy: a policy or its spec.
        beta: FedEAS's budget parameter.
        total: generate at most this many samples.
        auto: choose beta by the paper's two conditions, `min_removed` and `max_share`.
        minutes: generate for at most this long, at the rate `images_per_second`.
        images_per_second: see `minutes`.
        max_share: stay below this synthetic share.
        min_removed: remove this share of the imbalance.

    >>> plan([[900, 80, 20], [10, 300, 690]], beta=6)
    <fedeas(beta=6): 85 samples for 2 clients x 3 classes>
    >>> plan({"ann": {"cat": 900, "dog": 100}, "bob": {"dog": 500}}, total=50).allocation.row_of("bob")
    1
    """
    refuse_class(policy, "policy")
    if isinstance(counts, str | os.PathLike):
        from fedeas.calls.client_counts import own_clients  # loads pydantic, which plans of arrays do not need

        name = os.fspath(counts)
        if (own := own_clients(name)) is not None:
            table, how = own.counts, own.how
        else:
            file = CountTable(name)
            table, how = file.counts(), file.how
    else:
        table, how = as_counts(counts), ""
    limits = Limits(beta, total, minutes, images_per_second, auto, max_share, min_removed)
    if isinstance(policy, str):
        chosen: AllocationPolicy = choose_policy(policy, limits, table)
    elif not hasattr(policy, "allocate"):
        raise InputError(f"policy must be a policy or a spec such as 'fedeas(beta=12)', not {type(policy).__name__}")
    elif limits.given:
        raise InputError(f"{policy_name(policy)} has its parameters already; give limits with a spec such as 'fedeas'")
    else:
        chosen = policy
    return Plan(table, checked_allocation(chosen, chosen.allocate(table), table), chosen, how)
