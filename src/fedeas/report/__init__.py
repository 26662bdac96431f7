"""What came of some runs, as one page to read or mail."""

from fedeas.report.page import write_report

__all__ = ["write_report"]
