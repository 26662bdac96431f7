"""The paper's numbers, and its tables and figures filled with our results.

`fedeas.paper.reproduce("table1", profile="smoke")` makes the missing runs of a table and returns the table.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedeas.paper.reproduction import Places as Places
    from fedeas.paper.reproduction import Reproduction as Reproduction
    from fedeas.paper.reproduction import reproduce as reproduce

__all__ = ["Places", "Reproduction", "reproduce"]


def __getattr__(name: str) -> Any:
    """Load the names in `__all__` on first use: most users of this package need only the paper's numbers."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedeas.paper import reproduction

    return getattr(reproduction, name)
