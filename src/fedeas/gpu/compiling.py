"""Compile Triton kernels on all cores: one after the other, the first run on a machine would wait for each of them."""

from __future__ import annotations

import json
import multiprocessing
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedeas.core.arrays import cores
from fedeas.core.errors import log

try:
    import triton
    from triton.compiler import ASTSource
except ImportError:  # it comes with torch for GPUs
    triton = None

ON_DISK = 0.05
"""A kernel that is ready within this many seconds was compiled before and read from Triton's cache."""

PATIENCE = 120.0
"""Seconds after which processes that do not end are given up."""


class Kernel(NamedTuple):
    """A kernel for arguments of certain types, with everything that its compilation depends on."""

    source: Any
    target: Any
    options: dict[str, Any]

    def compile(self) -> None:
        """Compile it, and the C function that launches it, into Triton's cache on disk, or find them there."""
        compiled = triton.compile(self.source, target=self.target, options=self.options)
        triton.runtime.driver.active.launcher_cls(compiled.src, compiled.metadata)


def compile_ahead(work: Callable[[], object], *more: Callable[[], object]) -> None:
    """Compile the kernels that `work` would be the first to launch; if they are not on disk, also those of `more`.

    Calls `work` once and leaves these kernels out, so its result is nonsense, and so is all that it writes.
    """
    if triton is None:
        return
    try:
        kernels = _left_out_of(work)
        if len(kernels) > 1:
            start = time.perf_counter()
            next(iter(kernels.values())).compile()
            if time.perf_counter() - start >= ON_DISK:
                _compile_together(list((kernels | _left_out_of(*more)).values()))
    except Exception as error:  # nothing is lost: they are compiled when they are first launched
        log.info("kernels are compiled one by one: %s", error)


def _left_out_of(*works: Callable[[], object]) -> dict[object, Kernel]:
    """Call these functions without the kernels that are not compiled yet; return these, by name and arguments."""
    found: dict[object, Kernel] = {}
    target = triton.runtime.driver.active.get_current_target()  # the children must not ask: the GPU is not theirs

    def leave_out(*, fn: Any, compile: dict[str, Any], **_: object) -> bool:
        content = json.loads(compile["specialization_data"])
        options = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content["options"].items()
        }
        source = ASTSource(fn.jit_function, compile["signature"], compile["constants"], compile["configs"][0])
        found[fn.name, compile["key"]] = Kernel(source, target, options)
        return True

    # Triton asks this hook before it compiles; if the answer is yes, it neither compiles nor launches.
    runtime = triton.knobs.runtime
    before, runtime.jit_cache_hook = runtime.jit_cache_hook, leave_out
    try:
        for work in works:
            work()
    finally:
        runtime.jit_cache_hook = before
    return found


def _compile_together(kernels: Sequence[Kernel]) -> None:
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Python warns about forks of processes with threads. The children only compile; they use no GPU or thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        fork = multiprocessing.get_context("fork")
        _to_compile[:] = kernels  # the children inherit it
        with fork.Pool(min(cores(), len(kernels))) as pool:
            pool.map_async(_compile_number, range(len(kernels)), chunksize=1).get(PATIENCE)
    log.debug("compiled %d kernels in %.1f s", len(kernels), time.perf_counter() - start)


_to_compile: list[Kernel] = []


def _compile_number(number: int) -> None:
    _to_compile[number].compile()
