"""Finished runs by method and seed, and their numbers."""

from __future__ import annotations

import gzip
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from fedeas.config import ContentConfig, RunConfig
from fedeas.core.errors import InputError
from fedeas.core.files import PathLike, make_folder, written_whole
from fedeas.core.log import log
from fedeas.core.records import write_record
from fedeas.generators.registry import content_digest
from fedeas.models.initial_weights import content as content_of_start
from fedeas.runs.packed import unpack
from fedeas.runs.store import PACKED_ROUNDS, PACKED_RUNS, ROUNDS, Record, Run, sound_runs

NUMBERS = ("accuracy", "final", "peak", "total")
NEEDED = {*NUMBERS, "window", "steps", "samples", "rounds_to_threshold", "gamma_hat", "images", "seconds"}
KEPT = ("env.json", "generator.json", PACKED_ROUNDS, "summary.json")


class Results:
    """The finished runs below some folders; a run's label, machine and folder do not matter."""

    def __init__(self, folders: Iterable[PathLike]) -> None:
        self._runs: dict[str, dict[int, list[Run]]] = {}
        self._summaries: dict[Path, Record] = {}
        self._content: dict[tuple[str, str, str], tuple[str, str]] = {}
        for folder in {Path(folder).resolve(): Path(folder) for folder in folders}.values():
            for run in _find_finished(folder):
                self.add(run)

    def add(self, run: Run) -> None:
        """Add a run that has finished since the folders were read."""
        self._summaries[run.path] = run.summary()
        self._runs.setdefault(run.method, {}).setdefault(run.config.seed, []).append(run)

    def seeds(self, config: RunConfig) -> dict[int, Run]:
        """The finished runs of this config with any seed, if they used the current weights and generator."""
        found = self._runs.get(config.unpinned.method, {})
        today = {seed: self._of_today(config, runs) for seed, runs in found.items()}
        return {seed: runs[0] for seed, runs in today.items() if runs}

    def copies(self, config: RunConfig) -> list[Run]:
        """The finished run of exactly this config, once for each folder that has it."""
        return self._of_today(config, self._runs.get(config.unpinned.method, {}).get(config.seed, []))

    def _of_today(self, config: RunConfig, runs: Sequence[Run]) -> list[Run]:
        return [run for run in runs if not self._outdated(config, run.config.content)]

    def _outdated(self, config: RunConfig, content: ContentConfig) -> bool:
        """Whether the names of weights and generator stand for other content now; not if nothing has that name."""
        names = config.model.weights, config.generator, config.data.dataset
        if names not in self._content:
            self._content[names] = _content_now(config)
        weights, generator = self._content[names]
        return bool(
            (weights and content.weights and weights != content.weights)
            or (generator and content.generator and generator != content.generator)
        )

    def has(self, config: RunConfig) -> bool:
        """Whether exactly this run is finished."""
        return config.seed in self.seeds(config)

    def values(self, configs: Sequence[RunConfig], measure: Callable[..., float | None]) -> dict[int, float | None]:
        """Apply `measure` to the runs' summaries, for each seed that all of them have."""
        runs = [self.seeds(config) for config in configs]
        shared = sorted(set.intersection(*(set(each) for each in runs)))
        found = {seed: measure(*(self._summaries[each[seed].path] for each in runs)) for seed in shared}
        return {seed: value if value is not None and math.isfinite(value) else None for seed, value in found.items()}

    def ambiguous_names(self, configs: Iterable[RunConfig]) -> list[str]:
        """Names of datasets, weights and generators that stood for different content in these runs."""
        meant: dict[tuple[str, str], set[str]] = {}
        for run in (run for config in configs for run in self.seeds(config).values()):
            for name, content in _contents(run):
                meant.setdefault((name, run.config.data.dataset), set()).add(content)
        return sorted({name for (name, _), contents in meant.items() if len(contents) > 1})


def _content_now(config: RunConfig) -> tuple[str, str]:
    """Digests of the initial weights and of the generator's content; empty if they are missing."""
    try:
        weights = content_of_start(config.model.weights).get("weights", "")
        return weights, content_digest(config.generator, config.data.dataset)
    except InputError:
        return "", ""


def _contents(run: Run) -> Iterator[tuple[str, str]]:
    """Each name in the run's config, with the digest of its content."""
    config, generator = run.config, run.generator()
    yield config.data.dataset, config.content.data
    yield config.model.weights, config.content.weights
    if generator is not None:
        yield config.generator, generator.fingerprint  # depends on the sampler's precision too


def keep(run: Run, folder: Path) -> Path:
    """Copy a finished run without its plan, its tensors and the folder of its data."""
    if not run.finished:
        raise InputError(f"{run.path}: not finished; there is no result to keep yet")
    copy, content = folder / run.config.directory, run.config.model_dump(mode="json")
    if copy.resolve() == run.path.resolve():
        return copy
    content["data"]["root"] = None
    make_folder(copy)
    write_record(copy / "config.json", content)
    if (run.path / ROUNDS).exists():
        with written_whole(copy / PACKED_ROUNDS) as part:
            part.write_bytes(gzip.compress((run.path / ROUNDS).read_bytes(), mtime=0))  # the same lines, the same bytes
    for name in KEPT:
        if (run.path / name).exists():
            with written_whole(copy / name) as part:
                shutil.copyfile(run.path / name, part)
    return copy


def _find_finished(folder: Path) -> Iterator[Run]:
    """The finished runs in the folder and its subfolders; damaged ones and other versions are logged and left out."""
    for path in sorted([*folder.glob(f"*{PACKED_RUNS}"), *folder.glob(f"[!.]*/*{PACKED_RUNS}")]):
        try:
            yield from unpack(path)
        except InputError as error:
            log.warning("left out: %s", error)
    found = sorted([*folder.glob("*/summary.json"), *folder.glob("[!.]*/*/summary.json")])
    yield from sound_runs([path.parent for path in found], _check_summary)


def _check_summary(run: Run) -> None:
    path, summary = run.path / "summary.json", run.summary()
    if missing := NEEDED - summary.keys():
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}")
    if odd := [name for name in NUMBERS if not isinstance(summary[name], int | float)]:
        raise InputError(f"{path} has no number for {', '.join(odd)}")
