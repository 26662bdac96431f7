"""What does Flower's way of passing messages cost: a process for each, pauses, and a wait for a killed node?

Two nodes on loopback train a small network on digits, so that messages take most of a round. Run it with PYTHONPATH=.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Thread

from measure import save, seconds

from deploy.flower.one_machine import OneMachine, kill_group
from deploy.flower.programs import end
from fedeas.config import load_config
from fedeas.flower.operator import Operator
from fedeas.runs.store import RunStore

NODES = 2
SETTINGS = [f"partition.clients={NODES}", "rounds.total=6", "rounds.participation=1.0", "train.epochs=1"]
RESTART = 5.0
"""Seconds after which systemd starts a node again that has ended."""


def one_process() -> float:
    """A process that imports what a message needs, as Flower starts one for each message."""
    return seconds(lambda: subprocess.run([sys.executable, "-c", "import fedeas.flower.app"], check=True))


def one_round(deployment: OneMachine) -> float:
    """The median over all rounds but the first, in which clients load their data."""
    config, store = load_config(None, SETTINGS), RunStore(deployment.folder / "runs")
    given = {"settings": config.model_dump_json(), "runs": str(store.root)}
    outcome = Operator(home=deployment.folder).run(None, given, lambda line: None)
    assert outcome.completed, outcome.details
    return median(sum(record["seconds"].values()) for record in store.all()[0].rounds()[1:])


def pause(deployment: OneMachine) -> float:
    """The median time between two questions of a node that has nothing to do; it connects through this process."""
    asked: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        Thread(target=forward, args=(door, deployment.port, asked), daemon=True).start()
        deployment.port = door.getsockname()[1]
        deployment.start_node(0)
        deployment.await_nodes()
        asked.clear()
        time.sleep(30)
    return median(
        after - before for before, after in pairwise(asked) if after - before > 0.5
    )  # one question is in parts


def forward(door: socket.socket, port: int, asked: list[float]) -> None:
    """Connect who comes to the door with the server; note when something is sent to the server."""

    def pump(source: socket.socket, target: socket.socket, noted: list[float]) -> None:
        while part := source.recv(65536):
            noted.append(time.monotonic())
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)

    while True:
        near, _ = door.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for ends in ((near, far, asked), (far, near, [])):
            Thread(target=pump, args=ends, daemon=True).start()


def return_after_a_kill(deployment: OneMachine) -> float:
    """Until a killed node is online again, if it is started again and again, as systemd does."""
    node = deployment.clients.read()[0]
    killed = time.monotonic()
    kill_group(deployment.nodes[0])
    while f"SuperNode ID: {node}" not in deployment.log("node0").read_text().partition("Killed")[2]:
        if deployment.ended == "node0":
            with deployment.log("node0").open("a") as log:
                log.write("Killed\n")
            time.sleep(RESTART)
            deployment.start_node(0)
        time.sleep(0.2)
    return time.monotonic() - killed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, OneMachine(Path(folder), NODES, {}) as deployment:
        measured = {
            "a round of two clients": one_round(deployment),
            "of it, a process that imports FedEAS and torch": one_process(),
            "until a killed node is online again": return_after_a_kill(deployment),
        }
        end(deployment.nodes[0])
        measured["between two questions of an idle node"] = pause(deployment)
    rows: list[dict[str, object]] = [{"what": what, "s": round(found, 1)} for what, found in measured.items()]
    save("flower-messages", f"{NODES} real nodes on loopback, small CNN on digits, one local epoch", rows)
