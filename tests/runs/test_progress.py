"""States of runs: running while a process holds the lock, stopped or finished otherwise."""

from datetime import datetime

from fedeas.config import RunConfig
from fedeas.runs.store import RunState, RunStore


def record(number):
    once = 100.0 * (number == 1)
    return {"round": number, "clients": [0], "seconds": {"train": 3.0, "generate": once, "prepare": once}}


def test_a_run_goes_from_running_to_stopped_to_finished(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    with run.locked():
        assert run.progress().state is RunState.RUNNING
        assert run.progress().seconds_left is None
        for number in (1, 2):
            run.append_round(record(number))
    now = run.progress()
    assert (now.state, now.rounds, now.total) == (RunState.STOPPED, 2, 200)
    assert now.seconds_left == 198 * 3.0  # images are made, and kernels compiled, once
    assert abs((datetime.now() - now.changed).total_seconds()) < 3600
    run.write_json("summary.json", {"rounds": 2})
    assert run.progress().state is RunState.FINISHED


def test_looking_at_a_run_creates_no_lock_and_keeps_none(tmp_path):
    run = RunStore(tmp_path).open(RunConfig())
    run.progress()
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json"]
    with run.locked():
        pass
    run.progress()
    with run.locked():
        pass
