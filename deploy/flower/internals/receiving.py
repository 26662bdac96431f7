"""A SuperNode that forgets a message whose run ends while the node fetches it.

Flower's node makes a task for a message before it fetches the content. If the fetch fails, the node removes both again,
but not if it fails because the run has ended: that exception is not an `Exception`, so the removal is skipped. The
task's answer would then be taken for the answer to the next message, and every later answer would wait for one more
message. Here that exception becomes an ordinary error, so that the node removes the task as after any other failure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from flwr.supercore.run import RunNotRunningException
from flwr.supernode import start_client_internal

FETCHES = ("pull_object", "confirm_message_received")
"""The arguments that talk to the server after the task has been made."""


class RunEndedError(Exception):
    """The run ended while a message of it was fetched."""


def forget_ended_runs() -> str | None:
    """Make the node forget such messages; return why not, if it cannot."""
    original = start_client_internal._pull_and_store_message
    if not set(FETCHES) <= set(inspect.signature(original).parameters):
        return f"{start_client_internal.__name__} is not as expected"

    @wraps(original)
    def pull_and_store(**arguments: Any) -> int | None:
        return original(**{**arguments, **{name: _ordinary(arguments[name]) for name in FETCHES}})

    vars(start_client_internal)["_pull_and_store_message"] = pull_and_store
    return None


def _ordinary(fetch: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with an ordinary error for a run that has ended."""

    @wraps(fetch)
    def call(*arguments: Any) -> Any:
        try:
            return fetch(*arguments)
        except RunNotRunningException:
            raise RunEndedError("its run has ended") from None

    return call
