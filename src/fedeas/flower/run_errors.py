"""How a run's server reaches the operator: Flower streams what it prints, and keeps the text of an exception."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedeas.core.errors import FedEASError, RunError
from fedeas.core.files import known_error
from fedeas.core.log import log

SENT = re.compile(r"fedeas ends with exit code (\d+): (.*)")


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


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Log an error that is made on purpose as one line, and end with its exit code in the exception's text.

    Flower would show the traceback, too, and a page about its own exit codes.
    """
    try:
        yield
    except (FedEASError, OSError) as error:
        known = error if isinstance(error, FedEASError) else known_error(error)
        if known is None:
            raise
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        line = " ".join(str(known).split())
        log.error("%s", line)
        raise RuntimeError(f"fedeas ends with exit code {known.exit_code}: {line}") from None


def error_in(details: str) -> FedEASError | None:
    """The error that ended a run, from Flower's details about it; None if it was not one of FedEAS.

    >>> error_in("ServerApp failed with exception: fedeas ends with exit code 2: no such file").exit_code
    2
    """
    found = SENT.search(details)
    if found is None:
        return None
    error = RunError(found[2])
    error.exit_code = int(found[1])
    return error
