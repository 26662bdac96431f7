"""Finished runs by method and seed, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from fedeas.config import RunConfig
from fedeas.runs import Run, read_runs


class Results:
    """The finished runs below some folders; a run's label, machine and folder do not matter."""

    def __init__(self, folders: Iterable[str | PathLike[str]]) -> None:
        self._runs: dict[str, dict[int, list[Run]]] = {}
        self._summaries: dict[Path, dict[str, Any]] = {}
        self._outdated: dict[tuple[object, ...], bool] = {}
        for run in read_runs(*folders):
            self.add(run)

    def add(self, run: Run) -> None:
        """Add a run that has finished since the folders were read."""
        self._runs.setdefault(run.method, {}).setdefault(run.seed, []).append(run)

    def seeds(self, config: RunConfig) -> dict[int, Run]:
        """The finished runs of this config with any seed, if they used the current weights and generator."""
        found = self._runs.get(config.unpinned.method, {})
        current = {seed: self._current(config, runs) for seed, runs in found.items()}
        return {seed: runs[0] for seed, runs in current.items() if runs}

    def copies(self, config: RunConfig) -> list[Run]:
        """The finished run of exactly this config, once for each folder that has it."""
        return self._current(config, self._runs.get(config.unpinned.method, {}).get(config.seed, []))

    def _current(self, config: RunConfig, runs: Sequence[Run]) -> list[Run]:
        """The runs of this config that used today's weights and generator; many runs share the answer."""
        names = config.model.weights, config.generator, config.data.dataset
        found = []
        for run in runs:
            key = *names, run.content.weights, run.content.generator, type(run)
            if key not in self._outdated:
                self._outdated[key] = run.is_outdated
            found += [] if self._outdated[key] else [run]
        return found

    def has(self, config: RunConfig) -> bool:
        """Whether exactly this run is finished."""
        return config.seed in self.seeds(config)

    def values(self, configs: Sequence[RunConfig], measure: Callable[..., float | None]) -> dict[int, float | None]:
        """Apply `measure` to the runs' summaries, for each seed that all of them have."""
        runs = [self.seeds(config) for config in configs]
        shared = sorted(set.intersection(*(set(each) for each in runs)))
        found = {seed: measure(*(self._summary(each[seed]) for each in runs)) for seed in shared}
        return {seed: value if value is not None and math.isfinite(value) else None for seed, value in found.items()}

    def _summary(self, run: Run) -> dict[str, Any]:
        if run.path not in self._summaries:
            self._summaries[run.path] = run.summary()
        return self._summaries[run.path]

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
