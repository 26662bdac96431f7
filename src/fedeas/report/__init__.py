"""The results of runs as one HTML page. The module can be called: ``fedeas.report(runs)`` writes the page."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fedeas.report.page import write_report

__all__ = ["write_report"]


class _Callable(ModuleType):
    """A module that is a function as well: `fedeas.report` names both."""

    def __call__(self, *args: Any, **options: Any) -> Path:
        """See `fedeas.workflow.report`."""
        from fedeas.workflow import report

        return report(*args, **options)


sys.modules[__name__].__class__ = _Callable
