"""What does a round cost on real nodes: Flower's own, which start a process for each message, against ours?

Three nodes on loopback with TLS and keys, a small network on digits, so that nearly all of a round is messages. The
same keys and the same SuperLink serve both kinds of nodes, one after the other.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from statistics import median

from measure import save

from deploy.flower.connection import Scalar
from deploy.flower.environment import environment, program
from deploy.flower.loopback import Loopback
from deploy.flower.operator import run_app
from deploy.flower.processes import end, free_port
from fedeas.config import load_config
from fedeas.runs.store import RunStore

NODES = 3
SETTINGS = [f"partition.clients={NODES}", "rounds.total=6", "rounds.participation=1.0", "train.epochs=1"]


def seconds_a_round(loopback: Loopback, seed: int) -> float:
    """The median over all rounds but the first, in which clients load their data."""
    config, store = load_config(None, [*SETTINGS, f"seed={seed}"]), RunStore(loopback.folder / "runs")
    given: dict[str, Scalar] = {"settings": config.model_dump_json(), "runs": str(store.root)}
    outcome = run_app(loopback.superlink, None, given, lambda line: None)
    assert outcome.completed, outcome.details
    rounds = store.open(config).rounds()
    return median(sum(record["seconds"].values()) for record in rounds[1:])


def plain_nodes(loopback: Loopback) -> list[subprocess.Popen[bytes]]:
    """Flower's nodes as they come, in the place of ours."""
    end(node.process for node in loopback.state.nodes if node.process is not None)
    command = [program("flower-supernode"), "--superlink", f"127.0.0.1:{loopback.state.port}", "--host", "127.0.0.1"]
    command += ["--root-certificates", str(loopback.folder / "certificates" / "ca.pem"), "--max-retries", "20"]
    nodes = []
    for index in range(NODES):
        own = f'partition-id={index} num-partitions={NODES} state-dir="{loopback.folder}/plain{index}"'
        key = ["--auth-supernode-private-key", str(loopback.key(index)), "--port", str(free_port())]
        log = (loopback.folder / f"plain{index}.log").open("wb")
        nodes.append(
            subprocess.Popen(
                [*command, *key, "--node-config", own],
                env=environment(loopback.folder / f"home{index}"),
                stdout=log,
                stderr=log,
            )
        )
    while sum(node.status == "online" for node in loopback.superlink.nodes().values()) < NODES:
        time.sleep(0.2)
    return nodes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        loopback = Loopback(folder)
        stack.callback(loopback.down)
        loopback.up(NODES, {})
        ours = seconds_a_round(loopback, seed=0)
        nodes = plain_nodes(loopback)
        try:
            theirs = seconds_a_round(loopback, seed=1)
        finally:
            for node in nodes:
                node.terminate()
                node.wait()
    rows: list[dict[str, object]] = [
        {"nodes": "Flower's: a process for each message", "s a round": round(theirs, 2), "times": 1.0},
        {"nodes": "ours: one that stays and forks", "s a round": round(ours, 2), "times": round(theirs / ours, 1)},
    ]
    save("flower-messages", f"A round on {NODES} real nodes on loopback, small CNN on digits, one local epoch", rows)
