"""The run behind each cell of the paper's tables: a method in a setting, under a profile and a protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal

from fedeas.config import (
    DataConfig,
    EngineConfig,
    ModelConfig,
    PartitionConfig,
    RoundsConfig,
    RunConfig,
    TrainConfig,
)
from fedeas.core.errors import InputError
from fedeas.data.known import known_dataset
from fedeas.runs.accuracy_curves import RoundRange
from reproduction.methods import FEDAVG, Method, run_name
from reproduction.profiles import FULL, HELD_OUT, OTHER, PROFILES, SCRATCH, STARTS, Precision, Profile
from reproduction.published import Setting, setting

Protocol = Literal["paper", "clean"]
PROTOCOLS: tuple[Protocol, ...] = ("clean", "paper")
"""The more trustworthy one first."""

HELD_OUT_SHARE = 5
"""One in this many training images is held out if a study compares with real images."""


@dataclass(frozen=True)
class Study:
    """A profile under one protocol, from one start, in one precision (by default the profile's).

    With `redraw` each seed has its own partition, so that the spread over seeds includes the draw of clients.
    """

    profile: Profile = FULL
    protocol: Protocol = "paper"
    start: str = FULL.start
    precision: Precision | None = None
    redraw: bool = False

    @cached_property
    def settings(self) -> list[Setting]:
        """The columns of the main table."""
        return [setting(name) for name in self.profile.settings]

    @property
    def beyond(self) -> list[Setting]:
        """The settings of ``beyond``."""
        names = self.profile.beyond if self.protocol == "clean" else self.profile.beyond[:1]
        return [setting(name) for name in names]

    @property
    def window(self) -> RoundRange:
        """The rounds whose mean accuracy the tables show."""
        return RoundRange.of(self.profile.rounds)

    @property
    def level(self) -> str:
        """The head of the column with this accuracy."""
        return f"{self.window}, %"

    @property
    def says(self) -> str:
        """A description of what is run."""
        split = ", a partition of its own for each seed" if self.redraw else ""
        start = "" if self.profile.dataset else f", {STARTS[self.start].says}"
        return f"{self.profile.says} Protocol {self.protocol}, {self._precision}{start}{split}."

    @property
    def _precision(self) -> Precision:
        return self.precision or self.profile.precision

    def title(self, where: Setting) -> str:
        """The title of a setting, as it is run in this study."""
        if not self.profile.dataset:
            return where.title
        images = ", generated images" if self.profile.held_out and not self.profile.places_real_images else ""
        return f"{self.profile.dataset}, K={self.profile.clients[where.clients]}, alpha={where.alpha}{images}"

    @property
    def is_the_papers(self) -> bool:
        """Whether the paper's numbers can be shown beside ours."""
        usual = self.start == self.profile.start and not self.redraw
        return self.profile.as_printed and self.protocol == "paper" and usual

    def heading(self, title: str, where: Setting) -> str:
        """The title of a table of one setting."""
        return self.named(f"{title}, {self.title(where)}")

    def named(self, title: str) -> str:
        """The title, with the differences between this study and the paper's protocol."""
        apart = [f"{self.profile.name} profile"] if not self.profile.as_printed else []
        apart += [f"{self.protocol} protocol"] if self.protocol != "paper" else []
        apart += [f"start {self.start}"] if self.start != self.profile.start else []
        apart += ["partitions redrawn"] if self.redraw else []
        return f"{title} ({', '.join(apart)})" if apart else title

    def printed(self, number: Decimal | None) -> Decimal | None:
        """The paper's number, if it can be shown beside ours; else None."""
        return number if self.is_the_papers else None

    def config(self, where: Setting, method: Method) -> RunConfig:
        """The run of this method in this setting, with seed 0; checking a config takes a while, so it is kept."""
        if (where, method) not in self._configs:
            self._configs[where, method] = self._new_config(where, method)
        return self._configs[where, method]

    @cached_property
    def _configs(self) -> dict[tuple[Setting, Method], RunConfig]:
        return {}

    def _new_config(self, where: Setting, method: Method) -> RunConfig:
        profile = self.profile
        policy = method.policy.format(budget=profile.budget)
        return RunConfig(
            label=f"{self._place(where)}-{self._run_name(replace(method, policy=policy))}",
            policy=policy,
            generator=self._generator(method),
            algorithm=profile.algorithms.get(method.algorithm, method.algorithm),
            data=DataConfig(
                dataset=profile.dataset or where.dataset,
                protocol=self.protocol,
                held_out=profile.held_out or self._held_out(where) * method.held_out,
            ),
            partition=self._central() if method.central else self._partition(where),
            model=self._model(where),
            train=self._train(where, method),
            rounds=RoundsConfig(
                total=profile.rounds, participation=1.0 if method.central else float(where.participation)
            ),
            engine=EngineConfig(precision=self._precision),
        )

    def _run_name(self, method: Method) -> str:
        """A name that leaves out what all runs of the profile have, so that runs that are the same have one name."""
        apart = method.held_out and not self.profile.held_out
        return run_name(replace(method, held_out=apart, generator=self._generator_to_name(method)))

    def _generator_to_name(self, method: Method) -> str:
        """The generator as names of runs show it; empty for the usual one."""
        usual = HELD_OUT if self.profile.held_out else self.profile.generator
        generator = self._generator(method)
        if generator == usual or method.policy == FEDAVG.policy:
            return ""
        return method.generator if self.profile.generator == usual else generator

    def _generator(self, method: Method) -> str:
        return method.generator.format(generator=self.profile.generator, other=self.profile.other_generator)

    def _train(self, where: Setting, method: Method) -> TrainConfig:
        usual = self.profile.train
        changed: dict[str, object] = {"sampling": method.sampling}
        if method.loss:
            changed["loss"] = method.loss
        if method.equal_steps:
            changed["steps"] = self.profile.equal_steps[where.id]
        if method.central:
            changed["epochs"] = max(1, round(usual.epochs * float(where.participation)))
        return TrainConfig.model_validate(usual.model_dump() | changed)

    def _held_out(self, where: Setting) -> int:
        return (
            200
            if self.profile.dataset == "digits"
            else known_dataset(where.dataset).labels(merged=False).size // HELD_OUT_SHARE
        )

    def _model(self, where: Setting) -> ModelConfig:
        if self.profile.dataset:
            return ModelConfig(name="small-cnn")
        stem, weights, _ = STARTS[self.start]
        return ModelConfig(name="resnet18", stem=stem, weights=weights.format(other=OTHER[where.dataset]))

    def _place(self, where: Setting) -> str:
        """The setting's short name in this study."""
        if not self.profile.dataset:
            return where.id
        return f"{self.profile.dataset}-k{self.profile.clients[where.clients]}-a{where.alpha}"

    def _central(self) -> PartitionConfig:
        if self.protocol == "paper":
            raise InputError("central training needs the clean protocol; the paper's tests on parts of its clients")
        return PartitionConfig(scheme="iid", clients=1)

    def _partition(self, where: Setting) -> PartitionConfig:
        clients = self.profile.clients.get(where.clients, where.clients)
        scheme: Literal["paper", "dirichlet"] = "paper" if self.protocol == "paper" else "dirichlet"
        return PartitionConfig(scheme=scheme, clients=clients, alpha=float(where.alpha), redraw=self.redraw)


def study(
    profile: str,
    protocol: Protocol = "paper",
    start: str | None = None,
    precision: Precision | None = None,
    redraw: bool = False,
) -> Study:
    """The study of a profile in `PROFILES`, by its name."""
    if profile not in PROFILES:
        raise InputError(f"no profile is called {profile!r}; choose one of {', '.join(PROFILES)}")
    chosen = PROFILES[profile]
    if chosen.held_out and protocol != "clean":
        raise InputError(f"profile {profile} has a split of its own; use the clean protocol")
    known = [SCRATCH] if chosen.dataset else list(STARTS)
    if start is not None and start not in known:
        raise InputError(f"profile {profile} has no start {start!r}; choose one of {', '.join(known)}")
    return Study(chosen, protocol, start or chosen.start, precision, redraw)


def with_seeds(config: RunConfig, seeds: int) -> list[RunConfig]:
    """The run with each seed from 0 to `seeds` - 1."""
    return [config.model_copy(update={"seed": seed}) for seed in range(seeds)]
