"""The experiment beyond the paper: every method at the budget of FedEAS, on the same clients."""

import numpy as np
import pytest

from fedeas.planning.scores import synthetic_share
from reproduction.artefacts import artefacts
from reproduction.beyond import (
    ASIDE,
    DISJOINT,
    GAUSSIAN,
    GENERATED,
    LARGEST,
    REAL,
    WHOLE,
    comparisons_in,
    sheets_in,
)
from reproduction.published import setting
from reproduction.studies import HEADLINE, PROFILES, plan_of, study

(BEYOND,) = artefacts("beyond")
CLEAN = ("clean", "clean")


@pytest.mark.parametrize("protocol", ["clean", "paper"])
@pytest.mark.parametrize("profile", [pytest.param("digits", marks=pytest.mark.slow), "smoke"])
def test_no_method_makes_more_images_than_fedeas(profile, protocol):
    for sheet in BEYOND.sheets(study(profile, protocol)):
        rows = {name: row for name, row in sheet.rows.items() if name not in ASIDE}
        runs = {name: next(cell.configs[0] for cell in row if cell and cell.configs) for name, row in rows.items()}
        budget = plan_of(runs["FedEAS"]).total
        made = {name: plan_of(run).distinct for name, run in runs.items()}
        assert max(made.values()) == budget > 0
        assert {made[name] for name in made if made[name] and "Pool" not in name} == {budget}


def test_only_pools_share_images():
    for config in BEYOND.configs(study("digits", "clean")):
        assert config.generator.startswith("shared(") == config.policy.startswith("pool(")


@pytest.mark.parametrize("place", PROFILES["digits"].equal_steps)
def test_at_equal_work_only_the_steps_change(place):
    sheets = sheets_in(study("digits", "clean"), setting(place))
    tables, controls = sheets[: len(sheets) // 2], sheets[len(sheets) // 2 :]
    for table, control in zip(tables, controls, strict=True):
        for name, row in control.rows.items():
            (run,), (usual,) = (found[3].configs for found in (row, table.rows[name]))
            assert run.train.steps == PROFILES["digits"].equal_steps[place]
            assert usual.train.steps == 0
            assert run.train.model_copy(update={"steps": 0}) == usual.train
            assert (plan_of(run).n == plan_of(usual).n).all()
            alike = run.model_copy(update={"train": usual.train, "policy": usual.policy, "label": usual.label})
            assert alike.fingerprint == usual.fingerprint


@pytest.mark.parametrize("profile", ["digits", "fashion", "full"])
def test_pools_are_compared_with_fedeas_at_equal_work_at_every_budget(profile):
    chosen = study(profile, "clean")
    controls = sheets_in(chosen, setting(HEADLINE))[len(chosen.profile.betas) :]
    assert len(controls) == len(chosen.profile.betas)
    for control in controls:
        assert {"FedEAS", "KL", "Pool to the mean", "Pool to the largest class"} <= control.rows.keys()


def test_central_training_sees_as_many_images_as_the_participants_of_the_paper():
    runs = {config.label: config for config in BEYOND.configs(study("full", "clean"))}
    central, usual = runs["c10-k100-a0.1-fedavg-central"], runs["c10-k100-a0.1-fedavg"]
    assert (central.partition.clients, central.participants, usual.participants) == (1, 1, 10)
    assert central.train.epochs * 100 == usual.train.epochs * usual.participants


@pytest.mark.parametrize("profile", PROFILES)
def test_runs_that_differ_have_names_that_differ(profile):
    every = [*artefacts("all"), BEYOND]
    configs = {config.fingerprint: config for each in every for config in each.configs(study(profile, "clean"))}
    assert len({config.label for config in configs.values()}) == len(configs)


def test_the_experiment_is_not_part_of_all():
    assert BEYOND not in artefacts("all")


def test_runs_of_the_papers_tables_are_not_made_again():
    chosen = study("full", "clean")
    ours, theirs = (
        {config.fingerprint for config in artefacts(name)[0].configs(chosen)} for name in ("beyond", "references")
    )
    assert len(ours & theirs) == 4  # FedAvg, and FedEAS, Uniform and Greedy at the paper's budget


@pytest.mark.parametrize(
    ("profile", "place"), [(profile, place) for profile in ("full", "digits") for place in PROFILES[profile].beyond[1:]]
)
def test_other_settings_compare_fewer_methods_at_every_budget(profile, place):
    chosen = study(profile, "clean")
    most, *_ = sheets_in(chosen, setting(HEADLINE))
    sheets = sheets_in(chosen, setting(place))
    usual, controls = sheets[: len(chosen.profile.betas)], sheets[len(chosen.profile.betas) :]
    for sheet in usual:
        assert {"FedAvg", "FedEAS", "Greedy", "KL", "Pool to the mean"} <= sheet.rows.keys() < most.rows.keys()
    assert len(controls) == len(chosen.profile.betas) * (place in chosen.profile.equal_steps)
    for sheet in controls:
        assert sheet.rows.keys() == {"FedEAS", "Pool to the mean", WHOLE, LARGEST}


def test_cifar100_compares_what_further_settings_of_other_profiles_do():
    usual, own = (study(profile, "clean") for profile in ("fashion", "cifar100"))
    further, here = sheets_in(usual, usual.beyond[1]), sheets_in(own, own.beyond[0])
    ranked = [[name for name in sheet.rows if name not in ASIDE] for sheet in here]
    assert ranked == [list(sheet.rows) for sheet in further]


@pytest.mark.parametrize(("profile", "titles"), [("fashion", {DISJOINT, GAUSSIAN}), ("cifar100", {DISJOINT})])
def test_fedeas_gets_other_images_at_every_budget_and_nothing_else_changes(profile, titles):
    chosen = study(profile, "clean")
    usual = [each for each in comparisons_in(chosen, chosen.beyond[0]) if not each.equal_steps]
    assert len(usual) == len(chosen.profile.betas)
    for compared in usual:
        base = compared.runs["FedEAS"]
        for title in titles:
            other = compared.runs[title]
            assert other.fingerprint != base.fingerprint
            assert other.model_copy(update={"generator": base.generator}).fingerprint == base.fingerprint


@pytest.mark.parametrize("profile", ["fashion", "cifar100"])
def test_disjoint_images_repeat_only_where_a_class_has_too_few(profile):
    chosen = study(profile, "clean")
    for compared in comparisons_in(chosen, chosen.beyond[0]):
        if not compared.equal_steps:
            run = compared.runs[DISJOINT]
            asked = plan_of(run).n.sum(axis=0)
            assert plan_of(run).distinct == np.minimum(asked, run.data.held_out // asked.size).sum()
            assert plan_of(run).distinct >= plan_of(compared.runs["FedEAS"]).distinct


def test_a_trained_generator_is_compared_on_the_clients_that_real_images_are_compared_on():
    real, generated = (
        comparisons_in(chosen, chosen.beyond[0]) for chosen in map(study, ("fashion", "fashion-generated"), CLEAN)
    )
    for theirs, ours in zip(real, generated, strict=False):
        assert ours.beta == theirs.beta
        assert ours.runs["FedAvg"].fingerprint == theirs.runs["FedAvg"].fingerprint
        assert ours.runs[REAL].fingerprint == theirs.runs["FedEAS"].fingerprint
        assert ours.runs[GENERATED].fingerprint == ours.runs["FedEAS"].fingerprint
        for title in ours.runs.keys() - {"FedAvg", REAL, GENERATED}:
            alike = ours.runs[title].model_copy(update={"generator": theirs.runs[title].generator})
            assert "diffusion" in ours.runs[title].generator
            assert alike.fingerprint == theirs.runs[title].fingerprint


def test_runs_of_two_profiles_have_one_name_exactly_if_they_are_the_same():
    runs = [run for profile in ("fashion", "fashion-generated") for run in BEYOND.configs(study(profile, "clean"))]
    assert len({run.label for run in runs}) == len({run.fingerprint for run in runs})
    assert len({(run.label, run.fingerprint) for run in runs}) == len({run.label for run in runs})


@pytest.mark.parametrize("profile", ["digits", "full"])
def test_generated_and_real_images_are_compared_at_every_budget_with_the_same_clients_and_plan(profile):
    chosen = study(profile, "clean")
    for compared in comparisons_in(chosen, chosen.beyond[0])[: len(chosen.profile.betas)]:
        generated, real = compared.runs[GENERATED], compared.runs[REAL]
        assert real.generator == "held-out"
        assert (generated.data, generated.policy) == (real.data, compared.runs["FedEAS"].policy)
        assert real.model_copy(update={"generator": generated.generator}).fingerprint == generated.fingerprint
        assert (plan_of(real).n == plan_of(generated).n).all()
        assert plan_of(real).counts.total + real.data.held_out == plan_of(compared.runs["FedEAS"]).counts.total


@pytest.mark.parametrize("profile", ["digits", "smoke", "full"])
def test_the_papers_protocol_has_no_side_questions(profile):
    assert not any(ASIDE.keys() & sheet.rows.keys() for sheet in BEYOND.sheets(study(profile, "paper")))


@pytest.mark.parametrize("profile", ["digits", "fashion", "fashion-generated", "cifar100"])
def test_budgets_are_about_5_and_15_and_40_percent_of_the_data(profile):
    chosen = study(profile, "clean")
    plans = [each.runs["FedEAS"] for each in comparisons_in(chosen, setting(HEADLINE)) if not each.equal_steps]
    shares = [100 * synthetic_share(plan_of(plan).counts, plan_of(plan)) for plan in plans]
    assert shares == pytest.approx([5, 15, 40], abs=1)


def test_the_papers_protocol_is_compared_in_the_first_setting_alone():
    assert [len(study("digits", protocol).beyond) for protocol in ("paper", "clean")] == [1, 4]


def test_a_pool_that_is_full_at_a_smaller_budget_is_run_once():
    small, large, *_ = sheets_in(study("full", "clean"), setting(HEADLINE))
    for title in small.rows:
        (first,), (second,) = (sheet.rows[title][3].configs for sheet in (small, large))
        same_plan = (plan_of(first).n == plan_of(second).n).all()
        assert (first.fingerprint == second.fingerprint) == (same_plan and first.generator == second.generator)
    assert small.rows["Pool to the mean"][3].configs == large.rows["Pool to the mean"][3].configs


@pytest.mark.parametrize(("profile", "place"), [("digits", HEADLINE), ("full", HEADLINE), ("full", "c10-k20-a0.1")])
def test_the_larger_pool_makes_at_most_the_images_of_fedeas_and_more_than_the_plain_one(profile, place):
    chosen = study(profile, "clean")
    for compared in comparisons_in(chosen, setting(place)):
        if not compared.equal_steps:
            plain, whole, budget = (compared.runs[title] for title in ("Pool to the mean", WHOLE, "FedEAS"))
            assert (plan_of(plain).distinct < plan_of(whole).distinct) == (plain != whole)
            assert plan_of(whole).distinct <= plan_of(budget).distinct
