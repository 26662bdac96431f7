"""The local training loop as CUDA graphs, replayed over tensors at fixed addresses.

There is a graph for each batch size. If the model's norms can leave out rows that only fill up a batch, last batches
are filled up, and a few graphs serve all clients.

A client's data, its batch plan and the tensors of its objective are copied into buffers; a counter on the device walks
through the plan. Between the first and the last step of a client nothing is copied to or from the host.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from fedeas.algorithms.base import ClientJob, batch_sizes
from fedeas.algorithms.local_sgd import (
    TERMS,
    Batch,
    BatchPlan,
    Descent,
    LocalResult,
    Objective,
    augmented,
    learning_rate,
    mean_loss,
    one_step,
    plan_batches,
)
from fedeas.config.sections import TrainConfig
from fedeas.core.errors import InputError
from fedeas.data.client import Normaliser
from fedeas.fast.fused_layers import masked_norms
from fedeas.gpu import WARM_UP, Captured, graph_pool, upload

FILLED_TO = 16
"""Last batches are filled up to a multiple of this many images."""

StepContext = Callable[[], contextlib.AbstractContextManager[object]]


class FilledBatch(Batch):
    """Samples of one client and rows that only fill up the batch; `shares` has one row."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean over samples."""
        assert self.shares is not None
        return (values * self.shares[0]).sum()

    def total(self, values: Tensor) -> Tensor:
        """The sum over a tensor shaped like a model's parameter."""
        return values.sum()


class RecordedDescent(Descent):
    """SGD in place: recorded steps read the current learning rate, which on a GPU is a tensor."""

    def __init__(self, model: nn.Module, train: TrainConfig, rate: float) -> None:
        super().__init__(model, train, rate)
        if self.parameters[0].is_cuda:
            self.fused, self.rate = True, torch.tensor(rate, device=self.parameters[0].device)

    def begin(self, rate: float) -> None:
        """Reset to the state before the first step, with this learning rate."""
        for velocity in self.velocities:
            if velocity is not None:
                velocity.zero_()
        if isinstance(self.rate, Tensor):
            self.rate.fill_(rate)
        else:
            self.rate = rate


def keep_list_of_tensors(model: nn.Module) -> None:
    """Let `state_dict` return always the same tensors, listed once; the model's must not be replaced afterwards."""
    listed = model.state_dict()
    model.__dict__["state_dict"] = lambda: listed


def refuse_rows(objective: Objective) -> None:
    """Raise an error if rows are drawn, where batches are filled up and rows would be left out."""
    if objective.per_sample or objective.per_step:
        raise InputError("an algorithm that stacks cannot draw rows (per_sample, per_step); set stacks = False")


class Recordings:
    """Steps that are recorded when they are first needed, and the buffers that they read.

    Args:
        normalise: normalises the images; steps run on its device.
        capacity: samples of the largest client, so that buffers need not grow.
    """

    def __init__(self, normalise: Normaliser, capacity: int) -> None:
        self.normalise, self.capacity, self.device = normalise, capacity, normalise.scale.device
        self.buffers: dict[str, Tensor] = {}
        self.steps: dict[tuple[object, object], Captured] = {}
        self.earlier = 0.0  # seconds spent on preparing steps that were dropped since, and on compiling
        self.pool = graph_pool(self.device)
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)  # of the step, counted on the device

    @property
    def preparing(self) -> float:
        """Seconds spent so far on compiling, warming up and recording."""
        return sum(step.seconds for step in self.steps.values()) + self.earlier

    def put(self, name: str, tensor: Tensor, rows: int) -> Tensor:
        """Copy a tensor into a buffer of `rows` rows, or of its shape if that is 0; replace one that does not fit."""
        buffer = self.buffers.get(name)
        if rows and buffer is not None:
            rows = max(rows, len(buffer))
        shape = (max(rows, len(tensor)), *tensor.shape[1:]) if rows else tensor.shape
        if buffer is None or (buffer.shape, buffer.dtype) != (shape, tensor.dtype):
            if buffer is not None:
                self.drop_steps()  # they read the old buffer
            buffer = self.buffers[name] = torch.zeros(shape, dtype=tensor.dtype, device=self.device)
        upload(tensor, buffer[: len(tensor)] if rows else buffer)
        return buffer

    def drop_steps(self) -> None:
        """Forget the recorded steps; without its graphs, their memory cannot be recorded into again."""
        self.earlier = self.preparing
        self.steps.clear()
        self.pool = graph_pool(self.device)

    def step(self, size: object, kind: object, work: Callable[[], Tensor]) -> Captured:
        """The recorded step of this size and kind; one warm-up serves all sizes of a kind."""
        if (size, kind) not in self.steps:
            warm_up = 0 if any(known == kind for _, known in self.steps) else WARM_UP
            self.steps[size, kind] = Captured(work, self.device, (), self.pool, warm_up)
        return self.steps[size, kind]


class CapturedSGD(Recordings):
    """`local_sgd` for clients that are trained one after the other with one model; the trainer of the fast engines.

    Args:
        model: the workspace; its parameters keep their addresses.
        normalise: normalises the images.
        capacity: samples of the largest client.
        around: a context manager that every step runs in.
        fills: fill up last batches, so that few sizes are recorded; the model's norms must be `norms_can_be_masked`.
    """

    def __init__(
        self,
        model: nn.Module,
        normalise: Normaliser,
        capacity: int,
        around: StepContext = contextlib.nullcontext,
        fills: bool = False,
    ) -> None:
        super().__init__(normalise, capacity)
        self.model, self.around, self.fills, self.precision = model, around, fills, "fp32"
        self.valid = torch.zeros(1, dtype=torch.int32, device=self.device)  # images of a batch that was filled up
        self.full: Captured | None = None  # the step of a full batch
        self.position, self.total = torch.zeros_like(self.number), torch.zeros((), device=self.device)
        self.descent: RecordedDescent | None = None

    def __call__(self, job: ClientJob, objective: Objective) -> LocalResult:
        """Train one client."""
        plan = plan_batches(job)
        self.precision = job.precision
        for counter in (self.position, self.number, self.total):
            counter.zero_()
        if self.descent is None:
            self.descent = RecordedDescent(self.model, job.train, learning_rate(job))
        self.descent.begin(learning_rate(job))
        static = self._fill_buffers(job, objective, plan)
        self.model.train()
        for size in plan.sizes:
            self._step(size, job.train.batch_size, static, tuple(plan.drawn))()
        return LocalResult(len(plan.sizes), len(plan.index), mean_loss(self.total, len(plan.index), job))

    def rehearse(self) -> None:
        """Repeat the first step of the last client, to time it; later clients are not affected."""
        if self.full is not None:
            self.position.zero_()
            self.number.zero_()
            self.full()

    def drop_steps(self) -> None:
        """Forget the recorded steps."""
        super().drop_steps()
        self.full = None

    def _fill_buffers(self, job: ClientJob, objective: Objective, plan: BatchPlan) -> Objective:
        """Copy the client's tensors into the buffers; the result is its objective over these buffers."""
        most = batch_sizes(self.capacity, job.train)
        seen, steps = sum(most), len(most)
        self._put_all("data/", {"images": job.data.images, "labels": job.data.labels}, self.capacity)
        self._put_all("plan/", {"index": plan.index, **plan.drawn}, seen)
        if self.fills:
            refuse_rows(objective)
            self.put("plan/sizes", torch.tensor(plan.sizes, device=self.device), steps)
        return Objective(
            objective.loss,
            self._put_all("shared/", objective.shared, 0),
            self._put_all("sample/", objective.per_sample, seen),
            self._put_all("step/", objective.per_step, steps),
            objective.correct,
        )

    def _put_all(self, group: str, tensors: Mapping[str, Tensor], rows: int) -> dict[str, Tensor]:
        return {name: self.put(group + name, tensor, rows) for name, tensor in tensors.items()}

    def _step(self, size: int, batch_size: int, objective: Objective, drawn: tuple[str, ...]) -> Captured:
        names = (*drawn, *objective.shared, *objective.per_sample, *objective.per_step)
        filled = self.fills and size < batch_size
        rows = min(batch_size, math.ceil(size / FILLED_TO) * FILLED_TO) if filled else size
        work = partial(self._take_step, rows, filled, objective, drawn)
        step = self.step((rows, filled), (objective.loss, objective.correct, names), work)
        if size == batch_size:
            self.full = step
        return step

    def _take_step(self, rows: int, filled: bool, objective: Objective, drawn: tuple[str, ...]) -> Tensor:
        """A step of a batch with this many images; some of them may only fill it up."""
        row, terms = torch.arange(rows, device=self.device), objective.shared.get(TERMS)
        place = self.position + row
        size: int | Tensor = rows
        context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        batch: Batch
        if filled:
            self.valid.copy_(self.buffers["plan/sizes"][self.number])
            place = place.clamp(max=len(self.buffers["plan/index"]) - 1)  # filling may reach beyond it
        index = self.buffers["plan/index"][place]
        draws = {name: self.buffers["plan/" + name][place] for name in drawn}
        images = self.normalise(augmented(self.buffers["data/images"][index], draws))
        if images.is_cuda:
            images = images.contiguous(memory_format=torch.channels_last)
        labels = self.buffers["data/labels"][index]
        if filled:
            shares = ((row < self.valid) / self.valid)[None]
            batch = FilledBatch(images, labels, shares=shares, terms=terms)
            size, context = self.valid[0], masked_norms(self.model, self.valid)
        else:
            own = {name: tensor[place] for name, tensor in objective.per_sample.items()}
            own |= {name: tensor[self.number].squeeze(0) for name, tensor in objective.per_step.items()}
            batch = Batch(images, labels, own, terms=terms)
        assert self.descent is not None
        with context, self.around():
            value = one_step(self.model, self.descent, objective, batch, self.precision)
        self.total.add_(value * size)
        self.position.add_(size)
        self.number.add_(1)
        return value
