"""Processes that are killed at any moment, started again, and end with what an undisturbed one leaves."""

import json
import os
import subprocess
import sys

import crashes
import pytest

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def killed(folder, count, *hows):
    """How often each work was killed in its part of the folder, by how that was done."""
    command = [sys.executable, crashes.__file__, str(folder), str(count), *hows]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What each work leaves that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for work in crashes.WORK:
        (folder / work).mkdir()
        crashes.WORK[work](folder / work)
    return {work: crashes.OUTCOME[work](folder / work) for work in crashes.WORK}


def test_work_that_is_killed_again_and_again_or_done_by_eight_at_once_ends_as_it_should(tmp_path, undisturbed):
    kills = killed(tmp_path, 8, "chain", "together")
    for work, whole in undisturbed.items():
        assert kills["chain"][work] >= 5
        assert kills["together"][work] == 0
        for how in kills:
            assert crashes.OUTCOME[work](tmp_path / how / work) == whole


@pytest.mark.soak
@pytest.mark.parametrize("how", ["each", "random"])
def test_a_kill_at_any_moment_leaves_no_trace(how, tmp_path, undisturbed, tried):
    kills = killed(tmp_path, 50, how)[how]
    for work, whole in undisturbed.items():
        assert all(crashes.OUTCOME[work](folder) == whole for folder in (tmp_path / how / work).iterdir())
        tried(f"{work}: killed at {'every change of the disk' if how == 'each' else 'random moments'}", kills[work])
