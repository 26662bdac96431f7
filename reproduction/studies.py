"""The run behind each cell of the paper's tables: a method in a setting, under a profile and a protocol."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from typing import Literal

from fedeas import InputError, RunPlan
from fedeas.config import RunConfig, checked_config
from reproduction.methods import FEDAVG, Method
from reproduction.profiles import FULL, HELD_OUT, OTHER, PROFILES, SCRATCH, STARTS, Precision, Profile
from reproduction.published import Setting, setting

Protocol = Literal["paper", "clean"]
PROTOCOLS: tuple[Protocol, ...] = ("clean", "paper")  # the more trustworthy one first
HELD_OUT_IMAGES = {"digits": 200}
"""Training images that are held out if a study compares with real images, for datasets with fewer than CIFAR's."""

_PLANS: dict[tuple[object, ...], RunPlan] = {}


def plan_of(config: RunConfig) -> RunPlan:
    """The plan of a run; many runs share one."""
    key = config.policy, config.generator, config.data.dataset, config.data.held_out, config.drawn_partition
    if key not in _PLANS:
        _PLANS[key] = RunPlan.of(config)
    return _PLANS[key]


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
    _configs: dict[tuple[Setting, Method], RunConfig] = field(default_factory=dict, init=False, compare=False)

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
    def window(self) -> str:
        """The rounds whose mean accuracy the tables show: the last tenth."""
        last = self.profile.rounds
        first = last - -(-last // 10) + 1
        return f"round {last}" if first == last else f"rounds {first}-{last}"

    @property
    def level(self) -> str:
        """The head of the column with this accuracy."""
        return f"{self.window}, %"

    @property
    def says(self) -> str:
        """A description of what is run."""
        split = ", a partition of its own for each seed" if self.redraw else ""
        start = "" if self.profile.dataset else f", {STARTS[self.start].says}"
        return (
            f"{self.profile.says} Protocol {self.protocol}, {self.precision or self.profile.precision}{start}{split}."
        )

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

    def _new_config(self, where: Setting, method: Method) -> RunConfig:
        profile, data = self.profile, {"dataset": self.profile.dataset or where.dataset, "protocol": self.protocol}
        policy, clients = method.policy.format(budget=profile.budget), profile.clients.get(where.clients, where.clients)
        generator = method.generator.format(generator=profile.generator, other=profile.other_generator)
        # The name leaves out what all runs of the profile have, so that runs that are the same have one name.
        named = replace(method, policy=policy, held_out=method.held_out and not profile.held_out)
        usual = HELD_OUT if profile.held_out else profile.generator
        if generator == usual or method.policy == FEDAVG.policy:
            named = replace(named, generator="")
        elif profile.generator != usual:
            named = replace(named, generator=generator)
        own = f"{profile.dataset}-k{clients}-a{where.alpha}" if profile.dataset else where.id
        apart = HELD_OUT_IMAGES.get(profile.dataset, 10_000) if method.held_out else 0
        participation = float(where.participation)
        train: dict[str, object] = {**profile.train, "sampling": method.sampling}
        train |= {"loss": method.loss} if method.loss else {}
        train |= {"steps": profile.equal_steps[where.id]} if method.equal_steps else {}
        scheme = "paper" if self.protocol == "paper" else "dirichlet"
        partition: dict[str, object] = {"scheme": scheme, "clients": clients, "redraw": self.redraw}
        partition["alpha"] = float(where.alpha)
        if method.central:
            if self.protocol == "paper":
                raise InputError("central training needs the clean protocol; the paper's tests on parts of its clients")
            train["epochs"] = max(1, round(profile.train["epochs"] * participation))
            partition, participation = {"scheme": "iid", "clients": 1}, 1.0
        model = {"name": "small-cnn"}
        if not profile.dataset:
            stem, weights, _ = STARTS[self.start]
            model = {"name": "resnet18", "stem": stem, "weights": weights.format(other=OTHER[where.dataset])}
        return checked_config(
            {
                "label": f"{own}-{named.run_name}",
                "policy": policy,
                "generator": generator,
                "algorithm": profile.algorithms.get(method.algorithm, method.algorithm),
                "data": {**data, "held_out": profile.held_out or apart},
                "partition": partition,
                "model": model,
                "train": train,
                "rounds": {"total": profile.rounds, "participation": participation},
                "engine": {"precision": self.precision or profile.precision},
            }
        )


@cache
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
