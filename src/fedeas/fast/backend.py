"""The engine, the evaluation and the loop of runs on a GPU."""

from __future__ import annotations

from functools import partial

import torch

from fedeas.config.sections import EngineConfig
from fedeas.core.errors import InputError
from fedeas.data.client import Normaliser
from fedeas.fast.evaluation import CapturedEvaluation
from fedeas.fast.fusion import FusionEngine
from fedeas.fast.lanes import LanesEngine
from fedeas.fast.overlap import federate
from fedeas.fast.stacked import can_be_stacked, gathered_values
from fedeas.federation.backend import PLAIN, Backend
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.gpu import waking

PAYS = 1_000_000
"""If a stacked model gathers more values than this for an image, lanes are faster (`gpu_rounds.py`)."""


def backend_for(device: torch.device) -> Backend:
    """The fast backend for a GPU, and the plain one for other devices."""
    if device.type != "cuda":
        return PLAIN
    return Backend(gpu_engine, CapturedEvaluation, federate, partial(waking, device))


def gpu_engine(
    worker: Worker, shape: tuple[int, int, int], normalise: Normaliser, capacity: int,
    chosen: EngineConfig, participants: int,
) -> LocalEngine:  # fmt: skip
    """The engine of the config; ``fast`` is the stacked one if it is faster, otherwise lanes.

    The choice depends on model and algorithm alone, not on a measurement: the last bits of a result must not depend on
    other work of the GPU.
    """
    if chosen.name == "local":
        return LocalEngine(worker)
    possible = worker.algorithm.stacks and can_be_stacked(worker.model) and not chosen.compile
    if chosen.name == "fused" and not possible:
        raise InputError(
            f"engine.name fused: cannot stack {worker.algorithm.spec} with this model or compile it; use fast or lanes"
        )
    pays = possible and not chosen.lanes and gathered_values(worker.model, shape) <= PAYS
    if chosen.name == "fused" or (chosen.name == "fast" and pays):
        return FusionEngine(worker, shape, normalise, capacity, participants)
    return LanesEngine(worker, normalise, capacity, chosen.lanes, chosen.compile)
