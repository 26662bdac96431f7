"""Processes that are killed at any moment, started again, and end with what an undisturbed one leaves."""

import json
import os
import subprocess
import sys
from functools import cache

import crashes
import pytest

from fedeas.core.devices import torch_threads

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


HOWS = {"each": "every change of the disk", "random": "random moments"}
WORKS = {
    "run": "a run",
    "bank": "a bank of images",
    "training": "the training of a generator",
    "flower": "a Flower server with its nodes",
}


def killed(folder, count, works, hows):
    """How often each work was killed in its part of the folder, by how that was done."""
    command = [sys.executable, crashes.__file__, str(folder), str(count), ",".join(works), ",".join(hows)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a work leaves that nobody disturbs."""

    @cache
    def outcome(work):
        folder = tmp_path_factory.mktemp(work)
        with torch_threads(1):
            crashes.WORK[work](folder)
        return crashes.OUTCOME[work](folder)

    return outcome


def test_work_that_is_killed_again_and_again_or_done_by_eight_at_once_ends_as_it_should(tmp_path, undisturbed):
    works = ["run", "bank", "training"]
    kills = killed(tmp_path, 8, works, ["chain", "together"])
    for work in works:
        assert kills["chain"][work] >= 5
        assert kills["together"][work] == 0
        for how in kills:
            assert crashes.OUTCOME[work](tmp_path / how / work) == undisturbed(work)


@pytest.mark.soak
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("how", HOWS)
def test_a_kill_at_any_moment_leaves_no_trace(how, work, tmp_path, undisturbed, tried):
    if work == "flower":
        pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)
    kills = killed(tmp_path, 50, [work], [how])[how][work]
    for folder in (tmp_path / how / work).iterdir():
        assert crashes.OUTCOME[work](folder) == undisturbed(work)
    tried(f"{WORKS[work]}: killed at {HOWS[how]}", kills)
