"""What a field may hold, declared with its type: ``mu: NotNegative``. Objects check their fields when they are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from fedeas.core.errors import FedEASError, InputError


class Limit(NamedTuple):
    """What a value must be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


def number(words: str, within: Callable[[Any], bool]) -> Limit:
    """A finite number within some bounds."""
    return Limit(words, lambda value: _is_number(value) and abs(value) < math.inf and within(value))


def whole(least: int) -> Limit:
    """A whole number with a lower bound."""
    return Limit(f"a whole number, {least} or more", lambda value: _is_whole(value) and value >= least)


Positive = Annotated[float, number("a finite number above 0", lambda value: value > 0)]
NotNegative = Annotated[float, number("a finite number, 0 or more", lambda value: value >= 0)]


def check_fields(owner: object, error: type[FedEASError] = InputError) -> None:
    """Refuse values beyond the limits of their fields, and words that are none of a field's choices."""
    for name, limit in _limits(type(owner)):  # type: ignore[arg-type]
        if not limit.holds(value := getattr(owner, name)):
            raise error(f"{name} must be {limit.words}, not {value!r}")


@cache
def _limits(kind: type) -> list[tuple[str, Limit]]:
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:  # a type that is local to a function
        return []
    return [(name, limit) for name, hint in hints.items() for limit in _limits_of(hint)]


def _limits_of(hint: Any) -> list[Limit]:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return [Limit(" or ".join(repr(each) for each in choices if each != ""), lambda value: value in choices)]
    if len(get_args(hint)) == 2 and NoneType in get_args(hint):  # X | None
        return [_or_none(limit) for each in get_args(hint) for limit in _limits_of(each)]
    if hint in PLAIN:
        return [PLAIN[hint]]
    return [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Limit)]


def _or_none(limit: Limit) -> Limit:
    return Limit(limit.words, lambda value: value is None or limit.holds(value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


PLAIN: dict[Any, Limit] = {
    bool: Limit("true or false", lambda value: isinstance(value, bool)),
    int: Limit("a whole number", _is_whole),
    float: Limit("a number", _is_number),
    str: Limit("text", lambda value: isinstance(value, str)),
}
"""What plain types say."""
