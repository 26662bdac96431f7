"""The parts that train and test a run; a caller may pass faster ones than these."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from fedeas.algorithms.base import Arrays
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.sections import EngineConfig
from fedeas.data.client import Normaliser
from fedeas.federation.engines.base import Engine
from fedeas.federation.engines.processes import cpu_engine
from fedeas.federation.metrics import Evaluation
from fedeas.federation.rounds import OnRound, Probes, Schedule, federate
from fedeas.federation.worker import LocalEngine, Worker

MakeEngine = Callable[[Worker, tuple[int, int, int], Normaliser, int, EngineConfig, int], Engine]
"""Takes the worker, the shape and the normaliser of images, the samples of the largest client, the config's choice, and
the clients in a round."""

Federate = Callable[[FedAvg, Engine, Arrays, Schedule, Evaluation, Probes, OnRound], Arrays]
"""A loop over rounds that computes the same as `rounds.federate`."""


def plain_engine(
    worker: Worker, shape: tuple[int, int, int], normalise: Normaliser, capacity: int,
    chosen: EngineConfig, participants: int,
) -> Engine:  # fmt: skip
    """Several clients at once on the cores of a CPU; on other devices one after the other."""
    if normalise.scale.device.type == "cpu":
        return cpu_engine(worker, chosen, participants)
    return LocalEngine(worker)


@dataclass(frozen=True)
class Backend:
    """The parts that train and test a run.

    Args:
        engine: makes the engine.
        evaluation: makes the test of the server's model.
        federate: the loop over rounds.
        waking: the context in which data are loaded and parts are built.
    """

    engine: MakeEngine = plain_engine
    evaluation: type[Evaluation] = Evaluation
    federate: Federate = federate
    waking: Callable[[], AbstractContextManager[object]] = nullcontext


PLAIN = Backend()
BackendFor = Callable[[torch.device], Backend]
"""Returns what trains and tests on this device."""
