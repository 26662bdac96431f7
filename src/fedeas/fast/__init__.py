"""Everything that exists only for speed on a GPU: captured steps, stacked models, lanes, overlapping rounds.

This is the room's only entry point. Callers of `federation.run.execute` pass it `backend_for`; without it, runs are
slower and the same.
"""

from fedeas.fast.backend import backend_for, gpu_engine

__all__ = ["backend_for", "gpu_engine"]
