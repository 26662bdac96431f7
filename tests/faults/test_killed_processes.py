"""Processes killed at random moments change nothing in what a run computes."""

import json
import os
import subprocess
import sys

import pytest
import torch
from federation.engines.six_clients import assert_same, trained, worker
from federation.engines.unruly import Doomed
from safetensors.torch import load_file
from waiting import LIMIT

from fedeas.core.devices import torch_threads
from fedeas.federation.engines.processes import ProcessesEngine
from fedeas.federation.worker import LocalEngine
from fedeas.runs.store import RunStore

FEDERATION = ["partition.clients=4", "rounds.total=6", "rounds.participation=0.75", "train.epochs=1", "train.lr=0.05",
              "engine.threads=1", "policy=fedeas(beta=2)", "algorithm=scaffold"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_worker_processes_may_be_killed_at_any_moment(tmp_path, caplog, seed):
    with torch_threads(1):
        expected = trained(LocalEngine(worker()), rounds=4, participants=5)
        engine = ProcessesEngine(worker(Doomed(tmp_path, times=3, seed=seed)), 2)
        try:
            assert_same(expected, trained(engine, rounds=4, participants=5))
        finally:
            engine.close()
    assert caplog.text.count("trained again") >= 2


POWER_CUTS = """
import json, os, random, signal, sys
from pathlib import Path
from flower.grids import StraightGrid
from fedeas.federation import checkpoint
from fedeas.config import load_config
from fedeas.federation.run import execute
from fedeas.flower.app import run_on
from fedeas.runs.store import RunStore

folder, overrides = Path(sys.argv[1]), json.loads(sys.argv[2])
checkpoint.SHARE = float("inf")  # after every round

def attempt(name, seconds=0.0):
    '''In a child, which the kernel ends after so many seconds of work; how it ended, and what it worked.'''
    child = os.fork()
    if child:
        _, status, used = os.wait4(child, 0)
        return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    signal.setitimer(signal.ITIMER_PROF, seconds)
    if name == "local":
        execute(load_config(None, overrides), RunStore(folder / name))
    else:
        config = load_config(None, [*overrides, "engine.name=flower"])
        run_on(StraightGrid(folder / f"nodes-{name}", 4), config, RunStore(folder / name))
    os._exit(0)

assert attempt("local")[0] == 0
code, whole = attempt("undisturbed")
assert code == 0
draw = random.Random(0)
ends = [attempt("disturbed", draw.uniform(0.05, 0.45) * whole)[0] for _ in range(5)]
assert set(ends) <= {0, -signal.SIGPROF}, ends
assert attempt("disturbed")[0] == 0
print(json.dumps(ends))
"""


@pytest.mark.slow
def test_a_whole_flower_federation_may_lose_power_at_any_moment(tmp_path):
    """Server and clients are one process here, so that all end in the middle of the same moment."""
    pytest.importorskip("flwr", reason="needs Flower: pip install 'fedeas[flower]'", exc_type=ImportError)
    overrides = json.dumps(FEDERATION)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", POWER_CUTS, tmp_path, overrides],
        env=environment, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert sum(code != 0 for code in json.loads(done.stdout.splitlines()[-1])) >= 2
    [local] = RunStore(tmp_path / "local").all()
    expected = server_arrays(local)
    for name in ("undisturbed", "disturbed"):
        [run] = RunStore(tmp_path / name).all()
        assert [record["round"] for record in run.rounds()] == [1, 2, 3, 4, 5, 6]
        found = server_arrays(run)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def server_arrays(run):
    return {name: tensor for name, tensor in load_file(run.checkpoint).items() if name.startswith("server/")}
