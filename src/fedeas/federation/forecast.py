"""Estimate how long a run will train, from a few steps that are timed before it starts."""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from fedeas.algorithms.sgd import Descent
from fedeas.config.run import RunConfig
from fedeas.core.arrays import IntArray
from fedeas.core.devices import seconds_of, torch_threads
from fedeas.federation.engines.processes import divided_cores
from fedeas.federation.parts import Parts
from fedeas.planning.counts import Allocation


class Forecast(NamedTuple):
    """Seconds of training, the rounds that are left, and the number of images that the plan asks for."""

    seconds: float
    rounds: int
    images: int
    is_bound: bool = False
    """Whether `seconds` is an upper bound; on a GPU it is, because clients train at the same time."""


def forecast(parts: Parts, allocation: Allocation, rounds: int) -> Forecast:
    """The time for this many rounds: the clients' steps, divided among the cores, at the pace of plain SGD.

    On a GPU, it is the time of one client after the other, an upper bound. The model of the run and all random streams
    stay as they are.
    """
    config, data, on_cpu = parts.config, parts.data, parts.device.type == "cpu"
    model, size = copy.deepcopy(parts.model), config.train.batch_size
    images = parts.normalise(torch.from_numpy(np.array(data.images[:size])).to(parts.device))
    labels = torch.from_numpy(np.array(data.labels[:size])).to(parts.device)
    optimiser = Descent(model, config.train, 0.0)

    def step() -> None:
        loss = functional.cross_entropy(model(images), labels)
        optimiser.expect(loss, corrected=False)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    processes, threads = divided_cores(config.engine, config.participants) if on_cpu else (1, torch.get_num_threads())
    with torch_threads(threads):
        of_a_step = seconds_of(step, parts.device) * size / len(labels)
    steps = steps_of_a_round(config, data.counts.sizes + allocation.per_client)
    return Forecast(rounds * steps * of_a_step / processes, rounds, allocation.total, is_bound=not on_cpu)


def steps_of_a_round(config: RunConfig, samples: IntArray) -> float:
    """Expected steps of all clients in a round, given each client's samples."""
    if config.train.steps:
        return float(config.participants * config.train.steps)
    steps = config.train.epochs * np.ceil(samples / config.train.batch_size)
    return config.participants * float(steps.mean())
