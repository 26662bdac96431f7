"""Processes that are killed at any moment, started again, and end with what an undisturbed one leaves."""

import json
import os
import subprocess
import sys

import crashes
import pytest

# diffusers makes an array of a tensor in a way that numpy 2 wants otherwise; only tests make errors of such warnings.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def killed(how, folder, count=0):
    """How often each work was killed in its part of the folder."""
    command = [sys.executable, crashes.__file__, str(folder), how, str(count)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def undisturbed(work, folder):
    folder.mkdir()
    crashes.WORK[work](folder)
    return crashes.OUTCOME[work](folder)


def test_kills_at_one_moment_after_the_other_leave_no_trace(tmp_path):
    kills = killed("chain", tmp_path / "killed")
    for work in crashes.WORK:
        assert kills[work] >= 5
        assert crashes.OUTCOME[work](tmp_path / "killed" / work) == undisturbed(work, tmp_path / work)


@pytest.mark.soak
@pytest.mark.parametrize(("how", "count"), [("each", 0), ("random", 200)])
def test_a_kill_at_any_moment_leaves_no_trace(how, count, tmp_path, tried):
    kills = killed(how, tmp_path / "killed", count)
    for work in crashes.WORK:
        whole = undisturbed(work, tmp_path / work)
        folders = list((tmp_path / "killed" / work).iterdir())
        assert all(crashes.OUTCOME[work](folder) == whole for folder in folders)
        tried(f"{work}: killed at {'every change of the disk' if how == 'each' else 'random moments'}", kills[work])
