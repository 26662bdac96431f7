"""CUDA graphs, kernels, streams and memory: code that exists only for speed on a GPU.

This is the room's only entry point. `fast` and `generators` use it; all else computes without it. Kernels need Triton:
`load_kernels` imports them when they are first used.
"""

from fedeas.gpu.compiling import compile_ahead
from fedeas.gpu.cuda_graphs import WARM_UP, Captured, exclusively, graph_pool, on_recordable_stream
from fedeas.gpu.memory import free_memory, load_kernels, upload, values_of, waking
from fedeas.gpu.side_streams import beside_backward, branch

__all__ = [
    "WARM_UP",
    "Captured",
    "beside_backward",
    "branch",
    "compile_ahead",
    "exclusively",
    "free_memory",
    "graph_pool",
    "load_kernels",
    "on_recordable_stream",
    "upload",
    "values_of",
    "waking",
]
