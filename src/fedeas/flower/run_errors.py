"""How an error of a run's server reaches the operator's command: Flower keeps the text of an exception alone."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedeas.core.errors import FedEASError, RunError
from fedeas.core.files import known_error
from fedeas.core.log import log

SENT = re.compile(r"fedeas ends with exit code (\d+): (.*)")


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
