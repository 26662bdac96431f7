"""An interrupted or killed pytest leaves none of the processes that its tests started."""

import importlib.util
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from leftovers import MARK, marked
from waiting import LIMIT, wait_until

TESTS = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("flwr") and importlib.util.find_spec("ray")),
    reason="needs Flower's simulation: pip install 'fedeas[flower]'",
)


def start_pytest(mark, folder, file):
    command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder / 'base'}", "-p", "no:cacheprovider", file]
    environment = {**os.environ, MARK: f"{os.environ[MARK]} {mark}"}
    with (folder / "output.txt").open("w") as output:
        options = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
        return subprocess.Popen(command, cwd=TESTS.parent, env=environment, **options)


def runs(mark, program):
    return any(program in " ".join(process.cmdline()) for process in marked(mark))


DEPLOYMENT = "flower/test_deployment.py", "flower-superexec"
SIMULATION = "flower/test_simulation.py", "raylet"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "program", "ending"),
    [(*DEPLOYMENT, signal.SIGINT), (*DEPLOYMENT, signal.SIGKILL), (*SIMULATION, signal.SIGINT)],
)
def test_no_process_is_left_by_a_pytest_that_ends_in_the_middle(tmp_path, file, program, ending):
    mark = uuid.uuid4().hex
    process = start_pytest(mark, tmp_path, TESTS / file)
    wait_until(lambda: runs(mark, program))
    process.send_signal(ending)
    process.wait(LIMIT)
    expected = pytest.ExitCode.INTERRUPTED if ending == signal.SIGINT else -signal.SIGKILL
    assert process.returncode == expected, (tmp_path / "output.txt").read_text()
    wait_until(lambda: not marked(mark))
