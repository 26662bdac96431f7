"""The run behind each cell of the paper's tables: methods, settings, and profiles of training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal, NamedTuple

from fedeas.config import (
    NO_GENERATION,
    DataConfig,
    EngineConfig,
    ModelConfig,
    PartitionConfig,
    RoundsConfig,
    RunConfig,
    TrainConfig,
)
from fedeas.core.weight_files import IMAGENET_STEM, PRETRAINED
from fedeas.data.known import known_dataset
from fedeas.errors import InputError
from fedeas.paper.published import Setting, published, setting
from fedeas.planning.policies import FedEAS
from fedeas.runs.accuracy_curves import RoundRange

Protocol = Literal["paper", "clean"]
PROTOCOLS: tuple[Protocol, ...] = ("clean", "paper")
"""The more trustworthy one first."""

Precision = Literal["fp32", "tf32", "bf16"]


BUDGET = "{budget}"
"""Placeholder for the profile's FedEAS policy, whose total the other policies match."""

PAPERS_BUDGET = FedEAS(float(published().totals.beta)).spec


@dataclass(frozen=True)
class Method:
    """A row of the paper's tables."""

    title: str
    algorithm: str = "fedavg"
    policy: str = NO_GENERATION
    generator: str = "{generator}"
    """``{generator}`` stands for the profile's generator, ``{other}`` for the one that it is compared with."""
    held_out: bool = False
    """Whether a part of the training images goes to no client."""
    loss: str = ""
    """Replaces cross-entropy."""
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    """How clients sample their batches."""
    central: bool = False
    """Whether one client holds all images: the ceiling of what clients can reach. It sees as many images in a
    round as all participants together, and each image at least once."""
    server_epochs: int = 0
    """Passes over the images at the server, which then do not go to clients; 0 gives them to clients."""
    equal_steps: bool = False
    """Whether every client takes the profile's number of steps in a round, however many samples it has."""

    @property
    def name(self) -> str:
        """The method's name in ``published.toml``."""
        return self.title.lower()


def at_one_budget(policy: str, budget: str = BUDGET) -> str:
    """The policy with the total of another, by default of the profile's plan.

    >>> at_one_budget("uniform", "fedeas(beta=8)")
    'uniform(budget=fedeas(beta=8))'
    """
    return f"{policy}(budget={budget})"


FEDAVG = Method("FedAvg")
UNIFORM = Method("Uniform", policy=at_one_budget("uniform"))
MISSING_ONLY = Method("Missing-only", policy=at_one_budget("missing-only"))
FULL_BALANCE = Method("Full-Balance", policy="full-balance")
FEDEAS = Method("FedEAS", policy=BUDGET)
SCAFFOLD = Method("SCAFFOLD", "scaffold")

METHODS = {
    method.name: method
    for method in (
        FEDAVG, Method("FedProx", "fedprox"), SCAFFOLD, Method("MOON", "moon"), Method("FedGen", "fedgen"),
        Method("FedMix", "fedmix"), UNIFORM, MISSING_ONLY, FULL_BALANCE, FEDEAS,
    )
}  # fmt: skip
"""The rows of the main table, by name."""

HELD_OUT_SHARE = 5
"""One in this many training images is held out if a study compares with real images."""

GREEDY = Method("Greedy", policy=at_one_budget("greedy"))
OPTIMAL = Method("Optimal", policy=at_one_budget("optimal"))


ABLATION = {
    "FedEAS (beta = 8)": FedEAS(8),
    "without entropy (beta = 6)": FedEAS(6, entropy=False),
    "linear in the size (beta = 0.6)": FedEAS(0.6, gamma=1),
}
"""The rows of Table 2, which says beta = 8 for all three; these are the betas that give its totals."""


class Start(NamedTuple):
    """Where training starts: the stem of the network, and initial weights from central training.

    ``{other}`` stands for the CIFAR dataset that is not trained on: weights that have seen the clients' own images
    would leave nothing to learn.
    """

    stem: Literal["3x3", "imagenet"]
    weights: str
    says: str


SCRATCH = "scratch"
STARTS = {
    SCRATCH: Start("3x3", "", "3x3 stem, from scratch"),
    "cifar100": Start(
        "3x3", f"{{other}}{PRETRAINED}", "3x3 stem, starting from weights trained on the other CIFAR dataset"
    ),
    "cifar100-imagenet-stem": Start(
        "imagenet",
        f"{{other}}{IMAGENET_STEM}",
        "ImageNet's 7x7 stem, starting from weights trained on the other CIFAR dataset",
    ),
}
"""The last one reaches the paper's level; runs on CIFAR-100 start from CIFAR-10 weights in the same way."""

OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}


HEADLINE = "c10-k100-a0.1"
"""The setting in which all policies are compared, including those beyond the paper."""

MAIN = ("c10-k20-a0.1", HEADLINE)


@dataclass(frozen=True)
class Profile:
    """How large a reproduction is.

    Attributes:
        says: a description of the training.
        settings: columns of the main table that are run.
        generator, other_generator: the generator, and the one it is compared with.
        as_printed: whether the training is the paper's, so that the paper's numbers can be shown beside ours.
        dataset: replaces the paper's datasets, if given.
        held_out: training images that go to no client, in all runs; needs the clean protocol.
        clients: on such a dataset, how many clients replace 20 and 100.
        budget: the FedEAS policy whose total the other policies match.
        beyond: settings of ``beyond``; under the paper's protocol, the first one alone.
        compares_most: whether it compares more methods in the first one than in the others, and at equal steps.
        largest_everywhere: whether it compares the pool to the largest class in all of them, too.
        betas: FedEAS's beta for its budgets.
        planned_seeds: seeds that ``beyond`` needs to be finished.
        equal_steps: steps of each client in a round, where methods are compared at equal work: about FedEAS's mean.
        algorithms: specs that differ from the defaults.
        start: which of `STARTS` the training starts from.
    """

    says: str
    settings: tuple[str, ...]
    train: TrainConfig
    rounds: int
    generator: str = "diffusion"
    other_generator: str = "sd-turbo"
    precision: Precision = "bf16"
    as_printed: bool = False
    dataset: str = ""
    held_out: int = 0
    clients: Mapping[int, int] = field(default_factory=dict)
    budget: str = PAPERS_BUDGET
    beyond: tuple[str, ...] = (HEADLINE,)
    compares_most: bool = True
    largest_everywhere: bool = False
    betas: tuple[float, ...] = (4, 12)
    planned_seeds: int = 3
    equal_steps: int = 134
    algorithms: Mapping[str, str] = field(default_factory=dict)
    start: str = SCRATCH


HELD_OUT_SAYS = (
    "{dataset} with the small CNN: 150 rounds of two local epochs with learning rate 0.05. A split of our own: 10,000 "
    "of the {images} training images go to no client. They are the images that policies place, as if a generator were "
    "perfect; two clients may get the same one."
)
"""A description of training in which real images stand for synthetic ones."""

PROFILES = {
    "full": Profile(
        "The paper's training: 200 rounds of ten local epochs, ResNet-18, SGD with learning rate 0.001, batches of 64.",
        tuple(each.id for each in published().settings), TrainConfig(), 200, as_printed=True,
        start="cifar100-imagenet-stem", beyond=(HEADLINE, "c10-k100-a0.05", "c10-k20-a0.1"),
    ),
    "digits": Profile(
        "Digits on a CPU, to compare policies over many seeds in minutes: 60 rounds of five local epochs with learning "
        "rate 0.05. Where a table names no beta, it is 2 instead of 12, because there are few digits.",
        MAIN, TrainConfig(lr=0.05, epochs=5), 60, "diffusion", "gaussian", "fp32",
        dataset="digits", clients={20: 20, 100: 40}, budget=FedEAS(2).spec, betas=(0.8, 1.4, 3.5), equal_steps=7,
        planned_seeds=10, beyond=(HEADLINE, "c10-k100-a0.05", "c10-k100-a0.3", "c10-k20-a0.1"),
        largest_everywhere=True,
    ),
    "fashion": Profile(
        HELD_OUT_SAYS.format(dataset="Fashion-MNIST", images="60,000"),
        (HEADLINE,), TrainConfig(lr=0.05, epochs=2), 150, "held-out", "gaussian", "fp32", dataset="fashion-mnist",
        held_out=10_000, clients={20: 20, 100: 100}, betas=(1.3, 3.7, 12), equal_steps=20,
        planned_seeds=5, beyond=(HEADLINE, "c10-k100-a0.05", "c10-k100-a0.3", "c10-k20-a0.1"),
    ),
    "smoke": Profile(
        "Digits on a CPU, 3 rounds of one epoch: shows that every command works, and says nothing about the methods.",
        MAIN, TrainConfig(lr=0.05, epochs=1), 3, "gaussian", "diffusion(steps=4)", "fp32",
        dataset="digits", clients={20: 8, 100: 12}, betas=(2,), equal_steps=2, planned_seeds=1,
        algorithms={"fedgen": "fedgen(ensemble_epochs=1)"},
    ),
}  # fmt: skip
PROFILES["cifar100"] = replace(
    PROFILES["fashion"], says=HELD_OUT_SAYS.format(dataset="CIFAR-100", images="50,000"), dataset="cifar100",
    betas=(1.2, 2, 5.2), equal_steps=16, beyond=(HEADLINE,), compares_most=False,
)  # fmt: skip


@dataclass(frozen=True)
class Study:
    """A profile under one protocol, from one start, in one precision (by default the profile's).

    With `redraw` each seed has its own partition, so that the spread over seeds includes the draw of clients.
    """

    profile: Profile = PROFILES["full"]
    protocol: Protocol = "paper"
    start: str = PROFILES["full"].start
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
        return f"{self.profile.dataset}, K={self.profile.clients[where.clients]}, alpha={where.alpha}"

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
        profile = next(name for name, each in PROFILES.items() if each is self.profile)
        apart = [f"{profile} profile"] if not self.profile.as_printed else []
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
            label=f"{self._place(where)}-{self._name(replace(method, policy=policy))}",
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

    def _name(self, method: Method) -> str:
        """A name that leaves out what all runs of the profile have, so that runs that are the same have one name."""
        usual = self._generator(method) == self.profile.generator
        apart = method.held_out and not self.profile.held_out
        return _name(replace(method, held_out=apart, generator="" if usual else method.generator))

    def _generator(self, method: Method) -> str:
        return method.generator.format(generator=self.profile.generator, other=self.profile.other_generator)

    def _train(self, where: Setting, method: Method) -> TrainConfig:
        usual = self.profile.train
        changed: dict[str, object] = {"sampling": method.sampling, "server_epochs": method.server_epochs}
        if method.loss:
            changed["loss"] = method.loss
        if method.equal_steps:
            changed["steps"] = self.profile.equal_steps
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
    """The study of this profile: ``full``, ``digits``, ``fashion``, ``cifar100`` or ``smoke``."""
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


def combined(method: Method, algorithm: Method) -> Method:
    """A method with the policy of the first and the algorithm of the second."""
    return replace(method, title=f"{method.title} + {algorithm.title}", algorithm=algorithm.algorithm)


def _name(method: Method) -> str:
    """A name from the method's settings, so that all tables find the same run folder."""
    generation = [] if method.policy == NO_GENERATION else [method.policy]
    source = ["apart"] * method.held_out
    source += [method.loss.partition("(")[0]] * bool(method.loss) + ["steps"] * method.equal_steps
    source += ["server"] * bool(method.server_epochs)
    source += ["balanced"] * (method.sampling == "balanced") + ["central"] * method.central
    if method.generator:
        source += [method.generator.partition("(")[0], *re.findall(r"each=\d+", method.generator)]
    words = "-".join([method.algorithm, *generation, *source])
    return re.sub(r"[^a-z0-9.]+", "-", re.sub("(budget|distinct)=", "", words).lower()).strip("-")
