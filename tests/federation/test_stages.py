"""A run in stages: what each stage starts from and spends."""

import numpy as np
import pytest

from fedeas import InputError, parse_policy
from fedeas.config import checked_config
from fedeas.federation.pretraining import last_model
from fedeas.federation.stages import recall_on_held_out, run_in_stages
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
    return run_in_stages(config(), RunStore(tmp_path_factory.mktemp("runs")), 2)


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
    again = run_in_stages(config(), RunStore(stages[0].path.parent), 2)
    assert [run.path for run in again] == [run.path for run in stages]


def test_without_held_out_images_there_is_no_feedback(tmp_path):
    with pytest.raises(InputError, match=r"data\.held_out"):
        run_in_stages(config(data={"dataset": "digits"}), RunStore(tmp_path), 2)


def test_rounds_that_cannot_be_divided_are_refused(tmp_path):
    with pytest.raises(InputError, match="multiple of 3 stages"):
        run_in_stages(config(), RunStore(tmp_path), 3)
