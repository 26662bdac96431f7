"""Errors while something is fetched from the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedeas.core.errors import InputError


@contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Turn any error of a download into one line: what cannot be fetched, why, and what to do instead."""
    try:
        yield
    except Exception as error:  # errors of network, hub and disk have many unrelated types
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{what} cannot be fetched from the Hugging Face Hub ({reason}); "
            f"check the name and the network, or {remedy}"
        ) from None
