"""What trains and tests a run on a GPU: the engine, the test of the server's model, the loop over rounds."""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn import functional

from fedeas.config.sections import EngineConfig
from fedeas.core.errors import InputError
from fedeas.data.client import Normaliser
from fedeas.fast.fused_layers import fuse_norms
from fedeas.fast.fusion import FusionEngine
from fedeas.fast.lanes import LanesEngine
from fedeas.fast.overlap import federate
from fedeas.fast.stacked import can_be_stacked, gathered_values
from fedeas.federation.engines.processes import PLAIN, Backend
from fedeas.federation.metrics import NO_CLASS, Evaluation
from fedeas.federation.worker import LocalEngine, Worker
from fedeas.gpu import Captured, waking

PAYS = 1_000_000
"""If a stacked model gathers more values than this for an image, lanes are faster (`gpu_rounds.py`)."""


@dataclass(frozen=True, eq=False)
class CapturedEvaluation(Evaluation):
    """On a GPU all batches have one shape, so that one graph is replayed for all."""

    def __post_init__(self) -> None:
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        fuse_norms(self.model)

    @cached_property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Images and labels; the last batch is filled up with images of no class."""
        missing = -len(self.labels) % self.batch_size
        images = functional.pad(self.images, (0, 0, 0, 0, 0, 0, 0, missing))
        labels = functional.pad(self.labels, (0, missing), value=NO_CLASS)
        return list(zip(*(torch.split(each, self.batch_size) for each in (images, labels)), strict=True))

    def scores(self, images: Tensor, labels: Tensor) -> Tensor:
        """Hits of each class, and the sum of the losses, of a batch; overwritten by the next call."""
        return self._recorded(images, labels)

    @cached_property
    def _recorded(self) -> Captured:
        return Captured(partial(Evaluation.scores, self), self.images.device, pure=True)


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
