"""FedEAS as a Flower app that waits at gates, so that a test decides what happens meanwhile.

A gate is closed if the folder of gates has a file with its name; whoever comes to it writes a file NAME.reached beside
it, and goes on when the gate's file is gone.
"""

import json
import os
import time
from pathlib import Path

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedeas.config import load_config
from fedeas.flower import app as flower_app
from fedeas.flower.operator import print_log
from fedeas.flower.wire import header_of
from fedeas.runs.store import RunStore

server = ServerApp()


def come_to(name):
    gate = Path(os.environ["GATES"]) / name
    if gate.exists():
        gate.with_suffix(".reached").touch()
    while gate.exists():
        time.sleep(0.02)


@server.main()
def main(grid, context):
    """Wait after each round, before the next."""
    config = load_config(None, [*json.loads(context.run_config["overrides"]), "engine.name=flower"])
    store = RunStore(context.run_config["runs"])
    print_log()
    members = {int(client): node for client, node in json.loads(context.run_config["members"]).items()}
    flower_app.run_on(grid, config, store, lambda record: come_to(f"server-{record['round']}"), members)


class GatedClient(ClientApp):
    """Waits before it trains; rounds count from 1, as in the records."""

    def __call__(self, message, context):
        if message.metadata.message_type == "train":
            come_to(f"client{context.node_config['partition-id']}-{header_of(message.content)['round'] + 1}")
        return flower_app.client(message, context)


client = GatedClient()
