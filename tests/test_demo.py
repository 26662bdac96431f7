"""The demo compares policies at equal work, and states only what the intervals support."""

import pytest

from fedeas.cli.demo import BASE, conclude, demo_configs
from fedeas.data.sources import load_dataset
from fedeas.federation.split import split_data
from fedeas.planning.policies import parse_policy
from fedeas.runs.store import RunStore

WOBBLE = (0.0, 0.01, -0.01)


@pytest.fixture
def finished(tmp_path):
    """Finished runs of a method: their accuracies by seed, and the round in which each reached the threshold."""

    def make(label, accuracies, reached):
        runs = []
        for seed, (accuracy, rounds) in enumerate(zip(accuracies, reached, strict=True)):
            run = RunStore(tmp_path).open(BASE.model_copy(update={"label": label, "seed": seed}))
            summary = {"accuracy": accuracy, "window": [37, 40], "rounds_to_threshold": rounds}
            run.write_json("summary.json", summary)
            runs.append(run)
        return runs

    return make


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


def test_each_method_is_named_in_the_sentence_that_its_differences_support(finished):
    steady = [0.9 + step for step in WOBBLE]
    runs = [
        *finished("fedeas", steady, (20, 21, 22)),
        *finished(
            "fedavg", [value - 0.05 - step / 9 for value, step in zip(steady, WOBBLE, strict=True)], (30, 32, 33)
        ),
        *finished("uniform", [0.9 - step for step in WOBBLE], (20, 22, 21)),
        *finished(
            "full-balance",
            [value + 0.05 + step / 9 for value, step in zip(steady, WOBBLE, strict=True)],
            (10, 11, None),
        ),
    ]
    accuracy, speed = conclude(runs).splitlines()
    assert "rounds 37-40" in accuracy
    assert named(accuracy) == [{"fedavg"}, {"full-balance"}, {"uniform"}]  # higher than, lower than, no difference
    assert named(speed) == [{"fedavg"}, {"uniform"}, {"full-balance"}]  # fewer rounds, no difference, not reached


def test_one_seed_concludes_nothing(finished):
    text = conclude([*finished("fedeas", [0.9], [20]), *finished("fedavg", [0.5], [40])])
    assert "higher" not in text
    assert "fewer" not in text


def named(text):
    """The methods other than FedEAS in each sentence."""
    labels = {"fedavg", "uniform", "full-balance"}
    return [set(sentence.replace(",", "").split()) & labels for sentence in text.rstrip(".").split(". ")]
