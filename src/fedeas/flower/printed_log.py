"""The log of FedEAS as printed lines: a node's are its log, and Flower streams the server's to the operator."""

from __future__ import annotations

import logging

from fedeas.core.log import log


def print_log() -> None:
    """Print the log of FedEAS, and no other."""
    log.setLevel(logging.INFO)
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_WithLevel())
        log.addHandler(handler)
    log.propagate = False


class _WithLevel(logging.Formatter):
    """Puts the level before warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"{record.levelname.lower()}: {text}" if record.levelno > logging.INFO else text
