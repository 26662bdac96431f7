"""Streams for work beside the main chain of kernels: the kernels of few clients do not fill a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor


@contextmanager
def beside_backward(*read: Tensor) -> Iterator[None]:
    """A context whose work runs beside the rest of the backward pass, and after all that was launched before it.

    The end of the pass waits for it. The tensors that it reads are kept until then, so that their memory is not used
    for others.
    """
    stream = _stream(read[0].device, "backward")
    with _following(stream):
        yield

    def join(*_: Tensor) -> None:
        torch.cuda.current_stream().wait_stream(stream)

    torch.autograd.Variable._execution_engine.queue_callback(partial(join, *read))


def branch(work: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, Callable[[], None]]:
    """The result of `work`, which runs on a separate stream, and a function that waits for it.

    In the backward pass torch runs the same part on the same stream. Keep the tensors that `work` reads until the wait.
    """
    stream, current = _stream(device, "branch"), torch.cuda.current_stream(device)
    with _following(stream):
        result = work()
    return result, partial(current.wait_stream, stream)


@contextmanager
def _following(stream: torch.cuda.Stream) -> Iterator[None]:
    """Launch on this stream, which first waits for what was launched on the current one."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


@cache
def _stream(device: torch.device, _: str) -> torch.cuda.Stream:
    """One stream of a device for each purpose."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
