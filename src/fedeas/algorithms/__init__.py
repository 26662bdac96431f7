"""Federated algorithms, one file each with client half and server half; independent of generators and engines."""

from fedeas.algorithms.base import Arrays, ClientJob, Fleet, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.fedgen import FedGen
from fedeas.algorithms.fedmix import FedMix
from fedeas.algorithms.fedprox import FedProx
from fedeas.algorithms.local_sgd import Batch, Objective, local_sgd
from fedeas.algorithms.moon import MOON
from fedeas.algorithms.scaffold import SCAFFOLD
from fedeas.core.spec import read_spec

ALGORITHMS: dict[str, type[FedAvg]] = {
    algorithm.name(): algorithm for algorithm in (FedAvg, FedProx, SCAFFOLD, MOON, FedGen, FedMix)
}
"""The same names as in `fedeas.config.hyperparameters`."""


def parse_algorithm(text: str) -> FedAvg:
    """The algorithm that a spec describes.

    >>> parse_algorithm("fedprox(mu=0.1)")
    FedProx(mu=0.1)
    """
    return read_spec(text, ALGORITHMS, "algorithm", FedAvg)


__all__ = [
    "ALGORITHMS",
    "MOON",
    "SCAFFOLD",
    "Arrays",
    "Batch",
    "ClientJob",
    "FedAvg",
    "FedGen",
    "FedMix",
    "FedProx",
    "Fleet",
    "Objective",
    "Reply",
    "local_sgd",
    "parse_algorithm",
]
