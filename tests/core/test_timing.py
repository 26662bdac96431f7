"""How long a call takes is measured after torch has started."""

import time

import pytest
import torch

from fedeas.core.devices import seconds_of


@pytest.mark.parametrize(
    ("first", "usual", "measured", "most_calls"), [(1.7, 0.03, 0.03, 6), (1.7, 0.5, 0.5, 2), (60.0, 50.0, 60.0, 1)]
)
def test_what_torch_loads_in_a_first_call_is_not_measured(monkeypatch, first, usual, measured, most_calls):
    clock, calls = 0.0, 0

    def call():
        nonlocal clock, calls
        clock += usual if calls else first
        calls += 1

    monkeypatch.setattr(time, "perf_counter", lambda: clock)
    assert seconds_of(call, torch.device("cpu")) == pytest.approx(measured)
    assert calls == most_calls
