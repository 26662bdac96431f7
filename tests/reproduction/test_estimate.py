"""The cost of a reproduction, estimated without data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedeas.config import RunConfig, load_config
from fedeas.data.names import KNOWN
from fedeas.data.partition import paper_replay
from fedeas.data.sources import load_dataset
from fedeas.federation import run as running
from fedeas.federation.split import split_data
from reproduction.artefacts import artefacts
from reproduction.costs import _trained, estimate, seconds_of_all, speeds, steps_of_a_round
from reproduction.methods import FEDAVG, FEDEAS, FULL_BALANCE, METHODS, MISSING_ONLY
from reproduction.published import setting
from reproduction.results import Results
from reproduction.studies import ANOTHER_START, plan_of, study, with_seeds

FULL, SLOW, HERE = study("full"), study("full", start="scratch"), setting("c10-k100-a0.1")  # SLOW has the 3x3 stem
BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "results"
RESULTS = Path(__file__).parents[2] / "reproduction" / "results"


def addresses(config):
    """Every image that a run needs, by generator, client, class and number; a shared pool has those of client 0."""
    if config.generator == "held-out":
        return set()
    inner = config.generator.removeprefix("shared(of=").removesuffix(")") if "shared" in config.generator else ""
    return {
        (inner or config.generator, 0 if inner else client, label, number)
        for client, row in enumerate(plan_of(config).n)
        for label, wanted in enumerate(row)
        for number in range(wanted)
    }


def on_engine(name, config):
    return config.model_copy(update={"engine": config.engine.model_copy(update={"name": name})})


def test_images_that_runs_share_are_counted_once():
    chosen = study("smoke")
    configs = [config for each in artefacts("all") for config in each.configs(chosen)]
    assert estimate(configs).images == len(set.union(*map(addresses, configs)))


def test_the_papers_totals_come_out_for_single_runs():
    assert estimate([FULL.config(HERE, FEDEAS)]).images == 33650
    assert estimate([FULL.config(HERE, FULL_BALANCE)]).images == 246394
    assert estimate([FULL.config(HERE, FEDAVG)]).images == 0


def test_minutes_add_up_and_grow_with_the_samples():
    one, other = FULL.config(HERE, FEDAVG), FULL.config(HERE, FEDEAS)
    assert estimate([]).minutes == 0
    assert estimate([one, other]).minutes == pytest.approx(estimate([one]).minutes + estimate([other]).minutes)
    assert estimate([one]).minutes < estimate([other]).minutes < estimate([FULL.config(HERE, FULL_BALANCE)]).minutes
    shared = estimate([other, FULL.config(HERE, MISSING_ONLY)])  # mostly the same images
    assert shared.images < 2 * 33650


def test_images_of_each_dataset_take_time():
    one, other = FULL.config(HERE, FEDEAS), FULL.config(setting("c100-k20-a0.1"), FEDEAS)
    apart = [estimate([each]).minutes for each in (one, other)]
    assert estimate([one, other]).minutes == pytest.approx(sum(apart))
    assert estimate([other, one]).minutes == pytest.approx(sum(apart))


def test_no_time_is_given_for_what_was_not_measured():
    assert estimate([study("smoke").config(HERE, FEDAVG)]).minutes is None


@pytest.mark.parametrize("protocol", ["paper", "clean"])
def test_counts_without_data_equal_those_of_the_data(protocol):
    config = study("smoke", protocol).config(HERE, FEDEAS)
    real = split_data(config, load_dataset("digits")).counts
    assert plan_of(config).counts.n.tolist() == real.n.tolist()


PAPER = "data.protocol=paper", "partition.scheme=paper"
SPLITS = {
    "dirichlet": ("partition.alpha=0.3", "partition.min_size=20"),
    "capped": ("partition.cap=true",),
    "iid": ("partition.scheme=iid",),
    "shards": ("partition.scheme=shards", "partition.per_client=3"),
    "paper": (*PAPER, "partition.alpha=0.3"),
}


@pytest.mark.parametrize("scheme", SPLITS)
def test_counts_equal_those_of_the_run_in_every_scheme(scheme):
    config = load_config(None, ["partition.clients=8", "partition.seed=5", *SPLITS[scheme]])
    real = split_data(config, load_dataset("digits")).counts
    assert plan_of(config).counts.n.tolist() == real.n.tolist()


def test_shipped_counts_are_used_for_the_papers_seed_only():
    def config(seed: int) -> RunConfig:
        return load_config(None, [*PAPER, "data.dataset=cifar10", "partition.alpha=0.3", f"partition.seed={seed}"])

    assert plan_of(config(42)).counts == setting("c10-k20-a0.3").counts()
    assert plan_of(config(7)).counts == paper_replay(KNOWN["cifar10"].labels(merged=True), 20, 0.3, seed=7).counts


UNKNOWN = FULL.config(HERE, FEDAVG).model_copy(update={"algorithm": "python:mine:Own"})


def test_training_that_was_not_measured_counts_only_its_start():
    assert estimate([UNKNOWN]).minutes == pytest.approx(speeds()["start"] / 60)


def test_a_server_that_trains_takes_its_time_in_every_round():
    config = FULL.config(HERE, METHODS["fedgen"])
    longer = config.model_copy(update={"rounds": config.rounds.model_copy(update={"total": 2 * config.rounds.total})})
    start, once = speeds()["start"] / 60, estimate([config]).minutes
    assert estimate([longer]).minutes - start == pytest.approx(2 * (once - start))
    assert once - start > config.rounds.total * speeds()["server"]["fedgen"] / 60


def test_generators_that_were_not_measured_take_no_minutes():
    ours, other = FULL.config(HERE, FEDEAS), FULL.config(HERE, replace(FEDEAS, generator="{other}"))
    assert estimate([other]).images == estimate([ours]).images
    assert estimate([other]).minutes < estimate([ours]).minutes


def test_the_speeds_are_the_measured_ones():
    measured = json.loads((BENCHMARKS / "gpu-rounds.json").read_text())
    assert speeds()["machine"] == measured["machine"]["gpu"]
    found = {row["algorithm"].partition("(")[0]: row["fast engine, bf16, images/s"] for row in measured["rows"]}
    assert speeds()["training"]["fast"]["bf16"]["3x3"] == found  # where the fast engine is lanes
    runs = {row["run"]: row for row in json.loads((BENCHMARKS / "gpu-runs-imagenet-stem.json").read_text())["rows"]}
    small, large = runs["c10-k100-a0.1-fedavg, again"], runs["c10-k20-a0.1-fedavg"]
    kept, clean = Results([RESULTS]), study("full", "clean", ANOTHER_START)
    few, many = (_trained(FULL.config(where, FEDAVG)) for where in (HERE, setting("c10-k20-a0.1")))
    speed = round((many - few) / (large["whole command"] - small["whole command"]))
    rows = json.loads((BENCHMARKS / "gpu-rounds-imagenet-stem.json").read_text())["rows"]
    assert speeds()["training"]["fast"]["bf16"]["imagenet"] == {
        **{row["algorithm"].partition("(")[0]: row["fast engine, bf16, images/s"] for row in rows},
        "fedavg": speed,  # of whole commands, with the work between rounds
    }
    samplers = json.loads((BENCHMARKS / "gpu-generator-steps.json").read_text())["rows"]
    (default,) = [row for row in samplers if (row["solver"], row["steps"]) == ("dpm", 20)]
    assert speeds()["generation"] == default["images/s"]
    run = kept.seeds(clean.config(setting("c10-k100-a0.3"), METHODS["fedgen"]))[0]
    assert speeds()["server"] == {"fedgen": round(run.summary()["seconds"]["aggregate"] / run.config.rounds.total, 3)}
    assert speeds()["start"] == round(small["whole command"] - few / speed, 1)


def test_each_stem_has_its_own_speed():
    trained = speeds()["training"]["fast"]["bf16"]
    own, slow = (each.config(HERE, FEDAVG) for each in (FULL, SLOW))
    begins = speeds()["start"]
    ratio = (60 * estimate([slow]).minutes - begins) / (60 * estimate([own]).minutes - begins)
    assert ratio == pytest.approx(trained["imagenet"]["fedavg"] / trained["3x3"]["fedavg"])


def test_an_estimate_names_what_it_leaves_out():
    configs = [UNKNOWN, FULL.config(HERE, replace(FEDEAS, generator="{other}"))]
    assert estimate(configs).untimed == {"python:mine:Own", "sd-turbo"}


@pytest.mark.parametrize("engine", ["local", "flower"])
def test_the_speed_of_another_engine_is_not_used(engine):
    config = FULL.config(HERE, FEDEAS)
    assert estimate([config]).minutes
    assert estimate([on_engine(engine, config)]).minutes is None


def test_a_pool_makes_the_images_of_one_client_and_real_images_none():
    plan = plan_of(FULL.config(HERE, FEDEAS)).n
    pool, real = (replace(FEDEAS, generator=name) for name in ("shared(of={generator})", "held-out"))
    assert estimate([FULL.config(HERE, pool)]).images == plan.max(axis=0).sum()
    assert estimate([FULL.config(HERE, real)]).images == 0


def with_steps(steps, method):
    config = study("smoke").config(HERE, method)
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})


def test_a_forecast_of_several_runs_counts_their_steps():
    first, heavy = with_steps(2, FEDAVG), with_seeds(with_steps(6, FEDEAS), 2)
    step = 5.0 / steps_of_a_round(first)
    assert seconds_of_all(step, [first, *heavy]) == pytest.approx(5.0 * first.rounds.total * (1 + 3 + 3))


@pytest.mark.parametrize("steps", [0, 7])
def test_steps_of_a_round_are_those_that_the_run_expects(steps):
    config = with_steps(steps, FEDEAS)
    samples = plan_of(config).counts.sizes + plan_of(config).per_client
    assert steps_of_a_round(config) == running.steps_of_a_round(config, samples)


def test_larger_plans_take_longer():
    chosen = study("digits")
    plans = [chosen.config(HERE, method) for method in (FEDAVG, FEDEAS, FULL_BALANCE)]
    step = 1.0 / steps_of_a_round(plans[0])
    seconds = [seconds_of_all(step, [plans[0], plan]) for plan in plans]
    assert seconds[0] == pytest.approx(120)
    assert sorted(set(seconds)) == seconds
