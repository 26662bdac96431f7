"""A Gaussian generator from one round of all clients, in the form of an algorithm, so that any engine can run it.

A client sends its sums alone, and the server only adds them: a secure aggregation can do that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Fleet, Reply
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.generators import Gaussian
from fedeas.generators.base import Shape
from fedeas.generators.gaussian import GaussianGenerator, SumNoise, check_sizes, class_sums

SUMS = f"{MODEL}class_sums"
"""The only tensor of states and messages, as `class_sums` gives it; transports refuse replies of another form."""


@dataclass(frozen=True, eq=False)
class GaussianSums(FedAvg):
    """Fits `GaussianGenerator` to the images of all clients, bit for bit as if they were in one place.

    Without noise a client's sums tell its label counts, and of a class with one image they tell that image's scores.
    The basis is always that of cosines. The owner of a node sets `noise`.
    """

    shares_counts = True
    settings: Gaussian
    shape: Shape
    class_names: tuple[str, ...]
    noise: SumNoise | None = None

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """Sums of no images."""
        check_sizes(int(fleet.sizes.sum()), self.shape, self.settings.components)
        nothing = np.empty((0, *self.shape), np.uint8), np.empty(0, np.int64)
        return {SUMS: torch.from_numpy(class_sums(*nothing, len(self.class_names), self.settings.components))}

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """The sums of the client's real images, with noise if there is any."""
        real = job.data.num_real
        images, labels = (tensor[:real].cpu().numpy() for tensor in (job.data.images, job.data.labels))
        sums = class_sums(images, labels, len(self.class_names), self.settings.components, self.noise)
        return Reply(job.client, real, {SUMS: torch.from_numpy(sums)}), {}

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """The sums of all clients that replied."""
        return {SUMS: torch.stack([reply.arrays[SUMS] for reply in replies]).sum(dim=0)}

    def result(self, server: Arrays) -> GaussianGenerator:
        """The generator; its `save` writes a file for ``gaussian(weights=FILE)``."""
        sums, chosen = server[SUMS].cpu().numpy(), self.settings
        return GaussianGenerator.of_sums(sums, self.shape, chosen.components, chosen.shrinkage, self.class_names)
