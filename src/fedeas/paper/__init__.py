"""The paper: its numbers, and its tables and figures with ours beside them.

`fedeas.paper.reproduce("table1", profile="smoke")` makes the runs of a table that are missing and returns it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedeas.paper.reproduction import Places as Places
    from fedeas.paper.reproduction import Reproduction as Reproduction
    from fedeas.paper.reproduction import reproduce as reproduce

__all__ = ["Places", "Reproduction", "reproduce"]


def __getattr__(name: str) -> Any:
    """They are loaded when they are asked for: most users of this package want the paper's numbers alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedeas.paper import reproduction

    return getattr(reproduction, name)
