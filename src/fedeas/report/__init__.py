"""The results of runs as one HTML page."""

from fedeas.report.page import write_report

__all__ = ["write_report"]
