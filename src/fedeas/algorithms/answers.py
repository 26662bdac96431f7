"""Checks of the values that an algorithm's methods return, after each call: users write their own methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from torch import Tensor

from fedeas.algorithms.base import Reply
from fedeas.algorithms.local_sgd import Objective
from fedeas.core.errors import InputError


def _is_tensors(answer: object) -> bool:
    return isinstance(answer, Mapping) and all(isinstance(value, Tensor) for value in answer.values())


def _is_reply_and_state(answer: object) -> bool:
    match answer:
        case [Reply(), state]:
            return _is_tensors(state)
        case _:
            return False


_TENSORS = "a dictionary of tensors", _is_tensors

ANSWERS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "init": _TENSORS,
    "setup_client": ("a Reply or None", lambda answer: answer is None or isinstance(answer, Reply)),
    "setup_server": _TENSORS,
    "broadcast": _TENSORS,
    "objective": ("an Objective", lambda answer: isinstance(answer, Objective)),
    "client_update": ("a Reply and the client's state (a dictionary of tensors)", _is_reply_and_state),
    "server_update": _TENSORS,
}
"""For each method, a description of its answer and the test of it."""


def checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of this name with a check of its answer."""
    wanted, fits = ANSWERS[name]

    @wraps(method)
    def call(algorithm: Any, *given: Any, **named: Any) -> Any:
        answer = method(algorithm, *given, **named)
        if not fits(answer):
            raise InputError(f"{algorithm.spec}: {name} must return {wanted}, not {_types_in(answer)}")
        return answer

    return call


def _types_in(answer: object) -> str:
    """The type of an answer; of a tuple, the types in it; of a dictionary, those that are no tensors.

    >>> _types_in(None), _types_in(({"x": 1}, {}))
    ('NoneType', "({'x': int}, {})")
    """
    if isinstance(answer, tuple | list):
        return f"({', '.join(map(_types_in, answer))})"
    if isinstance(answer, Mapping):
        wrong = [f"{name!r}: {_types_in(value)}" for name, value in answer.items() if not isinstance(value, Tensor)]
        return f"{{{', '.join(wrong)}}}"
    return type(answer).__name__
