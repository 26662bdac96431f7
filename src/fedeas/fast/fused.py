"""The local training loop for several clients at once: one stacked model, and one recorded step for each width.

The width of a step is the number of clients that still train. Clients with more steps come first, so that finished
clients are at the end. All batches have one size: rows that only fill up a batch have no effect.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedeas.algorithms.base import Arrays, ClientJob, batch_sizes
from fedeas.algorithms.local_sgd import (
    TERMS,
    Batch,
    BatchPlan,
    LocalResult,
    Objective,
    augmented,
    learning_rate,
    mean_loss,
    one_step,
    plan_batches,
)
from fedeas.config.sections import TrainConfig
from fedeas.core.devices import copy_all
from fedeas.core.errors import InputError
from fedeas.data.client import Normaliser
from fedeas.fast.captured import RecordedDescent, keep_list_of_tensors, refuse_rows
from fedeas.fast.stacked import Stack
from fedeas.fast.stacked_layers import normalised
from fedeas.gpu import (
    WARM_UP,
    Captured,
    beside_backward,
    compile_ahead,
    exclusively,
    graph_pool,
    load_kernels,
    on_recordable_stream,
    upload,
    values_of,
)

CPU = torch.device("cpu")

TOGETHER = 2**20
"""Weights of a client that are updated in one kernel during the backward pass, at least."""


class Awaited:
    """A number that a GPU may still compute; ``float`` waits for it."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read

    def __float__(self) -> float:
        return self.read()


def start_watch(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Start a stopwatch when the device comes to this place in its work; the returned function stops it likewise.

    That function returns a third one, which waits for the device and returns the seconds between the two places.
    """

    def now() -> Any:
        if device.type != "cuda":
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        mark.record()
        return mark

    def stop() -> Callable[[], float]:
        ended = now()

        def seconds() -> float:
            if device.type != "cuda":
                return float(ended - begun)
            ended.synchronize()
            return float(begun.elapsed_time(ended)) / 1000

        return seconds

    begun = now()
    return stop


class Part(NamedTuple):
    """One client of a joint training: its job, objective and batch plan."""

    job: ClientJob
    objective: Objective
    plan: BatchPlan


class StackedDescent(RecordedDescent):
    """SGD of a stack, which also keeps the short weights of its convolutions up to date.

    Where the rule is plain, weights of convolutions are updated during the backward pass, beside the rest of it. The
    last layers, which come first in it, have most of the weights.
    """

    def __init__(self, stack: Stack, train: TrainConfig, rate: float) -> None:
        super().__init__(stack.model, train, rate)
        self.stack, self.kernels = stack, load_kernels("sgd_kernels")
        plain = not (self.momentum or self.weight_decay)
        self.short = stack.short_weights if plain and self.kernels is not None else []
        apart = {id(weight) for weight, _ in self.short}
        self.parameters = [parameter for parameter in self.parameters if id(parameter) not in apart]
        self.velocities = [None] * len(self.parameters)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # weight, gradient, copy

    def expect(self, loss: Tensor, corrected: bool) -> None:
        """Drop the gradients, and decide which convolutions hand theirs over during the backward pass."""
        super().expect(loss, corrected)
        for weight, _ in self.short:
            weight.grad = None
        self.waiting.clear()
        early = {id(weight): partial(self._wait, weight, copy) for weight, copy in self.short if not corrected}
        uses = uses_of_leaves(loss) if loss.is_cuda else Counter()
        for layer in self.stack.convolutions:
            layer.handover.beside = uses[layer.weight] == 1
            layer.handover.update = early.get(id(layer.weight)) if layer.handover.beside else None

    def _wait(self, weight: Tensor, copy: Tensor, slope: Tensor) -> None:
        """Note an update; enough of them are done together, for each kernel takes a while to begin."""
        self.waiting.append((weight, slope, copy))
        with beside_backward(slope):  # now, since the current stream still reads the copy of this weight
            if sum(weight[0].numel() for weight, *_ in self.waiting) >= TOGETHER:
                self._update()

    def _update(self) -> None:
        """Do the updates that wait."""
        assert self.kernels is not None
        self.kernels.descend(*zip(*self.waiting, strict=True), self.rate)
        self.waiting.clear()

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters and the short weights, in one kernel where the rule is plain."""
        super().step()
        for layer in self.stack.convolutions:
            layer.handover.update = None  # it refers to this object, which must not be copied with the model
        self.waiting += [(weight, weight.grad, copy) for weight, copy in self.short if weight.grad is not None]
        if self.waiting:
            self._update()
        if not self.short:
            self.stack.refresh_short()


def uses_of_leaves(result: Tensor) -> Counter[Tensor]:
    """How often each tensor that gets a gradient is used on the way to the result."""
    uses: Counter[Tensor] = Counter()
    assert result.grad_fn is not None
    ahead = [result.grad_fn]
    found = set(ahead)
    while ahead:
        for node, _ in ahead.pop().next_functions:
            leaf = getattr(node, "variable", None)
            if leaf is not None:
                uses[leaf] += 1
            elif node is not None and node not in found:
                found.add(node)
                ahead.append(node)
    return uses


class FusedSGD:
    """`local_sgd` for clients that are trained together.

    Args:
        stack: the model of all clients; a client's job has one of `stack.models`.
        train: settings of the training.
        normalise: normalises the images.
        capacity: samples of the largest client.
    """

    def __init__(self, stack: Stack, train: TrainConfig, normalise: Normaliser, capacity: int) -> None:
        self.clients, self.train, self.normalise, self.capacity = stack.clients, train, normalise, capacity
        self.device, self.models = normalise.scale.device, stack.models
        for model in stack.models:
            keep_list_of_tensors(model)
        stack.model.train()
        descent = StackedDescent(stack, train, train.lr)
        if train.momentum:
            descent.velocities = [torch.zeros_like(parameter) for parameter in descent.parameters]
        self.stacks, self.descents = {self.clients: stack}, {self.clients: descent}
        self.buffers: dict[str, Tensor] = {}
        self.steps: dict[tuple[object, ...], Captured] = {}
        self.compiled: dict[tuple[object, ...], float] = {}  # seconds by kind of step
        self.pool = graph_pool(self.device)
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.totals = torch.zeros(self.clients, device=self.device)

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling, warming up and recording."""
        return sum(self.compiled.values()) + sum(step.seconds for step in self.steps.values())

    def __call__(self, jobs: Sequence[ClientJob], objectives: Sequence[Objective]) -> list[LocalResult]:
        """Train these clients, those with the most steps first; changes the models of their jobs.

        On a GPU this returns while the training runs, so that the host prepares what follows it.
        """
        parts = [Part(*each) for each in zip(jobs, objectives, (plan_batches(job, CPU) for job in jobs), strict=True)]
        lengths = [len(part.plan.sizes) for part in parts]
        assert lengths == sorted(lengths, reverse=True)
        stop, prepared = start_watch(self.device), self.preparing
        objective, (stack, _) = self._begin(parts), self._narrowed(len(parts))
        stack.load()
        for step in range(lengths[0]):
            width = sum(length > step for length in lengths)
            self._step(width, objective, parts[0])()
        stack.unload()
        read_totals, read_seconds = values_of(self.totals[: len(parts)].clone()), stop()
        prepared = self.preparing - prepared

        def share() -> float:
            return max(0.0, read_seconds() - prepared) / len(parts)

        def result(client: int, part: Part) -> LocalResult:
            seen = len(part.plan.index)
            loss = Awaited(lambda: mean_loss(read_totals()[client], seen, part.job))
            return LocalResult(len(part.plan.sizes), seen, loss, {"train_seconds": Awaited(share)})

        return [result(client, part) for client, part in enumerate(parts)]

    def _begin(self, parts: Sequence[Part]) -> Objective:
        """Write everything that the steps read: data, plans, shared tensors, counters, learning rate."""
        jobs, objectives, plans = zip(*parts, strict=True)
        train, rate = self.train, learning_rate(jobs[0])
        for each in objectives:
            refuse_rows(each)
        self._put("images", torch.cat([job.data.images for job in jobs]), self.clients * self.capacity)
        self._put("labels", torch.cat([job.data.labels for job in jobs]), self.clients * self.capacity)
        sizes = batch_sizes(self.capacity, train)
        for name, table in tables(plans, [len(job.data) for job in jobs], self.clients, train.batch_size).items():
            self._put(name, torch.from_numpy(table), len(sizes))
        shared = {}
        for key in objectives[0].shared:  # those named like a parameter or buffer get its layout
            stacked = torch.stack([each.shared[key] for each in objectives])
            laid_out = self.stacks[self.clients].laid_out(key.partition("/")[2], stacked)
            shared[key] = self._put("shared/" + key, laid_out, self.clients)
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
        """Compile the kernels of a step on all cores; writes nonsense to counters, and to weights until the end.

        Some kernels have two forms, for many clients and for few: so a step of one client is also compiled.
        """
        drawn, job = tuple(parts[0].plan.drawn), parts[0].job
        weights = list(self.stacks[self.clients].model.state_dict().values())
        before = [tensor.clone() for tensor in weights]
        with exclusively(), on_recordable_stream(self.device):
            self._batch(self._narrowed(len(parts))[0], drawn, _dtype(job), None)  # torch may index by its labels
            compile_ahead(*(self._work(width, objective, drawn, job) for width in (len(parts), 1)))
        copy_all(weights, before)

    def _put(self, name: str, tensor: Tensor, rows: int) -> Tensor:
        """Copy a tensor into a buffer of `rows` rows; replace a buffer that is too small."""
        buffer, shape = self.buffers.get(name), (max(rows, len(tensor)), *tensor.shape[1:])
        if buffer is None or len(buffer) < len(tensor) or buffer.shape[1:] != shape[1:]:
            self.steps.clear()  # they read the old buffer
            self.pool = graph_pool(self.device)
            buffer = self.buffers[name] = torch.zeros(shape, dtype=tensor.dtype, device=self.device)
        upload(tensor, buffer[: len(tensor)])
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
        stack, descent = self._narrowed(width)
        shared: Arrays = {key: tensor[:width] for key, tensor in objective.shared.items()}
        own = Objective(objective.loss, shared, correct=objective.correct)

        def work() -> Tensor:
            batch = self._batch(stack, drawn, _dtype(job), shared.get(TERMS))
            value = one_step(stack.model, descent, own, batch, job.precision)
            if value.shape != (width,):
                raise InputError(
                    f"the loss of {width} stacked clients has the shape {tuple(value.shape)}, not a value for each of "
                    "them; average with batch.mean, or set stacks = False in the algorithm"
                )
            self.totals[:width].addcmul_(value.float(), stack.valid.float())
            self.number.add_(1)
            return value

        return work

    def _narrowed(self, width: int) -> tuple[Stack, StackedDescent]:
        if width not in self.stacks:
            whole = self.descents[self.clients]
            self.stacks[width] = self.stacks[self.clients].narrowed(width)
            descent = self.descents[width] = StackedDescent(self.stacks[width], self.train, self.train.lr)
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
    """The inputs that determine a recorded step, besides the number of clients."""
    return objective.loss, objective.correct, tuple(objective.shared), tuple(part.plan.drawn)


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
        valid = np.arange(batch_size) < lengths[:, None]
        filled["valid"][: len(lengths), client] = lengths
        filled["shares"][: len(lengths), client] = np.divide(valid, lengths[:, None], dtype=np.float32)
        filled["index"][: len(lengths), client][valid] = plan.index.numpy() + offset
        for name, values in plan.drawn.items():
            filled[name][: len(lengths), client][valid] = values.numpy()
    return filled
