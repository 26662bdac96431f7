"""Finished runs by method and seed, and what tables measure in their summaries."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from statistics import mean
from typing import Any

import fedeas
from fedeas.config import RunConfig
from fedeas.runs import Difference, Run, read_runs

Record = dict[str, Any]
Measure = Callable[..., float | None]
"""A number from the summaries of one or more runs."""


def _percent(key: str) -> Callable[[Record], float]:
    return lambda run: 100 * float(run[key])


def _points(key: str) -> Callable[[Record, Record], float]:
    return lambda run, base: 100 * float(run[key]) - 100 * float(base[key])


def _number(key: str) -> Callable[[Record], float | None]:
    return lambda run: None if run[key] is None else float(run[key])  # some runs lack it


accuracy = _percent("accuracy")  # mean over the window
final = _percent("final")  # after the last round
peak = _percent("peak")  # best of all rounds
gain = _points("accuracy")  # above another run
peak_gain = _points("peak")
steps = _number("steps")  # of all clients in all rounds
generated = _number("total")  # synthetic images of all clients
images_seen = _number("samples")  # an image counts each time it is seen
gamma_hat = _number("gamma_hat")  # median dissimilarity of the clients' updates
rounds_to_threshold = _number("rounds_to_threshold")  # None if it was never reached


def gain_recovered(run: Record, base: Record, full: Record) -> float | None:
    """How much of the gain of `full` over `base` a run reaches, in percent."""
    whole = gain(full, base)
    return 100 * gain(run, base) / whole if whole else None


def efficiency(run: Record, base: Record) -> float | None:
    """Points of accuracy gained for each thousand samples."""
    return fedeas.accuracy_per_thousand(gain(run, base), run["total"]) if run["total"] else None


def gamma_reduction(run: Record, base: Record) -> float | None:
    """How much less the updates differ than another run's, in percent."""
    ours, theirs = gamma_hat(run), gamma_hat(base)
    return None if ours is None or not theirs else 100 * (1 - ours / theirs)


def megabytes(run: Record) -> float:
    """Megabytes that a client receives and sends in the rounds of a run, on average."""
    return float(sum(run["bytes"].values())) / 1e6


def generator_megabytes(run: Record) -> float:
    """Megabytes that a client receives and sends to train the generator and to get it, on average."""
    return float(sum(run["generator"]["bytes"].values())) / 1e6


def generator_seconds(run: Record) -> float:
    """Seconds in which the clients trained the generator."""
    return float(run["generator"]["seconds"])


def minutes(run: Record) -> float | None:
    """Minutes of generation and training; None if images were in the bank already, which shortens the run."""
    found = (run["images"] or {}).get("found", 0)
    return None if found else float(run["seconds"]["total"]) / 60


def rounds_ratio(run: Record, base: Record) -> float | None:
    """How many times as many rounds as another run until it first reaches the threshold."""
    own, other = rounds_to_threshold(run), rounds_to_threshold(base)
    return None if own is None or not other else own / other


def time_ratio(run: Record, base: Record) -> float | None:
    """How many times longer than another run."""
    own, other = minutes(run), minutes(base)
    return None if own is None or not other else own / other


def mean_of(budgets: Sequence[Mapping[int, float]]) -> Difference | None:
    """The difference over several budgets, given by seed for each: averaged within the seeds that all budgets have."""
    seeds = set[int].intersection(*(set(each) for each in budgets)) if budgets else set[int]()
    return Difference.of([mean(each[seed] for each in budgets) for seed in sorted(seeds)])


class Results:
    """The finished runs below some folders; a run's label, machine and folder do not matter."""

    def __init__(self, folders: Iterable[str | PathLike[str]]) -> None:
        self._runs: dict[str, dict[int, list[Run]]] = {}
        self._summaries: dict[Path, Record] = {}
        self._outdated: dict[tuple[object, ...], bool] = {}
        self._seeds: dict[RunConfig, dict[int, Run]] = {}
        for run in read_runs(*folders):
            self.add(run)

    def add(self, run: Run) -> None:
        """Add a run that has finished since the folders were read."""
        self._seeds.clear()
        self._runs.setdefault(run.method, {}).setdefault(run.seed, []).append(run)

    def seeds(self, config: RunConfig) -> dict[int, Run]:
        """The finished runs of this config with any seed, if they used the current weights and generator."""
        if config not in self._seeds:
            found = self._runs.get(config.unpinned.method, {})
            current = {seed: self._current(config, runs) for seed, runs in found.items()}
            self._seeds[config] = {seed: runs[0] for seed, runs in current.items() if runs}
        return self._seeds[config]

    def copies(self, config: RunConfig) -> list[Run]:
        """The finished run of exactly this config, once for each folder that has it."""
        return self._current(config, self._runs.get(config.unpinned.method, {}).get(config.seed, []))

    def _current(self, config: RunConfig, runs: Sequence[Run]) -> list[Run]:
        """The runs of this config that used today's weights and generator; many runs share the answer."""
        names = config.model.weights, config.generator, config.data.dataset
        found = []
        for run in runs:
            content = run.content
            key = *names, content.weights, content.generator, type(run)
            if key not in self._outdated:
                self._outdated[key] = run.is_outdated
            found += [] if self._outdated[key] else [run]
        return found

    def has(self, config: RunConfig) -> bool:
        """Whether exactly this run is finished."""
        return config.seed in self.seeds(config)

    def values(self, configs: Sequence[RunConfig], measure: Measure) -> dict[int, float | None]:
        """Apply `measure` to the runs' summaries, for each seed that all of them have."""
        runs = [self.seeds(config) for config in configs]
        found = dict[int, float | None]()
        for seed in sorted(set.intersection(*(set(each) for each in runs))):
            own = [each[seed] for each in runs]
            self._summaries |= {run.path: run.summary() for run in own if run.path not in self._summaries}
            value = measure(*(self._summaries[run.path] for run in own))
            found[seed] = value if value is not None and math.isfinite(value) else None
        return found

    def known(self, configs: Sequence[RunConfig], measure: Measure) -> dict[int, float]:
        """The same, without seeds that have no value."""
        return {seed: value for seed, value in self.values(configs, measure).items() if value is not None}

    def ambiguous_names(self, configs: Iterable[RunConfig]) -> list[str]:
        """Names of datasets, weights and generators that stood for different content in these runs."""
        meant: dict[tuple[str, str], set[str]] = {}
        for run in (run for config in configs for run in self.seeds(config).values()):
            config, generator = run.config, run.generator()
            names = {config.data.dataset: config.content.data, config.model.weights: config.content.weights}
            if generator is not None:
                names[config.generator] = generator.fingerprint  # depends on the sampler's precision, too
            for name, content in names.items():
                meant.setdefault((name, config.data.dataset), set()).add(content)
        return sorted({name for (name, _), contents in meant.items() if len(contents) > 1})
