"""The local training loop for several clients at once: one stacked model, and one recorded step for each width.

The width of a step is the number of clients that still train. Clients with more steps come first, so that finished
clients are at the end. All batches have one size: rows that only fill up a batch have no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedeas.algorithms.base import Arrays, ClientJob
from fedeas.algorithms.batch_order import BatchPlan, augmented, batch_sizes
from fedeas.algorithms.local_sgd import (
    TERMS,
    Batch,
    LocalResult,
    Objective,
    finite,
    learning_rate,
    one_step,
    plan_batches,
)
from fedeas.algorithms.sgd import Descent
from fedeas.config import TrainConfig
from fedeas.data.client import Normaliser
from fedeas.gpu.compiling import compile_ahead
from fedeas.gpu.cuda_graphs import WARM_UP, Captured, exclusively, graph_pool
from fedeas.gpu.devices import load_kernels
from fedeas.models.stacked import Stack, normalised, tensors_of

CPU = torch.device("cpu")


class Part(NamedTuple):
    """One client of a joint training: its place among the others, its job, objective and batch plan."""

    place: int
    job: ClientJob
    objective: Objective
    plan: BatchPlan

    def result(self, total: float) -> LocalResult:
        """The client's result, given the sum of the losses of all its samples."""
        seen = len(self.plan.index)
        return LocalResult(len(self.plan.sizes), seen, finite(total / seen, self.job))


class StackedDescent(Descent):
    """SGD of a stack, which also keeps the short weights of its convolutions up to date."""

    def __init__(self, stack: Stack, train: TrainConfig, rate: float) -> None:
        super().__init__(stack.model, train, rate)
        self.stack, self.kernels = stack, load_kernels("sgd_kernels")
        plain = not (self.momentum or self.weight_decay)
        self.short = stack.short_weights if plain and self.kernels is not None else []
        apart = {id(weight) for weight, _ in self.short}
        self.parameters = [parameter for parameter in self.parameters if id(parameter) not in apart]
        self.velocities = [None] * len(self.parameters)

    def clear(self) -> None:
        """Drop the gradients."""
        super().clear()
        for weight, _ in self.short:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters and the short weights, in one kernel where the rule is plain."""
        super().step()
        if self.kernels is None or not self.short:
            self.stack.refresh_short()
            return
        weights, copies = zip(*self.short, strict=True)
        self.kernels.descend(weights, [weight.grad for weight in weights], copies, self.rate)


class FusedSGD:
    """`local_sgd` for clients that are trained together.

    Args:
        model: the model of one client.
        normalise: normalises the images.
        capacity: samples of the largest client.
        clients: the largest number of clients that are trained together.
    """

    def __init__(self, model: nn.Module, normalise: Normaliser, capacity: int, clients: int) -> None:
        self.model, self.normalise, self.capacity, self.clients = model, normalise, capacity, clients
        self.device = normalise.scale.device
        self.tensors: dict[nn.Module, list[Tensor]] = {}
        self.stacks: dict[int, Stack] = {}
        self.descents: dict[int, StackedDescent] = {}
        self.buffers: dict[str, Tensor] = {}
        self.steps: dict[tuple[object, ...], Captured] = {}
        self.compiled: dict[tuple[object, ...], float] = {}  # seconds by kind of step
        self.pool = graph_pool(self.device)
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.totals = torch.zeros(clients, device=self.device)

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling, warming up and recording."""
        return sum(self.compiled.values()) + sum(step.seconds for step in self.steps.values())

    def __call__(self, jobs: Sequence[ClientJob], objectives: Sequence[Objective]) -> list[LocalResult]:
        """Train these clients; changes the models of their jobs."""
        parts = [Part(place, *each) for place, each in enumerate(zip(jobs, objectives, map(_plan, jobs), strict=True))]
        parts.sort(key=lambda part: -len(part.plan.sizes))
        objective = self._begin(parts)
        stack, models = self._narrowed(len(parts), parts[0].job)[0], [self._tensors(part.job.model) for part in parts]
        stack.load(models)
        for step in range(len(parts[0].plan.sizes)):
            width = sum(len(part.plan.sizes) > step for part in parts)
            self._step(width, objective, parts[0])()
        stack.unload(models)
        results = zip(parts, self.totals.tolist(), strict=False)
        return [part.result(total) for part, total in sorted(results, key=lambda result: result[0].place)]

    def _tensors(self, model: nn.Module) -> list[Tensor]:
        """The model's tensors, cached: the workspace models are the same in every round."""
        if model not in self.tensors:
            self.tensors[model] = tensors_of(model)
        return self.tensors[model]

    def _begin(self, parts: Sequence[Part]) -> Objective:
        """Write everything that the steps read: data, plans, shared tensors, counters, learning rate."""
        jobs, plans, objectives = zip(*((part.job, part.plan, part.objective) for part in parts), strict=True)
        train, rate = jobs[0].train, learning_rate(jobs[0])
        if not self.stacks:
            _, channels, height, width = jobs[0].data.images.shape
            shape, whole = (channels, height, width), train.weight_decay > 0
            self.stacks[self.clients] = Stack(self.model, self.clients, shape, whole)
            self.stacks[self.clients].model.train()
            if jobs[0].precision == "bf16" and self.device.type == "cuda":
                self.stacks[self.clients].shorten()
            descent = self.descents[self.clients] = StackedDescent(self.stacks[self.clients], train, rate)
            if train.momentum:
                descent.velocities = [torch.zeros_like(parameter) for parameter in descent.parameters]
        self._put("images", torch.cat([job.data.images for job in jobs]), self.clients * self.capacity)
        self._put("labels", torch.cat([job.data.labels for job in jobs]), self.clients * self.capacity)
        sizes = batch_sizes(self.capacity, train)
        for name, table in tables(plans, [len(job.data) for job in jobs], self.clients, train.batch_size).items():
            self._put(name, torch.from_numpy(table), len(sizes))
        shared = {key: self._stacked(key, [each.shared[key] for each in objectives]) for key in objectives[0].shared}
        objective = Objective(objectives[0].loss, shared, correct=objectives[0].correct)
        self._start(rate)
        kind = _kind(objective, parts[0])
        if self.device.type == "cuda" and kind not in self.compiled:
            begun = time.perf_counter()
            self._compile(objective, parts)
            self._start(rate)
            self.compiled[kind] = time.perf_counter() - begun
        return objective

    def _start(self, rate: float) -> None:
        for each in self.descents.values():
            each.begin(rate)
        self.number.zero_()
        self.totals.zero_()

    def _compile(self, objective: Objective, parts: Sequence[Part]) -> None:
        """Compile the kernels of a step on all cores; writes nonsense to weights and counters."""
        drawn, job = tuple(parts[0].plan.drawn), parts[0].job
        work, (stack, _) = self._work(len(parts), objective, drawn, job), self._narrowed(len(parts), job)
        with exclusively():
            self._batch(stack, drawn, _dtype(job), None)  # labels must be true: torch uses them as an index
            compile_ahead(work)

    def _stacked(self, key: str, tensors: Sequence[Tensor]) -> Tensor:
        """Stack the clients' shared tensors of this name, in the layout of the parameter or buffer of the same name."""
        laid_out = self.stacks[self.clients].laid_out(key.partition("/")[2], torch.stack(list(tensors)))
        return self._put("shared/" + key, laid_out, self.clients)

    def _put(self, name: str, tensor: Tensor, rows: int) -> Tensor:
        """Copy a tensor into a buffer of `rows` rows; replace a buffer that is too small."""
        buffer, shape = self.buffers.get(name), (max(rows, len(tensor)), *tensor.shape[1:])
        if buffer is None or len(buffer) < len(tensor) or buffer.shape[1:] != shape[1:]:
            self.steps.clear()  # they read the old buffer
            self.pool = graph_pool(self.device)
            buffer = self.buffers[name] = torch.zeros(shape, dtype=tensor.dtype, device=self.device)
        buffer[: len(tensor)].copy_(tensor)
        return buffer

    def _step(self, width: int, objective: Objective, part: Part) -> Captured:
        kind = _kind(objective, part)
        key = (width, *kind)
        if key not in self.steps:
            work = self._work(width, objective, tuple(part.plan.drawn), part.job)
            warm_up = 0 if any(known[1:] == kind for known in self.steps) else WARM_UP
            self.steps[key] = Captured(work, self.device, (), self.pool, warm_up)
        return self.steps[key]

    def _work(self, width: int, objective: Objective, drawn: tuple[str, ...], job: ClientJob) -> Callable[[], Tensor]:
        """One step of the first `width` clients, as a function without arguments."""
        stack, descent = self._narrowed(width, job)
        shared: Arrays = {key: tensor[:width] for key, tensor in objective.shared.items()}
        own = Objective(objective.loss, shared, correct=objective.correct)

        def work() -> Tensor:
            batch = self._batch(stack, drawn, _dtype(job), shared.get(TERMS))
            value = one_step(stack.model, descent, own, batch, job.precision)
            self.totals[:width].addcmul_(value.float(), stack.valid.float())
            self.number.add_(1)
            return value

        return work

    def _narrowed(self, width: int, job: ClientJob) -> tuple[Stack, StackedDescent]:
        if width not in self.stacks:
            whole = self.descents[self.clients]
            self.stacks[width] = self.stacks[self.clients].narrowed(width)
            descent = self.descents[width] = StackedDescent(self.stacks[width], job.train, learning_rate(job))
            descent.rate = whole.rate
            descent.velocities = [None if each is None else each[:width] for each in whole.velocities]
        return self.stacks[width], self.descents[width]

    def _batch(self, stack: Stack, drawn: tuple[str, ...], dtype: torch.dtype, terms: Tensor | None) -> Batch:
        kernels = load_kernels("stacked_kernels") if self.device.type == "cuda" and not drawn else None
        if kernels is not None:
            images, labels, shares = kernels.batch_of(self.buffers, self.number, stack.valid, self.normalise, dtype)
            return Batch(images, labels, shares=shares, terms=terms)

        def now(name: str) -> Tensor:
            return self.buffers[name].index_select(0, self.number)[0, : stack.clients]

        stack.valid.copy_(now("valid"))
        index = now("index").flatten()
        images = augmented(self.buffers["images"][index], {name: now(name).flatten() for name in drawn})
        images = normalised(images, self.normalise, dtype)
        return Batch(images, self.buffers["labels"][index], shares=now("shares"), terms=terms)


def _dtype(job: ClientJob) -> torch.dtype:
    return torch.bfloat16 if job.precision == "bf16" else torch.float32


def _kind(objective: Objective, part: Part) -> tuple[object, ...]:
    """What a recorded step depends on besides the number of clients."""
    return objective.loss, objective.correct, tuple(objective.shared), tuple(part.plan.drawn)


def _plan(job: ClientJob) -> BatchPlan:
    return plan_batches(job, CPU)


def tables(plans: Sequence[BatchPlan], sizes: Sequence[int], clients: int, batch_size: int) -> dict[str, NDArray[Any]]:
    """Plans as tables of steps x clients (x rows): the number of valid rows, and each row's sample, weight and draws.

    Samples are numbered through all clients, whose data follow each other.
    """
    steps = max(len(plan.sizes) for plan in plans)
    rows = {"index": plans[0].index.numpy(), **{name: drawn.numpy() for name, drawn in plans[0].drawn.items()}}
    filled = {name: np.zeros((steps, clients, batch_size), dtype=values.dtype) for name, values in rows.items()}
    filled["valid"] = np.zeros((steps, clients), dtype=np.int32)
    filled["shares"] = np.zeros((steps, clients, batch_size), dtype=np.float32)
    for client, (plan, offset) in enumerate(zip(plans, np.cumsum([0, *sizes]), strict=False)):
        lengths = np.array(plan.sizes)
        filled["valid"][: len(lengths), client] = lengths
        filled["shares"][: len(lengths), client] = (np.arange(batch_size) < lengths[:, None]) / lengths[:, None]
        step = np.repeat(np.arange(len(lengths)), lengths)
        row = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        filled["index"][step, client, row] = plan.index.numpy() + offset
        for name, values in plan.drawn.items():
            filled[name][step, client, row] = values.numpy()
    return filled
