"""The runs behind the paper's cells: the right config for each, and the paper's numbers only with its protocol."""

from dataclasses import replace
from pathlib import Path

import pytest

import fedeas
from fedeas import InputError
from fedeas.algorithms import parse_algorithm
from fedeas.config import load_config
from reproduction.artefacts import ARTEFACTS, artefacts
from reproduction.methods import FEDEAS, METHODS
from reproduction.published import published, setting
from reproduction.studies import (
    ANOTHER_START,
    FEW_STEPS,
    OTHER,
    PROFILES,
    PROTOCOLS,
    STARTS,
    Study,
    plan_of,
    study,
    with_seeds,
)

CONFIGS = Path(fedeas.__file__).parent / "config" / "packaged" / "paper"


@pytest.mark.parametrize("where", [each.id for each in published().settings])
@pytest.mark.parametrize("name", METHODS)
def test_the_full_study_runs_what_the_shipped_configs_say(where, name):
    place, method = setting(where), METHODS[name]
    file = CONFIGS / f"{place.dataset}-k{place.clients}.toml"
    policy = method.policy.format(budget="fedeas(beta=12)")
    said = [f"policy={policy}", f"algorithm={method.algorithm}", f"partition.alpha={place.alpha}"]
    weights = f"model.weights={OTHER[place.dataset]}-imagenet-stem"
    expected = load_config(file, [*said, "engine.precision=bf16", weights])
    assert study("full", start=ANOTHER_START).config(place, method).fingerprint == expected.fingerprint
    main = load_config(file, [*said, "engine.precision=bf16", "model.weights=imagenet", f"generator={FEW_STEPS}"])
    assert study("full").config(place, method).fingerprint == main.fingerprint


STUDIES = [(name, protocol) for name in PROFILES for protocol in PROTOCOLS[: 1 if PROFILES[name].held_out else None]]


@pytest.mark.parametrize(("profile", "protocol"), STUDIES)
def test_every_artefact_has_valid_runs_each_once(profile, protocol):
    chosen = study(profile, protocol)
    for artefact in ARTEFACTS:
        configs = artefact.configs(chosen)
        assert len({config.fingerprint for config in configs}) == len(configs)
        assert len({config.directory for config in configs}) == len(configs)
        for config in configs:
            parse_algorithm(config.algorithm)
            assert config.data.protocol == protocol
            assert (config.data.dataset == "digits") == (profile in ("digits", "smoke"))


def test_the_papers_numbers_are_shown_only_with_its_own_training():
    beside = {
        (profile, protocol): any(
            cell.paper is not None
            for artefact in ARTEFACTS
            for sheet in artefact.sheets(study(profile, protocol))
            for cell in sheet.cells
        )
        for profile, protocol in STUDIES
    }
    assert [key for key, shown in beside.items() if shown] == [("full", "clean"), ("full", "paper")]


def test_seeds_change_nothing_but_the_seed():
    first = study("full").config(setting("c10-k20-a0.1"), FEDEAS)
    runs = with_seeds(first, 3)
    assert [run.seed for run in runs] == [0, 1, 2]
    assert {run.method for run in runs} == {first.method}
    assert len({run.fingerprint for run in runs}) == 3


def test_every_start_is_another_run_with_its_own_stem():
    where = setting("c10-k20-a0.1")
    runs = {start: study("full", start=start).config(where, FEDEAS) for start in STARTS}
    assert len({run.fingerprint for run in runs.values()}) == len(STARTS)
    assert {start: run.model.stem for start, run in runs.items()} == {
        "scratch": "3x3",
        "cifar100": "3x3",
        "cifar100-imagenet-stem": "imagenet",
        "imagenet": "imagenet",
    }
    assert study("full").config(where, FEDEAS) == runs["imagenet"]


def test_a_profile_with_a_split_of_its_own_has_the_clean_protocol_alone():
    with pytest.raises(InputError, match="clean protocol"):
        study("fashion", "paper")
    runs = [config for artefact in ARTEFACTS for config in artefact.configs(study("fashion", "clean"))]
    assert {run.data.held_out for run in runs} == {10_000}


def test_digits_start_only_from_scratch():
    with pytest.raises(InputError, match="scratch"):
        study("digits", start="cifar100")


def test_partitions_are_redrawn_on_request():
    fixed, redrawn = (
        study("digits", redraw=redraw).config(setting("c10-k20-a0.1"), FEDEAS) for redraw in (False, True)
    )
    counts = [[plan_of(run).counts.n.tolist() for run in with_seeds(config, 2)] for config in (fixed, redrawn)]
    assert counts[0][0] == counts[0][1] == counts[1][0] != counts[1][1]
    assert len({run.method for run in with_seeds(redrawn, 2)}) == 1


def test_errors_for_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="full, digits, fashion, fashion-generated, smoke, cifar100"):
        study("short")


def test_titles_say_how_a_study_differs_from_the_papers():
    assert study("full").named("Here") == "Here"
    assert study("full", "clean", "scratch").named("Here") == "Here (clean protocol, start scratch)"
    studies = [study(profile, protocol) for profile, protocol in STUDIES]
    for artefact in ARTEFACTS:
        titles = [sheet.title for chosen in studies for sheet in artefact.sheets(chosen)]
        assert len(set(titles)) == len(titles)


def test_the_description_matches_what_is_run():
    said = study("full", "clean", "scratch", "tf32").says
    assert all(word in said for word in ("200 rounds", "clean", "tf32", "from scratch"))
    assert "bf16" in study("full").says


def test_real_and_generated_images_are_compared_with_the_same_images_held_out():
    real, pool = artefacts("sources")[0].sheets(study("full", "clean"))
    runs = {config.fingerprint: config for cell in real.cells for config in cell.configs}.values()
    assert {run.data.held_out for run in runs} == {10_000}
    assert sorted(run.policy.partition("(")[0] for run in runs) == [
        "fedeas",
        "fedeas",
        "no-generation",
        "uniform",
        "uniform",
    ]
    assert {run.generator for run in runs} == {FEW_STEPS, "held-out"}
    assert len({plan_of(run).counts.n.tobytes() for run in runs}) == 1
    assert {config.data.held_out for cell in pool.cells for config in cell.configs} == {0}


def test_a_pool_is_compared_with_the_runs_of_the_main_table():
    (pool,) = artefacts("sources")[0].sheets(study("full", "paper"))
    table = {config.fingerprint for config in artefacts("table1")[0].configs(study("full", "paper"))}
    runs = {config.fingerprint: config for cell in pool.cells for config in cell.configs}
    assert {run.generator for name, run in runs.items() if name not in table} == {f"shared(of={FEW_STEPS})"}
    assert len(runs.keys() & table) == 2


def test_a_profile_of_ones_own_has_its_name_in_titles():
    own = Study(replace(PROFILES["smoke"], name="tiny", rounds=1))
    assert "tiny" in own.named("Accuracy")
    assert all(profile.name == name for name, profile in PROFILES.items())
