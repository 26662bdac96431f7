"""How tests wait: for an event, with a limit that only a hang can reach, however busy the machine is."""

import time

LIMIT = 600.0
"""Seconds. A test that waits this long hangs."""

PAUSE = 0.02
"""Seconds between two checks."""


def wait_until(happened, describe=lambda: ""):
    """Wait until `happened()` is true and return its value; after the limit fail with `describe()`."""
    end = time.monotonic() + LIMIT
    while not (value := happened()):
        assert time.monotonic() < end, f"{happened} did not become true within {LIMIT:g} s; {describe()}"
        time.sleep(PAUSE)
    return value
