"""A Gaussian generator from the sums of all clients, in the form of an algorithm, so that any engine can run it.

It takes one round with all clients. A client sends its sums alone, and the server adds them and does nothing else with
them, so that a secure aggregation can do the adding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Fleet, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.generators import Gaussian
from fedeas.generators.base import Shape
from fedeas.generators.class_sums import SumNoise, check_room, class_sums, width
from fedeas.generators.gaussian import GaussianGenerator

SUMS = f"{MODEL}class_sums"
"""The only tensor of states and messages: int64, classes x `width`; a transport refuses replies without it."""


@dataclass(frozen=True, eq=False)
class GaussianSums(FedAvg):
    """Fits `GaussianGenerator` to the images of all clients, bit for bit as if they were in one place.

    Without noise a client's sums tell its label counts, and of a class with one image they tell that image's scores.

    Args:
        settings: components and shrinkage. The basis is always that of cosines, which needs no images.
        shape: of the images.
        class_names: of all classes.
        noise: what the owner of a node adds to its sums; None to send them as they are.
    """

    shares_counts: ClassVar[bool] = True
    rounds: ClassVar[int] = 1
    """More rounds would send the same sums again."""

    settings: Gaussian
    shape: Shape
    class_names: tuple[str, ...]
    noise: SumNoise | None = None

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """Sums of no images."""
        check_room(int(fleet.sizes.sum()), self.shape)
        return {SUMS: torch.zeros(len(self.class_names), width(self.settings.components), dtype=torch.int64)}

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """The sums of the client's real images, with noise if the owner of its node has set some."""
        real, components = job.data.num_real, self.settings.components
        images, labels = (tensor[:real].cpu().numpy() for tensor in (job.data.images, job.data.labels))
        clip = {} if self.noise is None else {"clip": self.noise.clip}
        sums = class_sums(images, labels, len(self.class_names), components, **clip)
        if self.noise is not None:
            sums = self.noise.added_to(sums, components)
        return Reply(job.client, real, {SUMS: torch.from_numpy(sums)}), {}

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """The sums of all clients that replied."""
        return {SUMS: torch.stack([reply.arrays[SUMS] for reply in replies]).sum(dim=0)}

    def result(self, server: Arrays) -> GaussianGenerator:
        """The generator; its `save` writes a file for ``gaussian(weights=FILE)``."""
        sums = np.asarray(server[SUMS].cpu().numpy())
        chosen = self.settings
        return GaussianGenerator.of_sums(sums, self.shape, chosen.components, chosen.shrinkage, self.class_names)
