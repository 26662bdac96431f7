"""The results of runs as one HTML page. The module can be called: ``fedeas.report(runs)`` writes the page."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from fedeas.core.files import PathLike
from fedeas.runs.store import Run, read_run
from fedeas.views.report.page import write_report

__all__ = ["write_report"]


class _ReportModule(ModuleType):
    """A module that is a function as well: `fedeas.report` names both."""

    def __call__(
        self,
        runs: Run | PathLike | Iterable[Run | PathLike],
        out: PathLike = "report.html",
        title: str = "FedEAS report",
        reference: str | None = None,
    ) -> Path:
        """Write one self-contained HTML page about some runs, given as runs or run directories; return its path.

        Methods are compared with the `reference`, the label or name of one of them, by default with FedEAS.
        """
        given = [runs] if isinstance(runs, Run | str | os.PathLike) else list(runs)
        write_report([each if isinstance(each, Run) else read_run(each) for each in given], out, title, reference)
        return Path(out)


sys.modules[__name__].__class__ = _ReportModule
