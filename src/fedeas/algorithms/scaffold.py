"""SCAFFOLD: control variates correct the drift of local training."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from fedeas.algorithms.base import (
    MODEL,
    Arrays,
    ClientJob,
    Fleet,
    Reply,
    as_group,
    group,
    load_model,
    members,
    model_arrays,
    weighted_mean,
)
from fedeas.algorithms.fedavg import FedAvg
from fedeas.algorithms.local_sgd import learning_rate, local_sgd
from fedeas.config import hyperparameters
from fedeas.core.arrays import stream

CONTROL, SHIFT, TOTAL, CLIENTS = "control/", "shift/", "fleet/total", "fleet/clients"


class SCAFFOLD(hyperparameters.SCAFFOLD, FedAvg):
    """SCAFFOLD (Karimireddy et al., ICML 2020, algorithm 1).

    Client i takes local steps y <- y - lr (g_i(y) - c_i + c) and then updates its control,

        option II:  c_i+ = c_i - c + (x - y_i) / (steps * lr),      option I:  c_i+ = g_i(x), over all its data.

    Controls start at zero and cover trainable parameters only. The server moves by `server_lr` along the mean of
    y_i - x.

    With ``weighting="size"`` the mean is weighted by N_k and c grows by sum_{k in S} p_k (c_k+ - c_k), p_k over the
    whole fleet, so that c is always sum_k p_k c_k and the fixed point minimises Eq. (objective). ``"uniform"`` is the
    rule of SCAFFOLD's paper, which weights clients equally. Mixing the two (models by size, controls unweighted)
    converges to the wrong point.
    """

    stacks = True

    def init(self, model: nn.Module, fleet: Fleet) -> Arrays:
        """The initial weights, a control of zeros, and the size of the fleet."""
        controls = {CONTROL + name: torch.zeros_like(parameter) for name, parameter in _trainable(model)}
        sizes = {TOTAL: torch.tensor(int(fleet.sizes.sum())), CLIENTS: torch.tensor(len(fleet.sizes))}
        return {**model_arrays(model), **controls, **sizes}

    def broadcast(self, server: Arrays, round: int) -> Arrays:
        """The global model and the server's control."""
        return {**group(server, MODEL), **group(server, CONTROL)}

    def client_update(self, job: ClientJob) -> tuple[Reply, Arrays]:
        """Corrected local steps; the reply holds the model and the change of the client's control."""
        self.check_momentum(job.train.momentum)
        load_model(job.model, job.broadcast)
        now, sent = members(job.broadcast, CONTROL), members(job.broadcast, MODEL)
        old = {name: job.state.get(CONTROL + name, torch.zeros_like(control)) for name, control in now.items()}
        new = self._full_gradient(job) if self.option == "I" else {}
        shifts = {SHIFT + name: now[name] - control for name, control in old.items()}
        result = local_sgd(job, replace(self.objective(job), shared=shifts, correct=_shift_gradients))
        if not new:  # option II: the mean corrected gradient, which moved the model
            scale = 1 / (result.steps * learning_rate(job))
            new = {
                name: old[name] - now[name] + scale * (sent[name] - parameter.detach())
                for name, parameter in _trainable(job.model)
            }
        change = as_group({name: control - old[name] for name, control in new.items()}, CONTROL)
        reply = Reply(job.client, job.data.num_real, {**model_arrays(job.model), **change}, result.metrics)
        return reply, as_group(new, CONTROL)

    def server_update(self, server: Arrays, replies: Sequence[Reply], round: int) -> Arrays:
        """Move the model along the mean update, and the control by the changes of the clients' controls."""
        uniform = self.weighting == "uniform"
        weighed = [Reply(r.client, 1 if uniform else r.weight, r.arrays) for r in replies]
        mean = weighted_mean(weighed, group(server, MODEL))
        whole = int(server[CLIENTS] if uniform else server[TOTAL])
        controls = {key: tensor.clone() for key, tensor in group(server, CONTROL).items()}
        for key, control in controls.items():
            name = MODEL + key.removeprefix(CONTROL)
            mean[name] = server[name] + self.server_lr * (mean[name] - server[name])
            for reply in weighed:
                control.add_(reply.arrays[key], alpha=reply.weight / whole)
        return {**server, **mean, **controls}

    def _full_gradient(self, job: ClientJob) -> Arrays:
        """Option I: the gradient of the client's loss at the global model, over all its data.

        Batches are shuffled: with sorted classes the statistics of batch norm would differ from those in training.
        """
        objective = self.objective(job).knowing_counts(job)
        rng = stream("scaffold-gradient", job.seed, job.round, job.client)
        job.model.train()
        job.model.zero_grad(set_to_none=True)
        buffers = {name: buffer.clone() for name, buffer in job.model.named_buffers()}
        size, batch_size = len(job.data), job.train.batch_size
        # A client with one image sees it twice, which does not change the mean over its data; a single image that is
        # left over joins the batch before it: batch norm cannot train on one image.
        order = rng.permutation(size) if size > 1 else np.zeros(2, dtype=np.int64)
        parts = np.split(order, range(batch_size, size - 1, batch_size))
        for part in parts:
            images, labels = job.data.batch(torch.from_numpy(part).to(job.data.labels.device))
            batch = objective.batch(job.data.normalise(images), labels)
            share = len(part) / sum(map(len, parts))
            (objective.loss(job.model, batch, objective.shared) * share).backward()  # type: ignore[no-untyped-call]
        for name, buffer in job.model.named_buffers():
            buffer.copy_(buffers[name])  # this pass must not change BatchNorm's statistics
        return {name: _gradient(parameter).clone() for name, parameter in _trainable(job.model)}


def _shift_gradients(model: nn.Module, shared: Arrays) -> None:
    """Add c - c_i to the gradients."""
    for name, parameter in _trainable(model):
        _gradient(parameter).add_(shared[SHIFT + name])


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
