"""What does Flower's way of passing messages cost: a process for each, pauses, and a wait for a killed node?

Two nodes on loopback with TLS and keys, a small network on digits, so that nearly all of a round is messages.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from measure import save, seconds

from deploy.flower.one_machine import OneMachine, kill_group
from fedeas.config import load_config
from fedeas.flower.operator import Operator
from fedeas.runs.store import RunStore

NODES = 2
SETTINGS = [f"partition.clients={NODES}", "rounds.total=6", "rounds.participation=1.0", "train.epochs=1"]
PULL = re.compile(r"^(\S+)Z INFO .*POST /v1/fleet/pull-messages", re.MULTILINE)
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
    return median(sum(record["seconds"].values()) for record in store.open(config).rounds()[1:])


def pause(deployment: OneMachine) -> float:
    """The median time between two questions of a node that has nothing to do; the other node has ended."""
    log = deployment.log("server")
    begin = log.stat().st_size
    time.sleep(30)
    with log.open() as file:
        file.seek(begin)
        asked = [datetime.fromisoformat(found[1]) for found in PULL.finditer(file.read())]
    return median((after - before).total_seconds() for before, after in pairwise(asked))


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
        kill_group(deployment.nodes.pop(0))
        measured["between two questions of an idle node"] = pause(deployment)
    rows: list[dict[str, object]] = [{"what": what, "s": round(found, 1)} for what, found in measured.items()]
    save("flower-messages", f"{NODES} real nodes on loopback, small CNN on digits, one local epoch", rows)
