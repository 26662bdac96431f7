"""A limit that is kept at the ends of rounds."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from fedeas.deadline import Deadline


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=30), st.floats(0.1, 10))
def test_it_pauses_before_a_round_as_long_as_the_last_would_end_too_late(rounds, minutes):
    clock = Clock()
    deadline = Deadline(minutes, clock)
    for took, end in zip(rounds, accumulate(rounds), strict=True):
        clock.now = end
        assert deadline() == (end + took > 60 * minutes)
        assert deadline.left == 60 * minutes - end
