"""Limits of fields: which values hold, and what is said about the others."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from fedeas.core.errors import InputError
from fedeas.core.spec import NotNegative, check_fields, whole


@dataclass(frozen=True)
class Sizes:
    plain: int = 5
    limited: Annotated[int, whole(2)] = 5


@pytest.mark.parametrize("field", ["plain", "limited"])
@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)])
def test_whole_numbers_of_every_type_are_accepted(field, value):
    check_fields(Sizes(**{field: value}))


@pytest.mark.parametrize("field", ["plain", "limited"])
@pytest.mark.parametrize("value", [True, np.True_, 2.0, np.float64(2), "2", None])
def test_what_is_no_whole_number_is_refused(field, value):
    with pytest.raises(InputError, match=f"{field} must be a whole number"):
        check_fields(Sizes(**{field: value}))


@pytest.mark.parametrize("value", [1, np.int64(1)])
def test_whole_numbers_below_the_limit_are_refused(value):
    with pytest.raises(InputError, match="limited must be a whole number, 2 or more"):
        check_fields(Sizes(limited=value))


@dataclass(frozen=True)
class Choices:
    solver: Literal["", "fast", "exact"] = ""
    weight: NotNegative | None = None
    several: int | str | None = None


def test_a_field_may_be_left_empty():
    check_fields(Choices())
    check_fields(Choices("fast", 0.5, "any"))


@pytest.mark.parametrize(("field", "value"), [("solver", "slow"), ("weight", -1), ("weight", "heavy")])
def test_a_field_that_may_be_empty_still_has_limits(field, value):
    with pytest.raises(InputError, match=f"{field} must be ('fast' or 'exact'|a finite number, 0 or more), not"):
        check_fields(Choices(**{field: value}))
