"""The demo compares policies at equal work."""

from fedeas.cli.demo import BASE, demo_configs
from fedeas.data.sources import load_dataset
from fedeas.federation.split import split_data
from fedeas.planning.policies import parse_policy


def test_policies_do_the_same_work_on_the_same_clients_and_three_share_one_total():
    configs = list(demo_configs(2))
    assert len(configs) == 10
    assert all(config.train.steps > 0 for config in configs)
    apart = {"label", "policy", "seed"}
    assert len({config.model_copy(update={name: getattr(BASE, name) for name in apart}) for config in configs}) == 1
    counts = split_data(BASE, load_dataset("digits")).counts
    totals = {config.label: parse_policy(config.policy).allocate(counts).total for config in configs}
    assert totals["uniform"] == totals["missing-only"] == totals["fedeas"] > totals["fedavg"] == 0
    assert totals["full-balance"] > totals["fedeas"]
