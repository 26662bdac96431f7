"""Fixtures for tests of generators."""

import pytest

from fedeas.core import devices


@pytest.fixture
def with_bf16(monkeypatch):
    """A processor that computes in bf16, for tests that choose it but do not compute."""
    monkeypatch.setattr(devices, "computes_in_bf16", lambda: True)
