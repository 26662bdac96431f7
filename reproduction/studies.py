"""A study: how large it is, how it splits the data, and the run behind each cell: a method in a setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from typing import Literal, NamedTuple

from fedeas import FedEAS, InputError, RunPlan
from fedeas.config import RunConfig, checked_config
from reproduction.methods import FEDAVG, Method
from reproduction.published import Setting, published, setting

Precision = Literal["fp32", "tf32", "bf16"]

HELD_OUT = "held-out"  # the generator that gives real images which were held out
PAPERS_BUDGET = FedEAS(float(published().totals.beta)).spec


class Start(NamedTuple):
    """Where training starts: the stem of the network, and initial weights from central training.

    ``{other}`` stands for the CIFAR dataset that is not trained on: weights that have seen the clients' own images
    would leave nothing to learn.
    """

    stem: Literal["3x3", "imagenet"]
    weights: str
    says: str


SCRATCH, IMAGENET, ANOTHER_START = "scratch", "imagenet", "cifar100-imagenet-stem"
_TRAINED = "starting from weights trained on the other CIFAR dataset"
STARTS = {
    SCRATCH: Start("3x3", "", "3x3 stem, from scratch"),
    "cifar100": Start("3x3", "{other}-pretrained", f"3x3 stem, {_TRAINED}"),
    ANOTHER_START: Start("imagenet", "{other}-imagenet-stem", f"ImageNet's 7x7 stem, {_TRAINED}"),
    IMAGENET: Start(
        "imagenet", IMAGENET, "ImageNet's 7x7 stem, starting from ImageNet (torchvision's, rebuilt in int8)"
    ),
}
"""Where the main table starts is last; runs on CIFAR-100 start from CIFAR-10 weights as those on CIFAR-10 do."""

FEW_STEPS = "diffusion(solver=dpm-snr, steps=13)"
"""How images are drawn in runs from the ImageNet start: faster than by default, and judged better."""

OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}

HEADLINE = "c10-k100-a0.1"  # the setting in which all policies are compared, including those beyond the paper
MAIN = ("c10-k20-a0.1", HEADLINE)


@dataclass(frozen=True)
class Profile:
    """How large a reproduction is."""

    name: str  # the key in `PROFILES`
    says: str  # a description of the training
    settings: tuple[str, ...]  # columns of the main table that are run
    train: Mapping[str, float]
    rounds: int
    generator: str = "diffusion"
    other_generator: str = "sd-turbo"  # the one that it is compared with
    precision: Precision = "bf16"
    as_printed: bool = False  # whether training is the paper's, so that its numbers can be shown beside ours
    dataset: str = ""  # replaces the paper's datasets, if given
    held_out: int = 0  # training images that go to no client, in all runs; needs the clean protocol
    clients: Mapping[int, int] = field(default_factory=dict)  # on such a dataset, how many replace 20 and 100
    budget: str = PAPERS_BUDGET  # the FedEAS policy whose total the other policies match
    beyond: tuple[str, ...] = (HEADLINE,)  # settings of ``beyond``; under the paper's protocol, the first one alone
    compares_most: bool = True  # whether ``beyond`` compares more methods in the first one than in the others
    largest_everywhere: bool = False  # whether it compares the pool to the largest class in all of them, too
    betas: tuple[float, ...] = (4, 12)  # FedEAS's beta for its budgets
    planned_seeds: int = 3  # seeds that ``beyond`` needs to be finished
    # Settings in which methods are also compared at equal work, and the steps that each client then takes in a round:
    # about FedEAS's mean.
    equal_steps: Mapping[str, int] = field(default_factory=dict)
    algorithms: Mapping[str, str] = field(default_factory=dict)  # specs that differ from the defaults
    start: str = SCRATCH  # which of `STARTS` the training starts from

    @property
    def places_real_images(self) -> bool:
        """Whether policies place real images that no client has, as if a generator were perfect."""
        return self.generator == HELD_OUT


SMALL_CNN_SAYS = (
    "{dataset} with the small CNN: 150 rounds of two local epochs with learning rate 0.05.{parts} 10,000 of the "
    "{images} training images go to no client. "
)
REAL_SAYS = "They are the images that policies place, as if a generator were perfect; two clients may get the same one."
OWN_PARTS = " Own split: training and test part are not the official ones; 1,000 test images of each class were drawn."
FASHION_SAYS = SMALL_CNN_SAYS.format(dataset="Fashion-MNIST", images="60,000", parts=OWN_PARTS)
GENERATED_SAYS = (
    "Policies place images of a small diffusion model, which was trained on all training images. Clients are the same "
    "as in profile fashion, where they get real images."
)

FULL = Profile(
    "full",
    "The paper's training: 200 rounds of ten local epochs, ResNet-18, SGD with learning rate 0.001, batches of 64.",
    tuple(each.id for each in published().settings), {"epochs": 10}, 200, as_printed=True,
    start=IMAGENET, beyond=(HEADLINE, "c10-k100-a0.05", "c10-k20-a0.1"),
    equal_steps={HEADLINE: 134},
)  # fmt: skip

DIGITS = Profile(
    "digits",
    "Digits on a CPU, to compare policies over many seeds in minutes: 60 rounds of five local epochs with learning "
    "rate 0.05. Where a table names no beta, it is 2 instead of 12, because there are few digits.",
    MAIN, {"lr": 0.05, "epochs": 5}, 60, "diffusion", "gaussian", "fp32",
    dataset="digits", clients={20: 20, 100: 40}, budget=FedEAS(2).spec, betas=(0.8, 1.4, 3.5),
    planned_seeds=10, beyond=(HEADLINE, "c10-k100-a0.05", "c10-k100-a0.3", "c10-k20-a0.1"),
    largest_everywhere=True,
    equal_steps={HEADLINE: 7, "c10-k100-a0.05": 7, "c10-k100-a0.3": 5, "c10-k20-a0.1": 10},
)  # fmt: skip

FASHION = Profile(
    "fashion", FASHION_SAYS + REAL_SAYS, (HEADLINE,), {"lr": 0.05, "epochs": 2}, 150, HELD_OUT, "gaussian", "fp32",
    dataset="fashion-mnist", held_out=10_000, clients={20: 20, 100: 100}, betas=(1.3, 3.7, 12), planned_seeds=5,
    equal_steps={HEADLINE: 20}, beyond=(HEADLINE, "c10-k100-a0.05", "c10-k100-a0.3", "c10-k20-a0.1"),
)  # fmt: skip

FASHION_GENERATED = replace(
    FASHION, name="fashion-generated", says=FASHION_SAYS + GENERATED_SAYS, generator="diffusion",
    beyond=(HEADLINE,), compares_most=False, largest_everywhere=True, equal_steps={},
)  # fmt: skip

CIFAR100 = replace(
    FASHION, name="cifar100", dataset="cifar100",
    says=SMALL_CNN_SAYS.format(dataset="CIFAR-100", images="50,000", parts="") + REAL_SAYS,
    betas=(1.2, 2, 5.2), equal_steps={}, beyond=(HEADLINE,), compares_most=False,
)  # fmt: skip

SMOKE = Profile(
    "smoke",
    "Digits on a CPU, 3 rounds of one epoch: shows that every command works, and says nothing about the methods.",
    MAIN, {"lr": 0.05, "epochs": 1}, 3, "gaussian", "diffusion(steps=1)", "fp32",
    dataset="digits", clients={20: 8, 100: 12}, betas=(2,), equal_steps={HEADLINE: 2}, planned_seeds=1,
    algorithms={"fedgen": "fedgen(ensemble_epochs=1)"},
)  # fmt: skip

PROFILES = {each.name: each for each in (FULL, DIGITS, FASHION, FASHION_GENERATED, SMOKE, CIFAR100)}

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

    profile: Profile
    protocol: Protocol = "paper"
    start: str = SCRATCH
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
        """A description of what is run, and what the spread over seeds covers."""
        how = f"Protocol {self.protocol}, {self.precision or self.profile.precision}"
        how += "" if self.profile.dataset else f", {STARTS[self.start].says}"
        seeds = "All seeds share one partition, so deviations and intervals cover training alone."
        if self.redraw:
            seeds = "Each seed has a partition of its own, so deviations and intervals cover other clients, too."
        return f"{self.profile.says} {how}. {seeds}"

    def title(self, where: Setting) -> str:
        """The title of a setting, as it is run in this study."""
        if not self.profile.dataset:
            return where.title
        images = ", generated images" if self.profile.held_out and not self.profile.places_real_images else ""
        return f"{self.profile.dataset}, K={self.profile.clients[where.clients]}, alpha={where.alpha}{images}"

    @property
    def origin(self) -> str:
        """Where training starts, in short."""
        return "another start" if self.start == ANOTHER_START else f"start {self.start}"

    def heading(self, title: str, where: Setting) -> str:
        """The title of a table of one setting."""
        return self.named(f"{title}, {self.title(where)}")

    def named(self, title: str) -> str:
        """The title, with the differences between this study and the paper's protocol."""
        apart = [f"{self.profile.name} profile"] * (not self.profile.as_printed)
        apart += [f"{self.protocol} protocol"] * (self.protocol != "paper")
        apart += [self.origin] * (self.start != self.profile.start) + ["partitions redrawn"] * self.redraw
        return f"{title} ({', '.join(apart)})" if apart else title

    def printed(self, number: Decimal | None) -> Decimal | None:
        """The paper's number, if this is its training; else None."""
        return number if self.profile.as_printed else None

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
    start = start or chosen.start
    if start == IMAGENET:
        chosen = replace(chosen, generator=FEW_STEPS)
    return Study(chosen, protocol, start, precision, redraw)


def beyond_study(profile: str, protocol: Protocol) -> Study:
    """The study in which a profile compares methods beyond the paper; no start but this one has their runs."""
    return study(profile, protocol, ANOTHER_START if profile == FULL.name else None)


def with_seeds(config: RunConfig, seeds: int) -> list[RunConfig]:
    """The run with each seed from 0 to `seeds` - 1."""
    return [config.model_copy(update={"seed": seed}) for seed in range(seeds)]
