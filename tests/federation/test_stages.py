"""A run in stages: what each stage starts from and spends."""

import numpy as np
import pytest

from fedeas import Feedback, InputError, parse_policy
from fedeas.config import checked_config
from fedeas.federation.pretraining import last_model
from fedeas.federation.stages import execute_in_stages, most_stages, recall_on_held_out
from fedeas.planning.policies.feedback import as_text
from fedeas.runs.store import RunStore


def config(**changed):
    content = {
        "policy": "fedeas(beta=2)",
        "generator": "gaussian",
        "data": {"dataset": "digits", "held_out": 50},
        "partition": {"scheme": "dirichlet", "clients": 6, "alpha": 0.3},
        "model": {"name": "small-cnn"},
        "train": {"epochs": 1, "lr": 0.05},
        "rounds": {"total": 4, "participation": 0.5},
    }
    return checked_config({**content, **changed})


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return execute_in_stages(config(), RunStore(tmp_path_factory.mktemp("runs")), 2)


def test_all_stages_together_spend_the_budget_and_keep_what_was_placed(stages):
    (counts, first), (_, second) = (run.allocation() for run in stages)
    assert (second.n >= first.n).all()
    assert second.total == parse_policy("fedeas(beta=2)").allocate(counts).total


def test_a_stage_is_planned_by_the_recall_of_the_stage_before(stages):
    recall = recall_on_held_out(stages[0])
    given = [float(word) for word in parse_policy(stages[1].config.policy).recall.split()]
    assert given == pytest.approx(recall, abs=1e-3)


def test_a_stage_starts_from_the_model_of_the_stage_before(stages):
    import safetensors.torch

    start = safetensors.torch.load_file(stages[1].config.model.weights)
    for name, tensor in last_model(stages[0]).items():
        assert np.array_equal(start[name].numpy(), tensor.numpy())


def test_stages_again_are_the_finished_ones(stages):
    again = execute_in_stages(config(), RunStore(stages[0].path.parent), 2)
    assert [run.path for run in again] == [run.path for run in stages]


def test_without_held_out_images_there_is_no_feedback(tmp_path):
    with pytest.raises(InputError, match=r"data\.held_out"):
        execute_in_stages(config(data={"dataset": "digits"}), RunStore(tmp_path), 2)


def test_rounds_that_cannot_be_divided_are_refused(tmp_path):
    with pytest.raises(InputError, match="multiple of 3 stages"):
        execute_in_stages(config(), RunStore(tmp_path), 3)


@pytest.mark.parametrize("stages", [1.5, 2.0, 0, -1, True, "2", None])
def test_a_number_of_stages_that_is_no_number_is_refused_before_anything_else(tmp_path, stages):
    with pytest.raises(InputError, match=f"stages must be a whole number, 1 or more, not {stages!r}"):
        execute_in_stages(config(data={"dataset": "digits"}, rounds={"total": 6}), RunStore(tmp_path), stages)


@pytest.mark.parametrize("one", [1, np.int64(1)])
def test_a_single_stage_is_greedy_towards_the_target_of_the_policy(tmp_path, one):
    policy = "greedy(budget=30, target=global)"
    short = config(policy=policy, train={"steps": 1}, rounds={"total": 1})
    (run,) = execute_in_stages(short, RunStore(tmp_path), one)
    counts, plan = run.allocation()
    assert np.array_equal(plan.n, parse_policy(policy).allocate(counts).n)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": "pool(distinct=50)", "generator": "shared(of=gaussian)"}, "pool .* distinct images"),
        ({"policy": "no-generation"}, "no-generation generates no images"),
        ({"partition": {"scheme": "iid", "clients": 2}, "policy": "fedeas(beta=0.1)"}, "generates no images"),
        ({"rounds": {"total": 101}}, "choose at most 100"),
    ],
)
def test_what_cannot_be_spent_in_stages_is_refused_before_the_first(tmp_path, changed, message):
    chosen = config(**changed)
    with pytest.raises(InputError, match=message):
        execute_in_stages(chosen, RunStore(tmp_path / "runs"), 101 if "rounds" in changed else 2)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("classes", [2, 100, 1000])
def test_the_policy_of_the_last_stage_can_be_read_whatever_the_recalls(classes):
    policy, recall = Feedback(budget=10**9), as_text([1.23456e-4] * classes)
    for _ in range(1, most_stages(10**9, classes)):
        policy = Feedback(budget=10**9, recall=recall, after=policy)
    assert parse_policy(policy.spec) == policy
