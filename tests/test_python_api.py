"""plan, generate, run and report, from Python."""

import numpy as np
import pandas as pd
import pytest

import fedeas
from fedeas.calls.running import with_settings
from fedeas.config import RunConfig
from fedeas.core.errors import InputError
from fedeas.planning.policies import POLICIES

TABLE = [[900, 80, 20], [10, 300, 690]]
FRAME = pd.DataFrame(TABLE, index=["ann", "<b>"], columns=["cat", "dog", "fox"])


@pytest.mark.parametrize("counts", [TABLE, np.array(TABLE), FRAME, fedeas.LabelCounts(TABLE)])
def test_whatever_holds_counts_is_planned(counts):
    assert np.array_equal(fedeas.plan(counts, beta=6).n, fedeas.FedEAS(beta=6).allocate(TABLE).n)


def test_a_file_is_planned(tmp_path):
    FRAME.to_csv(tmp_path / "counts.csv")
    found = fedeas.plan(tmp_path / "counts.csv", total=50)
    assert found.total <= 50
    assert found.counts.clients == ("ann", "<b>")


def test_names_are_in_every_form_of_a_plan(tmp_path):
    plan = fedeas.plan(FRAME, beta=6)
    assert plan.to_frame().loc["ann", "fox"] == plan.n[0, 2]
    assert plan.summary.most.client == "ann"
    html = plan._repr_html_()
    assert all(part in html for part in ("&lt;b&gt;", "cat", "<td>52</td>"))
    assert "<b>" not in html
    plan.save(tmp_path / "plan.parquet")
    assert fedeas.generate(tmp_path / "plan.parquet", paint, shape=(1, 2, 2)).plan.clients == ("ann", "<b>")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_saved_plan_is_read_back_with_its_names(tmp_path, ending):
    plan = fedeas.plan(FRAME, beta=6)
    plan.save(tmp_path / f"plan.{ending}")
    again = fedeas.read_allocation(tmp_path / f"plan.{ending}")
    assert again.to_frame().equals(plan.to_frame())


def paint(labels, index):
    return np.broadcast_to(labels.astype(np.uint8)[:, None, None, None], (len(labels), 1, 2, 2))


def test_a_policy_without_its_budget_takes_the_limit_whatever_else_it_sets():
    plan = fedeas.plan(TABLE, "kl(smoothing=2)", total=30)
    assert np.array_equal(plan.n, fedeas.KL(budget=30, smoothing=2).allocate(TABLE).n)


def test_a_policy_with_its_parameters_takes_no_limits():
    assert fedeas.plan(TABLE, fedeas.FullBalance()).policy == fedeas.FullBalance()
    with pytest.raises(InputError, match="has its parameters already"):
        fedeas.plan(TABLE, fedeas.FedEAS(3), total=5)


class OneOfEach:
    """A policy of a user's own with no more than the protocol asks for."""

    is_local = True

    def allocate(self, counts):
        return fedeas.Allocation(np.ones_like(counts.n))


def test_a_policy_without_a_spec_is_planned_and_shown():
    plan = fedeas.plan({"ann": {"cat": 9, "dog": 1}}, OneOfEach())
    assert isinstance(plan.policy, fedeas.AllocationPolicy)
    assert "OneOfEach: 2 samples" in repr(plan)
    assert "OneOfEach" in plan._repr_html_()
    assert plan.allocation.row_of("ann") == 0
    with pytest.raises(InputError, match="OneOfEach has its parameters already"):
        fedeas.plan(TABLE, OneOfEach(), total=5)


def test_the_answer_of_a_policy_without_a_spec_is_checked(monkeypatch):
    monkeypatch.setattr(OneOfEach, "allocate", lambda self, counts: fedeas.Allocation([[1]]))
    with pytest.raises(InputError, match="OneOfEach: the allocation is"):
        fedeas.plan(TABLE, OneOfEach())


@pytest.mark.parametrize("policy", [*POLICIES.values(), 3, None])
def test_what_is_no_policy_with_its_parameters_is_refused(policy):
    with pytest.raises(InputError, match="policy"):
        fedeas.plan(TABLE, policy)


def test_a_large_plan_is_cut_off_in_a_notebook():
    html = fedeas.plan(np.ones((500, 3), int) + np.eye(500, 3, dtype=int), beta=1)._repr_html_()
    assert html.count("<tr>") < 40
    assert "500 rows" in html


def test_settings_replace_values_of_a_config():
    config = with_settings(RunConfig(), {"train__lr": 0.5, "policy": "full-balance"})
    assert (config.train.lr, config.policy) == (0.5, "full-balance")
    for name in ("train__rl", "trains__lr", "policies"):
        with pytest.raises(InputError, match=r"unknown key|no section"):
            with_settings(RunConfig(), {name: 1})


def test_a_section_as_a_dictionary_keeps_the_values_that_it_leaves_out():
    before = RunConfig(train={"batch_size": 16, "epochs": 7})
    config = with_settings(before, {"train": {"lr": 0.5}})
    assert (config.train.lr, config.train.batch_size, config.train.epochs) == (0.5, 16, 7)


def test_a_run_takes_a_plan_or_a_policy(tmp_path):
    with pytest.raises(fedeas.InputError, match="not both"):
        fedeas.run(runs=tmp_path, plan=fedeas.plan(TABLE, beta=6), policy="full-balance")


def test_runs_start_from_a_dictionary_a_file_or_a_config(tmp_path):
    small = {"rounds": {"total": 1}, "partition": {"clients": 3}, "train": {"steps": 1}, "engine": {"threads": 1}}
    lines = [f"[{section}]\n{key} = {value}" for section, entry in small.items() for key, value in entry.items()]
    (tmp_path / "run.toml").write_text("\n".join(lines))
    seen = []
    first = fedeas.run(small, runs=tmp_path / "runs", on_round=seen.append)
    assert [record["round"] for record in seen] == [1]
    for config in (tmp_path / "run.toml", first.config):
        assert fedeas.run(config, runs=tmp_path / "runs").path == first.path
    assert first.allocation()[0].classes == tuple("0123456789")
    frame = first.to_frame()
    assert frame.loc[1, "accuracy"] == seen[0]["accuracy"]
    page = fedeas.report(first.path, tmp_path / "report.html")
    assert page.read_text().startswith("<!")


def test_a_run_takes_the_policy_of_a_plan_for_its_own_clients(tmp_path):
    small = {"rounds": {"total": 1}, "partition": {"clients": 3}, "train": {"steps": 1}, "engine": {"threads": 1}}
    first = fedeas.run(small, runs=tmp_path, policy="no-generation")
    plan = fedeas.plan(first.allocation()[0], beta=2)
    run = fedeas.run({**small, "generator": "gaussian"}, runs=tmp_path, plan=plan)
    assert np.array_equal(run.allocation()[1].n, plan.n)
    with pytest.raises(InputError, match="the plan is for other counts"):
        fedeas.run(small, runs=tmp_path, plan=fedeas.plan(TABLE, beta=6))


def test_public_names_are_shown_and_work():
    assert {"plan", "generate", "run", "report", "augment"} <= set(dir(fedeas))
    assert not {"planning", "core", "import_module"} & set(dir(fedeas))
    for name in dir(fedeas):
        assert getattr(fedeas, name) is not None


def test_a_file_is_planned_and_says_how_it_was_read(tmp_path):
    (tmp_path / "counts.csv").write_text("client,label,count\nann,cat,9\nann,dog,1\nbob,dog,7\n")
    plan = fedeas.plan(tmp_path / "counts.csv", total=5)
    assert plan.counts.n.tolist() == [[9, 1], [0, 7]]
    assert "'count'" in plan.how
    assert fedeas.plan(TABLE).how == ""
