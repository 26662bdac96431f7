"""CUDA graphs: a fixed piece of GPU work is recorded once and replayed, so that launching it costs nothing."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

Pool = Any  # a handle of torch

WARM_UP = 3
"""Calls before the recording: libraries choose their kernels and allocate in the first ones."""

_ONE_AT_A_TIME = threading.Lock()


class Captured:
    """A function over tensors of fixed shapes; on a GPU it becomes a CUDA graph, elsewhere it is simply called.

    Every call does the function's work once, the warm-up included. What the function reads besides its arguments
    must stay at the same address. The result is overwritten by the next call.

    Args:
        function: takes and gives tensors; no synchronisation, no copies from or to the host.
        device: where it works.
        generators: random streams that the function draws from.
        pool: memory that is shared with other graphs, which must not run at the same time; `graph_pool` makes one.
        warm_up: calls before the recording.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        device: torch.device,
        generators: tuple[torch.Generator, ...] = (),
        pool: Pool | None = None,
        warm_up: int = WARM_UP,
    ) -> None:
        self.function = function
        self.device = device
        self.generators = generators
        self.pool = graph_pool(device) if pool is None else pool
        self.warm_up = warm_up
        self.calls = 0
        self.seconds = 0.0  # before the first replay, compiling included
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
        if self.graph is None:
            start = time.perf_counter()
            if self.calls <= self.warm_up:
                # torch has one thread for all backward passes: an eager one should not come between the parts of a
                # recording, which is the likely cause of an error of cuDNN that was seen.
                with _undisturbed(), self._aside():
                    result = self.function(*self.inputs)
                self.seconds += time.perf_counter() - start
                return result
            self.graph = self._recorded()
            self.seconds += time.perf_counter() - start
        self.graph.replay()
        return self.output

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """On a stream that can be recorded: the current one, unless that is the default stream of all."""
        current = torch.cuda.current_stream(self.device)
        if current != torch.cuda.default_stream(self.device):
            yield
            return
        self._own_stream.wait_stream(current)
        with torch.cuda.stream(self._own_stream):
            yield
        current.wait_stream(self._own_stream)

    @cached_property
    def _own_stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """`torch.cuda.graph` would wait for all streams and empty the cache; other lanes are to go on meanwhile."""
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with _undisturbed(), self._aside():
            graph.capture_begin(self.pool, "thread_local")
            try:
                self.output = self.function(*self.inputs)
            except BaseException:
                with suppress(RuntimeError):  # of the broken recording: the first error is the one to see
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No other thread warms up or records, and the garbage collector destroys no graph meanwhile."""
    with _ONE_AT_A_TIME:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()


def graph_pool(device: torch.device) -> Pool | None:
    """Memory for graphs that run one after the other; None where there are no graphs."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None
