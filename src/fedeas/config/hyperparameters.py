"""Hyperparameters of algorithms and losses: fields, defaults and checks.

No torch is needed, so that configs can be checked early. The algorithms of `fedeas.algorithms` inherit from these
classes and add the computation.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

import numpy as np

from fedeas.core.arrays import FloatArray, IntArray
from fedeas.core.errors import InputError, SpecError
from fedeas.core.spec import PREFIX, Described, NotNegativeSingle, PositiveSingle, number, read_spec, whole


@dataclass(frozen=True)
class FedAvg(Described):
    """Hyperparameters of FedAvg: none."""


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Hyperparameters of FedProx; the default is the paper's, supplement D."""

    mu: NotNegativeSingle = 0.01  # weight of the proximal term; 0 is FedAvg


@dataclass(frozen=True)
class SCAFFOLD(FedAvg):
    """Hyperparameters of SCAFFOLD."""

    server_lr: PositiveSingle = 1.0  # the server's step size along the mean of the clients' updates
    option: Literal["I", "II"] = "II"  # control variates from the full gradient, or from a client's own update
    weighting: Literal["size", "uniform"] = "size"  # weights of the clients: N_k, or all equal

    def check_momentum(self, momentum: float) -> None:
        """Refuse momentum with option II, which computes the mean gradient from a client's update."""
        if momentum and self.option == "II":
            raise InputError("scaffold's option II does not go with momentum; set train.momentum=0 or option=I")


@dataclass(frozen=True)
class MOON(FedAvg):
    """Hyperparameters of MOON; the defaults are the paper's, supplement D."""

    mu: NotNegativeSingle = 5.0  # weight of the contrastive loss; 0 is FedAvg
    tau: PositiveSingle = 0.5  # temperature of the similarities


@dataclass(frozen=True)
class FedGen(FedAvg):
    """Hyperparameters of FedGen; five defaults are the paper's, supplement D, the last three FedGen's own code's."""

    ensemble_lr: PositiveSingle = 3e-4  # Adam's learning rate for the generator
    batch: Annotated[int, whole(2)] = 32  # of generated features, at the server and at the clients
    noise: Annotated[int, whole(1)] = 128  # length of the noise vector
    hidden: Annotated[int, whole(1)] = 256  # width of the generator's hidden layer
    ensemble_epochs: Annotated[int, whole(1)] = 100  # training steps of the generator after each round
    weight: NotNegativeSingle = 10.0  # of the loss on generated features at the clients, in the first round
    latent: NotNegativeSingle = 10.0  # weight of the divergence from predictions on generated features, likewise
    diversity: NotNegativeSingle = 1.0  # weight of the diversity term


@dataclass(frozen=True)
class FedMix(FedAvg):
    """Hyperparameters of FedMix; the defaults are its paper's for CIFAR-10, as Flower's baseline records them."""

    # Share of the averages in a mixed image; 0 is FedAvg.
    lam: Annotated[float, number("a number, 0 or more and below 1", lambda lam: 0 <= lam < 1)] = 0.05
    mash: Annotated[int, whole(0)] = 0  # images in an average, 0 for all of a client's; one of few reveals them


HYPERPARAMETERS: dict[str, type[FedAvg]] = {
    each.name(): each for each in (FedAvg, FedProx, SCAFFOLD, MOON, FedGen, FedMix)
}


@cache
def parse_hyperparameters(text: str) -> FedAvg:
    """The hyperparameters that an algorithm's spec gives.

    >>> parse_hyperparameters("FedProx(mu=0.10)").spec
    'fedprox(mu=0.1)'
    """
    return read_spec(text, HYPERPARAMETERS, "algorithm", FedAvg)


@dataclass(frozen=True)
class CrossEntropy(Described):
    """The loss of a client's samples: cross-entropy of its logits, which other losses adjust by its label counts."""

    def logit_terms(self, counts: IntArray) -> FloatArray:
        """What is added to the logit of each class, given the samples that the client trains on."""
        return np.zeros(len(counts))


@dataclass(frozen=True)
class BalancedSoftmax(CrossEntropy):
    """Cross-entropy of logits plus tau log of the client's class shares (Ren et al., NeurIPS 2020).

    With `tau` 1 the client's own class shares are fully taken out of the model, with 0 it is cross-entropy.
    """

    tau: NotNegativeSingle = 1.0
    smoothing: PositiveSingle = 1.0  # samples that are added to each class, so that a missing class has a share

    def logit_terms(self, counts: IntArray) -> FloatArray:
        """The logarithms of the smoothed shares; they are all equal for a balanced client, and then have no effect."""
        smoothed = counts + self.smoothing
        return np.asarray(self.tau * np.log(smoothed / smoothed.sum()))


LOSSES: dict[str, type[CrossEntropy]] = {each.name(): each for each in (CrossEntropy, BalancedSoftmax)}


@cache
def parse_loss(text: str) -> CrossEntropy:
    """The loss that a spec gives.

    >>> parse_loss("balanced_softmax(tau=0.50)").spec
    'balanced-softmax(tau=0.5)'
    """
    if PREFIX in text:
        raise SpecError(f"loss spec {text!r}: a loss of your own belongs to an algorithm, as its objective")
    return read_spec(text, LOSSES, "loss")
