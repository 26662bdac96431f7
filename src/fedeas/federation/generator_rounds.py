"""Federated averaging of a diffusion model with Adam, in the form of an algorithm, so that any engine can run it.

The server keeps the weights and Adam's moments in fp32, and a mean of the weights over rounds, which is the result.
Clients keep nothing: they receive weights and moments, do a few updates, and send the change of the weights and the new
moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor, nn

from fedeas.algorithms.base import MODEL, Arrays, ClientJob, Fleet, Reply, as_group, group, members, weighted_mean
from fedeas.algorithms.fedavg import FedAvg
from fedeas.config.generators import Federated
from fedeas.core.arrays import stream_seed
from fedeas.core.devices import copy_all
from fedeas.core.errors import log
from fedeas.generators.diffusion.presets import Preset
from fedeas.generators.diffusion.updates import ClientUpdates, sent_moments

MEAN = "mean/"


@dataclass(frozen=True, eq=False)
class DiffusionRounds(FedAvg):
    """FedAvg over the weights of a diffusion model."""

    settings: Federated
    preset: Preset
    num_classes: int
    compiled: bool = False

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The initial weights, their mean, and moments of zero."""
        own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        zeros = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
        mean = as_group({name: tensor.clone() for name, tensor in own.items()}, MEAN)
        return {**as_group(own, MODEL), **mean, **sent_moments(zeros, zeros, self.settings.moments)}

    def broadcast(self, server: Arrays, round: int) -> Arrays:
        """Weights and moments."""
        return self._message({key: tensor for key, tensor in server.items() if not key.startswith(MEAN)})

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """A few updates on the client's images: the change of its weights, and the moments."""
        chosen, data = self.settings, job.data
        updates = network_in_training(job.model, self.preset, data.images.shape[1:], self.num_classes, self.compiled)
        received = {key: tensor.float() for key, tensor in job.broadcast.items()}
        first, total = job.round * chosen.steps, chosen.rounds * chosen.steps
        seed = stream_seed("federated generator", job.seed, job.round, job.client)
        updates.begin(received, chosen.moments, first, seed)
        rates = [self.preset.rate(first + step, total) for step in range(chosen.steps)]
        loss = updates.train(data.images, data.labels, rates)
        result = updates.result(chosen.moments)
        change = {key: result[key] - received[key] for key in group(result, MODEL)}
        metrics = {"loss": loss.item(), "steps": chosen.steps, "samples": chosen.steps * chosen.batch}
        return Reply(job.client, data.num_real, self._message({**result, **change}), metrics), {}

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """Add the mean change, take the mean moments, and move the mean over rounds; clients count by N_k."""
        sound = [reply for reply in replies if all(own.isfinite().all() for own in reply.arrays.values())]
        if lost := sorted({reply.client for reply in replies} - {reply.client for reply in sound}):
            log.warning("generator, round %d: clients %s sent numbers that are not finite; left out", round + 1, lost)
        if not sound:
            return server
        whole = [replace(reply, arrays={key: own.float() for key, own in reply.arrays.items()}) for reply in sound]
        came = weighted_mean(whole, whole[0].arrays)
        model = {name: own + came.pop(MODEL + name) for name, own in members(server, MODEL).items()}
        decay = min(self.settings.ema, (1 + round) / (10 + round))  # so that the random start fades quickly
        mean = {name: own.lerp(model[name], 1 - decay) for name, own in members(server, MEAN).items()}
        return {**as_group(model, MODEL), **as_group(mean, MEAN), **came}

    def result(self, server: Arrays) -> dict[str, Tensor]:
        """The mean of the weights over rounds, by name."""
        return members(server, MEAN)

    def _message(self, arrays: Arrays) -> Arrays:
        """Copies in the type of messages."""
        kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[self.settings.messages]
        copies = {key: torch.empty(own.shape, dtype=kind, device=own.device) for key, own in arrays.items()}
        with torch.no_grad():
            copy_all(copies.values(), arrays.values())
        return copies


@lru_cache(maxsize=1)
def network_in_training(
    model: nn.Module, preset: Preset, shape: tuple[int, int, int], num_classes: int, compiled: bool
) -> ClientUpdates:
    """The updates of this process's clients, which train one after the other in one network."""
    device = next(model.parameters()).device
    return ClientUpdates(model, preset, shape, num_classes, device, compiled)
