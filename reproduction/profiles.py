"""How large a reproduction is: data, training and settings of each profile, and where its training starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from fedeas import FedEAS
from reproduction.published import published

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


SCRATCH, _TRAINED = "scratch", "starting from weights trained on the other CIFAR dataset"
STARTS = {
    SCRATCH: Start("3x3", "", "3x3 stem, from scratch"),
    "cifar100": Start("3x3", "{other}-pretrained", f"3x3 stem, {_TRAINED}"),
    "cifar100-imagenet-stem": Start("imagenet", "{other}-imagenet-stem", f"ImageNet's 7x7 stem, {_TRAINED}"),
}
"""The last one reaches the paper's level; runs on CIFAR-100 start from CIFAR-10 weights in the same way."""

OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}

HEADLINE = "c10-k100-a0.1"  # the setting in which all policies are compared, including those beyond the paper
MAIN = ("c10-k20-a0.1", HEADLINE)


@dataclass(frozen=True)
class Profile:
    """How large a reproduction is.

    Attributes:
        name: the key in `PROFILES`.
        says: a description of the training.
        settings: columns of the main table that are run.
        generator, other_generator: the generator, and the one it is compared with.
        as_printed: whether the training is the paper's, so that the paper's numbers can be shown beside ours.
        dataset: replaces the paper's datasets, if given.
        held_out: training images that go to no client, in all runs; needs the clean protocol.
        clients: on such a dataset, how many clients replace 20 and 100.
        budget: the FedEAS policy whose total the other policies match.
        beyond: settings of ``beyond``; under the paper's protocol, the first one alone.
        compares_most: whether it compares more methods in the first one than in the others.
        largest_everywhere: whether it compares the pool to the largest class in all of them, too.
        betas: FedEAS's beta for its budgets.
        planned_seeds: seeds that ``beyond`` needs to be finished.
        equal_steps: the settings in which methods are also compared at equal work, and the steps that each client then
            takes in a round: about FedEAS's mean.
        algorithms: specs that differ from the defaults.
        start: which of `STARTS` the training starts from.
    """

    name: str
    says: str
    settings: tuple[str, ...]
    train: Mapping[str, float]
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
    equal_steps: Mapping[str, int] = field(default_factory=dict)
    algorithms: Mapping[str, str] = field(default_factory=dict)
    start: str = SCRATCH

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
    start="cifar100-imagenet-stem", beyond=(HEADLINE, "c10-k100-a0.05", "c10-k20-a0.1"),
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
