"""SGD through torch's functional API, without the per-step overhead of torch.optim.

That overhead is a large part of a step where networks are small.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from fedeas.config.sections import TrainConfig


class Descent:
    """SGD with momentum and weight decay; the parameters of the model are updated in place."""

    fused: bool | None = None
    """Whether torch updates all parameters in one kernel; None leaves the choice to torch."""

    def __init__(self, model: nn.Module, train: TrainConfig, rate: float | Tensor) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)
        self.momentum, self.weight_decay = train.momentum, train.weight_decay
        self.rate = rate

    def expect(self, loss: Tensor, corrected: bool) -> None:
        """Get ready for the backward pass of this loss; `corrected` says whether gradients will be changed after it."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        velocities = [self.velocities[i] for i in moved]
        sgd(
            [self.parameters[i] for i in moved],
            [self.parameters[i].grad for i in moved],  # type: ignore[misc]
            velocities,
            fused=self.fused,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=self.rate,  # type: ignore[arg-type]
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for i, velocity in zip(moved, velocities, strict=True):
            self.velocities[i] = velocity
