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
from reproduction.results import Results, gain, steps
from reproduction.studies import beyond_study, plan_of
from reproduction.text import markdown_table, mean_cell

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
HEADS = (
    "experiment", "made by FedEAS; by the pool", "placed by FedEAS; by the pool, with its steps", "minus FedEAS (95 %)",
    "minus FedEAS at its largest budget (95 %)",
)  # fmt: skip


def economies_markdown(results: Results) -> str:
    """The pool with the whole budget beside FedEAS, in the first setting of each clean experiment."""
    rows = list[list[str]]()
    for each in (beyond_study(profile, protocol) for profile, protocol in EXPERIMENTS if protocol == "clean"):
        usual = [compared for compared in comparisons_in(each, each.beyond[0]) if not compared.equal_steps]
        most = usual[-1].runs[FEDEAS.title]
        for compared in usual:
            own, pool = pair = [compared.runs[title] for title in (FEDEAS.title, WHOLE)]
            made, placed = list[str](), list[str]()
            for run in pair:
                distinct, total, dataset = plan_of(run).distinct, plan_of(run).total, run.data.dataset
                seconds = f" ({distinct / speeds()['generation']:,.0f} s)" if dataset == OF else ""
                made.append(f"{distinct:,}{seconds}")
                placed.append(f"{total:,} ({total * IMAGE_BYTES.get(dataset, 3 * 32 * 32) / 1e6:,.2f} MB)")
            work = [mean(values) for run in pair if (values := results.known([run], steps).values())]
            placed[1] += f", {work[1] / work[0]:.1f} times the steps" if len(work) == 2 else ""
            gained = [mean_cell(Difference.of([*results.known([pool, one], gain).values()])) for one in (own, most)]
            title = f"{each.title(each.beyond[0])}, {compared.name}"
            rows.append([title, "; ".join(made), "; ".join(placed), *gained])
    about = (
        f"In brackets: the seconds that one {speeds()['machine']} takes to make the images, where that was measured, "
        "and the size of those that are placed, as uncompressed bytes. A server that makes the images sends these; a "
        "client that makes its own needs the generator instead. Steps are those of all clients in all rounds."
    )
    return f"{markdown_table(HEADS, rows)}\n\n{about}"
