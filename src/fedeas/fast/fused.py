"""The local training loop for several clients at once: one stacked model, and one recorded step for each width.

The width of a step is the number of clients that still train. Clients with more steps come first, so that finished
clients are at the end. All batches have one size: rows that only fill up a batch have no effect.
"""

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
from fedeas.fast.captured import RecordedDescent, Recordings, keep_list_of_tensors, refuse_rows
from fedeas.fast.stacked import Stack
from fedeas.gpu import beside_backward, compile_ahead, exclusively, load_kernels, on_recordable_stream, values_of

CPU = torch.device("cpu")

TOGETHER = 2**20
"""Weights of a client that are updated in one kernel during the backward pass, at least."""


class Awaited:
    """A number that a GPU may still compute; ``float`` waits for it."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read

    def __float__(self) -> float:
        return self.read()


def mark(device: torch.device) -> Any:
    """A place in the work of a device, to measure the time between two of them."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_between(begun: Any, ended: Any) -> float:
    """Wait until the device comes to the second place; the seconds since the first."""
    if isinstance(ended, float):
        return ended - float(begun)
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1000


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
        for layer in self.stack.convolutions.values():
            layer.beside = uses[layer.weight] == 1
            layer.update = early.get(id(layer.weight)) if layer.beside else None

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
        for layer in self.stack.convolutions.values():
            layer.update = None  # it refers to this object, which must not be copied with the model
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


class FusedSGD(Recordings):
    """`local_sgd` for clients that are trained together.

    Args:
        stack: the model of all clients; a client's job has one of `stack.models`.
        train: settings of the training.
        normalise: normalises the images.
        capacity: samples of the largest client.
    """

    def __init__(self, stack: Stack, train: TrainConfig, normalise: Normaliser, capacity: int) -> None:
        super().__init__(normalise, capacity)
        self.clients, self.train, self.models = stack.clients, train, stack.models
        for model in stack.models:
            keep_list_of_tensors(model)
        stack.model.train()
        descent = StackedDescent(stack, train, train.lr)
        if train.momentum:
            descent.velocities = [torch.zeros_like(parameter) for parameter in descent.parameters]
        self.stacks, self.descents = {self.clients: stack}, {self.clients: descent}
        self.compiled = set[tuple[object, ...]]()  # kinds of steps
        self.totals = torch.zeros(self.clients, device=self.device)

    def __call__(self, jobs: Sequence[ClientJob], objectives: Sequence[Objective]) -> list[LocalResult]:
        """Train these clients, those with the most steps first; changes the models of their jobs.

        On a GPU this returns while the training runs, so that the host prepares what follows it.
        """
        parts = [Part(*each) for each in zip(jobs, objectives, (plan_batches(job, CPU) for job in jobs), strict=True)]
        lengths = [len(part.plan.sizes) for part in parts]
        assert lengths == sorted(lengths, reverse=True)
        begun, prepared = mark(self.device), self.preparing
        objective, (stack, _) = self._begin(parts), self._narrowed(len(parts))
        stack.load()
        kind = _kind(objective, parts[0])
        for step in range(lengths[0]):
            width = sum(length > step for length in lengths)
            self.step(width, kind, self._work(width, objective, *kind[-2:]))()
        stack.unload()
        read_totals, ended = values_of(self.totals[: len(parts)].clone()), mark(self.device)
        prepared = self.preparing - prepared

        def share() -> float:
            return max(0.0, seconds_between(begun, ended) - prepared) / len(parts)

        def result(client: int, part: Part) -> LocalResult:
            seen = len(part.plan.index)
            loss = Awaited(lambda: mean_loss(read_totals()[client], seen, part.job))
            return LocalResult(len(part.plan.sizes), seen, loss, {"train_seconds": Awaited(share)})

        return [result(client, part) for client, part in enumerate(parts)]

    def _begin(self, parts: Sequence[Part]) -> Objective:
        """Write everything that the steps read: data, plans, shared tensors, counters, learning rate."""
        jobs, objectives, plans = zip(*parts, strict=True)
        for each in objectives:
            refuse_rows(each)
        self.put("images", torch.cat([job.data.images for job in jobs]), self.clients * self.capacity)
        self.put("labels", torch.cat([job.data.labels for job in jobs]), self.clients * self.capacity)
        steps = len(batch_sizes(self.capacity, self.train))
        sizes = [len(job.data) for job in jobs]
        for name, table in tables(plans, sizes, self.clients, self.train.batch_size).items():
            self.put(name, torch.from_numpy(table), steps)
        shared = {}
        for key in objectives[0].shared:  # those named like a parameter or buffer get its layout
            stacked = torch.stack([each.shared[key] for each in objectives])
            laid_out = self.stacks[self.clients].laid_out(key.partition("/")[2], stacked)
            shared[key] = self.put("shared/" + key, laid_out, self.clients)
        objective = Objective(objectives[0].loss, shared, correct=objectives[0].correct)
        self._start(jobs[0])
        kind = _kind(objective, parts[0])
        if self.device.type == "cuda" and kind not in self.compiled:
            begun = time.perf_counter()
            self._compile(len(parts), objective, *kind[-2:])
            self._start(jobs[0])
            self.compiled.add(kind)
            self.earlier += time.perf_counter() - begun
        return objective

    def _start(self, job: ClientJob) -> None:
        for each in self.descents.values():
            each.begin(learning_rate(job))
        self.number.zero_()
        self.totals.zero_()

    def _compile(self, clients: int, objective: Objective, drawn: Sequence[str], precision: str) -> None:
        """Compile the kernels of a step on all cores; writes nonsense to counters, and to weights until the end.

        Some kernels have two forms, for many clients and for few: so a step of one client is also compiled.
        """
        weights = list(self.stacks[self.clients].model.state_dict().values())
        before = [tensor.clone() for tensor in weights]
        with exclusively(), on_recordable_stream(self.device):
            self._batch(self._narrowed(clients)[0], drawn, precision, None)  # torch may index by its labels
            compile_ahead(*(self._work(width, objective, drawn, precision) for width in (clients, 1)))
        copy_all(weights, before)

    def _work(self, width: int, *arguments: Any) -> Callable[[], Tensor]:
        """`_one_step` of the first `width` clients; their stack must not be made while it is recorded."""
        return partial(self._one_step, *self._narrowed(width), *arguments)

    def _one_step(
        self, stack: Stack, descent: StackedDescent, objective: Objective, drawn: Sequence[str], precision: str
    ) -> Tensor:
        shared: Arrays = {key: tensor[: stack.clients] for key, tensor in objective.shared.items()}
        batch = self._batch(stack, drawn, precision, shared.get(TERMS))
        own = Objective(objective.loss, shared, correct=objective.correct)
        value = one_step(stack.model, descent, own, batch, precision)
        if value.shape != stack.valid.shape:
            raise InputError(
                f"the loss of {stack.clients} stacked clients has the shape {tuple(value.shape)}, not a value for each "
                "of them; average with batch.mean, or set stacks = False in the algorithm"
            )
        self.totals[: stack.clients].addcmul_(value.float(), stack.valid.float())
        self.number.add_(1)
        return value

    def _narrowed(self, width: int) -> tuple[Stack, StackedDescent]:
        if width not in self.stacks:
            whole = self.descents[self.clients]
            self.stacks[width] = self.stacks[self.clients].narrowed(width)
            descent = self.descents[width] = StackedDescent(self.stacks[width], self.train, self.train.lr)
            descent.rate = whole.rate
            descent.velocities = [None if each is None else each[:width] for each in whole.velocities]
        return self.stacks[width], self.descents[width]

    def _batch(self, stack: Stack, drawn: Sequence[str], precision: str, terms: Tensor | None) -> Batch:
        def now(name: str) -> Tensor:
            return self.buffers[name].index_select(0, self.number)[0, : stack.clients]

        def own_images() -> Tensor:
            draws = {name: now(name).flatten() for name in drawn}
            return augmented(self.buffers["images"][now("index").flatten()], draws)

        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        kernels = load_kernels("stacked_kernels") if self.device.type == "cuda" else None
        if kernels is not None:
            images, labels, shares = kernels.batch_of(
                self.buffers, self.number, stack.valid, self.normalise, dtype, own_images() if drawn else None
            )
            return Batch(images, labels, shares=shares, terms=terms)
        stack.valid.copy_(now("valid"))
        images = self.normalise(own_images()).to(dtype).contiguous(memory_format=torch.channels_last)
        labels = self.buffers["labels"][now("index").flatten()]
        return Batch(images, labels, shares=now("shares"), terms=terms)


def _kind(objective: Objective, part: Part) -> tuple[Any, ...]:
    """The inputs that determine a recorded step, besides the number of clients; last what was drawn, and precision."""
    return objective.loss, objective.correct, tuple(objective.shared), tuple(part.plan.drawn), part.job.precision


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
