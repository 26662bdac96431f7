"""A limit that is kept at the ends of rounds."""

from hypothesis import given
from hypothesis import strategies as st

from fedeas.core.deadline import Deadline

SECONDS = st.floats(0, 1000)


@given(SECONDS, SECONDS, SECONDS, st.floats(0.1, 10), SECONDS)
def test_it_pauses_when_another_round_without_what_is_done_once_would_end_too_late(train, test, once, minutes, now):
    times = iter([0.0, now, now])
    deadline = Deadline(minutes, lambda: next(times))
    record = {"seconds": {"generate": once, "prepare": once, "train": train, "evaluate": test}}
    assert deadline(record) == (60 * minutes - now < train + test)
    assert deadline.left == 60 * minutes - now
