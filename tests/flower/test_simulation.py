"""Processes that exchange Flower's messages give the same result as one process, bit for bit."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from waiting import LIMIT

from fedeas.config import load_config
from fedeas.core.errors import StoppedError
from fedeas.federation.run import execute
from fedeas.runs.store import RunStore
from fedeas.views.report import report as write_report

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("flwr") and importlib.util.find_spec("ray")),
    reason="needs Flower's simulation: pip install 'fedeas[flower]'",
)

ROOT = Path(__file__).parents[2]
BASE = ["partition.clients=4", "rounds.total=3", "rounds.participation=0.75", "train.epochs=1", "train.lr=0.05",
        "engine.threads=1", "policy=fedeas(beta=2)"]  # fmt: skip
ALGORITHMS = {
    "scaffold": ["algorithm=scaffold"],
    "fedmix": ["algorithm=fedmix(mash=4)", "engine.share_counts=true"],
}
SEVERAL = """
import json, sys
from pathlib import Path
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from fedeas.config import load_config
from fedeas.views.report import report as write_report
from fedeas.flower.app import client, run_on, simulated_machine
from fedeas.runs.store import RunStore

folder, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
server = ServerApp()

@server.main()
def main(grid, context):
    for overrides in runs:
        run_on(grid, load_config(None, [*overrides, "engine.name=flower"]), RunStore(folder))

with simulated_machine(folder / ".clients") as resources:
    run_simulation(server, client, num_supernodes=4, backend_config=resources)
"""


def in_another_process(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def assert_same_run(overrides, folder, tmp_path):
    config = load_config(None, overrides)
    [flower] = [run for run in RunStore(folder).all() if run.config.algorithm == config.algorithm]
    local = execute(config, RunStore(tmp_path / "local"))
    one, other = ({name: tensor for name, tensor in load_file(run.checkpoint).items() if name.startswith("server/")}
                  for run in (local, flower))  # fmt: skip
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert [record["accuracy"] for record in local.rounds()] == [record["accuracy"] for record in flower.rounds()]


@pytest.mark.slow
def test_several_algorithms_run_in_one_simulation(tmp_path):
    runs = [[*BASE, *own] for own in ALGORITHMS.values()]
    in_another_process("-c", SEVERAL, tmp_path / "flower", json.dumps(runs))
    for overrides in runs:
        assert_same_run(overrides, tmp_path / "flower", tmp_path)


def test_the_command_line_starts_a_simulation_also_with_code_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    asked = [*BASE, *ALGORITHMS["scaffold"], "generator=python:examples.custom_generator:stripes"]
    said = in_another_process("-m", "fedeas", "run", *asked, "--engine", "flower", "--runs", tmp_path / "flower")
    assert "run" in said
    assert_same_run(asked, tmp_path / "flower", tmp_path)
    write_report(RunStore(tmp_path / "flower").all(), tmp_path / "r.html")
    assert "the counts stayed with the clients" in (tmp_path / "r.html").read_text()


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
from fedeas.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_process_of_a_simulation_in_one_line(tmp_path):
    asked = ["run", *BASE, "rounds.total=500", "--engine", "flower", "--runs", str(tmp_path)]
    command = [sys.executable, "-c", INTERRUPTIBLE, *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "round 1 of" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == StoppedError.exit_code
    assert [line for line in said.splitlines() if "stopped after round" in line] == said.splitlines()


def test_a_simulation_uses_the_cores_that_this_process_may_use(tmp_path, monkeypatch):
    from fedeas.flower.app import simulated_machine

    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    with simulated_machine(tmp_path) as resources:
        assert resources["init_args"]["num_cpus"] == 1
