"""A time limit that is checked between rounds."""

from hypothesis import given
from hypothesis import strategies as st

from fedeas.core.deadline import Deadline

SECONDS = st.floats(0, 1000)


@given(SECONDS, SECONDS, SECONDS, st.floats(0.1, 10), SECONDS)
def test_it_pauses_if_the_next_round_would_end_too_late_without_counting_one_time_work(train, test, once, minutes, now):
    times = iter([0.0, now])
    deadline = Deadline(minutes, lambda: next(times))
    record = {"seconds": {"generate": once, "prepare": once, "train": train, "evaluate": test}}
    assert deadline(record) == (60 * minutes - now < train + test)
