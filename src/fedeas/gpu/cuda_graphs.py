"""CUDA graphs: fixed GPU work is recorded once and then replayed, with almost no launch cost."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from fedeas.gpu.compiling import compile_ahead
from fedeas.gpu.memory import clear_workspaces

Pool = Any  # a handle of torch

WARM_UP = 3
"""Calls before the recording: in the first ones libraries choose their kernels and allocate memory."""

_ONE_AT_A_TIME = threading.Lock()


class _Streams(threading.local):
    """The streams of a thread, by device."""

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}


_OF_THIS_THREAD = _Streams()


class Captured:
    """A function over tensors of fixed shapes; on a GPU it becomes a CUDA graph, elsewhere it is simply called.

    Every call does the function's work once, also during warm-up. Tensors that the function reads besides its arguments
    must stay at the same address. The next call overwrites the result.

    Args:
        function: takes and returns tensors; no synchronisation, no copies from or to the host.
        device: the device that it works on.
        generators: random streams that the function draws from.
        pool: memory shared with other graphs that never run at the same time, from `graph_pool`.
        warm_up: calls before the recording.
        pure: whether the function only writes its result; its kernels are then compiled on all cores.
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        device: torch.device,
        generators: tuple[torch.Generator, ...] = (),
        pool: Pool | None = None,
        warm_up: int = WARM_UP,
        pure: bool = False,
    ) -> None:
        self.function = function
        self.device = device
        self.generators = generators
        self.pool = graph_pool(device) if pool is None else pool
        self.warm_up, self.pure = warm_up, pure
        self.calls = 0
        self.seconds = 0.0  # spent before the first replay, including compilation
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: tuple[Tensor, ...] = ()
        self.output = torch.empty(0)

    def __call__(self, *arguments: Tensor) -> Tensor:
        """Do the function's work and return its result."""
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
                # torch has one thread for all backward passes: an eager pass must not run in the middle of a
                # recording. That is the likely cause of an error that cuDNN once raised.
                with exclusively(), on_recordable_stream(self.device):
                    if self.pure and self.calls == 1:
                        compile_ahead(lambda: self.function(*self.inputs))
                    result = self.function(*self.inputs)
                self.seconds += time.perf_counter() - start
                return result
            self.graph = self._record()
            self.seconds += time.perf_counter() - start
        self.graph.replay()
        return self.output

    def _record(self) -> torch.cuda.CUDAGraph:
        """Record without `torch.cuda.graph`, which would wait for all streams and stop the other lanes."""
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with exclusively(), on_recordable_stream(self.device), _own_workspaces():
            graph.capture_begin(self.pool, "thread_local")
            try:
                self.output = self.function(*self.inputs)
            except BaseException:
                with suppress(RuntimeError):  # ending the failed recording also raises; the first error matters
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph


@contextmanager
def on_recordable_stream(device: torch.device) -> Iterator[None]:
    """Use the current stream or, if that is the default stream, which cannot be recorded, one of this thread.

    The work of a thread before a recording must run on the same stream. If something still refers to an earlier pass,
    the end of a backward pass waits for that pass's stream (pytorch/pytorch#189591). A recording must not wait for a
    stream that is not recorded.
    """
    current = torch.cuda.current_stream(device)
    if current != torch.cuda.default_stream(device):
        yield
        return
    if device not in _OF_THIS_THREAD.streams:
        _OF_THIS_THREAD.streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    own = _OF_THIS_THREAD.streams[device]
    own.wait_stream(current)
    with torch.cuda.stream(own):
        yield
    current.wait_stream(own)


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """Let matrix products take their workspaces from the memory of the graph that is recorded.

    Torch makes a workspace for each thread and stream and keeps it. If it were made during a recording and kept, it
    would hold all memory of the graph, even when the graph is gone. One from before would still be written to by the
    graph after `clear_workspaces` has freed it.
    """
    clear_workspaces()
    try:
        yield
    finally:
        clear_workspaces()


@contextmanager
def exclusively() -> Iterator[None]:
    """Keep other threads from warming up or recording, and the garbage collector from destroying graphs."""
    with _ONE_AT_A_TIME:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()


def graph_pool(device: torch.device) -> Pool | None:
    """Memory for graphs that run one after the other; None on devices without CUDA."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None
