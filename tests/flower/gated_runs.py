"""Real deployments whose server and nodes wait at gates (see `gated.py`), and runs on them."""

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from waiting import LIMIT, wait_until

from fedeas.config import load_config
from fedeas.federation.run import identified

GATED = Path(__file__).parent / "gated"


class Gates:
    """Where the server and the nodes wait; see `gated.py`."""

    def __init__(self, folder):
        self.folder = folder

    def close(self, *names):
        self.folder.mkdir(exist_ok=True)
        for name in names:
            (self.folder / name).touch()

    def open(self, name):
        (self.folder / name).unlink()


@contextmanager
def gated_deployment(folder, nodes, gates):
    """A deployment on loopback that runs during a ``with`` block."""
    from flower.deployments import deployed  # Flower may not be installed

    path = os.pathsep.join(filter(None, (str(GATED), os.environ.get("PYTHONPATH"))))
    surroundings = {"GATES": str(gates.folder), "PYTHONPATH": path}
    with deployed(folder, nodes, environment=surroundings, options=["--app", str(GATED)]) as deployment:
        yield deployment


class Started:
    """A run on the deployment, in the background."""

    def __init__(self, loopback, store, overrides):
        self.config = identified(load_config(None, overrides))
        self.log, self.outcome, self.failure = [], None, None
        given = {"overrides": json.dumps(overrides), "runs": str(store.root)}

        def work():
            try:
                self.outcome = loopback.run(GATED, given, self.log.append)
            except Exception as error:
                self.failure = error

        self.thread = threading.Thread(target=work, daemon=True)  # of a killed server nobody hears the end
        self.thread.start()

    def wait_for(self, gates, name):
        """Wait until a process is at the gate."""

        def reached():
            assert self.thread.is_alive(), (self.failure, self.log[-30:])
            return (gates.folder / f"{name}.reached").exists()

        wait_until(reached, lambda: self.log[-30:])

    def wait(self):
        self.thread.join(LIMIT)
        assert not self.thread.is_alive(), self.log[-30:]
        assert self.outcome is not None, self.failure
        return self.outcome


def assert_same(one, other):
    arrays = [{name: tensor for name, tensor in load_file(run.checkpoint).items() if name.startswith("server/")}
              for run in (one, other)]  # fmt: skip
    assert arrays[0].keys() == arrays[1].keys()
    assert all(torch.equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
