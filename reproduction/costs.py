"""What runs cost: estimates before they start, and what the images of the experiments cost and gain."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.config import RunConfig
from fedeas.runs import Difference
from reproduction.beyond import WHOLE, comparisons_in
from reproduction.findings import EXPERIMENTS
from reproduction.methods import FEDEAS
from reproduction.results import Results, accuracy, gain, steps
from reproduction.studies import beyond_study, plan_of
from reproduction.text import fixed, markdown_table, mean_cell

TIMED, OF = "diffusion", "cifar10"  # the generator whose speed was measured, and the dataset of its images


@dataclass(frozen=True)
class Estimate:
    """The cost of some runs."""

    runs: int
    images: int  # different ones in the bank that they need
    minutes: float | None  # None if the engine that will run was not measured
    untimed: frozenset[str] = frozenset()  # algorithms and generators that were not measured: they add no minutes


def estimate(configs: Sequence[RunConfig]) -> Estimate:
    """The cost of these runs together, each on the engine of its config; each image is generated once."""
    most: dict[tuple[str, str], NDArray[np.int64]] = {}  # runs share a bank, so each client and class counts once
    for config in configs:
        key, made = (plan_of(config).made_by, config.data.dataset), plan_of(config).made
        bank = most.get(key, np.zeros_like(made))
        bank = np.pad(bank, ((0, max(0, len(made) - len(bank))), (0, 0)))
        bank[: len(made)] = np.maximum(bank[: len(made)], made)
        most[key] = bank
    made_of = [(_name(generator), int(bank.sum())) for (generator, _), bank in most.items()]
    total, known, seconds = sum(number for _, number in made_of), dict[RunConfig, float | None](), 0.0
    for config in configs:
        of_engine = speeds()["training"].get(config.engine.name, {}).get(config.engine.precision, {})
        if not of_engine:
            return Estimate(len(configs), total, None)
        known[config] = of_engine.get(config.model.stem, {}).get(_name(config.algorithm))
        server = speeds()["server"].get(_name(config.algorithm), 0.0)  # its own training
        seconds += speeds()["start"] + config.rounds.total * server
    seconds += sum(_trained(each) / speed for each, speed in known.items() if speed)
    seconds += sum(number / speeds()["generation"] for generator, number in made_of if generator == TIMED)
    untimed = {_name(each.algorithm) for each, speed in known.items() if speed is None}
    untimed |= {generator for generator, number in made_of if number and generator != TIMED}
    return Estimate(len(configs), total, seconds / 60, frozenset(untimed))


def seconds_of_all(first_step: float, configs: Sequence[RunConfig]) -> float:
    """Seconds of training of these runs, from those of one step; with the partition of seed 0, because it is drawn."""
    plain = (config.model_copy(update={"seed": 0}) for config in configs)
    return first_step * sum(steps_of_a_round(config) * config.rounds.total for config in plain)


def steps_of_a_round(config: RunConfig) -> float:
    """Expected steps of all clients in a round."""
    if config.train.steps:
        return float(config.participants * config.train.steps)
    steps = config.train.epochs * np.ceil(_samples(config) / config.train.batch_size)
    return config.participants * float(steps.mean())


def _trained(config: RunConfig) -> float:
    """Expected number of images that the clients train on in all rounds, repetitions included."""
    each = config.train.steps * config.train.batch_size or _samples(config).mean() * config.train.epochs
    return float(each * config.participants * config.rounds.total)


def _samples(config: RunConfig) -> NDArray[np.int64]:
    """Number of samples that each client trains on."""
    return plan_of(config).counts.sizes + plan_of(config).per_client


def _name(spec: str) -> str:
    return spec.partition("(")[0]


@cache
def speeds() -> dict[str, Any]:
    """Images per second and seconds to start, as measured by benchmarks/gpu_rounds.py and gpu_generators.py."""
    return dict(json.loads(resources.files(__package__).joinpath("speeds.json").read_text("utf-8")))


IMAGE_BYTES = {"digits": 8 * 8, "fashion-mnist": 28 * 28}  # uncompressed, where it is not CIFAR's
HEADS = ("beta", "method", "images made", "placed", "steps", "accuracy, %", "minus FedEAS (95 %)")
HEADS_WITH_LESS = (
    "experiment", "images made for FedEAS", "for the pool", "steps of the pool", "the pool minus FedEAS (95 %)"
)  # fmt: skip


def economies_markdown(results: Results) -> str:
    """FedEAS and the pool with the whole budget in the first setting of each clean experiment, budgets side by side."""
    tables, less = list[str](), list[list[str]]()
    for each in (beyond_study(profile, protocol) for profile, protocol in EXPERIMENTS if protocol == "clean"):
        title, rows = each.title(each.beyond[0]), list[list[str]]()
        usual = [compared for compared in comparisons_in(each, each.beyond[0]) if not compared.equal_steps]
        most = usual[-1].runs[FEDEAS.title]
        for compared in usual:
            base, pool = (compared.runs[title] for title in (FEDEAS.title, WHOLE))
            gained, under = (
                mean_cell(Difference.of([*results.known([pool, one], gain).values()])) for one in (base, most)
            )
            rows.append([f"{compared.beta:g}", FEDEAS.title, *_costs_and_worth(base, results), ""])
            rows.append([f"{compared.beta:g}", WHOLE, *_costs_and_worth(pool, results), gained])
            made = [f"{plan_of(run).distinct:,} at {at.name}" for run, at in ((most, usual[-1]), (pool, compared))]
            work = [mean(values) for run in (pool, most) if (values := results.known([run], steps).values())]
            times = f"{work[0] / work[1]:.1f} times" if len(work) == 2 else ""
            less += [[title, *made, times, under]] if compared is not usual[-1] else []
        tables.append(f"**{title}**\n\n{markdown_table(HEADS, rows)}")
    about = (
        f"In brackets: the seconds that one {speeds()['machine']} takes to make the images, where that was measured, "
        "and the size of those that are placed, as uncompressed bytes. A server that makes the images sends these; a "
        "client that makes its own needs the generator instead. Steps are those of all clients in all rounds."
    )
    with_less = markdown_table(HEADS_WITH_LESS, less)
    return "\n\n".join([*tables, about, "**A pool of a smaller budget beside FedEAS at its largest**", with_less])


def _costs_and_worth(run: RunConfig, results: Results) -> list[str]:
    """Images made, with the seconds for them, and placed, with their size; training steps and accuracy of all seeds."""
    made, placed, dataset = plan_of(run).distinct, plan_of(run).total, run.data.dataset
    seconds = f" ({made / speeds()['generation']:,.0f} s)" if dataset == OF else ""
    size = placed * IMAGE_BYTES.get(dataset, 3 * 32 * 32) / 1e6
    work, level = (results.known([run], measure).values() for measure in (steps, accuracy))
    worth = [f"{mean(work):,.0f}" if work else "", fixed(mean(level), 2) if level else ""]
    return [f"{made:,}{seconds}", f"{placed:,} ({size:,.2f} MB)", *worth]
