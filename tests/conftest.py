"""Property tests run the same examples everywhere; with `--hypothesis-profile thorough` they run many new ones.

They have no time limits. Tests leave no process behind.
"""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from leftovers import Warden

from fedeas.cli import main

for name, examples in {"fedeas": {"derandomize": True, "max_examples": 40}, "thorough": {"max_examples": 1000}}.items():
    settings.register_profile(name, deadline=None, suppress_health_check=[HealthCheck.too_slow], **examples)
settings.load_profile("fedeas")

collect_ignore = ["deploy/app", "flower/gated"]  # apps for Flower to load, not for pytest

WARDEN = pytest.StashKey[Warden]()


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[WARDEN] = Warden.start()
    os.fsync = lambda descriptor: None  # it takes milliseconds, and only a power failure could tell the difference


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """The modules imported now stay: the garbage collector need not look through them, now or in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config):
    config.stash[WARDEN].end()


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left(pytestconfig):
    """The first fixture to be set up, and so the last to end."""
    yield
    assert pytestconfig.stash[WARDEN].left() == []


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process; give back exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call
