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

    On a GPU, it is the time of one client after the other, an upper bound.
    """
    config = parts.config
    steps = steps_of_a_round(config, parts.data.counts.sizes + allocation.per_client)
    if parts.device.type != "cpu":
        return Forecast(rounds * steps * _step_seconds(parts), rounds, allocation.total, is_bound=True)
    cores = torch.get_num_threads()
    at_once = min(cores, config.participants)
    processes = 1 if config.engine.name == "local" else min(config.engine.processes or at_once, config.participants)
    with torch_threads(cores // at_once):
        seconds = rounds * steps * _step_seconds(parts) / processes
    return Forecast(seconds, rounds, allocation.total)


def steps_of_a_round(config: RunConfig, samples: IntArray) -> float:
    """Expected steps of all clients in a round, given each client's samples."""
    if config.train.steps:
        return float(config.participants * config.train.steps)
    steps = config.train.epochs * np.ceil(samples / config.train.batch_size)
    return config.participants * float(steps.mean())


def _step_seconds(parts: Parts) -> float:
    """Seconds of a step of SGD on a whole batch; the model of the run and all random streams stay as they are."""
    model, size = copy.deepcopy(parts.model), parts.config.train.batch_size
    images = parts.normalise(torch.from_numpy(np.array(parts.data.images[:size])).to(parts.device))
    labels = torch.from_numpy(np.array(parts.data.labels[:size])).to(parts.device)
    optimiser = Descent(model, parts.config.train, 0.0)

    def step() -> None:
        loss = functional.cross_entropy(model(images), labels)
        optimiser.expect(loss, corrected=False)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return seconds_of(step, parts.device) * size / len(labels)
