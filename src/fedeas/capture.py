"""CUDA graphs: a fixed piece of GPU work is recorded once and replayed, so that launching it costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Pool = Any  # a handle of torch

WARM_UP = 3
"""Calls before the recording: libraries choose their kernels and allocate in the first ones."""

_ONE_AT_A_TIME = threading.Lock()  # two threads must not record at once


class Captured:
    """A function over tensors of fixed shapes; on a GPU it becomes a CUDA graph, elsewhere it is simply called.

    Every call does the function's work once, the warm-up included. What the function reads besides its arguments
    must stay at the same address. The result is overwritten by the next call.

    Args:
        function: takes and gives tensors; no synchronisation, no copies from or to the host.
        device: where it works.
        generators: random streams that the function draws from.
        pool: memory that is shared with other graphs, which must not run at the same time; `graph_pool` makes one.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        device: torch.device,
        generators: tuple[torch.Generator, ...] = (),
        pool: Pool | None = None,
    ) -> None:
        self.function = function
        self.device = device
        self.generators = generators
        self.pool = pool
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: tuple[Tensor, ...] = ()
        self.output = torch.empty(0)

    def __call__(self, *arguments: Tensor) -> Tensor:
        """The function's result."""
        if self.device.type != "cuda":
            return self.function(*arguments)
        if not self.calls:
            self.inputs = tuple(argument.clone(memory_format=torch.contiguous_format) for argument in arguments)
        for static, given in zip(self.inputs, arguments, strict=True):
            static.copy_(given)
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._aside()
        if self.graph is None:
            self.graph = self._recorded()
        self.graph.replay()
        return self.output

    def _aside(self) -> Tensor:
        """On a stream of its own, as the recording will be: allocations made there are not disturbed later."""
        current = torch.cuda.current_stream(self.device)
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            result = self.function(*self.inputs)
        current.wait_stream(stream)
        return result

    def _recorded(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        # Other threads may go on with their own streams meanwhile.
        with _ONE_AT_A_TIME, torch.cuda.graph(graph, self.pool, capture_error_mode="thread_local"):
            self.output = self.function(*self.inputs)
        return graph


def graph_pool(device: torch.device) -> Pool | None:
    """Memory for graphs that run one after the other; None where there are no graphs."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None
